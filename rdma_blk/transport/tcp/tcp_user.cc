// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A TcpMemory beside a OneSidedUser (one_sided.h): paths that it asks for, and what it wants to know of the links.
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "rdma_blk/transport/mapped_address.h"
#include "rdma_blk/transport/tcp/tcp_memory.h"
#include "rdma_blk/transport/time_units.h"

namespace tiffin::rdma_blk {
namespace {

// A server may have to register much memory first; that it lives, probes tell.
constexpr uint64_t kPathTimeoutNs = 120 * kSecondNs;

}  // namespace

void TcpMemory::tell_user_of_links() const {
    if (user_ != nullptr) {
        user_->links_changed();
    }
}

LinksView TcpMemory::links() const {
    static_assert(LinksView::kCapacity == SessionMachine::kMaxPaths);
    LinksView view;
    Locked lock(*this);
    view.is_ready = state_ == ConnectionState::ready && !is_broken_;
    view.has_queue_pairs = has_several() && version_ >= wire::kSeveralQueuePairsVersion;
    view.active = machine_.active();
    view.count = paths_.size();
    for (size_t index = 0; index < paths_.size(); index++) {
        LinksView::Link& link = view.links[index];
        link.ended_count = paths_[index].ended_count;
        link.is_ended_at_server = !machine_.must_revoke(index);
        if (!view.is_ready || !machine_.is_ready(index) || paths_[index].is_broken) {
            continue;
        }
        const Result<sockaddr_in6> local =
            mapped_address(paths_[index].connection->socket(), getsockname);
        if (local.ok()) {
            std::memcpy(link.address, &local.value().sin6_addr, sizeof(link.address));
            link.is_ready = true;
        }
    }
    return view;
}

uint16_t TcpMemory::session_flags() const {
    Locked lock(*this);
    return session_flags_;
}

uint32_t TcpMemory::probe_interval_ms() const {
    Locked lock(*this);
    return static_cast<uint32_t>(probe_interval_ns_ / 1'000'000);
}

// ---- Paths that are asked for ---------------------------------------------------------------------------

bool TcpMemory::is_asking_for_path() const {
    return std::any_of(paths_.begin(), paths_.end(),
                       [](const StreamPath& path) { return path.question.is_wanted; });
}

Result<PathAnswer> TcpMemory::join_path(size_t link, wire::PathTransport transport,
                                        ByteSpan parameters, Patience& patience) {
    const uint64_t deadline = host::monotonic_ns() + kPathTimeoutNs;
    Locked lock(*this);
    if (state_ != ConnectionState::ready || is_broken_ || !machine_.is_ready(link)) {
        const bool may_come =
            state_ == ConnectionState::ready || state_ == ConnectionState::reconnecting;
        return may_come ? Error::eagain : Error::estale;
    }
    StreamPath& path = paths_[link];
    PathQuestion& question = path.question;
    TIFFIN_ASSERT(parameters.size() <= sizeof(question.parameters) && !question.is_wanted);
    const auto path_id = static_cast<uint16_t>(question.path_id + 1);
    question = PathQuestion{};
    question.path_id = path_id;
    question.is_wanted = true;
    std::memcpy(question.parameters, parameters.data(), parameters.size());
    wire::PathJoin join{};
    join.session_id = facts_.session_id;
    join.incarnation = facts_.incarnation;
    join.path_id = path_id;
    join.transport = static_cast<uint8_t>(transport);
    join.parameter_bytes = static_cast<uint16_t>(parameters.size());
    question.is_lost = !send_on(path, wire::MessageType::path_join, join,
                                ByteSpan(question.parameters, parameters.size()));
    poke();
    while (!question.is_answered && !question.is_lost) {
        if (host::monotonic_ns() >= deadline) {
            // Its answer could be taken for that to a later question.
            question.is_wanted = false;
            abort_path(path);
            return Error::etimedout;
        }
        wait_for_change();
        leave();
        const bool goes_on = patience.go_on();
        mutex_.lock();
        if (!goes_on && !question.is_answered && !question.is_lost) {
            question.is_wanted = false;
            question.is_abandoned = true;
            return Error::ecanceled;
        }
    }
    question.is_wanted = false;
    if (question.is_lost) {
        return Error::eagain;
    }
    return question.answer;
}

Result<void> TcpMemory::handle_path_joined() {
    if (extension_.one_sided != nullptr || makes_requests()) {
        return handle_one_sided_joined();
    }
    MessageReader& reader = stream().reader();
    PathQuestion& question = paths_[at_].question;
    const auto joined = TRY(wire::parse_path_joined(reader.header(), reader.fixed_part()));
    const bool is_expected = question.is_wanted || std::exchange(question.is_abandoned, false);
    if (!is_expected || joined.path_id != question.path_id ||
        joined.session_id != facts_.session_id) {
        return Error::eproto;
    }
    question.answer.joined = joined;
    if (reader.payload_bytes() == 0) {
        finish_path_question(paths_[at_], false);
        return {};
    }
    question.is_receiving = true;
    reader.place_payload(MutableByteSpan(question.answer.parameters, reader.payload_bytes()));
    return {};
}

void TcpMemory::finish_path_question(StreamPath& path, bool is_lost) {
    PathQuestion& question = path.question;
    question.is_receiving = false;
    if (is_lost) {
        question.is_abandoned = false;  // no answer comes any more
    }
    if (question.is_wanted) {
        question.is_lost = question.is_lost || is_lost;
        question.is_answered = !question.is_lost;
        lease_changed_.notify_all();
    }
}

}  // namespace tiffin::rdma_blk
