// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The linker: a thread that makes the links of a TcpMemory that has several. It connects, shows the key and joins, so that no
// other thread waits for a network that does not answer.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "rdma_blk/session/key_schedule.h"
#include "rdma_blk/transport/tcp/tcp_memory.h"
#include "rdma_blk/transport/time_units.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint64_t kLinkTimeoutNs = 5 * kSecondNs;

std::string error_text(Error error) { return std::strerror(errno_value(error)); }

}  // namespace

void TcpMemory::run_linker(void* memory) { static_cast<TcpMemory*>(memory)->link_paths(); }

void TcpMemory::link_paths() {
    while (true) {
        link_wanted_.wait();
        size_t wanted = SessionMachine::kNoPath;
        {
            Locked lock(*this);
            if (is_closing_) {
                for (StreamPath& path : paths_) {
                    path.is_joining = false;
                }
                return;
            }
            for (size_t index = 0; index < paths_.size(); index++) {
                wanted = paths_[index].is_joining ? index : wanted;
            }
        }
        if (wanted != SessionMachine::kNoPath) {
            make_path(wanted);
        }
    }
}

bool TcpMemory::may_link(uint32_t incarnation) {
    Locked lock(*this);
    return state_ == ConnectionState::ready && !is_closing_ && facts_.incarnation == incarnation;
}

void TcpMemory::make_path(size_t index) {
    struct LinkPatience final : Patience {
        bool go_on() override { return memory->may_link(incarnation); }
        TcpMemory* memory = nullptr;
        uint32_t incarnation = 0;
    };
    SessionFacts facts;
    {
        Locked lock(*this);
        facts = facts_;
    }
    LinkPatience patience;
    patience.memory = this;
    patience.incarnation = facts.incarnation;
    std::string problem;
    const auto joined = join_stream(index, facts, patience, problem);
    Locked lock(*this);
    StreamPath& path = paths_[index];
    path.is_joining = false;
    const bool is_present =
        state_ == ConnectionState::ready && !is_closing_ && facts_.incarnation == facts.incarnation;
    const uint64_t now = host::monotonic_ns();
    if (is_present && joined.ok()) {
        path.made_ns = now;
        note_stream_heard(path, now);
        path.is_failure_told = false;
        path.problem.clear();
        set_up(path);
        machine_.joined(index, now, path.connection->delay_ns());
        want_join(path);
        tell_user_of_links();
    } else {
        close_path(path);
        if (machine_.state(index) == SessionMachine::PathState::joining) {
            if (is_present) {
                tell_of_failure(index, problem.empty() ? error_text(joined.error()) : problem);
            }
            machine_.join_failed(index, now);  // in a later incarnation, perhaps
        }
    }
    poke();
}

// In the log once, until the link has worked: it is tried again and again.
void TcpMemory::tell_of_failure(size_t index, const std::string& problem) {
    paths_[index].problem = problem;
    if (!std::exchange(paths_[index].is_failure_told, true)) {
        host::log(host::LogLevel::warning,
                  (link_text(index) + " cannot be made, and is tried again: " + problem).c_str());
    }
}

Result<void> TcpMemory::join_stream(size_t index, const SessionFacts& facts, Patience& patience,
                                    std::string& problem) {
    const uint64_t deadline_ns = host::monotonic_ns() + kLinkTimeoutNs;
    ClientConnection& connection = *paths_[index].connection;
    Socket socket = TRY(connect(index, deadline_ns, patience, problem));
    TRY(connection.open(std::move(socket), options_, deadline_ns, patience, problem));
    if (!std::equal(std::begin(geometry_.server_uuid), std::end(geometry_.server_uuid),
                    connection.server_uuid())) {
        problem = "it leads to another server";
        return Error::eproto;
    }
    wire::PathJoin join{};
    join.session_id = facts.session_id;
    join.incarnation = facts.incarnation;
    join.transport = static_cast<uint8_t>(wire::PathTransport::tcp);
    join.parameter_bytes = sizeof(wire::PathProof);
    wire::PathProof proof{};
    {
        Locked lock(*this);
        // Only of a link that is up, since a server takes none that is not greater than those before it.
        if (next_path_id_ == UINT16_MAX) {
            abort_connection();  // an incarnation counts from the beginning
            return Error::eagain;
        }
        join.path_id = paths_[index].id = next_path_id_++;
        make_join_proof(session_secret_, connection.keys().session_secret, join, proof.proof);
    }
    connection.writer().add(
        wire::MessageType::path_join, join,
        ByteSpan(reinterpret_cast<const unsigned char*>(&proof), sizeof(proof)));
    TRY(connection.exchange(deadline_ns, patience));
    MessageReader& reader = connection.reader();
    const auto joined = TRY(wire::parse_path_joined(reader.header(), reader.fixed_part()));
    if (joined.reason != 0 || joined.path_id != join.path_id || reader.payload_bytes() != 0) {
        problem = "the server refuses it, reason " + std::to_string(joined.reason);
        return Error::eproto;
    }
    return {};
}

}  // namespace tiffin::rdma_blk
