// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/server/connection.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "fs/vfs/host.h"
#include "rdma_blk/transport/mapped_address.h"

namespace tiffin::rdma_blk {
namespace {

// What one connection may do before the others of its thread have their turn.
constexpr size_t kTurnBytes = size_t{256} * 1024;
// A short request may ask for 1 MiB.
constexpr size_t kTurnAnswerBytes = size_t{4} << 20;
// Answers of a turn that are more are not sent together.
constexpr size_t kSendAtBytes = size_t{256} * 1024;
constexpr size_t kReaderBytes = size_t{64} * 1024;
constexpr size_t kSmallStagingBytes = size_t{64} * 1024;
constexpr size_t kHandshakeSendBytes = 4096;  // of a peer that has not shown the key
// Of the answers of one connection only whole units of this are in the account of all: most answers change nothing that
// threads share.
constexpr size_t kAccountUnitBytes = size_t{64} * 1024;
constexpr unsigned kIdleProbeFactor = 10;
constexpr unsigned kSilentIntervals = 3;  // after a probe: four in all

// Whose turn this thread is in: what is queued meanwhile is sent at its end, without waking anybody.
thread_local const Connection* serving_connection = nullptr;

// This end of a connection: IPv4 mapped into IPv6, zero if it is of another kind.
void find_local_address(int socket, uint8_t (&address)[16]) {
    const Result<sockaddr_in6> local = mapped_address(socket, getsockname);
    const in6_addr found = local.ok() ? local.value().sin6_addr : in6_addr{};
    std::memcpy(address, &found, sizeof(address));
}

}  // namespace

Connection::Connection(ConnectionHost& host, const ConnectionLimits& limits,
                       UniqueDescriptor socket, std::vector<unsigned char> peer_address,
                       uint64_t now_ns)
    : host_(host),
      limits_(limits),
      socket_(std::move(socket)),
      peer_address_(std::move(peer_address)),
      accepted_ns_(now_ns),
      last_received_ns_(now_ns),
      last_progress_ns_(now_ns) {}

// Without the lock, which nobody else can want: a session may let go of its last connection while it holds its own.
Connection::~Connection() {
    output_.clear();
    note_queued();
}

Result<std::shared_ptr<Connection>> Connection::create(ConnectionHost& host,
                                                       const ConnectionLimits& limits,
                                                       UniqueDescriptor socket,
                                                       std::vector<unsigned char> peer_address,
                                                       uint64_t now_ns) {
    std::shared_ptr<Connection> connection(
        new Connection(host, limits, std::move(socket), std::move(peer_address), now_ns));
    connection->reader_ = TRY(MessageReader::create(kReaderBytes));
    find_local_address(connection->socket_.get(), connection->local_address_);
    const VolumeKeys& keys = *connection;  // a private base
    connection->handshake_ = std::make_unique<HandshakeServer>(
        host.cookies(), keys, host.server_uuid(), wire::hello_flag::all, 0, limits.highest_version);
    return connection;
}

// ---- Its thread's turns ----------------------------------------------------------------------------

bool Connection::serve(uint64_t now_ns) {
    serving_connection = this;
    const bool goes_on = serve_turn(now_ns);
    serving_connection = nullptr;
    if (std::exchange(has_request_, false)) {
        note_turn(now_ns);
    }
    return goes_on && (!datagrams_woken_.exchange(false) || serve_datagrams(now_ns));
}

void Connection::note_turn(uint64_t began_ns) {
    volume_->counters().turn_durations.note(host::monotonic_ns() - began_ns);
}

uint64_t Connection::datagram_time_ns(uint64_t now_ns) const {
    return datagrams_ ? datagrams_->next_time_ns(now_ns) : sdr::kNoTimer;
}

bool Connection::serve_datagrams(uint64_t now_ns) {
    if (!datagrams_) {
        return true;
    }
    serving_connection = this;
    const Result<void> result = datagrams_->serve(now_ns, *session_);
    serving_connection = nullptr;
    has_more_ = has_more_ || (was_stopped_ && may_read());  // as after what the stream brings
    if (datagrams_->had_request()) {
        note_turn(now_ns);
    }
    if (datagrams_->has_heard()) {
        session_->heard(now_ns);
    }
    if (!result.ok()) {
        const bool may_go_on =
            (result.error() == Error::enodev || result.error() == Error::estale) &&
            datagrams_->is_dispensable();
        // The path has nothing more to say; a notice may still be on its way on the stream.
        end_datagrams();
        count_failure(result.error());
        return may_go_on || ending_.load();
    }
    return true;
}

void Connection::end_datagrams() {
    if (datagrams_) {
        session_->path_lost(*datagrams_);
        datagrams_->close();
        datagrams_.reset();
    }
}

bool Connection::serve_turn(uint64_t now_ns) {
    Result<void> result;
    if (retry_deferred_.exchange(false)) {
        result = answer_deferred(now_ns);
    }
    if (result.ok() && has_made_path_.exchange(false)) {
        result = adopt_uc_path();
    }
    if (result.ok()) {
        result = read_turn(now_ns);
    }
    if (!result.ok()) {
        count_failure(result.error());
    }
    // What was answered before the failure is still sent, as far as the socket takes it.
    MutexLock lock(mutex_);
    send_output();
    note_queued();
    const bool is_done = ending_.load() && output_.empty();
    // What has been received already is looked at when the answers that stopped it are gone.
    has_more_ = has_more_ || (was_stopped_ && may_read());
    return result.ok() && !broken_ && !is_done;
}

Result<void> Connection::read_turn(uint64_t now_ns) {
    size_t budget = kTurnBytes;
    answered_bytes_ = 0;
    bool has_received = false;
    has_more_ = false;
    was_stopped_ = false;
    while (may_read()) {
        if (budget == 0 || answered_bytes_ >= kTurnAnswerBytes) {
            has_more_ = true;
            return {};
        }
        switch (TRY(reader_->next())) {
            case MessageReader::Event::need_bytes: {
                if (has_received && reader_->drained()) {
                    return {};  // epoll says when there is more, or that the peer is gone
                }
                const Result<size_t> received = reader_->receive(socket_.get(), MSG_DONTWAIT);
                count(host_.counters().receive_calls);
                if (!received.ok()) {
                    return received.error() == Error::eagain ? Result<void>() : received.error();
                }
                budget -= std::min(budget, received.value());
                has_received = true;
                last_received_ns_ = now_ns;
                probe_sent_ns_ = 0;
                if (session_) {
                    session_->heard(now_ns);
                }
                break;
            }
            case MessageReader::Event::message:
                payload_bytes_ = reader_->payload_bytes();
                TRY(on_message(now_ns));
                break;
            case MessageReader::Event::payload:
                TRY(on_whole(now_ns));
                payload_bytes_ = 0;
                break;
        }
    }
    was_stopped_ = true;
    return {};
}

bool Connection::may_read() const {
    // A message may bring a payload of the largest size beyond what waits.
    const size_t most_held = limits_.staging_bytes > wire::kMaxTransferBytes
                                 ? limits_.staging_bytes - wire::kMaxTransferBytes
                                 : 0;
    const bool is_stranger = state_ == State::hello || state_ == State::proof;
    const size_t most_queued = is_stranger ? kHandshakeSendBytes : limits_.send_buffer_bytes;
    const size_t queued = queued_bytes_.load();
    const size_t held = held_answer_bytes_.load();
    return !ending_.load() && deferred_.type == wire::MessageType::probe &&
           held_payload_bytes_.load() <= most_held && queued + held < most_queued &&
           // Where all have too much, one answer at a time: it goes when this peer reads, whatever others do.
           ((queued == 0 && held < kAccountUnitBytes) || host_.has_answer_memory());
}

bool Connection::wants_read() const { return may_read(); }

bool Connection::wants_write() const { return queued_bytes_.load() != 0; }

void Connection::count_failure(Error error) {
    ServerCounters& counters = host_.counters();
    if (error == Error::enodev || error == Error::eio) {
        return;  // the peer went away
    }
    if (error == Error::eacces && state_ != State::attached) {
        count(counters.handshakes_denied);
        note_denied();
    } else if (state_ == State::hello || state_ == State::proof) {
        count(counters.handshakes_failed);
    } else if (error != Error::estale) {
        count(counters.malformed_messages);
    }
}

void Connection::note_denied() {
    char text[INET6_ADDRSTRLEN] = "this host";
    if (const auto peer = mapped_address(socket_.get(), getpeername); peer.ok()) {
        (void)inet_ntop(AF_INET6, &peer.value().sin6_addr, text, sizeof(text));
    }
    host_.note_refusal(std::string("a client at ") + text + " was refused: " +
                       (volume_ ? "it has not the key of volume \"" : "there is no volume \"") +
                       asked_volume_ + "\"");
}

bool Connection::tick(uint64_t now_ns) {
    if (!is_attached()) {
        if (now_ns - accepted_ns_ >= limits_.handshake_timeout_ns) {
            count(host_.counters().handshakes_timed_out);
            return false;
        }
        return true;
    }
    bool has_output = false;
    {
        MutexLock lock(mutex_);
        has_output = !output_.empty();
        if (!has_output || sent_bytes_ != seen_sent_bytes_) {
            last_progress_ns_ = now_ns;
            seen_sent_bytes_ = sent_bytes_;
        }
        output_.trim();
    }
    // A last notice is not waited for longer, however little is read meanwhile.
    if (ending_.load() && ended_ns_ == 0) {
        ended_ns_ = now_ns;
    }
    const bool has_overstayed = ended_ns_ != 0 && now_ns - ended_ns_ >= limits_.stall_timeout_ns;
    if (has_overstayed || now_ns - last_progress_ns_ >= limits_.stall_timeout_ns) {
        count(host_.counters().stalled_connections);
        return false;
    }
    if (payload_bytes_ == 0 && staging_capacity_ > kSmallStagingBytes &&
        now_ns - last_received_ns_ >= limits_.probe_interval_ns) {
        staging_.reset();
        staging_capacity_ = 0;
    }
    if (datagrams_) {
        datagrams_->tick();
    }
    if (has_output) {
        return true;
    }
    if (!may_read()) {
        return show_life(now_ns);
    }
    const uint64_t silent_ns = now_ns - last_received_ns_;
    const uint64_t probe_after_ns =
        limits_.probe_interval_ns * (session_->is_busy() ? 1 : kIdleProbeFactor);
    if (probe_sent_ns_ == 0 && silent_ns >= probe_after_ns) {
        wire::Probe probe{};
        probe.id = next_probe_id_++;
        probe.session_id = session_->id();
        probe.epoch = volume_->epoch();
        probe.incarnation = session_->incarnation();
        if (!reply(wire::MessageType::probe, probe).ok()) {
            return false;
        }
        probe_sent_ns_ = now_ns;
        (void)has_progress();
        count(host_.counters().probes_sent);
        return serve(now_ns);
    }
    if (probe_sent_ns_ != 0 &&
        now_ns - probe_sent_ns_ >= limits_.probe_interval_ns * kSilentIntervals) {
        if (has_progress()) {
            probe_sent_ns_ = now_ns;
            return true;
        }
        count(host_.counters().silent_connections);
        return false;
    }
    return true;
}

// Whether the peer's TCP has acknowledged more than a probe since this was asked last: a slow link may carry an answer, and the
// probe behind it, for longer than silence is borne.
bool Connection::has_progress() {
    int waiting_bytes = 0;
    if (ioctl(socket_.get(), SIOCOUTQ, &waiting_bytes) != 0) {
        return false;
    }
    MutexLock lock(mutex_);
    const int64_t acknowledged_bytes = static_cast<int64_t>(sent_bytes_) - waiting_bytes;
    const int64_t before = std::exchange(acknowledged_bytes_, acknowledged_bytes);
    constexpr int64_t kProbeBytes =
        sizeof(wire::MessageHeader) + wire::sealed_bytes(sizeof(wire::Probe));
    return acknowledged_bytes > before + kProbeBytes;
}

// It is this end that does not read, for as long as a disk takes perhaps: the peer's probes lie unread then, and its silence
// is none.
bool Connection::show_life(uint64_t now_ns) {
    session_->heard(now_ns);
    if (now_ns - shown_ns_ < limits_.probe_interval_ns) {
        return true;
    }
    shown_ns_ = now_ns;
    wire::Probe probe{};
    probe.id = 0;  // it answers none of the client's
    probe.session_id = session_->id();
    probe.epoch = volume_->epoch();
    probe.content_incarnation = volume_->content_incarnation();
    probe.incarnation = session_->incarnation();
    return reply(wire::MessageType::probe_reply, probe).ok() && serve(now_ns);
}

void Connection::close() {
    ending_.store(true);
    end_datagrams();
    if (session_) {
        session_->path_lost(*this);
        session_.reset();
    }
    volume_.reset();
    if (std::exchange(counts_as_reader_, false)) {
        host_.count_reader(-1);
    }
    std::shared_ptr<DatagramPath> unused;
    {
        MutexLock lock(mutex_);
        broken_ = true;
        output_.clear();
        note_queued();
        unused = std::move(made_path_);
    }
    // Closed here and not with the last owner: a session may hold this object for longer.
    socket_.reset();
}

// ---- Answers: any thread -----------------------------------------------------------------------------

void Connection::send_response(const wire::Response& response, ByteSpan payload) {
    if (ending_.load()) {
        return;
    }
    {
        MutexLock lock(mutex_);
        if (broken_) {
            return;
        }
        if (!output_.add_response(response, payload).ok()) {
            broken_ = true;
        }
        if (serving_connection == this) {
            answered_bytes_ += payload.size();
            // The peer receives one large answer while the next one is made.
            if (output_.queued_bytes() >= kSendAtBytes) {
                send_output();
            }
        }
        note_queued();
    }
    wake();
}

void Connection::note_queued() {
    const size_t now = output_.queued_bytes();
    const size_t before = queued_bytes_.exchange(now);
    // Modulo 2^64.
    count_if_any(
        host_.counters().unread_answer_bytes,
        (uint64_t{now / kAccountUnitBytes} - before / kAccountUnitBytes) * kAccountUnitBytes);
}

// As far as the socket takes it. What fails shows at the end of the turn.
void Connection::send_output() {
    const size_t before = output_.queued_bytes();
    const Result<bool> sent = output_.send(socket_.get(), host_.counters().send_calls);
    sent_bytes_ += before - output_.queued_bytes();
    broken_ = broken_ || !sent.ok();
}

void Connection::send_notice(const wire::Notice& notice) {
    {
        MutexLock lock(mutex_);
        if (broken_ || seal_ == nullptr) {
            return;
        }
        if (!output_.add(wire::MessageType::notice, notice).ok()) {
            broken_ = true;
        }
        note_queued();
    }
    wake();
}

void Connection::end(const wire::Notice* notice) {
    if (notice != nullptr && notice->reason != 0) {
        send_notice(*notice);
    } else {
        MutexLock lock(mutex_);
        // Its client has left it: what the socket does not take at once is for nobody.
        broken_ = true;
    }
    ending_.store(true);
    wake();
}

void Connection::hold(size_t payload_bytes, size_t answer_bytes) {
    held_payload_bytes_.fetch_add(payload_bytes);
    held_answer_bytes_.fetch_add(answer_bytes);
}

void Connection::release_held(size_t payload_bytes, size_t answer_bytes) {
    held_payload_bytes_.fetch_sub(payload_bytes);
    held_answer_bytes_.fetch_sub(answer_bytes);
    wake();
}

void Connection::wake() {
    if (serving_connection == this) {
        return;
    }
    retry_deferred_.store(true);
    ConnectionRunner* runner = runner_.load();
    if (runner != nullptr) {
        runner->wake(shared_from_this());
    }
}

}  // namespace tiffin::rdma_blk
