// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The checker of tiffinfs: reads everything that describes a volume, says what is wrong, and repairs
// it when asked.
//
//     check::Report report = check::check_file_system(device, {});
//     if (!report.clean()) { ... report.findings ... }
//
// It shares the layout of structures (format.h) with the file system and reads journal frames with the
// same reader; the tree, names, links and space it works out on its own, so that it does not repeat the
// mistakes it is meant to find. What it checks is the state that the next mount will see, after replay
// of the journal. The device may hold anything: no content makes it crash or loop.
//
// A repair changes keys in memory first. Then it writes new leaves and inner nodes (only where keys
// changed) and new bitmaps to places that the old state does not use, flushes, and makes them valid
// with two superblock generations: a repair that is interrupted leaves the old state. When all of it
// succeeds, a second check finds nothing, except file data that is damaged: that cannot be restored,
// reading it goes on to fail.
//
// Memory: about 60 bytes for each object, 32 for each name, 2 KiB for each 64 MiB of device in use, and
// the journal's records.
#pragma once

#include <cstdint>
#include <functional>

#include "fs/tiffinfs/format.h"
#include "fs/vfs/block_device.h"
#include "fuse/check/report.h"

namespace tiffin::check {

struct CheckOptions {
    // Write corrections to the device, which then must be writable. Otherwise nothing is written.
    bool repair = false;
    // Read all file data and compare its checksums.
    bool verify_data = false;
    // The same for what lies on the device from this byte on.
    uint64_t verify_from_bytes = ~uint64_t{0};
    // One repair may uncover the next problem (an inode that was lost, then its name...). Each pass
    // repairs all that it sees, so that a few are enough; what comes after so many (at least 1) is left
    // for another run.
    int maximum_passes = 16;
    // Which classes of findings may be repaired; asked once for each class, with its first finding, before that is
    // given to on_finding. Empty: all of them.
    std::function<bool(const Finding&)> may_repair = {};
    // Called for each finding as it is met. May be empty.
    std::function<void(const Finding&)> on_finding = {};
    // Called now and then. May be empty.
    std::function<void(const Progress&)> on_progress = {};
    // Ends the check early when it returns true (Report::cancelled); nothing has been repaired then.
    // Asked often, between single steps. May be empty.
    std::function<bool()> is_cancelled = {};
};

// Checks the volume on `device`, which has no other user meanwhile. Never fails as such: what went wrong
// is in the report. One thread; the callbacks are called from it.
Report check_file_system(vfs::BlockDevice& device, const CheckOptions& options);

// True when the volume was unmounted cleanly, met no errors, all copies of its superblock are sound, and what a mount
// verifies of the tree is whole: then a check would find nothing, unless the device has changed something else that was
// written. `superblock` becomes the newest one. Reads what the last checkpoint has written of the tree; if that is damaged,
// also the tree before.
bool is_marked_clean(vfs::BlockDevice& device, tiffinfs::Superblock& superblock);

}  // namespace tiffin::check
