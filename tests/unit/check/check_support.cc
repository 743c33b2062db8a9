// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/unit/check/check_support.h"

#include <gtest/gtest.h>

namespace tiffin::check {

std::string text_of(const Report& report) {
    std::string text;
    for (const Finding& finding : report.findings) {
        text += finding.line() + "\n";
    }
    return text;
}

Report run_check(vfs::BlockDevice& device, const CheckOptions& options) {
    return check_file_system(device, options);
}

void make_populated(test::CrashDevice& device, uint32_t files) {
    test::TestVolume volume(device);
    ASSERT_TRUE(volume.make().ok());
    ASSERT_TRUE(volume.mount().ok());
    ASSERT_TRUE(populate(volume, files).ok());
    ASSERT_TRUE(volume.unmount().ok());
}

test::SeenTree see(vfs::BlockDevice& device) {
    test::TestVolume volume(device);
    test::SeenTree tree;
    const Result<void> mounted = volume.mount();
    EXPECT_TRUE(mounted.ok()) << errno_value(mounted.error());
    if (!mounted.ok()) {
        return tree;
    }
    Result<test::SeenTree> seen = volume.see();
    EXPECT_TRUE(seen.ok()) << errno_value(seen.error());
    if (seen.ok()) {
        tree = seen.release_value();
    }
    EXPECT_TRUE(volume.unmount().ok());
    return tree;
}

Report repair_completely(test::CrashDevice& device) {
    Report first = run_check(device, {.repair = true});
    EXPECT_EQ(first.not_repaired, 0U) << text_of(first);
    const Report second = run_check(device, {.verify_data = true});
    EXPECT_TRUE(second.findings.empty()) << "after the repair of\n"
                                         << text_of(first) << "there is\n"
                                         << text_of(second);
    (void)see(device);
    const Report third = run_check(device, {.verify_data = true});
    EXPECT_TRUE(third.findings.empty()) << "after a mount\n" << text_of(third);
    return first;
}

}  // namespace tiffin::check
