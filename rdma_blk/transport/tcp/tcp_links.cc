// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Links that are added to, and taken away from, a TcpMemory that has several. Joining and draining are as of any other.
#include <unistd.h>

#include <string>

#include "rdma_blk/transport/tcp/tcp_memory.h"
#include "rdma_blk/transport/time_units.h"

namespace tiffin::rdma_blk {
namespace {

// For what is on its way on a link that is removed: a flush may wait for a disk.
constexpr uint64_t kDrainNs = 30 * kSecondNs;
constexpr useconds_t kDrainLookUs = 5000;

}  // namespace

// paths_.size(): none that is in use.
size_t TcpMemory::find_link(const char* host, uint16_t port) const {
    size_t index = 0;
    while (index < paths_.size() &&
           (is_removed(index) || links_[index].host != host || links_[index].port != port)) {
        index++;
    }
    return index;
}

Result<void> TcpMemory::add_link(const char* host, uint16_t port) {
    if (!has_several()) {
        return Error::eopnotsupp;
    }
    auto connection =
        TRY(ClientConnection::create(options_.slot_count + StreamPath::kControlMessages));
    Locked lock(*this);
    if (state_ != ConnectionState::ready || is_closing_) {
        return Error::eagain;
    }
    if (version_ < wire::kSeveralPathsVersion) {
        return Error::eopnotsupp;
    }
    if (find_link(host, port) != paths_.size()) {
        return Error::eexist;
    }
    const size_t index = machine_.add(host::monotonic_ns());
    if (index == SessionMachine::kNoPath) {
        return Error::enospc;
    }
    if (index == paths_.size()) {
        paths_.emplace_back();
        paths_[index].connection = std::move(connection);
        paths_[index].requests = makes_requests() ? extension_.make_requests() : nullptr;
        links_.push_back({host, port});
    } else {
        paths_[index].segments = SegmentSize();
        links_[index] = {host, port};
    }
    poke();
    return {};
}

Result<void> TcpMemory::remove_link(const char* host, uint16_t port) {
    if (!has_several()) {
        return Error::eopnotsupp;
    }
    const uint64_t deadline_ns = host::monotonic_ns() + kDrainNs;
    size_t index = 0;
    {
        Locked lock(*this);
        if (state_ != ConnectionState::ready || is_closing_) {
            return Error::eagain;
        }
        index = find_link(host, port);
        if (index == paths_.size()) {
            return Error::enoent;
        }
        if (!machine_.retire(index)) {
            return Error::ebusy;
        }
        poke();
    }
    while (true) {
        usleep(kDrainLookUs);
        Locked lock(*this);
        if (is_removed(index)) {
            return {};
        }
        if (host::monotonic_ns() >= deadline_ns) {
            return Error::etimedout;  // it is removed when it can be
        }
    }
}

}  // namespace tiffin::rdma_blk
