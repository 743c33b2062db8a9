// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A TcpMemory as the stream of a transport with a path of its own (one_sided.h): asking for the path, and what
// becomes of the answer.
#include <string>

#include "rdma_blk/transport/tcp/tcp_memory.h"

namespace tiffin::rdma_blk {

void TcpMemory::want_join() {
    const bool is_worth_it = !choice_ || (choice_->wants_datagrams() && !join_.has_failed);
    const bool is_missing = extension_.one_sided != nullptr ||
                            (extension_.requests != nullptr && !join_.is_joined && !join_.is_sent);
    if (is_missing && is_worth_it && !is_closing_) {
        join_.is_wanted = true;
        join_.is_sent = false;
        send_join();
        poke();
    }
}

void TcpMemory::send_join() {
    if (!join_.is_wanted || join_.is_sent || state_ != ConnectionState::ready) {
        return;
    }
    wire::PathJoin join{};
    join.session_id = facts_.session_id;
    join.incarnation = facts_.incarnation;
    join.path_id = ++join_.number;
    if (extension_.requests == nullptr) {
        join.transport = static_cast<uint8_t>(extension_.one_sided->transport());
        join_.is_sent = send_control(wire::MessageType::path_join, join);
        return;
    }
    const MutableByteSpan parameters(join_.parameters, sizeof(join_.parameters));
    auto offered = offer_request_path(parameters);
    if (!offered.ok()) {
        finish_request_join();
        return;
    }
    join.transport = static_cast<uint8_t>(extension_.requests->transport());
    join.parameter_bytes = static_cast<uint16_t>(*offered);
    join_.is_sent =
        send_control(wire::MessageType::path_join, join, ByteSpan(join_.parameters, *offered));
}

Result<void> TcpMemory::wait_for_join(uint64_t deadline_ns) {
    while (join_.is_wanted) {
        if (state_ != ConnectionState::ready && state_ != ConnectionState::reconnecting) {
            return Error::estale;
        }
        if (host::monotonic_ns() >= deadline_ns) {
            return Error::etimedout;
        }
        send_join();
        wait_for_change();
    }
    const bool is_plain = extension_.one_sided == nullptr && extension_.requests == nullptr;
    return join_.is_joined || is_plain ? Result<void>() : Error::eopnotsupp;
}

Result<void> TcpMemory::wait_until_joined(uint64_t deadline_ns) {
    Locked lock(*this);
    return wait_for_join(deadline_ns);
}

void TcpMemory::stop_paths() {
    if (extension_.one_sided != nullptr) {
        extension_.one_sided->stop();
    }
    if (extension_.requests != nullptr) {
        extension_.requests->stop();
        takes_datagrams_.store(false, std::memory_order_relaxed);
        path_pending_ = 0;
        if (choice_) {
            choice_->datagrams_end();
        }
    }
    if (extension_.one_sided != nullptr || extension_.requests != nullptr) {
        const uint16_t number = join_.number;
        join_ = Join{};
        join_.number = number;
        // Whoever waits for it goes on waiting: it is asked for again.
        join_.is_wanted = !choice_ || choice_->wants_datagrams();
    }
}

// ---- The answer ---------------------------------------------------------------------------------------

Result<void> TcpMemory::handle_one_sided_joined() {
    MessageReader& reader = stream().reader();
    const auto joined = TRY(wire::parse_path_joined(reader.header(), reader.fixed_part()));
    if (joined.session_id != facts_.session_id) {
        return Error::eproto;
    }
    join_.joined = joined;
    if (reader.payload_bytes() == 0) {
        finish_join();
        return {};
    }
    reader.place_payload(MutableByteSpan(join_.parameters, reader.payload_bytes()));
    return {};
}

// A path that is refused is no reason to give the session up: all goes over the stream then.
void TcpMemory::finish_join() {
    if (is_closing_ || !join_.is_sent || join_.joined.path_id != join_.number) {
        stream().descriptors().clear();
        return;
    }
    if (extension_.requests != nullptr) {
        finish_request_join();
        return;
    }
    const auto result =
        join_.joined.reason == 0
            ? extension_.one_sided->joined(ByteSpan(join_.parameters, join_.joined.parameter_bytes),
                                           stream().descriptors(), geometry_.data_bytes)
            : Result<void>(Error::eopnotsupp);
    stream().descriptors().clear();
    join_.is_joined = result.ok();
    join_.is_wanted = false;
    join_.is_sent = false;
    if (!result.ok()) {
        const std::string reason = join_.joined.reason == 0
                                       ? "error " + std::to_string(errno_value(result.error()))
                                       : "reason " + std::to_string(join_.joined.reason);
        host::log(host::LogLevel::warning,
                  ("remote memory: the server's memory cannot be used directly (" + reason +
                   "): all goes as requests")
                      .c_str());
    }
    lease_changed_.notify_all();
}

}  // namespace tiffin::rdma_blk
