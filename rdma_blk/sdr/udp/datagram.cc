// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/sdr/udp/datagram.h"

#include <algorithm>
#include <cstring>

#include "fs/base/siphash.h"
#include "fs/vfs/host.h"

namespace tiffin::rdma_blk::sdr {
namespace {

uint64_t make_tag(const unsigned char key[kTagKeyBytes], const DatagramHeader& header,
                  uint32_t checksum) {
    unsigned char covered[offsetof(DatagramHeader, tag) + sizeof(checksum)];
    std::memcpy(covered, &header, offsetof(DatagramHeader, tag));
    std::memcpy(covered + offsetof(DatagramHeader, tag), &checksum, sizeof(checksum));
    return siphash24(key, covered, sizeof(covered));
}

bool is_known_kind(uint8_t kind) {
    return kind >= static_cast<uint8_t>(PacketKind::data) &&
           kind <= static_cast<uint8_t>(PacketKind::probe_reply);
}

}  // namespace

bool ReplayWindow::may_be_new(uint64_t number) const {
    if (number >= end_) {
        return number < ~uint64_t{0};
    }
    // The oldest word of the ring may be the newest one already.
    return end_ - number <= kPackets - 64 &&
           (words_[number / 64 % kWords] >> (number % 64) & 1) == 0;
}

void ReplayWindow::add(uint64_t number) {
    if (number >= end_) {
        // Words that come into the window are from a lap before.
        const uint64_t first_word = (end_ + 63) / 64;
        const uint64_t last_word = number / 64;
        const uint64_t count =
            last_word < first_word ? 0 : std::min<uint64_t>(last_word - first_word + 1, kWords);
        for (uint64_t index = 0; index < count; index++) {
            words_[(last_word - index) % kWords] = 0;
        }
        end_ = number + 1;
    }
    words_[number / 64 % kWords] |= uint64_t{1} << (number % 64);
    received_++;
}

DatagramSealer::DatagramSealer(const unsigned char key[kTagKeyBytes], uint32_t peer_connection_id,
                               uint16_t channel)
    : connection_id_(peer_connection_id), channel_(channel) {
    std::memcpy(key_, key, kTagKeyBytes);
}

DatagramHeader DatagramSealer::seal(PacketKind kind, uint32_t checksum) {
    DatagramHeader header{};
    header.connection_id = connection_id_;
    header.version = kPacketVersion;
    header.kind = static_cast<uint8_t>(kind);
    header.channel = channel_;
    header.packet_number = next_number_++;
    header.tag = make_tag(key_, header, checksum);
    return header;
}

DatagramOpener::DatagramOpener(const unsigned char key[kTagKeyBytes], uint32_t connection_id,
                               uint16_t channel)
    : connection_id_(connection_id), channel_(channel) {
    std::memcpy(key_, key, kTagKeyBytes);
}

Result<OpenedDatagram> DatagramOpener::open(ByteSpan datagram, ByteSpan rest) {
    DatagramHeader header;
    if (datagram.size() <= sizeof(header)) {
        return Error::eproto;
    }
    std::memcpy(&header, datagram.data(), sizeof(header));
    if (header.connection_id != connection_id_ || header.version != kPacketVersion ||
        !is_known_kind(header.kind) || header.channel != channel_) {
        return Error::eproto;
    }
    if (!window_.may_be_new(header.packet_number)) {
        return Error::eexist;
    }
    OpenedDatagram opened;
    opened.kind = static_cast<PacketKind>(header.kind);
    opened.packet_number = header.packet_number;
    opened.body = datagram.subspan(sizeof(header));
    const uint32_t checksum = host::crc32c(host::crc32c(0, opened.body.data(), opened.body.size()),
                                           rest.data(), rest.size());
    if (make_tag(key_, header, checksum) != header.tag) {
        return Error::eacces;
    }
    window_.add(header.packet_number);
    return opened;
}

}  // namespace tiffin::rdma_blk::sdr
