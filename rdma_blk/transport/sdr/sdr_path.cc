// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/sdr/sdr_path.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "fs/vfs/host.h"
#include "rdma_blk/sdr/udp/udp_detour.h"
#include "rdma_blk/transport/pieces_checksum.h"
#include "rdma_blk/transport/verbs/verbs.h"
#include "rdma_blk/wire/parse.h"

namespace tiffin::rdma_blk {
namespace {

// One address, as a detour takes it.
sdr::UdpInfo info_of(const sockaddr_in6& address) {
    sdr::UdpInfo info;
    info.channel_count = 1;
    info.addresses[0] = address;
    return info;
}

}  // namespace

// ---- Set-up -----------------------------------------------------------------------------------------------

MessagePathOptions SdrPath::message_options(const TrafficKeys& keys) const {
    MessagePathOptions options;
    options.set_repair(options_.repair());
    options.drop_ppm = options_.drop_ppm;
    options.landing_slots = options_.landing_slots;
    options.set_keys(keys, true);
    return options;
}

Result<size_t> SdrPath::offer(const sockaddr_in6& local, const sockaddr_in6& peer,
                              const TrafficKeys& keys, MutableByteSpan parameters) {
    messages_.reset();
    return is_uc() ? offer_queue_pairs(local, message_options(keys), parameters)
                   : offer_sockets(local, peer, message_options(keys), parameters);
}

Result<size_t> SdrPath::offer_sockets(const sockaddr_in6& local, const sockaddr_in6& peer,
                                      MessagePathOptions options, MutableByteSpan parameters) {
    peer_ = peer;
    options.local = local;
    options.local.sin6_port = 0;
    options.packet_bytes = TRY(datagram_packet_bytes(peer));
    if (known_packet_bytes_ != 0) {
        options.packet_bytes = std::min(options.packet_bytes, known_packet_bytes_);
    }
    messages_ = TRY(MessagePath::create(options));
    wire::DatagramPathEnd end = messages_->end();
    end.repair = options_.repair();
    if (options_.detour != nullptr) {
        sockaddr_in6 address = local;
        address.sin6_port = htons(end.port);
        sdr::UdpInfo ours = info_of(address);
        options_.detour->advertise(ours);
        end.port = ntohs(ours.addresses[0].sin6_port);
    }
    TIFFIN_ASSERT(parameters.size() >= sizeof(end));
    std::memcpy(parameters.data(), &end, sizeof(end));
    return sizeof(end);
}

// The device that has this end's address. It is opened for each connection, as another network may be the way by then.
Result<size_t> SdrPath::offer_queue_pairs(const sockaddr_in6& local, MessagePathOptions options,
                                          MutableByteSpan parameters) {
    std::string problem = "not over a network of IP";
    auto made = [&]() -> Result<std::unique_ptr<MessagePath>> {
        std::unique_ptr<verbs::Device> device =
            TRY(verbs::devices().open(local.sin6_addr.s6_addr, problem));
        problem = std::string("the device ") + device->capabilities().device_name +
                  " does not do it: no memory windows of type 2B, or too little memory to lock "
                  "(ulimit -l?)";
        options.packet_bytes = device->capabilities().mtu_bytes;
        options.message_count = kUcPathMessages;
        return MessagePath::create_uc(options, std::move(device));
    }();
    if (!made.ok()) {
        host::log(host::LogLevel::warning, ("remote memory: no sdr over uc: " + problem).c_str());
        return made.error();
    }
    messages_ = made.release_value();
    wire::UcPathEnd end = messages_->uc_end();
    end.repair = options_.repair();
    TIFFIN_ASSERT(parameters.size() >= sizeof(end));
    std::memcpy(parameters.data(), &end, sizeof(end));
    return sizeof(end);
}

Result<void> SdrPath::start_messages(ByteSpan parameters) {
    if (is_uc()) {
        return messages_->start_uc(TRY(wire::parse_uc_path_end(parameters)));
    }
    const wire::DatagramPathEnd agreed = TRY(wire::parse_datagram_path_end(parameters));
    peer_.sin6_port = htons(agreed.port);
    sockaddr_in6 next_hop = peer_;
    if (options_.detour != nullptr) {
        sdr::UdpInfo peer = info_of(peer_);
        options_.detour->route(peer);
        next_hop = peer.addresses[0];
    }
    return messages_->start(agreed, next_hop);
}

Result<void> SdrPath::joined(ByteSpan parameters) {
    TRY(start_messages(parameters));
    const uint64_t now_ns = host::monotonic_ns();
    *messages_->begin_message() = 0;
    TRY(messages_->send_message(now_ns, 1, static_cast<uint32_t>(MessageUse::hello)));
    messages_->transmit(now_ns);
    return {};
}

void SdrPath::stop() {
    if (is_started()) {
        known_packet_bytes_ = messages_->statistics().next_packet_bytes(known_packet_bytes_);
    }
    count_ended(ended_);
    messages_.reset();
    taken_.reset();
    sent_numbers_.assign(wire::kMaxSlots, MessagePath::kNoMessage);
    is_up_ = false;
    is_broken_ = false;
}

bool SdrPath::has_failed() const { return is_started() && (is_broken_ || messages_->has_failed()); }

uint64_t SdrPath::silence_ns(uint64_t now_ns) const {
    return is_started() ? messages_->silence_ns(now_ns) : 0;
}

// ---- Requests ---------------------------------------------------------------------------------------------

void SdrPath::send(const wire::Request& request, ByteSpan ranges, const vfs::IoVector* buffers,
                   size_t buffer_count) {
    (void)answered_elsewhere(request.slot);  // of a request whose answer alone is asked for now
    unsigned char* const begin = messages_->begin_message();
    size_t payload_bytes = ranges.size();
    for (size_t index = 0; index < buffer_count; index++) {
        payload_bytes += buffers[index].size_bytes;
    }
    wire::Request sent_request = request;
    if (buffer_count > 0 &&
        messages_->needs_checksum(sizeof(wire::MessageHeader) + sizeof(request) + payload_bytes)) {
        sent_request.payload_checksum = pieces_checksum(buffers, buffer_count);
        sent_request.flags |= wire::request_flag::has_checksum;
    }
    size_t size = wire::encode(wire::MessageType::request, 0, sent_request, payload_bytes, begin);
    if (!ranges.empty()) {
        std::memcpy(begin + size, ranges.data(), ranges.size());
        size += ranges.size();
    }
    const uint64_t now_ns = host::monotonic_ns();
    auto sent = messages_->send_gathered(now_ns, size, buffers, buffer_count,
                                         static_cast<uint32_t>(MessageUse::wire));
    sent_numbers_[request.slot] = sent.ok() ? *sent : MessagePath::kNoMessage;
    // Nobody would send it again on this connection: it ends, and all is sent again on the next one.
    is_broken_ = is_broken_ || !sent.ok();
    messages_->transmit(now_ns);
}

void SdrPath::answered(uint16_t slot) {
    if (is_started() && sent_numbers_[slot] != MessagePath::kNoMessage) {
        const uint64_t number = std::exchange(sent_numbers_[slot], MessagePath::kNoMessage);
        is_broken_ = !messages_->give_back(number) || is_broken_;
    }
}

bool SdrPath::answered_elsewhere(uint16_t slot) {
    if (!is_sending(slot)) {
        return true;
    }
    if (is_uc()) {
        return false;  // the card may be reading
    }
    messages_->keep(std::exchange(sent_numbers_[slot], MessagePath::kNoMessage));
    return true;
}

bool SdrPath::is_sending(uint16_t slot) const {
    return is_started() && sent_numbers_[slot] != MessagePath::kNoMessage &&
           messages_->is_sending(sent_numbers_[slot]);
}

// ---- Answers ----------------------------------------------------------------------------------------------

int SdrPath::socket() const { return is_started() ? messages_->descriptor() : -1; }

uint64_t SdrPath::next_time_ns(uint64_t now_ns) const {
    return is_started() ? messages_->next_time_ns(now_ns) : sdr::kNoTimer;
}

bool SdrPath::receive(uint64_t now_ns) {
    if (!is_started()) {
        return false;
    }
    const uint64_t before = messages_->datagrams_received();
    // Who looks again and again has the rest done only when there is a reason.
    if (!messages_->look(now_ns) && now_ns < messages_->next_time_ns(now_ns)) {
        return false;
    }
    constexpr int kTurns = 16;  // then whoever waits for the first of them has its turn
    for (int turn = 0; turn < kTurns && messages_->take(now_ns); turn++) {
        messages_->transmit(now_ns);  // feedback, so that the other end goes on
    }
    const bool has_come = messages_->datagrams_received() != before;
    if (!has_come) {
        messages_->transmit(now_ns);  // what was due
    }
    return has_come;
}

void SdrPath::transmit(uint64_t now_ns) {
    if (is_started()) {
        messages_->transmit(now_ns);
    }
}

Result<bool> SdrPath::next_answer(Answer& answer) {
    if (!is_started()) {
        return false;
    }
    if (taken_) {
        messages_->release(host::monotonic_ns(), *std::exchange(taken_, std::nullopt));
    }
    MessagePath::Message message;
    while (messages_->next_message(message)) {
        taken_ = message;
        if (message.use == static_cast<uint32_t>(MessageUse::hello)) {
            is_up_ = true;
            messages_->release(host::monotonic_ns(), *std::exchange(taken_, std::nullopt));
            continue;
        }
        if (message.use != static_cast<uint32_t>(MessageUse::wire)) {
            return Error::eproto;
        }
        const wire::MessageHeader header = TRY(wire::parse_header(message.bytes));
        const size_t fixed_bytes = sizeof(header) + wire::fixed_part_bytes(header);
        if (message.bytes.size() != fixed_bytes + wire::payload_bytes(header)) {
            return Error::eproto;
        }
        answer.response = TRY(wire::parse_response(header, message.bytes.subspan(sizeof(header))));
        answer.payload = message.bytes.subspan(fixed_bytes);
        if (answer.payload.size() != answer.response.payload_bytes) {
            return Error::eproto;
        }
        answered_bytes_ += answer.payload.size();
        return true;
    }
    return false;
}

// ---- Counters ---------------------------------------------------------------------------------------------

void SdrPath::count_ended(MessagePathStatistics& sum) const {
    if (messages_ == nullptr) {
        return;
    }
    const MessagePathStatistics now = messages_->statistics();
    sum.datagrams_sent += now.datagrams_sent;
    sum.datagrams_received += now.datagrams_received;
    sum.datagrams_refused += now.datagrams_refused;
    sum.datagrams_dropped += now.datagrams_dropped;
    sum.chunks_lost += now.chunks_lost;
    sum.chunks_repeated += now.chunks_repeated;
    sum.blocks_decoded += now.blocks_decoded;
    sum.blocks_failed += now.blocks_failed;
    sum.system_calls += now.system_calls;
    sum.bytes_copied += now.bytes_copied;
    sum.round_trip_us = now.round_trip_us;
    sum.path_rate_bytes_per_s = now.path_rate_bytes_per_s;
}

void SdrPath::add_statistics(Statistics& statistics) const {
    MessagePathStatistics sum = ended_;
    count_ended(sum);
    statistics.datagrams_sent += sum.datagrams_sent;
    statistics.datagrams_received += sum.datagrams_received;
    statistics.datagrams_refused += sum.datagrams_refused;
    statistics.datagrams_dropped += sum.datagrams_dropped;
    statistics.chunks_lost += sum.chunks_lost;
    statistics.chunks_repeated += sum.chunks_repeated;
    statistics.blocks_decoded += sum.blocks_decoded;
    statistics.blocks_failed += sum.blocks_failed;
    statistics.round_trip_us = sum.round_trip_us;
    statistics.path_rate_bytes_per_s = sum.path_rate_bytes_per_s;
    statistics.system_calls += sum.system_calls;
    statistics.copied_bytes += sum.bytes_copied + answered_bytes_;
}

}  // namespace tiffin::rdma_blk
