// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Authenticated datagrams: each carries a number that is never used twice and a tag that only the two ends can
// make. Nothing of a datagram is looked at before its tag and its number have been.
//
// The tag covers the header and the CRC32C of everything behind it. That stops whoever cannot read the traffic; who
// can, and can change it on its way, finds a payload of the same CRC. docs/remote.md says what each protection is
// worth. No allocation, no clock; not for several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/vfs/result.h"
#include "fs/vfs/span.h"
#include "rdma_blk/sdr/packet_format.h"

namespace tiffin::rdma_blk::sdr {

inline constexpr size_t kTagKeyBytes = 16;

// Which of the last numbers have come: each is let in once, and none that is older than the window.
class ReplayWindow {
  public:
    static constexpr uint32_t kPackets = 8192;

    bool may_be_new(uint64_t number) const;
    // Precondition: may_be_new().
    void add(uint64_t number);
    bool empty() const { return end_ == 0; }
    uint64_t highest() const { return end_ - 1; }  // precondition: !empty()
    uint64_t received() const { return received_; }

  private:
    static constexpr uint32_t kWords = kPackets / 64;

    uint64_t end_ = 0;  // 1 + the highest number
    uint64_t received_ = 0;
    uint64_t words_[kWords] = {};
};

// One direction of one channel, at its sender.
class DatagramSealer {
  public:
    DatagramSealer(const unsigned char key[kTagKeyBytes], uint32_t peer_connection_id,
                   uint16_t channel);
    // The header of the next datagram; `checksum` is the CRC32C of what follows it. Every call takes a number.
    DatagramHeader seal(PacketKind kind, uint32_t checksum);
    uint64_t next_number() const { return next_number_; }

  private:
    unsigned char key_[kTagKeyBytes];
    uint32_t connection_id_;
    uint16_t channel_;
    uint64_t next_number_ = 0;
};

struct OpenedDatagram {
    PacketKind kind = PacketKind::control;
    uint64_t packet_number = 0;
    ByteSpan body;  // behind the header
};

// The same direction, at its receiver.
class DatagramOpener {
  public:
    DatagramOpener(const unsigned char key[kTagKeyBytes], uint32_t connection_id, uint16_t channel);
    // Errors: eproto (no datagram of this format and connection), eacces (its tag is wrong), eexist (it
    // came before, or is too old to know).
    Result<OpenedDatagram> open(ByteSpan datagram) { return open(datagram, ByteSpan()); }
    // `rest` is the part of it that lies elsewhere, and not in `body`.
    Result<OpenedDatagram> open(ByteSpan datagram, ByteSpan rest);
    const ReplayWindow& window() const { return window_; }

  private:
    unsigned char key_[kTagKeyBytes];
    uint32_t connection_id_;
    uint16_t channel_;
    ReplayWindow window_;
};

}  // namespace tiffin::rdma_blk::sdr
