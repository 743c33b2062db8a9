// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: whichever single read, write or flush of the device fails, or allocation of memory, an operation
// that fails changes nothing, what was made durable stays, no memory is lost, and the volume is sound
// afterwards. Method: one script of operations, run once for each request that it makes, with that one
// failing.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fuse/check/check.h"
#include "fuse/host/allocation_hooks.h"
#include "fuse/host/log_sink.h"
#include "tests/support/crash_device.h"
#include "tests/support/test_size.h"
#include "tests/support/test_volume.h"
#include "tests/support/units.h"

namespace tiffin::test {
namespace {

constexpr uint64_t kDeviceBytes = 16U << 20;

struct Step {
    std::string text;
    std::function<Result<void>(TestVolume&)> run;
    bool makes_durable = false;    // everything before it
    bool may_end_halfway = false;  // one transaction may be done when another one fails
};

std::vector<Step> script() {
    constexpr uint32_t kPunch = vfs::allocate_flag::punch_hole | vfs::allocate_flag::keep_size;
    const auto sync = [](TestVolume& volume) { return volume.sync(); };
    return {
        {"mkdir", [](TestVolume& v) { return v.make_directory("/d"); }},
        {"create", [](TestVolume& v) { return v.create("/d/small"); }},
        {"write inline", [](TestVolume& v) { return v.write("/d/small", 0, "a few bytes"); }},
        {"sync", sync, true},
        {"create large", [](TestVolume& v) { return v.create("/d/large"); }},
        {"write",
         [](TestVolume& v) { return v.write("/d/large", 100, test_content(1, 60 * kBlock)); }},
        {"overwrite",
         [](TestVolume& v) {
             return v.write("/d/large", 7 * kBlock + 9, test_content(2, 3 * kBlock));
         }},
        {"truncate", [](TestVolume& v) { return v.truncate("/d/large", 50 * kBlock + 5); }},
        {"fsync", [](TestVolume& v) { return v.fsync("/d/large"); }, true},
        {"grow", [](TestVolume& v) { return v.write("/d/small", 900, test_content(3, 9000)); }},
        {"xattr",
         [](TestVolume& v) { return v.set_xattr("/d/large", "user.big", test_content(4, 5000)); }},
        {"reserve",
         [](TestVolume& v) { return v.allocate("/d/large", 0, 60 * kBlock, 8 * kBlock); }, false,
         true},
        {"fill reserved",
         [](TestVolume& v) {
             return v.write("/d/large", 61 * kBlock, test_content(5, 2 * kBlock));
         }},
        {"punch",
         [](TestVolume& v) { return v.allocate("/d/large", kPunch, 3 * kBlock + 7, 9 * kBlock); },
         false, true},
        {"collapse",
         [](TestVolume& v) {
             return v.allocate("/d/large", vfs::allocate_flag::collapse_range, 20 * kBlock,
                               4 * kBlock);
         },
         false, true},
        {"insert",
         [](TestVolume& v) {
             return v.allocate("/d/large", vfs::allocate_flag::insert_range, 10 * kBlock,
                               2 * kBlock);
         },
         false, true},
        {"sync", sync, true},
        {"link", [](TestVolume& v) { return v.link("/d/large", "/second"); }},
        {"symlink", [](TestVolume& v) { return v.make_symlink("/s", std::string(1500, 's')); }},
        {"rename", [](TestVolume& v) { return v.rename("/d/small", "/first"); }},
        {"replace", [](TestVolume& v) { return v.rename("/first", "/second"); }},
        {"exchange",
         [](TestVolume& v) { return v.rename("/d/large", "/second", vfs::rename_flag::exchange); }},
        {"remount",
         [](TestVolume& v) -> Result<void> {
             TRY(v.file_system().remount(true));
             return v.file_system().remount(false);
         },
         true},
        {"unlink", [](TestVolume& v) { return v.unlink("/second"); }},
        {"unlink old", [](TestVolume& v) { return v.unlink("/file-3"); }},
        {"rmdir", [](TestVolume& v) { return v.remove_directory("/empty"); }},
        {"sync", sync, true},
    };
}

enum class Kind { read, write, flush, allocation };

struct Case {
    Kind kind;
    bool synchronous;  // every operation commits

    tiffinfs::MountOptions options() const {
        tiffinfs::MountOptions options = TestVolume::quiet_options();
        options.synchronous = synchronous;
        return options;
    }
};

// Makes one request fail.
class Failure {
  public:
    Failure(CrashDevice& device, Kind kind) : device_(device), kind_(kind) {}

    // The `number`th from now on; 0: none.
    void order(uint64_t number) {
        switch (kind_) {
            case Kind::read:
                device_.fail_read(number);
                break;
            case Kind::write:
                device_.fail_write(number);
                break;
            case Kind::flush:
                device_.fail_flush(number);
                break;
            case Kind::allocation:
                number == 0 ? watch_.stop_failing() : watch_.fail_allocation(number);
                break;
        }
    }
    // How many there were so far.
    uint64_t count() const {
        switch (kind_) {
            case Kind::read:
                return device_.counts().reads;
            case Kind::write:
                return device_.counts().writes;
            case Kind::flush:
                return device_.counts().flushes;
            case Kind::allocation:
                return watch_.allocations();
        }
        return 0;
    }
    int64_t lost_bytes() const { return watch_.live_bytes(); }
    Error error() const { return kind_ == Kind::allocation ? Error::enomem : Error::eio; }

