// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/suite/case.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>

namespace tiffin::suite {

namespace {

// Cases register themselves before main(), so the table is made by the first of them.
std::vector<Case>& table() {
    static std::vector<Case> cases;
    return cases;
}

// A case that goes wrong in a loop must not bury its first failure.
constexpr size_t kMaxFailures = 20;

std::mutex failures_mutex;
std::vector<std::string>& failures() {
    static std::vector<std::string> list;
    return list;
}

}  // namespace

const std::vector<Case>& all_cases() {
    static const bool sorted = [] {
        std::sort(table().begin(), table().end(),
                  [](const Case& a, const Case& b) { return a.name < b.name; });
        return true;
    }();
    (void)sorted;
    return table();
}

bool register_case(const std::string& name, FeatureSet needs, CaseFunction run) {
    table().push_back(Case{name, needs, std::move(run)});
    return true;
}

std::vector<std::string> cases_not_run(const FeatureSet& features) {
    std::vector<std::string> lines;
    for (const Case& test_case : all_cases()) {
        FeatureSet missing = test_case.needs.without(features);
        if (!missing.empty()) {
            lines.push_back(test_case.name + ": needs " + missing.text());
        }
    }
    return lines;
}

std::vector<std::string> run_case(const Case& test_case, FileSystemUnderTest& fs) {
    {
        std::lock_guard<std::mutex> lock(failures_mutex);
        failures().clear();
    }
    try {
        test_case.run(fs);
    } catch (const CaseEnded&) {
        // Its reason is in the list.
    } catch (const std::exception& exception) {
        record_failure(test_case.name.c_str(), 0, exception.what());
    }
    fs.become(0, 0);
    fs.set_umask(022);
    std::lock_guard<std::mutex> lock(failures_mutex);
    return failures();
}

void record_failure(const char* file, int line, const std::string& text) {
    std::lock_guard<std::mutex> lock(failures_mutex);
    if (failures().size() < kMaxFailures) {
        failures().push_back(std::string(file) + ":" + std::to_string(line) + ": " + text);
    } else if (failures().size() == kMaxFailures) {
        failures().push_back("(more failures were left out)");
    }
}

void end_case() { throw CaseEnded(); }

std::string errno_text(int64_t error) {
    const char* name = strerrorname_np(static_cast<int>(error));
    return name != nullptr ? name : std::to_string(error);
}

}  // namespace tiffin::suite
