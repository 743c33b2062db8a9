// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The thread of a UC carrier: takes what has completed, hands over, sends, sleeps.
#include "rdma_blk/transport/uc/uc_carrier.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "rdma_blk/transport/uc/uc_receiver.h"
#include "rdma_blk/transport/uc/uc_sender.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint32_t kMinReceiveDepth = 64;
constexpr uint32_t kMaxReceiveDepth = 65536;
constexpr uint32_t kDatagramReceives = 256;
constexpr size_t kPollAtOnce = 32;
// Completions of a queue pair that are taken before anything is sent, and runs that are sent before anything is taken.
constexpr uint32_t kTurnCompletions = 512;
constexpr uint32_t kTurnRuns = 16;
// A thread that nothing wakes looks around this often; bounds the time of a stop.
constexpr uint64_t kLongestSleepNs = 100'000'000;
// An endpoint that wants to send and may not: a completion or feedback wakes the thread, or this time passes.
constexpr uint64_t kBlockedRetryNs = 1'000'000;

class Carrier final : public UcCarrier {
  public:
    Carrier(sdr::Endpoint& endpoint, verbs::Device& device, const UcOptions& options,
            const sdr::LandingLayout& layout)
        : endpoint_(endpoint),
          device_(device),
          options_(options),
          layout_(layout),
          mutex_(host::LockClass::leaf),
          receiver_(device, layout) {}
    ~Carrier() override;

    Result<void> open();
    UcInfo info_get() const override NO_THREAD_SAFETY_ANALYSIS;
    Result<void> start(const UcInfo& peer) override EXCLUDES(mutex_);
    host::Mutex& mutex() override RETURN_CAPABILITY(mutex_) { return mutex_; }
    void kick() override;
    uint64_t wait(uint64_t seen, uint64_t timeout_us) override EXCLUDES(mutex_);
    UcStatistics statistics() override EXCLUDES(mutex_);

  private:
    struct Turn {
        bool has_taken = false;  // any completion
        bool has_changed = false;
        uint64_t next_ns = 0;  // when the next one is due although nothing comes
    };

    static void run(void* argument);
    void work() EXCLUDES(mutex_);
    void sleep(uint64_t next_ns);
    Turn serve() EXCLUDES(mutex_);
    Result<void> serve_device(uint64_t now_ns, Turn& turn) REQUIRES(mutex_);
    Result<void> take_datagrams(uint64_t now_ns, Turn& turn) REQUIRES(mutex_);
    void take_datagram(uint64_t now_ns, ByteSpan datagram) REQUIRES(mutex_);
    Result<void> take_packets(uint64_t now_ns, Turn& turn) REQUIRES(mutex_);
    Result<void> transmit(uint64_t now_ns, Turn& turn) REQUIRES(mutex_);
    Result<void> post_datagram_receive(uint64_t cell);
    Result<void> post_packet_receives(uint32_t count);
    void stop();

    sdr::Endpoint& endpoint_;
    verbs::Device& device_;
    UcOptions options_;
    sdr::LandingLayout layout_;
    uint32_t connection_id_ = 0;

    MappedSlots datagrams_;  // that come
    std::unique_ptr<verbs::Memory> datagram_memory_;
    std::unique_ptr<verbs::QueuePair> data_;
    std::unique_ptr<verbs::QueuePair> control_;
    host::Mutex mutex_;  // the endpoint, and what is done with it
    host::Condition changed_;
    uint64_t changes_ GUARDED_BY(mutex_) = 0;
    UcReceiver receiver_ GUARDED_BY(mutex_);
    std::unique_ptr<UcSender> sender_ PT_GUARDED_BY(mutex_);
    UcStatistics statistics_ GUARDED_BY(mutex_);
    bool is_blocked_ GUARDED_BY(mutex_) = false;

    int wake_ = -1;           // eventfd
    bool is_kicked_ = false;  // by it; the thread's
    std::atomic<bool> stopping_{false};
    host::Thread thread_;
};

// The device lets go of memory in the order in which it was given it.
Carrier::~Carrier() {
    stop();
    receiver_.close();
    control_.reset();
    data_.reset();
}

Result<void> Carrier::open() {
    host::random_bytes(&connection_id_, sizeof(connection_id_));
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_ < 0) {
        return static_cast<Error>(errno);
    }
    data_ = TRY(device_.create_unreliable_queue_pair(UcSender::kDataDepth, options_.receive_depth));
    control_ =
        TRY(device_.create_unreliable_queue_pair(UcSender::kDatagramCells, kDatagramReceives));
    TRY(datagrams_.map(1, kDatagramReceives * sdr::kMaxUcDatagramBytes));
    datagram_memory_ =
        TRY(device_.register_memory(datagrams_.at(0), datagrams_.all().size(), false));
    mutex_.lock();
    sender_.reset(new (std::nothrow) UcSender(options_, layout_, *data_, *control_));
    Result<void> opened = sender_ == nullptr ? Error::enomem : receiver_.open();
    if (opened.ok()) {
        opened = sender_->open(device_);
    }
    mutex_.unlock();
    return opened;
}

