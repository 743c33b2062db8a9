// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/session/dirty_limit.h"

#include <algorithm>
#include <bit>

#include "fuse/session/mount_point.h"
#include "fuse/session/tuning.h"

namespace tiffin::fuse {
namespace {

// Less makes writers wait for each request.
constexpr uint64_t kLeastBytes = uint64_t{1} << 20;
// With more than twice this left, the share that every mount gets does no harm.
constexpr uint64_t kMostBytes = uint64_t{1} << 30;

}  // namespace

uint64_t DirtyLimit::limit_bytes(uint64_t available_bytes) {
    const uint64_t half_bytes = available_bytes / 2;
    return half_bytes > kMostBytes ? 0 : std::max(std::bit_floor(half_bytes), kLeastBytes);
}

void DirtyLimit::start(const std::string& device_number) {
    folder_ = "/sys/class/bdi/" + device_number + "/";
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
    if (limit == 0) {
        (void)write_setting(folder_ + "max_ratio", kMaxDirtyPercent);
    } else if (!write_setting(folder_ + "max_bytes", limit)) {
        (void)write_setting(folder_ + "max_ratio", 1);
    }
}

}  // namespace tiffin::fuse
