// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/uc/uc_channel.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "fs/vfs/host.h"
#include "rdma_blk/sdr/tunables.h"
#include "rdma_blk/sdr/uc/uc_tag.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint32_t kDatagramReceives = 256;
// Runs that are sent before anything is taken.
constexpr uint32_t kTurnRuns = 16;
// Arming costs system calls, which who looks again and again need not pay for each answer: while it is not done, the
// descriptor stays readable. A device may also tell late of what has been taken, after it was armed again.
constexpr uint32_t kLooksBeforeArming = 4;
constexpr uint32_t kLooksBetweenArms = 64;

// What the endpoint does not tell is bounded at least, as its own is: sizes are computed from it.
bool is_valid(const UcOptions& options) {
    const sdr::QueuePairAttributes& queue_pair = options.queue_pair;
    return queue_pair.channel_count == 1 && queue_pair.packet_bytes >= sdr::kMinPacketBytes &&
           queue_pair.packet_bytes <= sdr::kMaxPacketBytes &&
           queue_pair.packets_per_chunk_log2 <= sdr::kMaxPacketsPerChunkLog2 &&
           std::has_single_bit(queue_pair.max_messages) && queue_pair.max_message_bytes >= 1 &&
           queue_pair.max_message_bytes <=
               uint64_t{sdr::kMaxPacketsPerMessage} * queue_pair.packet_bytes &&
           options.receive_depth >= kMinUcReceiveDepth &&
           options.receive_depth <= kMaxUcReceiveDepth;
}

// All that has completed, up to `capacity`: some devices give less at a time.
uint32_t poll_all(verbs::QueuePair& pair, verbs::Completion* completions, uint32_t capacity) {
    uint32_t count = 0;
    while (count < capacity) {
        const size_t found = pair.poll(completions + count, capacity - count);
        if (found == 0) {
            break;
        }
        count += static_cast<uint32_t>(found);
    }
    return count;
}

}  // namespace

// ---- Set-up ----------------------------------------------------------------------------------------------

Result<std::unique_ptr<UcChannel>> UcChannel::create(verbs::Device& device,
                                                     const UcOptions& options) {
    if (!is_valid(options)) {
        return Error::einval;
    }
    if (!device.capabilities().has_windows) {
        return Error::eopnotsupp;
    }
    const sdr::LandingLayout layout = TRY(sdr::landing_layout(options.queue_pair, options.code));
    std::unique_ptr<UcChannel> channel(new (std::nothrow) UcChannel(device, options, layout));
    if (channel == nullptr) {
        return Error::enomem;
    }
    TRY(channel->open());
    return channel;
}

// The device lets go of memory in the order in which it was given it.
UcChannel::~UcChannel() {
    receiver_.close();
    control_.reset();
    data_.reset();
    if (events_ >= 0) {
        close(events_);
    }
}

Result<void> UcChannel::open() {
    host::random_bytes(&connection_id_, sizeof(connection_id_));
    taken_datagrams_.reset(new (std::nothrow) verbs::Completion[kDatagramsAtOnce]);
    taken_packets_.reset(new (std::nothrow) verbs::Completion[kPacketsAtOnce]);
    if (taken_datagrams_ == nullptr || taken_packets_ == nullptr) {
        return Error::enomem;
    }
    events_ = epoll_create1(EPOLL_CLOEXEC);
    if (events_ < 0) {
        return static_cast<Error>(errno);
    }
    data_ = TRY(device_.create_unreliable_queue_pair(UcSender::kDataDepth, options_.receive_depth));
    control_ =
        TRY(device_.create_unreliable_queue_pair(UcSender::kDatagramCells, kDatagramReceives));
    for (const verbs::QueuePair* pair : {data_.get(), control_.get()}) {
        epoll_event event{};
        event.events = EPOLLIN;
        if (epoll_ctl(events_, EPOLL_CTL_ADD, pair->event_descriptor(), &event) != 0) {
            return static_cast<Error>(errno);
        }
    }
    TRY(datagrams_.map(1, kDatagramReceives * sdr::kMaxUcDatagramBytes));
    datagram_memory_ =
        TRY(device_.register_memory(datagrams_.at(0), datagrams_.all().size(), false));
    sender_.reset(new (std::nothrow) UcSender(options_, layout_, *data_, *control_));
    if (sender_ == nullptr) {
        return Error::enomem;
    }
    TRY(receiver_.open());
    return sender_->open(device_);
}

