// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The suite on the memory file system of tests/support, which other tests take as the truth.
#include "tests/suite/core_under_test.h"
#include "tests/suite/gtest_cases.h"
#include "tests/suite/helpers.h"
#include "tests/support/memory_file_system.h"

namespace tiffin::suite {
namespace {

std::vector<std::string> run(const Case& test_case) {
    testing::MemoryFileSystem::Options options;
    options.capacity_bytes = 128ULL << 20;
    testing::MemoryFileSystem file_system(options);
    CoreUnderTest fs(memory_target().features);
    fs.attach(file_system);
    std::vector<std::string> failures = run_case(test_case, fs);
    if (test_case.needs.contains(Feature::shutdown)) {
        return failures;
    }
    Case cleaner{"removing everything", {}, [](FileSystemUnderTest& under_test) {
                     remove_tree(under_test, "");
                 }};
    for (const std::string& failure : run_case(cleaner, fs)) {
        failures.push_back("removing everything: " + failure);
    }
    fs.detach();
    // Every reference was given back, and nothing is left but the root.
    if (file_system.node_count() != 1) {
        failures.push_back("nodes left over: " + std::to_string(file_system.node_count()));
    }
    return failures;
}

}  // namespace
}  // namespace tiffin::suite

int main(int count, char** arguments) {
    testing::InitGoogleTest(&count, arguments);
    tiffin::suite::register_gtest_cases(tiffin::suite::memory_target(), tiffin::suite::run);
    return RUN_ALL_TESTS();
}
