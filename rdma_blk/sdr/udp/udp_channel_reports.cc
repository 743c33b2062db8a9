// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What the ends of a UDP channel tell each other about the path: feedback for congestion control, and probes of its width.
// Both have numbers of their own, and no end reports that they came: that would never end.
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "fs/vfs/host.h"
#include "rdma_blk/sdr/udp/udp_channel.h"

namespace tiffin::rdma_blk::sdr {

// ---- That come ---------------------------------------------------------------------------------------------

void UdpChannel::take_report(uint64_t now_ns, ByteSpan datagram) {
    Result<OpenedDatagram> opened = feedback_opener_.open(datagram);
    if (!opened.ok()) {
        statistics_.datagrams_refused++;
        return;
    }
    statistics_.datagrams_received++;
    if (opened->kind == PacketKind::feedback) {
        on_feedback(now_ns, opened->body);
    } else if (opened->kind == PacketKind::probe || opened->kind == PacketKind::probe_reply) {
        on_probe(now_ns, opened->kind, opened->body, datagram.size());
    } else {
        statistics_.datagrams_refused++;
    }
}

void UdpChannel::on_probe(uint64_t now_ns, PacketKind kind, ByteSpan body, size_t datagram_bytes) {
    ProbeHeader probe;
    if (body.size() < sizeof(probe)) {
        statistics_.datagrams_refused++;
        return;
    }
    std::memcpy(&probe, body.data(), sizeof(probe));
    if (kind == PacketKind::probe_reply) {
        if (path_probe_ != nullptr) {
            path_probe_->on_reply(now_ns, {probe.datagram_bytes, probe.probe_number});
        }
    } else if (probe.datagram_bytes == datagram_bytes) {
        // One at a time: a peer that sends more of them before it is answered gets one answer.
        answered_bytes_ = probe.datagram_bytes;
        answered_number_ = probe.probe_number;
    }
}

void UdpChannel::on_feedback(uint64_t now_ns, ByteSpan body) {
    if (body.size() != sizeof(FeedbackHeader) || congestion_ == nullptr) {
        return;
    }
    FeedbackHeader feedback;
    std::memcpy(&feedback, body.data(), sizeof(feedback));
    const uint64_t next = sealer_->next_number();
    if (!SentTimes::knows(feedback, next)) {
        return;
    }
    if (path_probe_ != nullptr && feedback.packets_received > peer_packets_) {
        const uint64_t packets = feedback.packets_received - peer_packets_;
        const uint64_t used = kDataDatagramBytes + options_.packet_bytes;
        // All of them were that long.
        if (packets <= SentTimes::kCount &&
            feedback.bytes_received - peer_bytes_ == packets * used) {
            path_probe_->on_used_size_came(now_ns);
        }
        peer_packets_ = feedback.packets_received;
        peer_bytes_ = feedback.bytes_received;
    }
    congestion_->on_feedback(now_ns, feedback.highest_packet_number, feedback.packets_received,
                             sent_times_.round_trip_ns(now_ns, feedback));
}

// ---- That are sent -----------------------------------------------------------------------------------------

void UdpChannel::send_feedback(uint64_t now_ns) {
    FeedbackHeader feedback{};
    feedback.highest_packet_number = opener_.window().highest();
    feedback.packets_received = opener_.window().received();
    feedback.bytes_received = bytes_received_;
    feedback.delay_us = static_cast<uint32_t>((now_ns - highest_arrival_ns_) / 1000);
    unreported_ = 0;
    feedback_ns_ = kNoTimer;
    const uint32_t checksum = host::crc32c(0, &feedback, sizeof(feedback));
    send_small(feedback_sealer_->seal(PacketKind::feedback, checksum), &feedback, sizeof(feedback));
}

// Answers the peer's probe, sends the next one of this end's, and does what they have shown.
void UdpChannel::serve_probes(uint64_t now_ns) {
    if (answered_bytes_ != 0) {
        send_probe(PacketKind::probe_reply, answered_bytes_, answered_number_);
        answered_bytes_ = 0;
    }
    if (path_probe_ == nullptr) {
        return;
    }
    if (congestion_->timeouts_in_a_row() >= kBlackHoleTimeouts && !path_probe_->is_too_narrow()) {
        path_probe_->on_black_hole(now_ns);
    }
    PathProbe::Probe probe;
    if (path_probe_->next_probe(now_ns, probe)) {
        set_fragmentation(IP_PMTUDISC_PROBE);  // it must not be cut in pieces
        send_probe(PacketKind::probe, probe.datagram_bytes, probe.number);
        // Data may be, where it does not fit: better than not at all (RFC 8899, 4.5).
        set_fragmentation(path_probe_->is_too_narrow() ? IP_PMTUDISC_DONT : IP_PMTUDISC_WANT);
    }
    const bool is_narrow = path_probe_->is_too_narrow();
    const uint32_t confirmed = path_probe_->confirmed_bytes();
    // Once it is known to be too narrow, its packets may come in pieces.
    const uint32_t timeouts = congestion_->timeouts_in_a_row();
    timeouts_when_narrow_ = is_narrow ? std::min(timeouts_when_narrow_, timeouts) : timeouts;
    swallows_packets_ =
        is_narrow && confirmed != 0 && timeouts >= timeouts_when_narrow_ + kBlackHoleTimeouts;
    statistics_.path_is_too_narrow = is_narrow;
    statistics_.path_packet_bytes =
        confirmed > kDataDatagramBytes ? confirmed - kDataDatagramBytes : 0;
}

// A reply is as small as can be; a probe has the size that it asks for.
void UdpChannel::send_probe(PacketKind kind, uint32_t datagram_bytes, uint32_t number) {
    const size_t body_bytes =
        kind == PacketKind::probe ? datagram_bytes - sizeof(DatagramHeader) : sizeof(ProbeHeader);
    // What was received has been handed over: its memory is free.
    unsigned char* const body = buffers_.get();
    std::memset(body, 0, body_bytes);
    const ProbeHeader header{datagram_bytes, number};
    std::memcpy(body, &header, sizeof(header));
    const uint64_t calls = statistics_.send_calls;
    const uint64_t failed = statistics_.datagrams_failed;
    send_small(feedback_sealer_->seal(kind, host::crc32c(0, body, body_bytes)), body, body_bytes);
    statistics_.send_calls = calls;         // nothing that anybody waits for
    statistics_.datagrams_failed = failed;  // too large is an answer, too
}

// IP_PMTUDISC_WANT, _PROBE or _DONT; IPv6 has the same numbers. Best effort.
void UdpChannel::set_fragmentation(int how) const {
    static_assert(IP_PMTUDISC_WANT == IPV6_PMTUDISC_WANT &&
                  IP_PMTUDISC_DONT == IPV6_PMTUDISC_DONT &&
                  IP_PMTUDISC_PROBE == IPV6_PMTUDISC_PROBE);
    (void)setsockopt(socket_, IPPROTO_IP, IP_MTU_DISCOVER, &how, sizeof(how));
    (void)setsockopt(socket_, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &how, sizeof(how));
}

}  // namespace tiffin::rdma_blk::sdr
