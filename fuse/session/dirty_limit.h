// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How much the kernel may cache of what was written and is not written back. FUSE cannot refuse a write
// to the cache, so what does not fit the volume is lost, and told only by fsync and close. The less space
// is left, the less may wait: then the cache is written back early, and creating, allocating and writing
// directly meet the full volume first.
//
// Needs root and, below 1 % of the system's dirty memory, Linux 6.3 (max_bytes in /sys/class/bdi).
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "fs/vfs/file_system.h"

namespace tiffin::fuse {

class DirtyLimit {
  public:
    // `device_number` as in /proc/self/mountinfo; before the first request.
    void start(const std::string& device_number);

    // The kernel has the limit that every mount gets: sets the one for the space that is left. Any thread.
    void begin(vfs::FileSystem& file_system);
    // So much was written back. Looks now and then how much space is left, and tells the kernel when
    // that has changed by a step. Any thread.
    void written_back(vfs::FileSystem& file_system, uint64_t size_bytes) {
        if (unseen_bytes_.fetch_add(size_bytes, std::memory_order_relaxed) >= kLookBytes)
            [[unlikely]] {
            look(file_system);
        }
    }

    // The limit for a volume that has so much space left; 0: the one that every mount gets.
    static uint64_t limit_bytes(uint64_t available_bytes);

  private:
    static constexpr uint64_t kLookBytes = 1U << 20;

    void look(vfs::FileSystem& file_system);

    std::string folder_;
    std::atomic<uint64_t> unseen_bytes_{kLookBytes};
    std::mutex mutex_;
    uint64_t limit_bytes_ = 0;  // that the kernel was told; guarded by mutex_
};

}  // namespace tiffin::fuse
