// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Receiving payloads straight to their place. The kernel copies before anybody has looked at a packet, so what it puts
// there means nothing yet: a packet is opened first, as any other, and its bytes stay only if they lie where its header
// says that they belong. All others (a packet was lost before them, or they are repeated, control or forged) are
// copied away before any is handed over, so that none is overwritten by another that goes to its place.
#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "rdma_blk/sdr/udp/udp_channel.h"

namespace tiffin::rdma_blk::sdr {
namespace {

constexpr size_t kHeadBytes = sizeof(DatagramHeader) + sizeof(DataHeader);
constexpr size_t kMostReceivedBytes = 65536;
static_assert(kMaxSegments * kHeadBytes <= kMostReceivedBytes);
static_assert(kReceiveBatch >= 3, "the rest, what was copied away, heads");

}  // namespace

struct UdpChannel::Scatter {
    iovec parts[2 * kMaxSegments + 1];  // a head and a payload for each packet, and what is longer
    uint32_t pair_count = 0;
    unsigned char* heads = nullptr;
    size_t size_bytes = 0;     // of all that came
    size_t segment_bytes = 0;  // of each datagram but the last

    // Copies a part of what came, as it was sent.
    void gather(size_t offset_bytes, size_t count_bytes, unsigned char* out) const {
        for (const iovec* part = parts; count_bytes > 0; part++) {
            if (offset_bytes >= part->iov_len) {
                offset_bytes -= part->iov_len;
                continue;
            }
            const size_t piece = std::min(count_bytes, part->iov_len - offset_bytes);
            std::memcpy(out, static_cast<unsigned char*>(part->iov_base) + offset_bytes, piece);
            out += piece;
            count_bytes -= piece;
            offset_bytes = 0;
        }
    }
};

bool UdpChannel::receive_to(uint64_t now_ns, const ExpectedPlace& place) {
    Scatter scatter;
    scatter.heads = buffers_.get() + 2 * kBufferBytes;
    const size_t packet_bytes = options_.packet_bytes;
    const size_t fit = kMostReceivedBytes / (kHeadBytes + packet_bytes) + 1;
    const size_t most = std::min<size_t>(fit, kMaxSegments);
    size_t offset = 0;
    for (; scatter.pair_count < most && offset < place.size_bytes; scatter.pair_count++) {
        iovec* const pair = scatter.parts + size_t{2} * scatter.pair_count;
        pair[0] = {scatter.heads + scatter.pair_count * kHeadBytes, kHeadBytes};
        pair[1] = {place.bytes + offset, std::min<size_t>(packet_bytes, place.size_bytes - offset)};
        offset += packet_bytes;
    }
    scatter.parts[size_t{2} * scatter.pair_count] = {buffers_.get(), kBufferBytes};
    alignas(cmsghdr) unsigned char control[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = scatter.parts;
    message.msg_iovlen = size_t{2} * scatter.pair_count + 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    received_count_ = 0;
    statistics_.receive_calls++;
    const ssize_t size_bytes = recvmsg(socket_, &message, MSG_DONTWAIT);
    if (size_bytes < 0) {
        return false;
    }
    if (size_bytes == 0) {
        statistics_.datagrams_refused++;  // it has no header
        return true;
    }
    scatter.size_bytes = static_cast<size_t>(size_bytes);
    scatter.segment_bytes = segment_bytes_of(message, scatter.size_bytes);
    take_scattered(now_ns, place, scatter);
    return true;
}

void UdpChannel::take_scattered(uint64_t now_ns, const ExpectedPlace& place, Scatter& scatter) {
    unsigned char* away = buffers_.get() + kBufferBytes;  // room for all that came
    size_t offset = 0;
    for (uint32_t index = 0; offset < scatter.size_bytes; index++) {
        const size_t bytes = std::min(scatter.segment_bytes, scatter.size_bytes - offset);
        // More datagrams may come than there are pairs: small ones.
        const bool is_in_pair =
            index < scatter.pair_count && offset == index * (kHeadBytes + options_.packet_bytes);
        const iovec* const pair = scatter.parts + (is_in_pair ? size_t{2} * index : 0);
        const bool is_apart =
            is_in_pair && bytes > kHeadBytes && bytes - kHeadBytes <= pair[1].iov_len;
        const unsigned char* const head = scatter.heads + (is_in_pair ? index * kHeadBytes : 0);
        if (!is_apart ||
            head[offsetof(DatagramHeader, kind)] != static_cast<unsigned char>(PacketKind::data)) {
            scatter.gather(offset, bytes, away);
            take_datagram(now_ns, ByteSpan(away, bytes));
            away += bytes;
        } else {
            const ByteSpan payload(static_cast<unsigned char*>(pair[1].iov_base),
                                   bytes - kHeadBytes);
            const uint32_t before = received_count_;
            take_datagram(now_ns, ByteSpan(head, kHeadBytes), payload);
            DataHeader header;
            std::memcpy(&header, head + sizeof(DatagramHeader), sizeof(header));
            const bool is_there = header.message_number == place.message_number &&
                                  header.packet_index == place.first_packet + index;
            if (received_count_ > before && !is_there) {
                std::memcpy(away, payload.data(), payload.size());
                received_[before].payload = ByteSpan(away, payload.size());
                away += payload.size();
            }
        }
        offset += bytes;
    }
}

}  // namespace tiffin::rdma_blk::sdr
