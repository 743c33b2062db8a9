// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Runs the suite on a mounted file system with real system calls.
//
//     suite_run_mount DIRECTORY [-l] [-k TEXT]... [--with FEATURE]... [--without FEATURE]...
//
// Every case gets an empty directory below DIRECTORY, which is removed after it. Exit status: 0 when
// every case that ran passed and only accepted cases did not run, 1 when not, 2 for wrong usage.
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "tests/suite/helpers.h"
#include "tests/suite/posix_under_test.h"
#include "tests/suite/targets.h"

namespace tiffin::suite {
namespace {

struct Options {
    std::string directory;
    bool list = false;
    std::vector<std::string> filters;  // a case runs when its name holds one of them
    FeatureSet with;
    FeatureSet without;
};

bool parse(int count, char** arguments, Options& options) {
    for (int i = 1; i < count; ++i) {
        std::string argument = arguments[i];
        if (argument == "-l") {
            options.list = true;
        } else if (argument == "-k" && i + 1 < count) {
            options.filters.emplace_back(arguments[++i]);
        } else if ((argument == "--with" || argument == "--without") && i + 1 < count) {
            Feature feature{};
            if (!parse_feature(arguments[++i], feature)) {
                std::fprintf(stderr, "suite_run_mount: no feature is called '%s'\n", arguments[i]);
                return false;
            }
            (argument == "--with" ? options.with : options.without).add(feature);
        } else if (argument[0] != '-' && options.directory.empty()) {
            options.directory = argument;
        } else {
            return false;
        }
    }
    return options.list || !options.directory.empty();
}

bool selected(const Case& test_case, const Options& options) {
    for (const std::string& filter : options.filters) {
        if (test_case.name.find(filter) != std::string::npos) {
            return true;
        }
    }
    return options.filters.empty();
}

// A volume that is declared small but is not would be filled for hours.
void check_volume_is_small(const std::string& directory) {
    struct statvfs status {};
    constexpr uint64_t largest_bytes = 2ULL << 30;
    if (::statvfs(directory.c_str(), &status) < 0 ||
        status.f_blocks * status.f_frsize > largest_bytes) {
        throw std::runtime_error(directory +
                                 " is larger than 2 GiB; say --without small_volume to leave the "
                                 "cases out that fill it");
    }
}

// Runs one case in a directory of its own; returns the failures.
std::vector<std::string> run_in_directory(const Case& test_case, PosixUnderTest& fs,
                                          const std::string& directory) {
    const std::string name = "suite-" + test_case.name;
    fs.set_root(directory);
    // An earlier case may have filled the volume, and the kernel tells only after unlink() that a file is no longer in use.
    int64_t answer = fs.mkdir(name, 0777);
    for (int i = 0; i < 1000 && answer == -ENOSPC; ++i) {
        ::usleep(10000);
        answer = fs.mkdir(name, 0777);
    }
    if (answer < 0) {
        return {"mkdir " + directory + "/" + name + ": " + answer_text(answer)};
    }
    fs.chmod(name, 0777);
    // The kernel tells once more that there was no space.
    if (int64_t root = fs.open(name, O_RDONLY | O_DIRECTORY); root >= 0) {
        fs.syncfs(static_cast<int>(root));
        fs.close(static_cast<int>(root));
    }
    fs.set_root(directory + "/" + name);
    std::vector<std::string> failures = run_case(test_case, fs);
    if (test_case.needs.contains(Feature::shutdown)) {
        return failures;
    }
    Case cleaner{test_case.name + " (removing its files)", {}, [&](FileSystemUnderTest&) {
                     fs.set_root(directory);
                     remove_tree(fs, name);
                 }};
    for (const std::string& failure : run_case(cleaner, fs)) {
        failures.push_back("removing its files: " + failure);
    }
    return failures;
}

int run(const Options& options) {
    Target target = mounted_target(options.directory);
    std::vector<std::string> gaps = unexpected_not_run(target);
    for (uint32_t i = 0; i < static_cast<uint32_t>(Feature::count); ++i) {
        if (options.with.contains(static_cast<Feature>(i))) {
            target.features.add(static_cast<Feature>(i));
        }
    }
    target.features = target.features.without(options.without);
    if (target.features.contains(Feature::small_volume)) {
        check_volume_is_small(options.directory);
    }
    PosixUnderTest fs(options.directory, target.features);
    int passed = 0;
    int failed = 0;
    int not_run = 0;
    for (const Case& test_case : all_cases()) {
        if (!selected(test_case, options)) {
            continue;
        }
        FeatureSet missing = test_case.needs.without(target.features);
        if (!missing.empty()) {
            std::printf("not run: %s (needs %s)\n", test_case.name.c_str(), missing.text().c_str());
            ++not_run;
            continue;
        }
        std::vector<std::string> failures = run_in_directory(test_case, fs, options.directory);
        std::printf("%s: %s\n", failures.empty() ? "passed" : "FAILED", test_case.name.c_str());
        for (const std::string& failure : failures) {
            std::printf("    %s\n", failure.c_str());
        }
        std::fflush(stdout);
        ++(failures.empty() ? passed : failed);
    }
    for (const std::string& gap : gaps) {
        std::printf("FAILED: %s\n", gap.c_str());
    }
    std::printf("%s: %d passed, %d failed, %d not run\n", target.name.c_str(), passed, failed,
                not_run);
    return failed == 0 && passed > 0 && gaps.empty() ? 0 : 1;
}

int main_of(int count, char** arguments) {
    Options options;
    if (!parse(count, arguments, options)) {
        std::fprintf(stderr,
                     "usage: suite_run_mount DIRECTORY [-l] [-k TEXT]... "
                     "[--with FEATURE]... [--without FEATURE]...\n");
        return 2;
    }
    if (options.list) {
        for (const Case& test_case : all_cases()) {
            std::printf("%s\n", test_case.name.c_str());
        }
        return 0;
    }
    try {
        return run(options);
    } catch (const std::exception& exception) {
        std::fprintf(stderr, "suite_run_mount: %s\n", exception.what());
        return 2;
    }
}

}  // namespace
}  // namespace tiffin::suite

int main(int count, char** arguments) { return tiffin::suite::main_of(count, arguments); }
