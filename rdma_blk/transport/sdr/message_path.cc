// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/sdr/message_path.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "fs/vfs/host.h"
#include "rdma_blk/sdr/udp/udp_carrier.h"

namespace tiffin::rdma_blk {
namespace {

// Two of them, with their headers, are what the kernel takes and gives in one call.
constexpr uint32_t kMostPacketBytes = 32400;
// Of an erasure code's parity, for as many groups as a few messages of 1 MiB have in small packets; of larger ones, which
// have fewer, so many that it does not take more memory.
constexpr uint32_t kParityGroups = 64;
constexpr uint32_t kLeastParityGroups = 16;
constexpr uint32_t kParityPacketBytes = 8192;
// Messages of at least so many bytes are sent from where they are.
constexpr uint64_t kLeastGatheredBytes = 16384;
// On shorter paths a repetition costs less than coding every message: a GB/s and more goes there.
constexpr uint32_t kLeastErasureRoundTripUs = 2000;
constexpr uint32_t kInitialRoundTripUs = 1000;
// An answer acknowledges its request, and the next request that answer.
constexpr uint32_t kHoldUs = 1000;

sdr::SchemeKind kind_of(wire::SdrScheme scheme) {
    switch (scheme) {
        case wire::SdrScheme::selective_repeat:
            return sdr::SchemeKind::selective_repeat;
        case wire::SdrScheme::erasure_xor:
            return sdr::SchemeKind::erasure_xor;
        case wire::SdrScheme::erasure_mds:
            return sdr::SchemeKind::erasure_mds;
        case wire::SdrScheme::automatic:
        case wire::SdrScheme::selective_repeat_nack:
            break;
    }
    return sdr::SchemeKind::selective_repeat_nack;
}

static_assert(wire::kMinDatagramPayloadBytes == sdr::kMinPacketBytes);
static_assert(wire::kMaxDatagramPayloadBytes == sdr::kMaxUdpPacketBytes);
static_assert(wire::kMaxDatagramMessages == sdr::kMaxMessages);
static_assert(wire::kMaxSdrDataChunks == sdr::kMaxDataChunks);
static_assert(wire::kMaxSdrParityChunks == sdr::kMaxParityChunks);

}  // namespace

Result<uint32_t> datagram_packet_bytes(const sockaddr_in6& peer) {
    return std::min(TRY(sdr::udp_path_packet_bytes(peer)), kMostPacketBytes);
}

void MessagePathOptions::set_repair(const wire::SdrRepair& wanted) {
    const auto kind = static_cast<wire::SdrScheme>(wanted.scheme);
    automatic_scheme = kind == wire::SdrScheme::automatic;
    scheme = {kind_of(kind), wanted.data_chunks, wanted.parity_chunks};
}

Result<std::unique_ptr<MessagePath>> MessagePath::create(const MessagePathOptions& options) {
    std::unique_ptr<MessagePath> path(new (std::nothrow) MessagePath(options));
    if (!path) {
        return Error::enomem;
    }
    do {
        host::random_bytes(&path->connection_id_, sizeof(path->connection_id_));
    } while (path->connection_id_ == 0);
    path->tag_bytes_ = path->tag_bytes_for(0);
    TRY(path->open_channel());
    return path;
}

MessagePath::~MessagePath() = default;

Result<void> MessagePath::open_channel() {
    sdr::UdpOptions options;
    options.local = options_.local;
    options.shares_port = options_.shares_port;
    options.has_one_peer = true;
    options.packet_bytes = options_.packet_bytes;
    options.drop_ppm = options_.drop_ppm;
    std::copy(std::begin(options_.send_key), std::end(options_.send_key), options.send_key);
    std::copy(std::begin(options_.receive_key), std::end(options_.receive_key),
              options.receive_key);
    channel_.reset();  // before another one takes its port
    udp_ = new (std::nothrow) sdr::UdpChannel(options, 0, connection_id_);
    channel_.reset(udp_);
    return udp_ == nullptr ? Result<void>(Error::enomem) : udp_->open();
}

wire::DatagramPathEnd MessagePath::end() const {
    wire::DatagramPathEnd end{};
    end.connection_id = connection_id_;
    end.port = ntohs(udp_->address().sin6_port);
    end.message_count = options_.message_count;
    end.packet_bytes = options_.packet_bytes;
    end.message_bytes = static_cast<uint32_t>(slot_bytes());
    end.receive_buffer_bytes =
        static_cast<uint32_t>(std::min<uint64_t>(udp_->receive_buffer_bytes(), UINT32_MAX));
    end.landing_slots = options_.landing_slots;
    return end;
}

wire::DatagramPathEnd MessagePath::common(wire::DatagramPathEnd end,
                                          const wire::DatagramPathEnd& other) {
    end.message_count = std::min(end.message_count, other.message_count);
    end.packet_bytes = std::min(end.packet_bytes, other.packet_bytes);
    end.landing_slots = std::min(end.landing_slots, end.message_count);
    return end;
}

Result<void> MessagePath::start(const wire::DatagramPathEnd& agreed, const sockaddr_in6& peer) {
    if (agreed.packet_bytes > options_.packet_bytes ||
        agreed.message_count > options_.message_count || agreed.message_bytes < slot_bytes()) {
        return Error::einval;
    }
    if (agreed.packet_bytes < options_.packet_bytes) {
        // Nobody has sent anything to this port yet.
        options_.local.sin6_port = udp_->address().sin6_port;
        options_.packet_bytes = agreed.packet_bytes;
        TRY(open_channel());
    }
    options_.message_count = agreed.message_count;
    TRY(start_seals(agreed.connection_id, connection_id_));
    TRY(start_messages());
    sdr::UdpInfo other;
    other.connection_id = agreed.connection_id;
    other.channel_count = 1;
    other.receive_buffer_bytes = agreed.receive_buffer_bytes;
    other.addresses[0] = peer;
    return udp_->connect(other);
}

sdr::QueuePairAttributes MessagePath::queue_pair_attributes() const {
    sdr::QueuePairAttributes queue_pair;
    queue_pair.packet_bytes = options_.packet_bytes;
    queue_pair.max_messages = options_.message_count;
    queue_pair.max_message_bytes = slot_bytes();
    return queue_pair;
}

// What is above the channel, when the options hold for both ends.
Result<void> MessagePath::start_messages() {
    options_.landing_slots = std::min(options_.landing_slots, options_.message_count);
    const sdr::QueuePairAttributes queue_pair = queue_pair_attributes();
    sdr::ReliabilityAttributes reliability;
    reliability.automatic = options_.automatic_scheme;
    if (!options_.automatic_scheme) {
        reliability.scheme = options_.scheme;
    }
    // The peer sends by the same scheme.
    reliability.parity_buffer_chunks =
        std::max<uint32_t>(sdr::kDefaultParityChunks, options_.scheme.parity_chunks);
    reliability.initial_round_trip_us = kInitialRoundTripUs;
    reliability.least_erasure_round_trip_us = kLeastErasureRoundTripUs;
    reliability.hold_us = kHoldUs;
    reliability.give_up_ns = options_.give_up_ns;
    reliability.parity_groups =
        std::clamp(kParityGroups * kParityPacketBytes / queue_pair.packet_bytes, kLeastParityGroups,
                   kParityGroups);
    const size_t count = options_.message_count;
    TRY(landing_.map(options_.landing_slots, slot_bytes()));
    TRY(sending_.map(count, slot_bytes()));
    context_ = TRY(sdr::context_create());
    landing_memory_ = TRY(context_->mr_reg(landing_.all()));
    sending_memory_ = TRY(context_->mr_reg(sending_.all()));
    auto connection = TRY(sdr::reliable_connection_create(*context_, queue_pair, reliability));
    sdr::QueuePairInfo info = connection->info_get();  // the peer's has the same numbers
    TRY(connection->connect(info));
    send_slot_.assign(count, 0);
    gathered_.assign(count, sdr::GatherList());
    landing_slot_.assign(count, 0);
    arrived_.assign(count, Message());
    free_sends_.clear();
    for (size_t slot = count; slot > 0; slot--) {
        free_sends_.push_back(static_cast<uint32_t>(slot - 1));
    }
    connection_ = std::move(connection);
    free_landing_.clear();
    for (uint32_t slot = options_.landing_slots; slot > 0; slot--) {
        free_landing_.push_back(slot - 1);
    }
    post_landing(host::monotonic_ns());
    return {};
}

// What it takes lies in the channel's memory, which nothing else may use before take().
bool MessagePath::look(uint64_t now_ns) {
    now_ns = never_back(now_ns);
    if (!has_looked_) {
        const sdr::PacketChannel::Taken taken = receive(now_ns);
        may_have_more_ = taken.may_have_more;
        has_looked_ = taken.has_any;
        vain_looks_ += has_looked_ ? 0 : 1;
    }
    return has_looked_;
}

bool MessagePath::take(uint64_t now_ns) {
    now_ns = never_back(now_ns);
    const bool has_more =
        std::exchange(has_looked_, false) ? may_have_more_ : receive(now_ns).may_have_more;
    (void)channel_->deliver(now_ns, *connection_);
    if (connection_->next_timer_ns() <= now_ns) {
        connection_->on_timer(now_ns);
    }
    take_completions();
    post_landing(now_ns);
    return has_more;
}

void MessagePath::transmit(uint64_t now_ns) {
    now_ns = never_back(now_ns);
    TIFFIN_ASSERT(!has_looked_);  // see look()
    constexpr int kTurns = 4;     // a message of the largest size takes two
    for (int turn = 0; turn < kTurns && channel_->transmit(now_ns, *connection_); turn++) {
    }
    take_completions();
}

// A time that stays the same until something happens, however often and late it is asked for: who compares it with his
// clock only after his sleep must find it due.
uint64_t MessagePath::next_time_ns(uint64_t now_ns) const {
    if (channel_->has_failed() || is_forged_) {
        return 0;
    }
    const uint64_t channel_ns = channel_->next_time_ns();
    const uint64_t timer_ns = connection_->next_timer_ns();
    // What the connection wants to send goes when feedback has come, which wakes us, or when it is late.
    return channel_->is_blocked() && timer_ns <= now_ns ? channel_ns
                                                        : std::min(channel_ns, timer_ns);
}

void MessagePath::take_completions() {
    sdr::Completion completion;
    while (connection_->next_completion(completion)) {
        const size_t index = completion.message_number % options_.message_count;
        if (completion.is_send) {
            free_sends_.push_back(send_slot_[index]);
        } else if (completion.ok) {
            take_arrived(completion, landing_slot_[index]);
        }
    }
}

void MessagePath::take_arrived(const sdr::Completion& completion, uint32_t slot) {
    Result<ByteSpan> checked =
        check_message(completion.message_number, completion.user_immediate,
                      MutableByteSpan(landing_.at(slot), completion.message_bytes));
    if (!checked.ok()) {
        host::log(
            host::LogLevel::warning,
            "remote memory: a message over sdr has a wrong tag: it was forged, or changed on its "
            "way; the connection ends");
        forged_++;
        is_forged_ = true;
        return;
    }
    arrived_[(arrived_first_ + arrived_count_) % arrived_.size()] = {
        *checked, completion.user_immediate, slot};
    arrived_count_++;
}

bool MessagePath::next_message(Message& message) {
    if (arrived_count_ == 0) {
        return false;
    }
    message = arrived_[arrived_first_];
    arrived_first_ = (arrived_first_ + 1) % arrived_.size();
    arrived_count_--;
    return true;
}

void MessagePath::release(uint64_t now_ns, const Message& message) {
    now_ns = never_back(now_ns);
    free_landing_.push_back(message.slot);
    post_landing(now_ns);
}

// While an old message is still being repaired, there may be no number for a new one.
void MessagePath::post_landing(uint64_t now_ns) {
    while (!free_landing_.empty()) {
        const uint32_t slot = free_landing_.back();
        const auto posted = connection_->recv_post(
            now_ns, landing_memory_.slice(uint64_t{slot} * landing_.stride_bytes(), slot_bytes()));
        if (!posted.ok()) {
            return;
        }
        landing_slot_[posted.value() % options_.message_count] = slot;
        free_landing_.pop_back();
    }
}

unsigned char* MessagePath::begin_message() { return sending_.at(free_sends_.back()) + tag_bytes_; }

Result<void> MessagePath::send_message(uint64_t now_ns, size_t size_bytes, uint32_t use) {
    now_ns = never_back(now_ns);
    const uint64_t offset = uint64_t{free_sends_.back()} * sending_.stride_bytes();
    TRY(tag_message(next_number_, use,
                    MutableByteSpan(sending_.at(free_sends_.back()), tag_bytes_ + size_bytes)));
    TRY(post(now_ns, sending_memory_.slice(offset, tag_bytes_ + size_bytes), use));
    return {};
}

Result<uint64_t> MessagePath::send_gathered(uint64_t now_ns, size_t head_bytes,
                                            const vfs::IoVector* pieces, size_t piece_count,
                                            uint32_t use) {
    now_ns = never_back(now_ns);
    const uint32_t slot = free_sends_.back();
    sdr::GatherList& list = gathered_[slot];
    unsigned char* const begin = begin_message();
    list = sdr::GatherList(ByteSpan(begin, head_bytes), pieces, piece_count);
    const uint64_t size_bytes = list.size_bytes();
    if (size_bytes > wire::kDatagramMessageBytes) {
        return Error::einval;
    }
    // A few bytes are copied in less time than it takes to give them back; a code needs whole chunks; and a message's tag
    // is of bytes that stay as they are.
    const bool is_copied =
        size_bytes < kLeastGatheredBytes || tag_bytes_ != 0 || uses_code(size_bytes);
    if (!is_copied) {
        return post(now_ns, sdr::RegisteredMemory::gathered(list), use);
    }
    list.copy(head_bytes, size_bytes - head_bytes, begin + head_bytes);
    bytes_copied_ += size_bytes - head_bytes;
    TRY(send_message(now_ns, size_bytes, use));
    return kNoMessage;
}

Result<uint64_t> MessagePath::post(uint64_t now_ns, const sdr::RegisteredMemory& memory,
                                   uint32_t use) {
    const uint64_t number = TRY(connection_->send_post(now_ns, memory, use));
    next_number_ = number + 1;
    send_slot_[number % options_.message_count] = free_sends_.back();
    free_sends_.pop_back();
    return number;
}

// The connection has the address of the list. Behind its head there is room for all of it.
void MessagePath::keep(uint64_t message_number) {
    TIFFIN_ASSERT(is_sending(message_number) && tag_bytes_ == 0);
    const uint32_t slot = send_slot_[message_number % options_.message_count];
    sdr::GatherList& list = gathered_[slot];
    const uint64_t size_bytes = list.size_bytes();
    unsigned char* const begin = sending_.at(slot);
    list.visit(0, size_bytes, [to = begin](const unsigned char* bytes, uint64_t size) mutable {
        if (bytes != to) {
            std::memcpy(to, bytes, size);
        }
        to += size;
        return true;
    });
    list = sdr::GatherList(ByteSpan(begin, size_bytes), nullptr, 0);
    bytes_copied_ += size_bytes;
}

bool MessagePath::give_back(uint64_t message_number) {
    const bool was_sent = connection_->send_delivered(message_number);
    take_completions();
    return was_sent;
}

void MessagePath::give_memory_back() {
    if (free_sends_.size() == options_.message_count) {
        sending_.forget();
    }
}

MessagePathStatistics MessagePath::statistics() const {
    const sdr::ChannelStatistics channel = channel_->statistics();
    MessagePathStatistics result;
    result.datagrams_sent = channel.packets_sent;
    result.datagrams_received = channel.packets_received;
    result.datagrams_refused = channel.packets_refused + forged_;
    result.datagrams_dropped = channel.packets_dropped;
    result.path_packet_bytes = static_cast<uint32_t>(channel.path_packet_bytes);
    result.path_is_too_narrow = channel.path_is_too_narrow;
    result.system_calls =
        channel.send_calls + channel.receive_calls - std::min(vain_looks_, channel.receive_calls);
    if (connection_ != nullptr) {
        const sdr::ReliabilityStatistics& reliability = connection_->reliability_statistics();
        const sdr::QueuePairStatistics& queue_pair = connection_->queue_pair_statistics();
        result.datagrams_refused += queue_pair.packets_malformed + queue_pair.control_malformed +
                                    queue_pair.packets_not_posted;
        result.bytes_copied = bytes_copied_ + queue_pair.bytes_copied;
        result.chunks_lost = reliability.chunks_asked_for + reliability.chunks_decoded;
        result.chunks_repeated = reliability.chunks_repeated;
        result.blocks_decoded = reliability.groups_decoded;
        result.blocks_failed = reliability.groups_failed;
        result.round_trip_us = reliability.round_trip_us;
        result.path_rate_bytes_per_s = reliability.path_rate_bytes_per_s;
    }
    return result;
}

}  // namespace tiffin::rdma_blk
