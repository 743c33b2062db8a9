// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/session/dirty_limit.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <string>

#include "fuse/session/mount_point.h"
#include "fuse/session/tuning.h"

namespace tiffin::fuse {
namespace {

// Less makes writers wait for each request.
constexpr uint64_t kLeastBytes = uint64_t{1} << 20;
// With so much left, the share that every mount gets does no harm.
constexpr uint64_t kEnoughBytes = uint64_t{2} << 30;
// Of each halving, so that the kernel is not told every step.
constexpr uint64_t kSteps = 4;

// Of what may be dirty in the whole machine now, at least 1 and at most kMaxDirtyPercent; 1 where that is not known.
uint64_t percent_of_threshold(uint64_t limit_bytes) {
    std::ifstream table("/proc/vmstat");
    std::string name;
    uint64_t pages = 0;
    while (table >> name >> pages) {
        if (name == "nr_dirty_threshold" && pages != 0) {
            const uint64_t threshold_bytes = pages * static_cast<uint64_t>(getpagesize());
            return std::clamp<uint64_t>(limit_bytes * 100 / threshold_bytes, 1, kMaxDirtyPercent);
        }
    }
    return 1;
}

}  // namespace

uint64_t DirtyLimit::limit_bytes(uint64_t available_bytes) {
    // A quarter stays for the tree, and for blocks that are replaced.
    const uint64_t usable_bytes = available_bytes - available_bytes / 4;
    const uint64_t step_bytes = std::max<uint64_t>(std::bit_floor(usable_bytes) / kSteps, 1);
    return available_bytes > kEnoughBytes
               ? 0
               : std::max(usable_bytes / step_bytes * step_bytes, kLeastBytes);
}

void DirtyLimit::start(const std::string& device_number) {
    folder_ = "/sys/class/bdi/" + device_number + "/";
}

void DirtyLimit::begin(vfs::FileSystem& file_system) {
    {
        const std::lock_guard lock(mutex_);
        limit_bytes_ = 0;
    }
    look(file_system);
}

void DirtyLimit::look(vfs::FileSystem& file_system) {
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) {
        return;
    }
    unseen_bytes_.store(0, std::memory_order_relaxed);
    Result<vfs::FileSystemStatistics> statistics = file_system.statistics();
    if (!statistics.ok()) {
        return;
    }
    const uint64_t limit = limit_bytes(statistics->available_blocks * statistics->block_bytes);
    if (limit == limit_bytes_) [[likely]] {
        return;
    }
    limit_bytes_ = limit;
    const uint64_t share = limit == 0 ? kMaxDirtyPercent : percent_of_threshold(limit);
    // The kernel refuses bytes beyond what may be dirty in all, and before 6.2 knows none.
    if (share >= kMaxDirtyPercent || !write_setting(folder_ + "max_bytes", limit)) {
        (void)write_setting(folder_ + "max_ratio", share);
    }
}

}  // namespace tiffin::fuse
