// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What the checker says of a device, for comparing with "", and a scrub of a mounted one.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "fs/vfs/block_device.h"
#include "fs/vfs/file_system.h"
#include "fuse/check/check.h"

namespace tiffin::test {

// All data is verified. A line for each finding of at least that severity.
inline std::string findings_of(vfs::BlockDevice& device,
                               check::Severity least = check::Severity::harmless) {
    std::string text;
    for (const check::Finding& finding :
         check::check_file_system(device, {.verify_data = true}).findings) {
        if (finding.severity >= least) {
            text += finding.line() + "\n";
        }
    }
    return text;
}

// To its end.
inline vfs::ScrubProgress scrub(vfs::FileSystem& file_system) {
    vfs::ScrubProgress progress;
    for (int i = 0; i < 100000 && !progress.finished; ++i) {
        EXPECT_TRUE(file_system.scrub(progress).ok());
    }
    EXPECT_TRUE(progress.finished);
    return progress;
}

}  // namespace tiffin::test