UcInfo Carrier::info_get() const {
    UcInfo info{};
    info.connection_id = connection_id_;
    info.receive_depth = options_.receive_depth;
    info.layout = layout_;
    for (uint32_t index = 0; index < sdr::kUcArenas; index++) {
        info.arenas[index] = receiver_.arena_address(index);
    }
    info.data = data_->address();
    info.control = control_->address();
    return info;
}

Result<void> Carrier::start(const UcInfo& peer) {
    if (peer.layout != layout_ || peer.receive_depth < kMinReceiveDepth ||
        peer.receive_depth > kMaxReceiveDepth) {
        return Error::einval;
    }
    const uint8_t mtu = std::min(peer.data.mtu, data_->address().mtu);
    if (mtu < 1 || mtu > 5 || layout_.packet_bytes > uint32_t{128} << mtu) {
        return Error::e2big;  // a packet would be several, of which each loss costs all
    }
    mutex_.lock();
    const Result<void> connected = sender_->connect(peer);
    mutex_.unlock();
    TRY(connected);
    TRY(data_->connect(peer.data));
    TRY(control_->connect(peer.control));
    TRY(post_packet_receives(options_.receive_depth));
    for (uint64_t cell = 0; cell < kDatagramReceives; cell++) {
        TRY(post_datagram_receive(cell));
    }
    return thread_.start("tiffin-uc", run, this);
}

void Carrier::stop() {
    stopping_.store(true, std::memory_order_release);
    kick();
    if (thread_.running()) {
        thread_.join();
    }
    if (wake_ >= 0) {
        close(wake_);
    }
}

void Carrier::kick() {
    const uint64_t one = 1;
    if (wake_ >= 0) {
        // Fails only when the counter is full, and then the thread is awake anyway.
        (void)!write(wake_, &one, sizeof(one));
    }
}

uint64_t Carrier::wait(uint64_t seen, uint64_t timeout_us) {
    mutex_.lock();
    if (changes_ == seen) {
        (void)changed_.wait_for(mutex_, timeout_us);
    }
    const uint64_t now_seen = changes_;
    mutex_.unlock();
    return now_seen;
}

UcStatistics Carrier::statistics() {
    mutex_.lock();
    UcStatistics sum = statistics_;
    sender_->add_statistics(sum);
    receiver_.add_statistics(sum);
    mutex_.unlock();
    return sum;
}

Result<void> Carrier::post_datagram_receive(uint64_t cell) {
    verbs::Receive receive;
    receive.id = cell;
    receive.piece = {datagrams_.at(0) + cell * sdr::kMaxUcDatagramBytes,
                     static_cast<uint32_t>(sdr::kMaxUcDatagramBytes),
                     datagram_memory_->local_key()};
    return control_->post_receives(&receive, 1);
}

// Immediates need no memory: what they tell of is in an arena.
Result<void> Carrier::post_packet_receives(uint32_t count) {
    constexpr uint32_t kAtOnce = 64;
    const verbs::Receive receives[kAtOnce] = {};
    while (count > 0) {
        const uint32_t part = std::min(count, kAtOnce);
        TRY(data_->post_receives(receives, part));
        count -= part;
    }
    return {};
}

// ---- The thread ------------------------------------------------------------------------------------------

void Carrier::run(void* argument) { static_cast<Carrier*>(argument)->work(); }

void Carrier::work() {
    bool is_armed = false;
    while (!stopping_.load(std::memory_order_acquire)) {
        const Turn turn = serve();
        if (turn.has_taken || turn.next_ns <= host::monotonic_ns()) {
            continue;
        }
        if (!is_armed) {
            // Once more: what came before wakes nobody.
            is_armed = data_->arm().ok() && control_->arm().ok();
            if (is_armed) {
                continue;
            }
        }
        sleep(turn.next_ns);
        is_armed = false;
    }
}

