// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a connection does with each message.
#include <cstring>
#include <new>
#include <utility>

#include "fs/vfs/host.h"
#include "rdma_blk/server/connection.h"
#include "rdma_blk/server/printable.h"
#include "rdma_blk/transport/mapped_address.h"
#include "rdma_blk/wire/parse.h"

namespace tiffin::rdma_blk {
namespace {

// How long a lease waits for the end of the process that had it, and for how much of that at once.
constexpr uint64_t kEndTimeoutNs = 10'000'000'000;
constexpr int kEndSliceMs = 200;

}  // namespace

Result<void> Connection::on_message(uint64_t now_ns) {
    if (reader_->type() == wire::MessageType::request && state_ == State::attached) {
        TRY(on_request_head());
    }
    if (payload_bytes_ == 0) {
        return on_whole(now_ns);
    }
    if (reader_->type() == wire::MessageType::session_open && state_ == State::authenticated) {
        // The fixed part does not stay while the payload is read.
        deferred_.open = TRY(wire::parse_session_open(reader_->header(), reader_->fixed_part()));
        return place_payload();
    }
    if (reader_->type() == wire::MessageType::request && state_ == State::attached) {
        return place_payload();
    }
    const bool has_shown_key = state_ == State::authenticated || state_ == State::attached;
    if (reader_->type() == wire::MessageType::path_join && has_shown_key) {
        path_join_ = TRY(wire::parse_path_join(reader_->header(), reader_->fixed_part()));
        return place_payload();
    }
    if (reader_->type() == wire::MessageType::path_recover && state_ == State::attached) {
        path_recover_ = TRY(wire::parse_path_recover(reader_->header(), reader_->fixed_part()));
        return place_payload();
    }
    return Error::eproto;
}

Result<void> Connection::place_payload() {
    if (payload_bytes_ > staging_capacity_) {
        staging_.reset(new (std::nothrow) unsigned char[payload_bytes_]);
        staging_capacity_ = staging_ ? payload_bytes_ : 0;
        if (!staging_) {
            return Error::enomem;
        }
    }
    reader_->place_payload(MutableByteSpan(staging_.get(), payload_bytes_));
    return {};
}

// A message is there in whole.
Result<void> Connection::on_whole(uint64_t now_ns) {
    switch (state_) {
        case State::hello:
            return on_client_hello(now_ns);
        case State::proof:
            return on_client_proof();
        case State::authenticated:
        case State::attached:
            return on_session_message(now_ns);
    }
    return Error::eproto;
}

// ---- The handshake -----------------------------------------------------------------------------------------

Result<void> Connection::on_client_hello(uint64_t now_ns) {
    const wire::ClientHello hello =
        TRY(wire::parse_client_hello(reader_->header(), reader_->fixed_part()));
    wire::HelloRetry retry{};
    wire::ServerHello server{};
    const HelloAnswer answer = TRY(handshake_->read_hello(
        now_ns, ByteSpan(peer_address_.data(), peer_address_.size()), hello, retry, server));
    if (answer == HelloAnswer::retry) {
        // A cookie that was just made is good: who needs another one does not want to come in.
        if (std::exchange(was_retried_, true)) {
            return Error::eproto;
        }
        return reply(wire::MessageType::hello_retry, retry);
    }
    state_ = State::proof;
    return reply(wire::MessageType::server_hello, server);
}

bool Connection::find_key(const char* volume_name, Secret<kVolumeKeyBytes>& key) const {
    asked_volume_ = printable(volume_name, wire::kMaxVolumeNameBytes);
    volume_ = host_.find_volume(volume_name);
    if (!volume_) {
        return false;
    }
    key = volume_->key();
    return true;
}

Result<void> Connection::on_client_proof() {
    const wire::ClientProof proof =
        TRY(wire::parse_client_proof(reader_->header(), reader_->fixed_part()));
    TRY(handshake_->read_client_proof(proof));
    const bool seals_requests = (handshake_->flags() & wire::hello_flag::encrypt) != 0;
    open_seal_ = std::make_unique<Seal>(handshake_->keys().seal_to_server);
    reader_->set_seal(open_seal_.get(), seals_requests);
    {
        MutexLock lock(mutex_);
        seal_ = std::make_unique<Seal>(handshake_->keys().seal_to_client);
        output_.set_seal(seal_.get(), seals_requests);
    }
    state_ = State::authenticated;
    count(host_.counters().handshakes_done);
    return {};
}

// ---- Sessions ------------------------------------------------------------------------------------------------

Result<void> Connection::on_session_message(uint64_t now_ns) {
    const bool is_attached = state_ == State::attached;
    switch (reader_->type()) {
        case wire::MessageType::session_open:
            if (is_attached) {
                return Error::eproto;
            }
            if (payload_bytes_ == 0) {
                deferred_.open =
                    TRY(wire::parse_session_open(reader_->header(), reader_->fixed_part()));
            }
            deferred_.type = wire::MessageType::session_open;
            deferred_.payload.assign(payload().begin(), payload().end());
            return answer_deferred(now_ns);
        case wire::MessageType::path_join:
            return is_attached ? on_attached_path_join() : on_path_join(now_ns);
        case wire::MessageType::path_recover:
            return is_attached ? on_path_recover() : Error::eproto;
        case wire::MessageType::request:
            return is_attached ? on_request() : Error::eproto;
        case wire::MessageType::probe:
        case wire::MessageType::probe_reply:
            return is_attached ? on_probe() : Error::eproto;
        case wire::MessageType::lease_request:
            return is_attached ? on_lease_request(now_ns) : Error::eproto;
        case wire::MessageType::notice: {
            const wire::Notice notice =
                TRY(wire::parse_notice(reader_->header(), reader_->fixed_part()));
            if (!is_attached ||
                notice.reason != static_cast<uint8_t>(wire::NoticeReason::stopping)) {
                return Error::eproto;
            }
            session_->leave_memory();
            return {};
        }
        case wire::MessageType::session_close: {
            if (!is_attached) {
                return Error::eproto;
            }
            deferred_.close =
                TRY(wire::parse_session_close(reader_->header(), reader_->fixed_part()));
            if (deferred_.close.session_id != session_->id()) {
                return Error::eproto;
            }
            deferred_.type = wire::MessageType::session_close;
            return answer_deferred(now_ns);
        }
        default:
            return Error::eproto;
    }
}

Result<void> Connection::answer_deferred(uint64_t now_ns) {
    if (deferred_.type == wire::MessageType::session_open) {
        return open_session(now_ns);
    }
    return deferred_.type == wire::MessageType::session_close ? close_session() : Result<void>();
}

// Tells, if there is none.
bool Connection::find_room(bool has_room) {
    if (has_room) {
        return true;
    }
    count(volume_->counters().sessions_refused[static_cast<size_t>(wire::RefusalReason::no_room)]);
    host_.note_refusal(
        "all places for connections are taken (max_connections): a client of volume " +
        asked_volume_ + " was refused");
    return false;
}

void Connection::attach() {
    state_ = State::attached;
    if (handshake_->is_reader()) {
        counts_as_reader_ = true;
        host_.count_reader(1);
    }
}

// Readers leave a part of the paths to writers, as of all else.
DatagramLimits Connection::datagram_limits() const {
    DatagramLimits limits = limits_.datagrams;
    if (limits.max_paths != 0 && handshake_->is_reader()) {
        limits.max_paths = static_cast<uint32_t>(most_of_readers(limits.max_paths));
    }
    return limits;
}

Result<void> Connection::open_session(uint64_t now_ns) {
    // A session that comes back takes the place that it had. A reader's that has had none since has to find one.
    const bool is_reader = handshake_->is_reader();
    const bool has_room =
        deferred_.open.session_id == 0
            ? host_.has_room(is_reader)
            : !is_reader || host_.may_reader_return() ||
                  volume_->is_connected(deferred_.open.session_id, handshake_->owner());
    if (!find_room(has_room)) {
        deferred_ = Deferred{};
        wire::SessionRefused refused{};
        refused.reason = static_cast<uint8_t>(wire::RefusalReason::no_room);
        return reply(wire::MessageType::session_refused, refused);
    }
    const ByteSpan entries(deferred_.payload.data(), deferred_.payload.size());
    wire::SessionOpen open = deferred_.open;
    if (std::memcmp(open.client_uuid, handshake_->client_uuid(), sizeof(open.client_uuid)) == 0) {
        std::memcpy(open.client_uuid, handshake_->owner(), sizeof(open.client_uuid));
    }
    Volume::OpenAnswer answer =
        volume_->open_session(open, entries, handshake_->owner(), handshake_->is_reader(),
                              shared_from_this(), now_ns, process_.get());
    if (answer.kind == Volume::OpenAnswer::Kind::try_again) {
        // Not longer than the time for handshakes allows, which goes on.
        return answer.ending ? try_when_gone(answer.ending) : Result<void>();
    }
    deferred_ = Deferred{};
    if (answer.kind == Volume::OpenAnswer::Kind::refused) {
        // The connection stays for another attempt, within the time for handshakes.
        return reply(wire::MessageType::session_refused, answer.refused);
    }
    session_ = answer.session;
    session_->set_secret(answer.opened.incarnation, handshake_->keys().session_secret);
    attach();
    return reply(wire::MessageType::session_opened, answer.opened,
                 ByteSpan(answer.outcomes.data(), answer.outcomes.size()));
}

Result<void> Connection::close_session() {
    const bool all_flushed = (deferred_.close.flags & wire::close_flag::all_flushed) != 0;
    if (!volume_->close_session(session_, shared_from_this(), all_flushed)) {
        return {};
    }
    const wire::SessionClose close = deferred_.close;
    deferred_ = Deferred{};
    TRY(reply(wire::MessageType::session_closed, close));
    ending_.store(true);
    return {};
}

// Another connection of a session: tcp. The other transports are not offered here.
Result<void> Connection::on_path_join(uint64_t now_ns) {
    if (payload_bytes_ == 0) {
        path_join_ = TRY(wire::parse_path_join(reader_->header(), reader_->fixed_part()));
    }
    const wire::PathJoin& join = path_join_;
    wire::PathJoined joined{};
    joined.session_id = join.session_id;
    joined.path_id = join.path_id;
    auto reason = wire::RefusalReason::no_transport;
    if (join.transport == static_cast<uint8_t>(wire::PathTransport::tcp) &&
        handshake_->version() >= wire::kSeveralPathsVersion) {
        const wire::PathProof proof = TRY(wire::parse_path_proof(payload()));
        reason = wire::RefusalReason::no_room;
        if (find_room(host_.has_room_for_more(handshake_->is_reader()))) {
            session_ = volume_->join(join, handshake_->owner(), handshake_->keys().session_secret,
                                     proof, shared_from_this(), reason);
        }
    }
    if (session_) {
        attach();
        path_id_ = join.path_id;
        session_->heard(now_ns);
    } else {
        joined.reason = static_cast<uint8_t>(reason);
    }
    return reply(wire::MessageType::path_joined, joined);
}

Result<void> Connection::on_path_recover() {
    if (payload_bytes_ == 0) {
        path_recover_ = TRY(wire::parse_path_recover(reader_->header(), reader_->fixed_part()));
    }
    if (path_recover_.session_id != session_->id() ||
        handshake_->version() < wire::kSeveralPathsVersion) {
        return Error::eproto;
    }
    unsigned char outcomes[wire::kMaxSlots];
    wire::PathRecovered recovered{};
    recovered.session_id = path_recover_.session_id;
    recovered.number = path_recover_.number;
    recovered.reason = static_cast<uint8_t>(
        TRY(session_->recover(path_recover_, payload(), shared_from_this(), outcomes)));
    recovered.outstanding_count = recovered.reason == 0 ? path_recover_.outstanding_count : 0;
    return reply(wire::MessageType::path_recovered, recovered,
                 ByteSpan(outcomes, recovered.outstanding_count));
}

Result<void> Connection::try_when_gone(std::shared_ptr<PeerProcess> process) {
    auto work = [self = shared_from_this(), process = std::move(process)] {
        (void)process->wait_until_gone(kEndSliceMs);
        self->wake();
    };
    return host_.run_later(ConnectionHost::Work::wait, std::move(work)) ? Result<void>()
                                                                        : Error::eagain;
}

// Another way to the memory, beside this connection.
Result<void> Connection::on_attached_path_join() {
    if (payload_bytes_ == 0) {
        path_join_ = TRY(wire::parse_path_join(reader_->header(), reader_->fixed_part()));
    }
    if (path_join_.session_id != session_->id()) {
        return Error::eproto;
    }
    switch (static_cast<wire::PathTransport>(path_join_.transport)) {
        case wire::PathTransport::rc:
            return on_rc_join();
        case wire::PathTransport::udp:
            return on_datagram_join();
        case wire::PathTransport::uc:
            return on_uc_join();
        default:
            return on_memory_request();
    }
}

// ---- Datagrams beside this connection -----------------------------------------------------------------------

// With the keys of this connection's handshake; a later one takes the place of an earlier one.
Result<void> Connection::on_datagram_join() {
    const wire::DatagramPathEnd offer = TRY(wire::parse_datagram_path_end(payload()));
    end_datagrams();
    const auto make = [&]() -> Result<std::shared_ptr<DatagramPath>> {
        if (limits_.datagrams.max_paths == 0) {
            return Error::eopnotsupp;
        }
        const sockaddr_in6 local = TRY(mapped_address(socket_.get(), getsockname));
        const sockaddr_in6 peer = TRY(mapped_address(socket_.get(), getpeername));
        return DatagramPath::create(datagram_limits(), host_.counters(), local, peer,
                                    handshake_->keys(), offer, session_->known_packet_bytes(),
                                    datagram_wake());
    };
    return answer_datagram_join(make());
}

std::function<void()> Connection::datagram_wake() {
    return [self = weak_from_this()] {
        if (const auto connection = self.lock()) {
            connection->datagrams_woken_.store(true);
            connection->wake();
        }
    };
}

Result<void> Connection::answer_datagram_join(Result<std::shared_ptr<DatagramPath>> made) {
    wire::PathJoined joined{};
    joined.session_id = path_join_.session_id;
    joined.path_id = path_join_.path_id;
    ByteSpan end;
    if (!made.ok()) {
        const bool is_full = made.error() == Error::enospc || made.error() == Error::enomem;
        joined.reason = static_cast<uint8_t>(is_full ? wire::RefusalReason::no_room
                                                     : wire::RefusalReason::no_transport);
    } else if (!session_->join(path_join_.incarnation, *made, path_id_)) {
        joined.reason = static_cast<uint8_t>(wire::RefusalReason::stale_incarnation);
    } else {
        datagrams_ = made.release_value();
        datagram_path_number_++;
        end = datagrams_->end();
        joined.parameter_bytes = static_cast<uint16_t>(end.size());
    }
    if (joined.reason != 0) {
        count(volume_->counters().sessions_refused[joined.reason]);
    }
    return reply(wire::MessageType::path_joined, joined, end);
}

// The same over queue pairs, whose memory takes time to register: another thread makes the path, this one adopts it.
Result<void> Connection::on_uc_join() {
    const wire::UcPathEnd offer = TRY(wire::parse_uc_path_end(payload()));
    end_datagrams();
    if (limits_.datagrams.max_paths == 0) {
        return answer_datagram_join(Error::eopnotsupp);
    }
    if (path_pending_.exchange(true)) {
        return Error::eproto;
    }
    auto work = [self = shared_from_this(), keys = handshake_->keys(), offer,
                 limits = datagram_limits()] { self->make_uc_path(offer, keys, limits); };
    return host_.run_later(ConnectionHost::Work::registration, std::move(work)) ? Result<void>()
                                                                                : Error::eagain;
}

void Connection::make_uc_path(const wire::UcPathEnd& offer, const TrafficKeys& keys,
                              const DatagramLimits& limits) {
    auto made = DatagramPath::create_uc(limits, host_.counters(), local_address_, keys, offer,
                                        datagram_wake());
    {
        MutexLock lock(mutex_);
        made_path_error_ = made.ok() ? Error{} : made.error();
        made_path_ = made.ok() ? made.release_value() : nullptr;
    }
    has_made_path_.store(true);
    wake();
}

Result<void> Connection::adopt_uc_path() {
    std::shared_ptr<DatagramPath> path;
    Error error{};
    {
        MutexLock lock(mutex_);
        path = std::move(made_path_);
        error = made_path_error_;
    }
    path_pending_.store(false);
    const bool is_made = path != nullptr;
    if (is_made) {
        end_datagrams();  // of a join that came while this one was made
    }
    return answer_datagram_join(is_made ? Result<std::shared_ptr<DatagramPath>>(std::move(path))
                                        : Result<std::shared_ptr<DatagramPath>>(error));
}

// ---- The memory itself -----------------------------------------------------------------------------------

// What a session on this host may map.
Result<void> Connection::on_memory_request() {
    const wire::PathJoin& join = path_join_;
    wire::PathJoined joined{};
    joined.session_id = join.session_id;
    joined.path_id = join.path_id;
    Volume::Mapping mapping;
    // Memory that a process has mapped can be mapped for writing by its user, if that is the server's.
    if (join.transport == static_cast<uint8_t>(wire::PathTransport::shm) &&
        !handshake_->is_reader()) {
        mapping = volume_->map(session_, join.incarnation, process_);
    }
    if (!mapping.is_granted) {
        joined.reason = static_cast<uint8_t>(mapping.reason);
        return reply(wire::MessageType::path_joined, joined);
    }
    std::vector<UniqueDescriptor> descriptors;
    descriptors.push_back(std::move(mapping.data));
    descriptors.push_back(std::move(mapping.control));
    {
        MutexLock lock(mutex_);
        TRY(output_.attach(std::move(descriptors)));
    }
    joined.parameter_bytes = sizeof(mapping.parameters);
    return reply(wire::MessageType::path_joined, joined,
                 ByteSpan(reinterpret_cast<const unsigned char*>(&mapping.parameters),
                          sizeof(mapping.parameters)));
}

// ---- A queue pair beside this connection --------------------------------------------------------------------

// Setting it up, and above all registering memory for the first one, takes time.
Result<void> Connection::on_rc_join() {
    if (payload_bytes_ == 0) {
        return Error::eproto;
    }
    const wire::RcPathOffer offer = TRY(wire::parse_rc_path_offer(payload()));
    if (path_pending_.exchange(true)) {
        return Error::eproto;
    }
    auto work = [self = shared_from_this(), volume = volume_, session = session_, join = path_join_,
                 offer] { self->answer_rc_join(join, offer, volume, session); };
    return host_.run_later(ConnectionHost::Work::registration, std::move(work)) ? Result<void>()
                                                                                : Error::eagain;
}

void Connection::answer_rc_join(const wire::PathJoin& join, const wire::RcPathOffer& offer,
                                const std::shared_ptr<Volume>& volume,
                                const std::shared_ptr<VolumeSession>& session) {
    wire::PathJoined joined{};
    joined.session_id = join.session_id;
    joined.path_id = join.path_id;
    wire::RcPathAnswer answer{};
    joined.reason = static_cast<uint8_t>(volume->join_rc(
        session, join.incarnation, *this, handshake_->version() < wire::kSeveralQueuePairsVersion,
        offer, local_address_, answer));
    joined.parameter_bytes = joined.reason == 0 ? sizeof(answer) : 0;
    path_pending_.store(false);
    if (!reply(wire::MessageType::path_joined, joined,
               ByteSpan(reinterpret_cast<const unsigned char*>(&answer), joined.parameter_bytes))
             .ok()) {
        MutexLock lock(mutex_);
        broken_ = true;
    }
    wake();
}

// The state file has to be written before a lease is granted: not by a thread that others wait for.
Result<void> Connection::on_lease_request(uint64_t now_ns) {
    const wire::LeaseRequest request =
        TRY(wire::parse_lease_request(reader_->header(), reader_->fixed_part()));
    if (request.session_id != session_->id()) {
        return Error::eproto;
    }
    if (lease_pending_.exchange(true)) {
        return {};  // asked again after changes of the active link: the answer is on its way
    }
    if (handshake_->is_reader()) {
        lease_pending_.store(false);
        wire::LeaseReply refused{};
        refused.reason = static_cast<uint8_t>(wire::RefusalReason::read_only);
        return reply(wire::MessageType::lease_reply, refused);
    }
    auto work = [self = shared_from_this(), volume = volume_, session = session_,
                 flags = request.flags, now_ns] {
        self->ask_for_lease(flags, now_ns, now_ns + kEndTimeoutNs, volume, session);
    };
    return host_.run_later(ConnectionHost::Work::lease, std::move(work)) ? Result<void>()
                                                                         : Error::eagain;
}

// In the thread for leases. Another one waits for a process to end, and comes back.
void Connection::ask_for_lease(uint8_t flags, uint64_t now_ns, uint64_t deadline_ns,
                               const std::shared_ptr<Volume>& volume,
                               const std::shared_ptr<VolumeSession>& session) {
    const Volume::LeaseAnswer answer =
        volume->request_lease(session, flags, now_ns, process_.get());
    if (answer.ending && host::monotonic_ns() < deadline_ns) {
        auto again = [self = shared_from_this(), flags, now_ns, deadline_ns, volume, session] {
            self->ask_for_lease(flags, now_ns, deadline_ns, volume, session);
        };
        auto wait = [self = shared_from_this(), process = answer.ending, again = std::move(again)] {
            (void)process->wait_until_gone(kEndSliceMs);
            if (!self->host_.run_later(ConnectionHost::Work::lease, again)) {
                self->end(nullptr);  // without an answer
            }
        };
        if (host_.run_later(ConnectionHost::Work::wait, std::move(wait))) {
            return;
        }
    }
    lease_pending_.store(false);
    {
        MutexLock lock(mutex_);
        if (!output_.add(wire::MessageType::lease_reply, answer.reply).ok()) {
            broken_ = true;
        }
        note_queued();
    }
    wake();
}

Result<void> Connection::on_probe() {
    wire::Probe probe = TRY(wire::parse_probe(reader_->header(), reader_->fixed_part()));
    if (reader_->type() == wire::MessageType::probe_reply) {
        return {};  // that it came is all it has to say
    }
    probe.epoch = volume_->epoch();
    probe.content_incarnation = volume_->content_incarnation();
    return reply(wire::MessageType::probe_reply, probe);
}

// ---- Requests -----------------------------------------------------------------------------------------------

Result<void> Connection::on_request_head() {
    request_ = TRY(wire::parse_request(reader_->header(), reader_->fixed_part()));
    return {};
}

Result<void> Connection::on_request() {
    if ((request_.flags & wire::request_flag::has_checksum) != 0 && payload_bytes_ != 0 &&
        host::crc32c(0, staging_.get(), payload_bytes_) != request_.payload_checksum) {
        return Error::eproto;
    }
    has_request_ = true;
    wire::Request next;
    const bool is_followed = reader_->peek_request(next);
    return session_->handle_request(shared_from_this(), request_, payload(),
                                    is_followed ? &next : nullptr);
}

}  // namespace tiffin::rdma_blk
