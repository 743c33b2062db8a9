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
constexpr uint64_t kResumeNs = 10 * kSecondNs;

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

// A session of one link does without what several need: SentRequests, and the linker. It gets them in a new incarnation, which
// begins with nothing on its way.
void TcpMemory::become_several() {
    wants_several_ = false;
    has_several_ = true;
    transport_reason_ = "several links";
    if (choice_) {
        choice_.reset();
        makes_requests_ = false;
        paths_[0].requests->add_statistics(statistics_);
        statistics_.round_trip_us = 0;
        statistics_.path_rate_bytes_per_s = 0;
        paths_[0].requests.reset();
        reset_join(paths_[0]);
    }
}

Result<void> TcpMemory::get_several(const char* host, uint16_t port) {
    {
        Locked lock(*this);
        if (has_several()) {
            return {};
        }
        if (find_link(host, port) != paths_.size()) {
            return Error::eexist;
        }
        if (extension_.one_sided != nullptr || user_ != nullptr ||
            version_ < wire::kSeveralPathsVersion) {
            return Error::eopnotsupp;
        }
        if (state_ != ConnectionState::ready || is_closing_) {
            return Error::eagain;
        }
        if (!linker_.running()) {
            TRY(linker_.start("tiffin-links", run_linker, this));
        }
        wants_several_ = true;
        abort_connection();
    }
    const uint64_t deadline_ns = host::monotonic_ns() + kResumeNs;
    while (true) {
        usleep(kDrainLookUs);
        Locked lock(*this);
        if (has_several() && state_ == ConnectionState::ready) {
            return {};
        }
        if (is_closing_ || host::monotonic_ns() >= deadline_ns) {
            return Error::eagain;
        }
    }
}

Result<void> TcpMemory::add_link(const char* host, uint16_t port) {
    TRY(get_several(host, port));
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
        links_.push_back({host, port});
    } else {
        paths_[index].segments = SegmentSize();
        paths_[index].is_failure_told = false;
        paths_[index].problem.clear();
        links_[index] = {host, port};
    }
    // As the first one, whatever had its place: what is of that kind already stays, with its counters.
    std::shared_ptr<RequestPath>& requests = paths_[index].requests;
    auto made = makes_requests() ? extension_.make_requests(0) : nullptr;
    if ((requests == nullptr) != (made == nullptr)) {
        if (requests != nullptr) {
            requests->add_statistics(statistics_);
        }
        requests = std::move(made);
    }
    reset_join(paths_[index]);
    poke();
    return {};
}

void TcpMemory::give_link_up(size_t link, uint32_t ended_count) {
    Locked lock(*this);
    bool has_another = false;
    for (size_t other = 0; other < paths_.size(); other++) {
        has_another =
            has_another || (other != link && machine_.is_ready(other) && !paths_[other].is_broken);
    }
    if (has_several() && has_another && link < paths_.size() && machine_.is_living(link) &&
        paths_[link].ended_count == ended_count) {
        host::log(host::LogLevel::warning,
                  (link_text(link) + " carries no RDMA, and is given up for another one").c_str());
        abort_path(paths_[link]);
    }
}

Result<void> TcpMemory::remove_link(const char* host, uint16_t port) {
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
