// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The suite's cases as tests of GoogleTest, for the targets that live in the test's own process.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/suite/case.h"
#include "tests/suite/targets.h"

namespace tiffin::suite {

// Runs a case on a fresh file system and returns what went wrong.
using CaseRunner = std::function<std::vector<std::string>(const Case& test_case)>;

class SuiteTest : public testing::Test {
  public:
    SuiteTest(const Case& test_case, CaseRunner run)
        : test_case_(test_case), run_(std::move(run)) {}

    void TestBody() override {
        for (const std::string& failure : run_(test_case_)) {
            ADD_FAILURE() << failure;
        }
    }

  private:
    const Case& test_case_;
    CaseRunner run_;
};

// What does not run is no test at all; one more test makes sure that it is what is accepted.
class AcceptedGapsTest : public testing::Test {
  public:
    explicit AcceptedGapsTest(Target target) : target_(std::move(target)) {}

    void TestBody() override {
        for (const std::string& line : unexpected_not_run(target_)) {
            ADD_FAILURE() << line;
        }
        for (const std::string& line : cases_not_run(target_.features)) {
            std::printf("not run: %s\n", line.c_str());
        }
    }

  private:
    Target target_;
};

inline void register_gtest_cases(const Target& target, const CaseRunner& run) {
    for (const Case& test_case : all_cases()) {
        if (!test_case.needs.without(target.features).empty()) {
            continue;
        }
        size_t dot = test_case.name.find('.');
        testing::RegisterTest(
            test_case.name.substr(0, dot).c_str(), test_case.name.substr(dot + 1).c_str(), nullptr,
            nullptr, __FILE__, __LINE__,
            [&test_case, run]() -> SuiteTest* { return new SuiteTest(test_case, run); });
    }
    testing::RegisterTest("suite", "runs_all_but_the_accepted_gaps", nullptr, nullptr, __FILE__,
                          __LINE__,
                          [target]() -> AcceptedGapsTest* { return new AcceptedGapsTest(target); });
}

}  // namespace tiffin::suite
