// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Model-based random tests: see model_run.h. Without arguments, GoogleTest's; for one run of one's own:
//
//     model_model_test --seed N --operations N [--directory DIRECTORY]
//
// With --directory the subject is a mounted file system instead of a tiffinfs in this process.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "tests/model/model_run.h"
#include "tests/support/test_size.h"

namespace tiffin::model {
namespace {

class ModelTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(ModelTest, AgreesWithTheModel) {
    std::unique_ptr<Subject> subject = make_core_subject();
    test::RandomChoices choices(GetParam());
    ModelRun run(*subject, choices);
    std::string failure = run.run(test::test_size(15000, 2000));
    EXPECT_EQ(failure, "") << failure << "replay with: --seed " << GetParam()
                           << " --operations 15000";
}

INSTANTIATE_TEST_SUITE_P(Seed, ModelTest, ::testing::Range<uint64_t>(1, 13));

class FullModelTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(FullModelTest, AgreesWithTheModelOnAFullVolume) {
    std::unique_ptr<Subject> subject = make_full_core_subject();
    test::RandomChoices choices(GetParam());
    ModelRun run(*subject, choices);
    std::string failure = run.run(test::test_size(6000, 1000));
    EXPECT_EQ(failure, "") << failure << "seed " << GetParam();
    EXPECT_GT(run.refused(), 10U);
}

INSTANTIATE_TEST_SUITE_P(Seed, FullModelTest, ::testing::Range<uint64_t>(1, 5));

struct Arguments {
    uint64_t seed = 0;
    uint64_t operations = 10000;
    std::string directory;
    bool given = false;
};

bool parse(int count, char** arguments, Arguments& parsed) {
    for (int i = 1; i + 1 < count; i += 2) {
        std::string name = arguments[i];
        parsed.given = true;
        if (name == "--seed") {
            parsed.seed = std::strtoull(arguments[i + 1], nullptr, 10);
        } else if (name == "--operations") {
            parsed.operations = std::strtoull(arguments[i + 1], nullptr, 10);
        } else if (name == "--directory") {
            parsed.directory = arguments[i + 1];
        } else {
            return false;
        }
    }
    return count % 2 == 1;
}

int run_once(const Arguments& arguments) {
    std::unique_ptr<Subject> subject = arguments.directory.empty()
                                           ? make_core_subject()
                                           : make_directory_subject(arguments.directory);
    test::RandomChoices choices(arguments.seed);
    ModelRun run(*subject, choices);
    std::string failure = run.run(arguments.operations);
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(arguments.seed),
                failure.empty() ? "passed" : failure.c_str());
    return failure.empty() ? 0 : 1;
}

}  // namespace
}  // namespace tiffin::model

int main(int count, char** arguments) {
    testing::InitGoogleTest(&count, arguments);
    tiffin::model::Arguments parsed;
    if (!tiffin::model::parse(count, arguments, parsed)) {
        std::fprintf(stderr, "usage: %s [--seed N] [--operations N] [--directory DIRECTORY]\n",
                     arguments[0]);
        return 2;
    }
    return parsed.given ? tiffin::model::run_once(parsed) : RUN_ALL_TESTS();
}
