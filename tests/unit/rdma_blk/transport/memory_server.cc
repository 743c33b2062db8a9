// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/unit/rdma_blk/transport/memory_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "fs/vfs/host.h"
#include "tests/support/loopback.h"

namespace tiffin::rdma_blk::test {

using wire::MessageType;
using Lock = std::unique_lock<std::mutex>;

struct MemoryServer::Peer {
    explicit Peer(int accepted)
        : socket(accepted),
          reader(MUST(MessageReader::create())),
          writer(MUST(MessageWriter::create(8))) {}

    int socket;
    std::unique_ptr<MessageReader> reader;
    std::unique_ptr<MessageWriter> writer;
    std::unique_ptr<Seal> in;
    std::unique_ptr<Seal> out;
    unsigned char client_uuid[16] = {};
    Session* session = nullptr;
    wire::MessageHeader header{};  // the present message
    unsigned char fixed[wire::kMaxFixedPartBytes] = {};
    std::vector<unsigned char> payload;
    std::thread thread;
    bool is_done = false;

    ByteSpan fixed_span() const { return ByteSpan(fixed, wire::fixed_part_bytes(header)); }
};

MemoryServer::MemoryServer() {
    TIFFIN_ASSERT(initialize_cryptography().ok());
    listener_ = listen_on_loopback(port_);
    acceptor_ = std::thread([this] { accept_all(); });
}

MemoryServer::~MemoryServer() {
    stops_ = true;
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    close(listener_);
    thaw();
    cut_connections();
    for (auto& peer : peers_) {
        peer->thread.join();
        close(peer->socket);
    }
}

bool MemoryServer::find_key(const char* volume_name, Secret<kVolumeKeyBytes>& key) const {
    std::memcpy(key.bytes, kKey, sizeof(kKey));
    return std::strcmp(volume_name, "volume") == 0;
}

ExecutionCounts MemoryServer::counts() const {
    const Lock lock(mutex_);
    return counts_;
}

std::vector<unsigned char> MemoryServer::data() const {
    const Lock lock(mutex_);
    return data_;
}

// ---- Failing ------------------------------------------------------------------------------------------

void MemoryServer::cut_locked() {
    for (auto& peer : peers_) {
        shutdown(peer->socket, SHUT_RDWR);
        if (peer->session != nullptr) {
            peer->session->peer = nullptr;
            peer->session = nullptr;
        }
    }
}

void MemoryServer::cut_connections() {
    const Lock lock(mutex_);
    cut_locked();
}

void MemoryServer::freeze() {
    const Lock lock(mutex_);
    is_frozen_ = true;
}

void MemoryServer::thaw() {
    const Lock lock(mutex_);
    is_frozen_ = false;
    thawed_.notify_all();
}

void MemoryServer::wait_while_frozen() {
    Lock lock(mutex_);
    thawed_.wait(lock, [this] { return !is_frozen_; });
}

void MemoryServer::restart(bool is_empty) {
    const Lock lock(mutex_);
    cut_locked();
    sessions_.clear();
    content_incarnation_++;
    if (is_empty) {
        empty_since_ = content_incarnation_;
        std::fill(data_.begin(), data_.end(), 0);
        std::fill(control_.begin(), control_.end(), 0);
    }
}

void MemoryServer::fence_all(bool tells) {
    const Lock lock(mutex_);
    epoch_++;
    for (auto& [id, session] : sessions_) {
        session->is_fenced = true;
        session->is_writer = false;
        session->slots->fence();
        if (tells && session->peer != nullptr) {
            wire::Notice notice{};
            notice.epoch = epoch_;
            notice.reason = static_cast<uint8_t>(wire::NoticeReason::fenced);
            send(*session->peer, MessageType::notice, notice);
        }
    }
    if (!tells) {
        cut_locked();
    }
}

void MemoryServer::refuse_openings(wire::RefusalReason reason, int times, uint64_t epochs) {
    const Lock lock(mutex_);
    epochs_after_refusals_ = epochs;
    refusal_ = reason;
    refusals_ = times;
}

void MemoryServer::resize(uint64_t data_bytes) {
    const Lock lock(mutex_);
    data_.resize(data_bytes);
    wire::Notice notice{};
    notice.data_bytes = data_bytes;
    notice.reason = static_cast<uint8_t>(wire::NoticeReason::resized);
    for (auto& [id, session] : sessions_) {
        set_access(*session);
        if (session->peer != nullptr) {
            send(*session->peer, MessageType::notice, notice);
        }
    }
}

// ---- Connections --------------------------------------------------------------------------------------

void MemoryServer::accept_all() {
    while (!stops_) {
        const int accepted = accept(listener_, nullptr, nullptr);
        if (accepted < 0) {
            continue;
        }
        set_no_delay(accepted);
        auto peer = std::make_unique<Peer>(accepted);
        Peer& started = *peer;
        const Lock lock(mutex_);
        std::erase_if(peers_, [](const auto& old) {
            if (!old->is_done) {
                return false;
            }
            old->thread.join();  // it is on its way out: it has let go of the lock
            close(old->socket);
            return true;
        });
        peers_.push_back(std::move(peer));
        started.thread = std::thread([this, &started] { serve(started); });
    }
}

// All sends are under the lock, so that answers of one thread and notices of another do not mix.
template <typename T>
bool MemoryServer::send(Peer& peer, MessageType type, const T& message, ByteSpan payload) {
    peer.writer->add(type, message, payload);
    const auto sent = peer.writer->send(peer.socket, 0);
    return sent.ok();
}

// The next message, with its payload, into `peer`.
bool MemoryServer::receive_message(Peer& peer) {
    peer.payload.clear();
    while (true) {
        const auto event = peer.reader->next();
        if (!event.ok()) {
            return false;
        }
        switch (event.value()) {
            case MessageReader::Event::need_bytes:
                if (!peer.reader->receive(peer.socket, 0).ok()) {
                    return false;
                }
                wait_while_frozen();
                break;
            case MessageReader::Event::message:
                peer.header = peer.reader->header();
                std::memcpy(peer.fixed, peer.reader->fixed_part().data(),
                            peer.reader->fixed_part().size());
                peer.payload.resize(peer.reader->payload_bytes());
                if (peer.payload.empty()) {
                    return true;
                }
                peer.reader->place_payload(
                    MutableByteSpan(peer.payload.data(), peer.payload.size()));
                break;
            case MessageReader::Event::payload:
                return true;
        }
    }
}

bool MemoryServer::shake_hands(Peer& peer) {
    const unsigned char address[] = {127, 0, 0, 1};
    HandshakeServer handshake(cookies_, *this, uuid_, wire::hello_flag::encrypt, 0,
                              version_.load());
    while (!handshake.done()) {
        if (!receive_message(peer)) {
            return false;
        }
        const Lock lock(mutex_);
        if (peer.header.type == static_cast<uint8_t>(MessageType::client_proof)) {
            const auto proof = wire::parse_client_proof(peer.header, peer.fixed_span());
            if (!proof.ok() || !handshake.read_client_proof(proof.value()).ok()) {
                return false;
            }
            continue;
        }
        const auto hello = wire::parse_client_hello(peer.header, peer.fixed_span());
        wire::HelloRetry retry{};
        wire::ServerHello answer{};
        if (!hello.ok()) {
            return false;
        }
        const auto said = handshake.read_hello(host::monotonic_ns(), ByteSpan(address),
                                               hello.value(), retry, answer);
        if (!said.ok() ||
            !(said.value() == HelloAnswer::retry ? send(peer, MessageType::hello_retry, retry)
                                                 : send(peer, MessageType::server_hello, answer))) {
            return false;
        }
    }
    const bool encrypts = (handshake.flags() & wire::hello_flag::encrypt) != 0;
    std::memcpy(peer.client_uuid, handshake.client_uuid(), sizeof(peer.client_uuid));
    peer.in = std::make_unique<Seal>(handshake.keys().seal_to_server);
    peer.out = std::make_unique<Seal>(handshake.keys().seal_to_client);
    peer.reader->set_seal(peer.in.get(), encrypts);
    return peer.writer->set_seal(peer.out.get(), encrypts).ok();
}

void MemoryServer::serve(Peer& peer) {
    bool goes_on = shake_hands(peer);
    while (goes_on && receive_message(peer)) {
        if (peer.header.type == static_cast<uint8_t>(MessageType::session_open) &&
            kept_waiting_ > 0) {
            kept_waiting_--;
            usleep(700'000);
            break;
        }
        const Lock lock(mutex_);
        goes_on = handle(peer);
    }
    const Lock lock(mutex_);
    shutdown(peer.socket, SHUT_RDWR);
    if (peer.session != nullptr) {
        peer.session->peer = nullptr;
        peer.session = nullptr;
    }
    peer.is_done = true;
}

bool MemoryServer::handle(Peer& peer) {
    const auto type = static_cast<MessageType>(peer.header.type);
    if (type == MessageType::session_open) {
        return open(peer);
    }
    if (peer.session == nullptr) {
        return false;
    }
    switch (type) {
        case MessageType::request:
            return handle_request(peer);
        case MessageType::lease_request:
            return answer_lease(peer);
        case MessageType::probe: {
            counts_.probes++;
            wire::Probe probe = MUST(wire::parse_probe(peer.header, peer.fixed_span()));
            probe.content_incarnation = content_incarnation_;
            return send(peer, MessageType::probe_reply, probe);
        }
        case MessageType::session_close: {
            const auto goodbye = MUST(wire::parse_session_close(peer.header, peer.fixed_span()));
            counts_.sessions_closed++;
            sessions_.erase(std::exchange(peer.session, nullptr)->id);
            return send(peer, MessageType::session_closed, goodbye);
        }
        default:
            return false;
    }
}

// ---- Sessions -----------------------------------------------------------------------------------------

MemoryServer::Session* MemoryServer::holder() {
    for (auto& [id, session] : sessions_) {
        if (session->is_writer) {
            return session.get();
        }
    }
    return nullptr;
}

bool MemoryServer::refuse(Peer& peer, wire::RefusalReason reason, const Session* held_by) {
    wire::SessionRefused refused{};
    refused.epoch = epoch_;
    refused.content_incarnation = content_incarnation_;
    refused.empty_since_incarnation = empty_since_;
    refused.reason = static_cast<uint8_t>(reason);
    if (held_by != nullptr) {
        std::memcpy(refused.holder_text, held_by->holder_text, sizeof(refused.holder_text));
    }
    send(peer, MessageType::session_refused, refused);
    return false;
}

void MemoryServer::set_access(Session& session) {
    SessionAccess access;
    access.session_id = session.id;
    access.volume_epoch = epoch_;
    access.is_writer = session.is_writer;
    access.data_bytes = data_.size();
    access.control_bytes = control_.size();
    access.words_bytes = control_.size();
    session.slots->set_access(access);
}

void MemoryServer::grant(Session& session) {
    if (Session* before = holder(); before != nullptr) {
        before->is_writer = false;
        before->is_fenced = true;
        before->slots->fence();
        if (before->peer != nullptr) {
            shutdown(before->peer->socket, SHUT_RDWR);
            before->peer->session = nullptr;
            before->peer = nullptr;
        }
    }
    epoch_++;
    session.is_writer = true;
    set_access(session);
}

bool MemoryServer::open(Peer& peer) {
    const auto open = MUST(wire::parse_session_open(peer.header, peer.fixed_span()));
    if (refusals_ > 0) {
        refusals_--;
        (void)refuse(peer, refusal_, nullptr);
        epoch_ += refusals_ == 0 ? epochs_after_refusals_ : 0;
        return false;
    }
    Session* session = nullptr;
    if (open.session_id != 0) {
        const auto found = sessions_.find(open.session_id);
        if (found == sessions_.end()) {
            return refuse(peer, wire::RefusalReason::no_session, nullptr);
        }
        session = found->second.get();
        if (session->is_fenced) {
            return refuse(peer, wire::RefusalReason::fenced, nullptr);
        }
        counts_.sessions_resumed++;
    } else {
        const bool wants_lease = open.mode == static_cast<uint8_t>(wire::SessionMode::write);
        Session* other = holder();
        if (wants_lease && other != nullptr && (open.flags & wire::open_flag::force) == 0) {
            return refuse(peer, wire::RefusalReason::held, other);
        }
        auto made = std::make_unique<Session>();
        session = made.get();
        session->id = next_session_id_++;
        session->entries.resize(std::min<uint16_t>(open.slot_count, slot_count_));
        session->slots = MUST(SlotTable::create(
            Span<wire::SlotEntry>(session->entries.data(), session->entries.size())));
        std::memcpy(session->holder_text, open.holder_text, sizeof(open.holder_text));
        sessions_[session->id] = std::move(made);
        set_access(*session);
        if (wants_lease) {
            grant(*session);
        }
        counts_.sessions_opened++;
    }
    if (session->peer != nullptr) {
        shutdown(session->peer->socket, SHUT_RDWR);
        session->peer->session = nullptr;
    }
    session->peer = &peer;
    peer.session = session;
    unsigned char outcomes[wire::kMaxSlots];
    if (!session->slots
             ->open_incarnation(open.incarnation, open.next_sequence,
                                ByteSpan(peer.payload.data(), peer.payload.size()), outcomes)
             .ok()) {
        return refuse(peer, wire::RefusalReason::stale_incarnation, nullptr);
    }
    wire::SessionOpened opened{};
    opened.session_id = session->id;
    opened.epoch = epoch_;
    opened.content_incarnation = content_incarnation_;
    opened.empty_since_incarnation = empty_since_;
    opened.data_bytes = data_.size();
    opened.control_bytes = control_.size();
    opened.server_uuid[0] = uuid_[0];
    opened.volume_uuid[0] = 0x70;
    opened.incarnation = open.incarnation;
    opened.transfer_bytes = wire::kMaxTransferBytes;
    opened.eager_bytes = wire::kEagerBytes;
    opened.write_unit_bytes = 64;
    opened.probe_interval_ms = probe_interval_ms_;
    opened.lease_timeout_ms = 60000;
    opened.slot_count = session->slots->slot_count();
    opened.outstanding_count = open.outstanding_count;
    opened.flags = open.session_id != 0 ? wire::session_flag::resumed : 0;
    opened.durability = 1;
    return send(peer, MessageType::session_opened, opened,
                ByteSpan(outcomes, open.outstanding_count));
}

bool MemoryServer::answer_lease(Peer& peer) {
    const auto request = MUST(wire::parse_lease_request(peer.header, peer.fixed_span()));
    wire::LeaseReply reply{};
    const Session* other = holder();
    if (other != nullptr && other != peer.session &&
        (request.flags & wire::open_flag::force) == 0) {
        reply.reason = static_cast<uint8_t>(wire::RefusalReason::held);
        std::memcpy(reply.holder_text, other->holder_text, sizeof(reply.holder_text));
    } else if (other != peer.session) {
        grant(*peer.session);
    }
    reply.epoch = epoch_;
    return send(peer, MessageType::lease_reply, reply);
}

// ---- Requests -------------------------------------------------------------------------------------------

bool MemoryServer::handle_request(Peer& peer) {
    const auto parsed = wire::parse_request(peer.header, peer.fixed_span());
    if (!parsed.ok()) {
        return false;
    }
    const wire::Request request = parsed.value();
    if ((request.flags & wire::request_flag::has_checksum) != 0 &&
        host::crc32c(0, peer.payload.data(), peer.payload.size()) != request.payload_checksum) {
        return false;
    }
    SlotTable& slots = *peer.session->slots;
    const auto decision = slots.decide(request);
    if (!decision.ok() || decision.value().action == RequestAction::wait) {
        return false;  // one stream, executed in order: nothing ever has to wait
    }
    switch (decision.value().action) {
        case RequestAction::execute:
            return execute(peer, request);
        case RequestAction::reply:
            counts_.refused += decision.value().response.outcome != 1 ? 1 : 0;
            return send(peer, MessageType::response, decision.value().response);
        default:
            return true;
    }
}

bool MemoryServer::execute(Peer& peer, const wire::Request& request) {
    SlotTable& slots = *peer.session->slots;
    auto& space = request.space == 0 ? data_ : control_;
    unsigned char* place = space.data() + request.offset_bytes;
    switch (static_cast<OperationKind>(request.operation)) {
        case OperationKind::read: {
            counts_.reads++;
            wire::Response response = slots.finish(request, Outcome::executed, Error::eio, 0);
            response.payload_bytes = request.length_bytes;
            response.flags |= wire::response_flag::has_checksum;
            response.payload_checksum = host::crc32c(0, place, request.length_bytes);
            if (damaged_reads_ > 0) {
                damaged_reads_--;
                response.payload_checksum++;
            }
            return send(peer, MessageType::response, response,
                        ByteSpan(place, request.length_bytes));
        }
        case OperationKind::write:
            counts_.writes++;
            std::memcpy(place, peer.payload.data(), peer.payload.size());
            return send(peer, MessageType::response,
                        slots.finish(request, Outcome::executed, Error::eio, 0));
        case OperationKind::compare_swap:
        case OperationKind::fetch_add:
            counts_.atomics++;
            return send(peer, MessageType::response,
                        execute_atomic(slots, request, reinterpret_cast<uint64_t*>(place)));
        case OperationKind::flush:
            counts_.flushes++;
            return send(peer, MessageType::response,
                        slots.finish(request, Outcome::executed, Error::eio, content_incarnation_));
    }
    return false;
}

}  // namespace tiffin::rdma_blk::test
