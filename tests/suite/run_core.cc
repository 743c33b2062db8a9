// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The suite on a tiffinfs in this process, each case on a fresh volume. After a case, what it left must
// survive a power failure that follows a sync, and a remount; the checker must find nothing.
#include <gtest/gtest.h>

#include <exception>

#include "tests/suite/core_under_test.h"
#include "tests/suite/core_volume.h"
#include "tests/suite/gtest_cases.h"
#include "tests/suite/helpers.h"
#include "tests/suite/tree_snapshot.h"
#include "tests/support/test_size.h"

namespace tiffin::suite {
namespace {

// Large enough for every case, small enough to be filled.
const uint64_t kVolumeBytes = test::test_size(128, 48) << 20;

class CoreCase {
  public:
    explicit CoreCase(const Case& test_case)
        : test_case_(test_case), volume_(kVolumeBytes), fs_(core_target().features) {
        fs_.attach(volume_.file_system());
    }

    std::vector<std::string> run() {
        failures_ = run_case(test_case_, fs_);
        if (fs_.open_files() != 0) {
            failures_.push_back("the case left files open");
        }
        if (test_case_.needs.contains(Feature::shutdown)) {
            fs_.detach();
            volume_.abandon();
            check("after the shutdown");
            return failures_;
        }
        TreeSnapshot before = take_snapshot(fs_, {});
        crash_after_sync();
        compare(before, "after a sync and a power failure");
        remount("after the case");
        compare(before, "after a remount");
        Case cleaner{
            "removing everything", {}, [](FileSystemUnderTest& fs) { remove_tree(fs, ""); }};
        for (const std::string& failure : run_case(cleaner, fs_)) {
            failures_.push_back("removing everything: " + failure);
        }
        remount("after removing everything");
        return failures_;
    }

  private:
    void crash_after_sync() {
        if (Result<void> synced = volume_.file_system().sync(true); !synced.ok()) {
            failures_.push_back("sync: " + errno_text(errno_value(synced.error())));
        }
        fs_.detach();
        volume_.crash(test::CrashOutcome::drop_unflushed, 1);
        check("after a power failure");
        volume_.mount();
        fs_.attach(volume_.file_system());
    }

    void remount(const std::string& when) {
        fs_.detach();
        volume_.unmount();
        check(when);
        volume_.mount();
        fs_.attach(volume_.file_system());
    }

    void check(const std::string& when) {
        if (std::string findings = volume_.check(); !findings.empty()) {
            failures_.push_back("checker, " + when + ": " + findings);
        }
    }

    void compare(const TreeSnapshot& before, const std::string& when) {
        for (const std::string& difference : compare_snapshots(before, take_snapshot(fs_, {}))) {
            failures_.push_back(when + ": " + difference);
        }
    }

    const Case& test_case_;
    CoreVolume volume_;
    CoreUnderTest fs_;
    std::vector<std::string> failures_;
};

std::vector<std::string> run(const Case& test_case) {
    try {
        return CoreCase(test_case).run();
    } catch (const std::exception& exception) {
        return {exception.what()};
    }
}

}  // namespace
}  // namespace tiffin::suite

int main(int count, char** arguments) {
    testing::InitGoogleTest(&count, arguments);
    tiffin::suite::register_gtest_cases(tiffin::suite::core_target(), tiffin::suite::run);
    return RUN_ALL_TESTS();
}