UcInfo UcChannel::info_get() const {
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

Result<void> UcChannel::start(const UcInfo& peer) {
    const sdr::LandingLayout& layout = peer.layout;
    const bool fits = layout.packet_bytes <= layout_.packet_bytes &&
                      layout.max_messages <= layout_.max_messages &&
                      layout.arena_bytes() <= layout_.arena_bytes();
    if (!fits || peer.receive_depth < kMinUcReceiveDepth ||
        peer.receive_depth > kMaxUcReceiveDepth) {
        return Error::einval;
    }
    const uint8_t mtu = std::min(peer.data.mtu, data_->address().mtu);
    if (mtu < 1 || mtu > 5 || layout.packet_bytes > uint32_t{128} << mtu) {
        return Error::e2big;  // a packet would be several, of which each loss costs all
    }
    layout_ = layout;
    receiver_.set_layout(layout);
    TRY(sender_->connect(peer));
    TRY(arm());  // before anything can complete
    TRY(data_->connect(peer.data));
    TRY(control_->connect(peer.control));
    TRY(post_packet_receives(options_.receive_depth));
    for (uint64_t cell = 0; cell < kDatagramReceives; cell++) {
        TRY(post_datagram_receive(cell));
    }
    return {};
}

Result<void> UcChannel::post_datagram_receive(uint64_t cell) {
    verbs::Receive receive;
    receive.id = cell;
    receive.piece = {datagrams_.at(0) + cell * sdr::kMaxUcDatagramBytes,
                     static_cast<uint32_t>(sdr::kMaxUcDatagramBytes),
                     datagram_memory_->local_key()};
    return control_->post_receives(&receive, 1);
}

// Immediates need no memory: what they tell of is in an arena.
Result<void> UcChannel::post_packet_receives(uint32_t count) {
    constexpr uint32_t kAtOnce = 64;
    const verbs::Receive receives[kAtOnce] = {};
    while (count > 0) {
        const uint32_t part = std::min(count, kAtOnce);
        TRY(data_->post_receives(receives, part));
        count -= part;
    }
    return {};
}

// ---- What comes ------------------------------------------------------------------------------------------

void UcChannel::poll_both() {
    taken_datagram_count_ = poll_all(*control_, taken_datagrams_.get(), kDatagramsAtOnce);
    taken_packet_count_ = poll_all(*data_, taken_packets_.get(), kPacketsAtOnce);
}

// From the first time on, each queue pair will make the descriptor readable, or has. What has completed before it is armed
// wakes nobody: it is looked for once more afterwards.
Result<void> UcChannel::arm() {
    data_->disarm();
    control_->disarm();
    arm_calls_++;
    TRY(data_->arm());
    TRY(control_->arm());
    is_armed_ = true;
    vain_looks_ = 0;
    return {};
}

sdr::PacketChannel::Taken UcChannel::take(uint64_t /*now_ns*/,
                                          const sdr::ExpectedPlace& /*place*/) {
    if (statistics_.has_failed) {
        return {};
    }
    poll_both();
    const bool is_empty = taken_datagram_count_ + taken_packet_count_ == 0;
    if (is_empty && ++vain_looks_ >= (is_armed_ ? kLooksBetweenArms : kLooksBeforeArming)) {
        if (!arm().ok()) {
            statistics_.has_failed = true;
            return {};
        }
        poll_both();
    }
    Taken taken;
    taken.has_any = taken_datagram_count_ + taken_packet_count_ > 0;
    taken.may_have_more =
        taken_datagram_count_ == kDatagramsAtOnce || taken_packet_count_ == kPacketsAtOnce;
    if (taken.has_any) {
        is_armed_ = false;
        vain_looks_ = 0;
    }
    return taken;
}

bool UcChannel::deliver(uint64_t now_ns, sdr::Endpoint& endpoint) {
    const bool has_any = taken_datagram_count_ + taken_packet_count_ > 0;
    // Datagrams first: they say what packets are.
    if (!deliver_datagrams(now_ns, endpoint).ok() || !deliver_packets(now_ns, endpoint).ok()) {
        statistics_.has_failed = true;
    }
    taken_datagram_count_ = 0;
    taken_packet_count_ = 0;
    return has_any;
}

Result<void> UcChannel::deliver_datagrams(uint64_t now_ns, sdr::Endpoint& endpoint) {
    for (uint32_t index = 0; index < taken_datagram_count_; index++) {
        const verbs::Completion& completion = taken_datagrams_[index];
        if (completion.status != verbs::Status::success) {
            return Error::eio;
        }
        if (!completion.is_receive) {
            sender_->on_datagram_sent();
            continue;
        }
        const unsigned char* bytes = datagrams_.at(0) + completion.id * sdr::kMaxUcDatagramBytes;
        if (completion.has_immediate || completion.size_bytes > sdr::kMaxUcDatagramBytes) {
            statistics_.datagrams_refused++;
        } else {
            deliver_datagram(now_ns, ByteSpan(bytes, completion.size_bytes), endpoint);
        }
        TRY(post_datagram_receive(completion.id));
    }
    return {};
}

void UcChannel::deliver_datagram(uint64_t now_ns, ByteSpan datagram, sdr::Endpoint& endpoint) {
    sdr::UcHeader header;
    if (datagram.size() < sizeof(header)) {
        statistics_.datagrams_refused++;
        return;
    }
    std::memcpy(&header, datagram.data(), sizeof(header));
    const ByteSpan body(datagram.data() + sizeof(header), datagram.size() - sizeof(header));
    if (header.connection_id != connection_id_ || header.version != sdr::kUcVersion ||
        header.tag != sdr::uc_tag(options_.receive_key, header, body)) {
        statistics_.datagrams_refused++;
        return;
    }
    sender_->on_windows(header.windows);
    const auto kind = static_cast<sdr::PacketKind>(header.kind);
    if (kind == sdr::PacketKind::data || kind == sdr::PacketKind::parity) {
        receiver_.on_description(now_ns, header, body, endpoint);
    } else if (kind == sdr::PacketKind::control) {
        statistics_.datagrams_received++;
        receiver_.note_datagram(now_ns, header.packet_number);
        endpoint.on_control(now_ns, body);
    } else if (kind == sdr::PacketKind::feedback && body.size() == sizeof(sdr::FeedbackHeader)) {
        statistics_.datagrams_received++;
        sdr::FeedbackHeader feedback;
        std::memcpy(&feedback, body.data(), sizeof(feedback));
        sender_->on_feedback(now_ns, feedback);
    } else {
        statistics_.datagrams_refused++;
    }
}

Result<void> UcChannel::deliver_packets(uint64_t now_ns, sdr::Endpoint& endpoint) {
    uint32_t receives = 0;
    for (uint32_t index = 0; index < taken_packet_count_; index++) {
        const verbs::Completion& completion = taken_packets_[index];
        if (completion.status != verbs::Status::success) {
            return Error::eio;
        }
        if (completion.is_receive) {
            receives++;
            // A write of nothing needs no key on some devices, and a send says nothing of packets.
            if (completion.has_immediate && completion.size_bytes > 0 &&
                completion.size_bytes <= layout_.packet_bytes) {
                receiver_.on_immediate(now_ns, completion.immediate, endpoint);
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
    receiver_.flush(now_ns, endpoint);
    return {};
}

// ---- What goes -------------------------------------------------------------------------------------------

bool UcChannel::transmit(uint64_t now_ns, sdr::Endpoint& endpoint) {
    if (statistics_.has_failed) {
        return false;
    }
    Result<bool> has_more = transmit_some(now_ns, endpoint);
    statistics_.has_failed = !has_more.ok();
    return has_more.ok() && *has_more;
}

// Nothing is sent before the window is open of every receive that it may tell of.
Result<bool> UcChannel::transmit_some(uint64_t now_ns, sdr::Endpoint& endpoint) {
    is_blocked_ = TRY(receiver_.open_windows(endpoint.receives_posted(), *data_));
    uint32_t runs = 0;
    for (; runs < kTurnRuns && !is_blocked_; runs++) {
        const uint32_t packets = sender_->packets_allowed(now_ns);
        sdr::Transmit out;
        is_blocked_ = packets == 0;
        if (is_blocked_ || !endpoint.may_transmit(now_ns) ||
            !endpoint.next_transmit(now_ns, packets, out)) {
            break;
        }
        TRY(sender_->send(now_ns, out, receiver_.windows()));
    }
    retry_ns_ = now_ns + sdr::kBlockedRetryNs;
    if (now_ns >= receiver_.feedback_ns() && sender_->has_room_for_feedback()) {
        TRY(sender_->send_feedback(receiver_.take_feedback(now_ns), receiver_.windows()));
    }
    return runs == kTurnRuns;
}

// Feedback that finds no room waits for a completion, which makes the descriptor readable.
uint64_t UcChannel::next_time_ns() const {
    if (statistics_.has_failed) {
        return sdr::kNoTimer;
    }
    const uint64_t feedback_ns =
        sender_->has_room_for_feedback() ? receiver_.feedback_ns() : sdr::kNoTimer;
    const uint64_t blocked_ns =
        is_blocked_ ? std::max(sender_->timeout_at_ns(), retry_ns_) : sdr::kNoTimer;
    return std::min(feedback_ns, blocked_ns);
}

// ---- Counters --------------------------------------------------------------------------------------------

uint64_t UcChannel::packets_received() const {
    return statistics_.packets_received + statistics_.datagrams_received +
           receiver_.packets_received();
}

UcStatistics UcChannel::uc_statistics() const {
    UcStatistics sum = statistics_;
    sender_->add_statistics(sum);
    receiver_.add_statistics(sum);
    return sum;
}

sdr::ChannelStatistics UcChannel::statistics() const {
    const UcStatistics sum = uc_statistics();
    sdr::ChannelStatistics result;
    result.packets_sent = sum.packets_written + sum.datagrams_sent;
    result.packets_received = sum.packets_received + sum.datagrams_received;
    result.packets_refused = sum.packets_stray + sum.datagrams_refused;
    result.packets_dropped = sum.packets_dropped;
    result.send_calls = sender_->post_calls() + arm_calls_;
    return result;
}

}  // namespace tiffin::rdma_blk