void Carrier::sleep(uint64_t next_ns) {
    const uint64_t now_ns = host::monotonic_ns();
    const uint64_t sleep_ns = std::min(next_ns - std::min(next_ns, now_ns), kLongestSleepNs);
    const timespec time{0, static_cast<long>(sleep_ns)};
    pollfd waits[3] = {{data_->event_descriptor(), POLLIN, 0},
                       {control_->event_descriptor(), POLLIN, 0},
                       {wake_, POLLIN, 0}};
    (void)ppoll(waits, 3, &time, nullptr);
    data_->disarm();
    control_->disarm();
    if ((waits[2].revents & POLLIN) != 0) {
        uint64_t count = 0;
        (void)!read(wake_, &count, sizeof(count));
        is_kicked_ = true;
    }
}

Carrier::Turn Carrier::serve() {
    Turn turn;
    turn.has_changed = std::exchange(is_kicked_, false);
    mutex_.lock();
    const uint64_t now_ns = host::monotonic_ns();
    if (!statistics_.has_failed && !serve_device(now_ns, turn).ok()) {
        statistics_.has_failed = true;
        turn.has_changed = true;
    }
    // An endpoint whose device has failed still has timers: one that sends finds out that nobody answers.
    if (endpoint_.next_timer_ns() <= now_ns) {
        endpoint_.on_timer(now_ns);
        turn.has_changed = true;
    }
    if (!statistics_.has_failed && !transmit(now_ns, turn).ok()) {
        statistics_.has_failed = true;
        turn.has_changed = true;
    }
    const uint64_t timer_ns = endpoint_.next_timer_ns();
    // Feedback that finds no room waits for a completion, which wakes the thread.
    const uint64_t feedback_ns =
        sender_->has_room_for_feedback() ? receiver_.feedback_ns() : sdr::kNoTimer;
    if (statistics_.has_failed) {
        turn.next_ns = std::max(timer_ns, now_ns + kBlockedRetryNs);
    } else if (is_blocked_) {
        // What the endpoint has to send waits for a completion, feedback or this.
        const uint64_t blocked_ns =
            std::max(std::min(timer_ns, sender_->timeout_at_ns()), now_ns + kBlockedRetryNs);
        turn.next_ns = std::min(blocked_ns, feedback_ns);
    } else {
        turn.next_ns = std::min(timer_ns, feedback_ns);
    }
    if (turn.has_changed || turn.has_taken) {
        changes_++;
        changed_.notify_all();
    }
    mutex_.unlock();
    return turn;
}

Result<void> Carrier::serve_device(uint64_t now_ns, Turn& turn) {
    TRY(take_datagrams(now_ns, turn));  // first: they say what packets are
    TRY(take_packets(now_ns, turn));
    return {};
}

Result<void> Carrier::take_datagrams(uint64_t now_ns, Turn& turn) {
    verbs::Completion completions[kPollAtOnce];
    for (uint32_t taken = 0; taken < kTurnCompletions;) {
        const size_t count = control_->poll(completions, kPollAtOnce);
        for (size_t index = 0; index < count; index++) {
            const verbs::Completion& completion = completions[index];
            if (completion.status != verbs::Status::success) {
                return Error::eio;
            }
            if (!completion.is_receive) {
                sender_->on_datagram_sent();
                continue;
            }
            const unsigned char* bytes =
                datagrams_.at(0) + completion.id * sdr::kMaxUcDatagramBytes;
            if (completion.has_immediate || completion.size_bytes > sdr::kMaxUcDatagramBytes) {
                statistics_.datagrams_refused++;
            } else {
                take_datagram(now_ns, ByteSpan(bytes, completion.size_bytes));
            }
            TRY(post_datagram_receive(completion.id));
        }
        turn.has_taken = turn.has_taken || count > 0;
        if (count == 0) {
            break;
        }
        taken += static_cast<uint32_t>(count);
    }
    return {};
}

void Carrier::take_datagram(uint64_t now_ns, ByteSpan datagram) {
    sdr::UcHeader header;
    if (datagram.size() < sizeof(header)) {
        statistics_.datagrams_refused++;
        return;
    }
    std::memcpy(&header, datagram.data(), sizeof(header));
    if (header.connection_id != connection_id_ || header.version != sdr::kUcVersion) {
        statistics_.datagrams_refused++;
        return;
    }
    sender_->on_windows(header.windows);
    const ByteSpan body(datagram.data() + sizeof(header), datagram.size() - sizeof(header));
    const auto kind = static_cast<sdr::PacketKind>(header.kind);
    if (kind == sdr::PacketKind::data || kind == sdr::PacketKind::parity) {
        receiver_.on_description(now_ns, header, body, endpoint_);
    } else if (kind == sdr::PacketKind::control) {
        statistics_.datagrams_received++;
        receiver_.note_datagram(now_ns, header.packet_number);
        endpoint_.on_control(now_ns, body);
    } else if (kind == sdr::PacketKind::feedback && body.size() == sizeof(sdr::FeedbackHeader)) {
        statistics_.datagrams_received++;
        sdr::FeedbackHeader feedback;
        std::memcpy(&feedback, body.data(), sizeof(feedback));
        sender_->on_feedback(now_ns, feedback);
    } else {
        statistics_.datagrams_refused++;
    }
}