  private:
    CrashDevice& device_;
    Kind kind_;
    fuse::AllocationWatch watch_;
};

// But for the mark that an error was met, which is right.
std::string findings_of(vfs::BlockDevice& device) {
    std::string text;
    for (const check::Finding& finding :
         check::check_file_system(device, {.verify_data = true}).findings) {
        if (finding.severity != check::Severity::note && finding.code != check::Code::errors_flag) {
            text += finding.line() + "\n";
        }
    }
    return text;
}

class SingleFailure : public testing::TestWithParam<Case> {
  protected:
    SingleFailure() : image_(kDeviceBytes) {
        CrashDevice device(kDeviceBytes);
        geometry_ = device.geometry();
        TestVolume volume(device);
        MUST(volume.make());
        MUST(volume.mount());
        // So many keys that the tree has inner nodes, and reading from the device is needed.
        for (int i = 0; i < 100; ++i) {
            MUST(volume.write("/file-" + std::to_string(i), 0, test_content(i, 700)));
        }
        MUST(volume.make_directory("/empty"));
        MUST(volume.unmount());
        MUST(volume.mount());
        // A journal to replay.
        for (int i = 0; i < 10; ++i) {
            MUST(volume.write("/file-" + std::to_string(7 * i), i, test_content(i, kBlock)));
        }
        MUST(volume.unlink("/file-50"));
        MUST(volume.sync());
        volume.abandon();
        image_ = device.crash_image(CrashOutcome::keep_completed, 1);
    }

    // What is visible; the failure may hit this too, but only once.
    static SeenTree see(TestVolume& volume) {
        Result<SeenTree> seen = volume.see();
        if (seen.ok()) {
            return seen.release_value();
        }
        EXPECT_TRUE(seen.error() == Error::eio || seen.error() == Error::enomem);
        Result<SeenTree> again = volume.see();
        EXPECT_TRUE(again.ok());
        return again.ok() ? again.release_value() : SeenTree();
    }

    // The states that may be found afterwards: the last one that is known to be durable, and all later.
    std::vector<SeenTree> run_script(TestVolume& volume) {
        std::vector<SeenTree> states = {see(volume)};
        for (const Step& step : script()) {
            SCOPED_TRACE(step.text);
            const Result<void> result = step.run(volume);
            SeenTree now = see(volume);
            if (!result.ok()) {
                EXPECT_TRUE(result.error() == Error::eio || result.error() == Error::enomem ||
                            result.error() == Error::erofs || result.error() == Error::enoent ||
                            result.error() == Error::eexist || result.error() == Error::einval)
                    << errno_value(result.error());
                // What cannot be made durable has happened nevertheless.
                if (!step.may_end_halfway && !GetParam().synchronous) {
                    EXPECT_EQ(difference(states.back(), now), "");
                }
            } else if (step.makes_durable) {
                states.clear();
            }
            states.push_back(std::move(now));
        }
        return states;
    }

    // Returns false when there were fewer requests than `number`.
    bool run_with_failure(uint64_t number) {
        CrashDevice device(image_.copy(), geometry_);
        std::vector<SeenTree> states;
        bool met = false;
        {
            Failure failure(device, GetParam().kind);
            TestVolume volume(device);
            failure.order(number);
            const Result<void> mounted = volume.mount(GetParam().options());
            if (!mounted.ok()) {
                EXPECT_EQ(mounted.error(), failure.error());
                MUST(volume.mount(GetParam().options()));
            }
            states = run_script(volume);
            (void)volume.unmount().ok();
            met = failure.count() >= number;
            failure.order(0);
            EXPECT_EQ(failure.lost_bytes(), 0);
        }
        EXPECT_EQ(findings_of(device), "");
        TestVolume volume(device);
        const Result<void> mounted = volume.mount();
        EXPECT_TRUE(mounted.ok()) << errno_value(mounted.error());
        if (mounted.ok()) {
            const SeenTree found = see(volume);
            bool known = false;
            for (const SeenTree& state : states) {
                known = known || state == found;
            }
            EXPECT_TRUE(known) << difference(states.back(), found);
            EXPECT_TRUE(volume.unmount().ok());
            EXPECT_EQ(findings_of(device), "");
        }
        return met;
    }

    vfs::DeviceGeometry geometry_;
    SparseImage image_;
    fuse::CapturedLog log_;
};

TEST_P(SingleFailure, ChangesNothingAndLosesNothing) {
    // There are many reads and allocations, and most are like others.
    const bool many = GetParam().kind == Kind::read || GetParam().kind == Kind::allocation;
    const uint64_t stride = test::test_size(many ? 3 : 1, 31, 61);
    uint64_t number = 1;
    for (; number < 5000; number += stride) {
        SCOPED_TRACE("request " + std::to_string(number));
        if (!run_with_failure(number) || HasFailure()) {
            break;
        }
    }
    EXPECT_GT(number, 15U);  // the script has not shrunk to nothing
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
    const std::string mode = info.param.synchronous ? "Synchronous" : "";
    switch (info.param.kind) {
        case Kind::read:
            return "Read" + mode;
        case Kind::write:
            return "Write" + mode;
        case Kind::flush:
            return "Flush" + mode;
        case Kind::allocation:
            return "Allocation" + mode;
    }
    return mode;
}

INSTANTIATE_TEST_SUITE_P(Requests, SingleFailure,
                         testing::Values(Case{Kind::read, false}, Case{Kind::write, false},
                                         Case{Kind::flush, false}, Case{Kind::write, true},
                                         Case{Kind::flush, true}, Case{Kind::allocation, false}),
                         case_name);

}  // namespace
}  // namespace tiffin::test
