// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A TcpMemory as the stream of a transport with a path of its own (one_sided.h): asking for the path, and what
// becomes of the answer.
#include <string>

#include "rdma_blk/transport/tcp/tcp_memory.h"

namespace tiffin::rdma_blk {

void TcpMemory::want_join(StreamPath& path) {
    const bool is_worth_it = !choice_ || (choice_->wants_datagrams() && !path.join.has_failed);
    const bool is_missing =
        extension_.one_sided != nullptr ||
        (path.requests != nullptr && !path.join.is_joined && !path.join.is_sent);
    if (is_missing && is_worth_it && !is_closing_) {
        path.join.is_wanted = true;
        path.join.is_sent = false;
        send_join(path);
        poke();
    }
}

void TcpMemory::send_join(StreamPath& path) {
    PathJoinState& state = path.join;
    if (!state.is_wanted || state.is_sent || state_ != ConnectionState::ready ||
        path.connection->writer().full()) {
        return;
    }
    wire::PathJoin join{};
    join.session_id = facts_.session_id;
    join.incarnation = facts_.incarnation;
    join.path_id = ++state.number;
    if (path.requests == nullptr) {
        join.transport = static_cast<uint8_t>(extension_.one_sided->transport());
        state.is_sent = send_on(path, wire::MessageType::path_join, join);
        return;
    }
    const MutableByteSpan parameters(state.parameters, sizeof(state.parameters));
    auto offered = offer_request_path(path, parameters);
    if (!offered.ok()) {
        finish_request_join(path);
        return;
    }
    join.transport = static_cast<uint8_t>(path.requests->transport());
    join.parameter_bytes = static_cast<uint16_t>(*offered);
    state.is_sent =
        send_on(path, wire::MessageType::path_join, join, ByteSpan(state.parameters, *offered));
}

// Of a connection that has ended. Whoever waits for it goes on waiting: it is asked for again on the next one.
void TcpMemory::reset_join(StreamPath& path) {
    const uint16_t number = path.join.number;
    path.join = PathJoinState{};
    path.join.number = number;
    const bool has_any = extension_.one_sided != nullptr || path.requests != nullptr;
    path.join.is_wanted = has_any && (!choice_ || choice_->wants_datagrams());
}

// On one of the links that live.
bool TcpMemory::is_joining() const {
    for (size_t index = 0; index < paths_.size(); index++) {
        if (paths_[index].join.is_wanted && machine_.is_living(index)) {
            return true;
        }
    }
    return false;
}

Result<void> TcpMemory::wait_for_join(uint64_t deadline_ns) {
    while (active().join.is_wanted) {
        if (state_ != ConnectionState::ready && state_ != ConnectionState::reconnecting) {
            return Error::estale;
        }
        if (host::monotonic_ns() >= deadline_ns) {
            return Error::etimedout;
        }
        send_join(active());
        wait_for_change();
    }
    const bool is_plain = extension_.one_sided == nullptr && active().requests == nullptr;
    return active().join.is_joined || is_plain ? Result<void>() : Error::eopnotsupp;
}

Result<void> TcpMemory::wait_until_joined(uint64_t deadline_ns) {
    Locked lock(*this);
    return wait_for_join(deadline_ns);
}

void TcpMemory::stop_one_sided() {
    if (extension_.one_sided != nullptr) {
        extension_.one_sided->stop();
        reset_join(active());
    }
}

// ---- The answer ---------------------------------------------------------------------------------------

Result<void> TcpMemory::handle_one_sided_joined() {
    MessageReader& reader = stream().reader();
    const auto joined = TRY(wire::parse_path_joined(reader.header(), reader.fixed_part()));
    if (joined.session_id != facts_.session_id) {
        return Error::eproto;
    }
    PathJoinState& join = paths_[at_].join;
    join.joined = joined;
    if (reader.payload_bytes() == 0) {
        finish_join();
        return {};
    }
    reader.place_payload(MutableByteSpan(join.parameters, reader.payload_bytes()));
    return {};
}

// A path that is refused is no reason to give the session up: all goes over the stream then.
void TcpMemory::finish_join() {
    PathJoinState& join = paths_[at_].join;
    if (is_closing_ || !join.is_sent || join.joined.path_id != join.number) {
        stream().descriptors().clear();
        return;
    }
    if (makes_requests()) {
        finish_request_join(paths_[at_]);
        return;
    }
    const auto result = join.joined.reason == 0
                            ? extension_.one_sided->joined(
                                  ByteSpan(join.parameters, join.joined.parameter_bytes),
                                  stream().descriptors(), geometry_.data_bytes, facts_.epoch)
                            : Result<void>(Error::eopnotsupp);
    stream().descriptors().clear();
    join.is_joined = result.ok();
    join.is_wanted = false;
    join.is_sent = false;
    if (!result.ok()) {
        const std::string reason = join.joined.reason == 0
                                       ? "error " + std::to_string(errno_value(result.error()))
                                       : "reason " + std::to_string(join.joined.reason);
        host::log(host::LogLevel::warning,
                  ("remote memory: the server's memory cannot be used directly (" + reason +
                   "): all goes as requests")
                      .c_str());
    }
    lease_changed_.notify_all();
}

}  // namespace tiffin::rdma_blk