Result<void> Carrier::take_packets(uint64_t now_ns, Turn& turn) {
    verbs::Completion completions[kPollAtOnce];
    for (uint32_t taken = 0; taken < kTurnCompletions;) {
        const size_t count = data_->poll(completions, kPollAtOnce);
        uint32_t receives = 0;
        for (size_t index = 0; index < count; index++) {
            const verbs::Completion& completion = completions[index];
            if (completion.status != verbs::Status::success) {
                return Error::eio;
            }
            if (completion.is_receive) {
                receives++;
                // A write of nothing needs no key on some devices, and a send says nothing of packets.
                if (completion.has_immediate && completion.size_bytes > 0 &&
                    completion.size_bytes <= layout_.packet_bytes) {
                    receiver_.on_immediate(now_ns, completion.immediate, endpoint_);
                } else {
                    statistics_.packets_received++;
                    statistics_.packets_stray++;
                }
            } else if (completion.id == UcReceiver::kBindId) {
                receiver_.on_bound();
            } else {
                sender_->on_packets_sent(completion.id);
            }
        }
        TRY(post_packet_receives(receives));
        turn.has_taken = turn.has_taken || count > 0;
        if (count == 0) {
            break;
        }
        taken += static_cast<uint32_t>(count);
    }
    receiver_.flush(now_ns, endpoint_);
    return {};
}

// Nothing is sent before the window is open of every receive that it may tell of.
Result<void> Carrier::transmit(uint64_t now_ns, Turn& turn) {
    is_blocked_ = TRY(receiver_.open_windows(endpoint_.receives_posted(), *data_));
    for (uint32_t runs = 0; runs < kTurnRuns && !is_blocked_; runs++) {
        const uint32_t packets = sender_->packets_allowed(now_ns);
        sdr::Transmit out;
        is_blocked_ = packets == 0;
        if (is_blocked_ || !endpoint_.next_transmit(now_ns, packets, out)) {
            break;
        }
        TRY(sender_->send(now_ns, out, receiver_.windows()));
        turn.has_changed = true;
        if (runs + 1 == kTurnRuns) {
            turn.has_taken = true;  // there may be more
        }
    }
    if (now_ns >= receiver_.feedback_ns() && sender_->has_room_for_feedback()) {
        TRY(sender_->send_feedback(receiver_.take_feedback(now_ns), receiver_.windows()));
    }
    return {};
}

// What the endpoint does not tell is bounded at least, as its own is: sizes are computed from it.
bool is_valid(const UcOptions& options, const sdr::Endpoint& endpoint) {
    const sdr::QueuePairAttributes& queue_pair = options.queue_pair;
    const bool is_bounded =
        queue_pair.channel_count == 1 && queue_pair.packet_bytes >= sdr::kMinPacketBytes &&
        queue_pair.packet_bytes <= sdr::kMaxPacketBytes &&
        queue_pair.packets_per_chunk_log2 <= sdr::kMaxPacketsPerChunkLog2 &&
        std::has_single_bit(queue_pair.max_messages) && queue_pair.max_message_bytes >= 1 &&
        queue_pair.max_message_bytes <=
            uint64_t{sdr::kMaxPacketsPerMessage} * queue_pair.packet_bytes;
    return is_bounded && options.receive_depth >= kMinReceiveDepth &&
           options.receive_depth <= kMaxReceiveDepth &&
           (endpoint.packet_bytes() == 0 || endpoint.packet_bytes() == queue_pair.packet_bytes) &&
           (endpoint.channel_count() == 0 || endpoint.channel_count() == 1);
}

}  // namespace

Result<std::unique_ptr<UcCarrier>> UcCarrier::create(sdr::Endpoint& endpoint, verbs::Device& device,
                                                     const UcOptions& options) {
    if (!is_valid(options, endpoint)) {
        return Error::einval;
    }
    if (!device.capabilities().has_windows) {
        return Error::eopnotsupp;
    }
    const sdr::LandingLayout layout = TRY(sdr::landing_layout(options.queue_pair, options.code));
    auto* carrier = new (std::nothrow) Carrier(endpoint, device, options, layout);
    std::unique_ptr<UcCarrier> owner(carrier);
    if (carrier == nullptr) {
        return Error::enomem;
    }
    TRY(carrier->open());
    return owner;
}

}  // namespace tiffin::rdma_blk
