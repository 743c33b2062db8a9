// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What comes on the socket of a UDP channel: opened, noted for feedback, handed over.
#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "rdma_blk/sdr/udp/udp_channel.h"

namespace tiffin::rdma_blk::sdr {

// Of each datagram but the last of those that the kernel gave as one.
size_t UdpChannel::segment_bytes_of(msghdr& header, size_t size_bytes) {
    for (cmsghdr* entry = CMSG_FIRSTHDR(&header); entry != nullptr;
         entry = CMSG_NXTHDR(&header, entry)) {
        if (entry->cmsg_level == SOL_UDP && entry->cmsg_type == UDP_GRO) {
            int given = 0;
            std::memcpy(&given, CMSG_DATA(entry), sizeof(given));
            return given > 0 ? static_cast<size_t>(given) : size_bytes;
        }
    }
    return size_bytes;
}

UdpChannel::ReceiveCall::ReceiveCall(unsigned char* buffers) {
    for (uint32_t index = 0; index < kReceiveBatch; index++) {
        parts[index] = {buffers + size_t{index} * kBufferBytes, kBufferBytes};
        messages[index].msg_hdr.msg_iov = &parts[index];
        messages[index].msg_hdr.msg_iovlen = 1;
        messages[index].msg_hdr.msg_control = controls[index];
        messages[index].msg_hdr.msg_controllen = kControlBytes;
    }
}

// As many as probably are there: the kernel looks for one more than it finds, and a request comes alone.
int UdpChannel::receive_messages() {
    mmsghdr* const messages = receive_call_->messages;
    statistics_.receive_calls++;
    if (expected_count_ > 1) {
        return recvmmsg(socket_, messages, expected_count_, MSG_DONTWAIT, nullptr);
    }
    const ssize_t size_bytes = recvmsg(socket_, &messages[0].msg_hdr, MSG_DONTWAIT);
    if (size_bytes < 0) {
        return -1;
    }
    messages[0].msg_len = static_cast<unsigned int>(size_bytes);
    return 1;
}

bool UdpChannel::receive(uint64_t now_ns) {
    mmsghdr* const messages = receive_call_->messages;
    received_count_ = 0;
    const int count = receive_messages();
    const bool has_all = count == static_cast<int>(expected_count_);
    // Where one was expected, a second one is found the next time; and more are expected when that has happened twice, or
    // every other request that somebody sleeps for would be looked for twice.
    const bool may_have_more = has_all && expected_count_ > 1;
    if (!has_all) {
        expected_count_ = static_cast<uint32_t>(std::max(count, 1));
    } else if (had_all_) {
        expected_count_ = std::min(2 * expected_count_, kReceiveBatch);
    }
    had_all_ = has_all;
    for (int index = 0; index < count; index++) {
        const size_t size_bytes = messages[index].msg_len;
        const size_t segment_bytes = segment_bytes_of(messages[index].msg_hdr, size_bytes);
        messages[index].msg_hdr.msg_controllen =
            ReceiveCall::kControlBytes;  // the kernel has written what it used
        const unsigned char* bytes = buffers_.get() + static_cast<size_t>(index) * kBufferBytes;
        for (size_t offset = 0; offset < size_bytes; offset += segment_bytes) {
            take_datagram(now_ns,
                          ByteSpan(bytes + offset, std::min(segment_bytes, size_bytes - offset)));
        }
    }
    return may_have_more;
}

void UdpChannel::take_datagram(uint64_t now_ns, ByteSpan datagram, ByteSpan rest) {
    DatagramHeader header;
    if (datagram.size() > sizeof(header)) {
        std::memcpy(&header, datagram.data(), sizeof(header));
        if ((header.channel & kFeedbackChannel) != 0) {
            take_report(now_ns, datagram);
            return;  // not reported: that would never end
        }
    }
    const bool had_any = !opener_.window().empty();
    const uint64_t highest_before = had_any ? opener_.window().highest() : 0;
    Result<OpenedDatagram> opened = opener_.open(datagram, rest);
    if (!opened.ok() || received_count_ == kMaxReceived) {
        statistics_.datagrams_refused++;
        return;
    }
    statistics_.datagrams_received++;
    bytes_received_ += datagram.size() + rest.size();
    if (!had_any || opened->packet_number > highest_before) {
        highest_arrival_ns_ = now_ns;
    }
    unreported_++;
    feedback_ns_ = std::min(feedback_ns_,
                            unreported_ >= kFeedbackPackets ? now_ns : now_ns + kFeedbackDelayNs);
    received_[received_count_++] = {opened->kind, opened->body, rest};
}

bool UdpChannel::deliver(uint64_t now_ns, Endpoint& endpoint) {
    const bool has_any = received_count_ > 0;
    for (uint32_t index = 0; index < received_count_; index++) {
        const Received& received = received_[index];
        if (received.kind == PacketKind::control) {
            endpoint.on_control(now_ns, received.body);
        } else if (received.kind == PacketKind::data || received.kind == PacketKind::parity) {
            const bool is_apart = !received.payload.empty();
            Result<DataRun> run = is_apart ? parse_data_header(received.kind, received.body)
                                           : parse_data(received.kind, received.body);
            if (run.ok() && is_apart) {
                run->payload = received.payload.data();
                run->payload_bytes = received.payload.size();
            }
            if (run.ok()) {
                endpoint.on_data(now_ns, *run);
            } else {
                statistics_.datagrams_refused++;
            }
        }
    }
    received_count_ = 0;
    return has_any;
}

}  // namespace tiffin::rdma_blk::sdr
