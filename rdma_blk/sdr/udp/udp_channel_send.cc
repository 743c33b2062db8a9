// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What an endpoint sends on the socket of a UDP channel: as much as the window and the rate allow, many packets in a call.
#include <netinet/udp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fs/vfs/host.h"
#include "rdma_blk/sdr/udp/udp_channel.h"

namespace tiffin::rdma_blk::sdr {

uint32_t UdpChannel::packets_allowed(uint64_t now_ns) {
    const uint64_t segment_bytes = kDataDatagramBytes + options_.packet_bytes;
    const uint64_t fit = std::clamp<uint64_t>(kMaxSegmentsBytes / segment_bytes, 1, kMaxSegments);
    is_paced_ = options_.rate_limit_bytes_per_s != 0 && now_ns < pace_ns_;
    if (is_paced_) {
        return 0;
    }
    const uint64_t room = congestion_->room_bytes(now_ns) / options_.packet_bytes;
    is_blocked_ = room == 0;
    return static_cast<uint32_t>(std::min(room, fit));
}

bool UdpChannel::transmit(uint64_t now_ns, Endpoint& endpoint) {
    const bool is_feedback_due = now_ns >= feedback_ns_;
    if (is_feedback_due && unreported_ >= kFeedbackPackets) {
        send_feedback(now_ns);  // the peer may wait for it to go on
    }
    const bool has_more = transmit_data(now_ns, endpoint);
    // Behind data it wakes nobody.
    if (is_feedback_due && feedback_ns_ != kNoTimer) {
        send_feedback(now_ns);
    }
    serve_probes(now_ns);
    published_ = statistics_;
    return has_more;
}

void UdpChannel::tell_rate(Endpoint& endpoint) {
    if (congestion_->rate_bytes_per_s() != told_rate_bytes_per_s_) {
        told_rate_bytes_per_s_ = congestion_->rate_bytes_per_s();
        endpoint.on_path_rate(index_, told_rate_bytes_per_s_);
    }
}

bool UdpChannel::transmit_data(uint64_t now_ns, Endpoint& endpoint) {
    tell_rate(endpoint);
    is_full_ = false;
    for (uint32_t sent = 0; sent < kReceiveBatch && !is_full_; sent++) {
        const uint32_t packets = packets_allowed(now_ns);
        Transmit out;
        if (packets == 0 || !endpoint.may_transmit(now_ns) ||
            !endpoint.next_transmit(now_ns, packets, out)) {
            return false;
        }
        if (out.is_control) {
            send_control(now_ns, out);
        } else {
            send_run(now_ns, out.run);
        }
    }
    return true;
}

// Headers and payloads are gathered: the kernel takes the bytes from the message's memory.
void UdpChannel::send_run(uint64_t now_ns, const DataRun& run) {
    struct Headers {
        DatagramHeader datagram;
        DataHeader data;
    };
    static_assert(sizeof(Headers) == kDataDatagramBytes);
    if (run.payload == nullptr && run.gather == nullptr) {
        statistics_.datagrams_failed += run.packet_count;
        return;
    }
    Headers headers[kMaxSegments];
    iovec parts[kMaxSendParts];
    uint16_t part_ends[kMaxSegments];  // of each datagram
    uint64_t offset = 0;
    uint32_t queued = 0;
    uint32_t part_count = 0;
    for (uint32_t index = 0; index < run.packet_count; index++) {
        const uint64_t size_bytes =
            std::min<uint64_t>(options_.packet_bytes, run.payload_bytes - offset);
        Headers& header = headers[queued];
        header.data = make_data_header(run, index);
        parts[part_count] = {&header, sizeof(header)};
        iovec* const payload = parts + part_count + 1;
        // The others of this call need at least two each.
        const uint32_t most = kMaxSendParts - part_count - 1 - 2 * (kMaxSegments - 1 - queued);
        const uint32_t payload_parts = find_payload(run, offset, size_bytes, queued, payload, most);
        uint32_t checksum = host::crc32c(0, &header.data, sizeof(header.data));
        for (uint32_t part = 0; part < payload_parts; part++) {
            checksum = host::crc32c(checksum, payload[part].iov_base, payload[part].iov_len);
        }
        const uint64_t number = sealer_->next_number();
        header.datagram = sealer_->seal(run.kind, checksum);
        sent_times_.note(number, now_ns);
        congestion_->on_sent(now_ns, number, size_bytes);
        offset += size_bytes;
        if (!drops()) {
            part_count += 1 + payload_parts;
            part_ends[queued] = static_cast<uint16_t>(part_count);
            queued++;
        }
        const bool is_last = index + 1 == run.packet_count;
        const bool is_full =
            queued == kMaxSegments || (queued + 1) * (sizeof(Headers) + options_.packet_bytes) >
                                          std::max<uint64_t>(kMaxSegmentsBytes, 1);
        if (queued > 0 && (is_last || is_full)) {
            send_message(parts, part_ends, queued, sizeof(Headers) + options_.packet_bytes);
            queued = 0;
            part_count = 0;
        }
    }
    if (options_.rate_limit_bytes_per_s != 0) {
        pace_ns_ = std::max(pace_ns_, now_ns) +
                   run.payload_bytes * 1'000'000'000 / options_.rate_limit_bytes_per_s;
    }
}

// Where the bytes of a packet are that is the `index`th of its call; the number of parts, of which there are not more
// than `most`: what is in more pieces is copied.
uint32_t UdpChannel::find_payload(const DataRun& run, uint64_t offset, uint64_t size_bytes,
                                  uint32_t index, iovec* parts, uint32_t most) {
    if (run.payload != nullptr) {
        parts[0] = {const_cast<unsigned char*>(run.payload + offset), size_bytes};  // only read
        return 1;
    }
    uint32_t count = 0;
    const bool has_all = run.gather->visit(
        run.gather_offset + offset, size_bytes, [&](const unsigned char* bytes, uint64_t size) {
            if (count == most) {
                return false;
            }
            parts[count++] = {const_cast<unsigned char*>(bytes), size};
            return true;
        });
    if (!has_all) {
        // What was received has been handed over: its memory is free.
        unsigned char* const copy = buffers_.get() + uint64_t{index} * options_.packet_bytes;
        run.gather->copy(run.gather_offset + offset, size_bytes, copy);
        parts[0] = {copy, size_bytes};
        count = 1;
    }
    return count;
}

void UdpChannel::send_control(uint64_t now_ns, const Transmit& out) {
    const uint64_t number = sealer_->next_number();
    sent_times_.note(number, now_ns);
    congestion_->on_sent(now_ns, number, out.control_bytes);
    const uint32_t checksum = host::crc32c(0, out.control, out.control_bytes);
    send_small(sealer_->seal(PacketKind::control, checksum), out.control, out.control_bytes);
}

void UdpChannel::send_small(DatagramHeader header, const void* bytes, size_t size_bytes) {
    if (drops()) {
        return;
    }
    iovec parts[2] = {{&header, sizeof(header)}, {const_cast<void*>(bytes), size_bytes}};
    const uint16_t part_end = 2;
    send_message(parts, &part_end, 1, 0);
}

// ---- Giving it to the kernel -------------------------------------------------------------------------------

// What the socket does not take is lost, as on any link: the protocol sends it again. But a path that does not take
// segments, because its MTU has become smaller or its device cannot make them, takes them one by one (and fragments).
void UdpChannel::send_message(iovec* parts, const uint16_t* part_ends, uint32_t datagrams,
                              uint32_t segment_bytes) {
    msghdr message{};
    if (!is_connected_) {
        message.msg_name = peer_.get();
        message.msg_namelen = peer_.size();
    }
    message.msg_iov = parts;
    message.msg_iovlen = part_ends[datagrams - 1];
    if (has_segmentation_ || datagrams == 1) {
        if (send_at_once(message, datagrams, segment_bytes)) {
            return;
        }
        has_segmentation_ = false;
    }
    message.msg_control = nullptr;
    message.msg_controllen = 0;
    uint32_t begin = 0;
    for (uint32_t index = 0; index < datagrams; index++) {
        message.msg_iov = parts + begin;
        message.msg_iovlen = part_ends[index] - begin;
        (void)send_at_once(message, 1, 0);  // one datagram is always done with
        begin = part_ends[index];
    }
}

bool UdpChannel::send_at_once(msghdr& message, uint32_t datagrams, uint32_t segment_bytes) {
    alignas(cmsghdr) unsigned char control[CMSG_SPACE(sizeof(uint16_t))] = {};
    if (datagrams > 1) {
        message.msg_control = control;
        message.msg_controllen = sizeof(control);
        cmsghdr* entry = CMSG_FIRSTHDR(&message);
        entry->cmsg_level = SOL_UDP;
        entry->cmsg_type = UDP_SEGMENT;
        entry->cmsg_len = CMSG_LEN(sizeof(uint16_t));
        const auto size = static_cast<uint16_t>(segment_bytes);
        std::memcpy(CMSG_DATA(entry), &size, sizeof(size));
    }
    statistics_.send_calls++;
    ssize_t sent = sendmsg(socket_, &message, MSG_NOSIGNAL);
    if (sent < 0 && is_connected_ && errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS) {
        // A connected socket tells in the next call what an earlier datagram met (ICMP), and sends nothing then.
        sent = sendmsg(socket_, &message, MSG_NOSIGNAL);
    }
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        if (!is_full_) {  // the kernel gets a moment to make room, once in a round
            pollfd writable{socket_, POLLOUT, 0};
            (void)poll(&writable, 1, 1);
            sent = sendmsg(socket_, &message, MSG_NOSIGNAL);
        }
        is_full_ = true;
    }
    if (sent >= 0) {
        statistics_.datagrams_sent += datagrams;
        return true;
    }
    const bool was_full = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS;
    if (datagrams > 1 && !was_full && (errno == EINVAL || errno == EIO || errno == EMSGSIZE)) {
        return false;
    }
    (was_full ? statistics_.datagrams_dropped : statistics_.datagrams_failed) += datagrams;
    return true;
}

bool UdpChannel::drops() {
    const bool lost = trial_loss_.next();
    statistics_.datagrams_dropped += lost ? 1 : 0;
    return lost;
}

}  // namespace tiffin::rdma_blk::sdr
