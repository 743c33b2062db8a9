// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/session/refused_pages.h"

#include <algorithm>

#include "fs/vfs/host.h"

namespace tiffin::fuse {
namespace {

uint64_t available_bytes(vfs::FileSystem& file_system) {
    const Result<vfs::FileSystemStatistics> statistics = file_system.statistics();
    return statistics.ok() ? statistics.value().available_blocks * statistics.value().block_bytes
                           : 0;
}

}  // namespace

void RefusedPages::note(vfs::FileSystem& file_system, vfs::NodeId node, Error error) {
    const uint64_t available = available_bytes(file_system);
    const uint64_t now_ns = host::monotonic_ns();
    std::lock_guard lock(mutex_);
    if (refusals_.size() >= kMostFiles && refusals_.find(node) == refusals_.end()) {
        std::erase_if(refusals_, [&](const auto& each) { return each.second.is_over(now_ns); });
        if (refusals_.size() >= kMostFiles) {
            refusals_.erase(refusals_.begin());
        }
    }
    refusals_[node] = {error, now_ns, available};
    count_.store(refusals_.size(), std::memory_order_relaxed);
}

std::optional<Error> RefusedPages::look(vfs::FileSystem& file_system, vfs::NodeId node) {
    std::lock_guard lock(mutex_);
    const auto found = refusals_.find(node);
    if (found == refusals_.end()) {
        return std::nullopt;
    }
    const Refusal& refusal = found->second;
    const bool has_space = refusal.error == Error::enospc &&
                           available_bytes(file_system) >=
                               std::max(refusal.available_bytes + kLeastBytes / 4, kLeastBytes);
    if (!has_space && !refusal.is_over(host::monotonic_ns())) {
        return refusal.error;
    }
    refusals_.erase(found);
    count_.store(refusals_.size(), std::memory_order_relaxed);
    return std::nullopt;
}

}  // namespace tiffin::fuse
