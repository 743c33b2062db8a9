// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Files whose cached data was refused. The kernel tells that to fsync, and once to a close, but
// not to write(): a program that only writes would go on for ever on a full volume. When a page is dropped (PageFlusher), the kernel takes
// the file's attributes for outdated, and asks for them before the next write to its cache (fuse_cache_write_iter(), since
// Linux 5.16), with the file's handle, which it does for nothing else. An error in answer to that is what write() returns.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "fs/vfs/file_system.h"

namespace tiffin::fuse {

// Any threads.
class RefusedPages {
  public:
    // Data of the file was refused.
    void note(vfs::FileSystem& file_system, vfs::NodeId node, Error error);

    // With which error attributes that are asked for with a handle are answered, if with any. enospc: as long as the volume
    // is about as full as when data of the file was refused, at most kKeptFullNs. Others may be over with the next request:
    // for kKeptNs.
    std::optional<Error> refuses(vfs::FileSystem& file_system, vfs::NodeId node) {
        return count_.load(std::memory_order_relaxed) != 0 ? look(file_system, node) : std::nullopt;
    }

    static constexpr uint64_t kKeptFullNs = 60'000'000'000;
    static constexpr uint64_t kKeptNs = 1'000'000'000;

  private:
    // With more of them, some are forgotten: then close and fsync tell, as if this were not there.
    static constexpr size_t kMostFiles = 1024;
    // Space for less is none: a page needs up to as much with what it changes in the tree.
    static constexpr uint64_t kLeastBytes = uint64_t{1} << 20;

    struct Refusal {
        Error error;
        uint64_t time_ns;
        uint64_t available_bytes;  // at that time

        bool is_over(uint64_t now_ns) const {
            return now_ns >= time_ns + (error == Error::enospc ? kKeptFullNs : kKeptNs);
        }
    };

    std::optional<Error> look(vfs::FileSystem& file_system, vfs::NodeId node);

    std::atomic<size_t> count_{0};
    std::mutex mutex_;
    std::unordered_map<vfs::NodeId, Refusal> refusals_;  // guarded by mutex_
};

}  // namespace tiffin::fuse
