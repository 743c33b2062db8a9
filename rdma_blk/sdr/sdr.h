// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Software-defined reliability: the SDK of "SDR-RDMA: Software-Defined Reliability Architecture for
// Planetary-Scale RDMA Communication" (Khalilov et al., arXiv:2505.05366, sections 3.1 and 3.2), with its
// names. A queue pair sends messages over packets that may be lost; the receiver sees in a bitmap which chunks
// of a message are there, and a scheme on top decides what to do about the others. reliable_connection.h is
// such schemes ready for use; docs/sdr.md explains all of it, docs/examples has programs of one page.
//
//     sender                                         receiver
//     context_create(), mr_reg(), qp_create()        the same
//     qp_info_get(), <exchange>, qp_connect()        the same
//                                                    recv_post(memory)        -> clear to send
//     send_post(memory, immediate)                   recv_bitmap_get(n)       which chunks are there
//     send_poll(n)                                   recv_imm_get(n)
//     or send_stream_start(), _continue() any parts, recv_complete(n)         memory is the caller's again
//        in any order and as often as wanted, _end()
//
// Matching is by order: message n goes to the n-th receive, and nothing is sent before that is posted.
// After recv_complete(n) no packet of message n changes any byte of its memory, however late it comes; the
// same holds for repetitions of packets that are already there.
//
// Differences to the paper: sizes are in packets and bytes instead of powers of two where a UDP packet's
// payload is none; a message number has 64 bits (message id and generation in one), so a late packet is never
// taken for a new one; the user immediate is whole in every packet.
//
// Errors: eagain is the paper's "retry": out of resources or not ready, nothing has changed, try again.
// Nothing throws; memory is allocated by the create functions only. The caller serialises all calls of a
// queue pair; different queue pairs are independent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fs/vfs/result.h"
#include "fs/vfs/span.h"
#include "rdma_blk/sdr/bitmap.h"
#include "rdma_blk/sdr/endpoint.h"
#include "rdma_blk/sdr/gather.h"
#include "rdma_blk/sdr/tunables.h"

namespace tiffin::rdma_blk::sdr {

// Memory that messages may be sent from and received into: what mr_reg() returned, or a part of it. Stays
// the caller's, who keeps it allocated while any message uses it.
class RegisteredMemory {
  public:
    RegisteredMemory() = default;
    // Several pieces of registered memory as one message, for sending only and not with an erasure code. The list stays as
    // it is for as long as the memory.
    static RegisteredMemory gathered(const GatherList& list) {
        RegisteredMemory memory;
        memory.gather_ = &list;
        memory.size_bytes_ = list.size_bytes();
        return memory;
    }

    // nullptr: simulated, or gathered.
    unsigned char* data() const { return data_; }
    const GatherList* gather() const { return gather_; }
    uint64_t gather_offset() const { return gather_offset_; }
    uint64_t size_bytes() const { return size_bytes_; }
    // A part. Precondition: it lies within.
    RegisteredMemory slice(uint64_t offset_bytes, uint64_t size_bytes) const {
        RegisteredMemory part;
        part.data_ = data_ == nullptr ? nullptr : data_ + offset_bytes;
        part.gather_ = gather_;
        part.gather_offset_ = gather_offset_ + offset_bytes;
        part.size_bytes_ = size_bytes;
        return part;
    }

  private:
    friend class Context;
    unsigned char* data_ = nullptr;
    const GatherList* gather_ = nullptr;
    uint64_t gather_offset_ = 0;
    uint64_t size_bytes_ = 0;
};

struct QueuePairAttributes {
    // Payload of a packet, 64 to kMaxPacketBytes; both ends must agree. 1408 with all headers is an Ethernet
    // frame of 1500 over IPv4; over IPv6 1388 is. udp_path_packet_bytes() tells what fits.
    uint32_t packet_bytes = kDefaultPacketBytes;
    // 2^this packets are a chunk, the unit of the application's bitmap; 0 to kMaxPacketsPerChunkLog2.
    uint8_t packets_per_chunk_log2 = 0;
    // In flight in one direction; a power of two, 1 to kMaxMessages.
    uint16_t max_messages = 64;
    uint64_t max_message_bytes = uint64_t{64} << 20;  // at most kMaxPacketsPerMessage packets
    // Receives that are posted at the same time have at most this capacity together.
    uint64_t bytes_in_flight = uint64_t{1} << 30;
    // Of the carrier: sockets (threads) that share the work. With several, packets overtake each other, and only time
    // tells a gap from a loss.
    uint16_t channel_count = 1;

    uint32_t packets_per_chunk() const { return uint32_t{1} << packets_per_chunk_log2; }
    uint64_t chunk_bytes() const { return uint64_t{packet_bytes} << packets_per_chunk_log2; }
    uint32_t packets_of(uint64_t message_bytes) const {
        return static_cast<uint32_t>((message_bytes + packet_bytes - 1) / packet_bytes);
    }
    uint32_t chunks_of(uint64_t message_bytes) const {
        return static_cast<uint32_t>((message_bytes + chunk_bytes() - 1) / chunk_bytes());
    }
};

// What one end must know of the other: exchanged by the caller, over whatever connection it trusts.
struct QueuePairInfo {
    uint32_t version = kPacketVersion;
    uint32_t packet_bytes = 0;
    uint32_t packets_per_chunk_log2 = 0;
    uint32_t max_messages = 0;
};

// What recv_bitmap_get() shows; valid until the next call of the queue pair. A carrier's threads call it, too: hold the
// carrier's mutex for as long as this is looked at.
struct BitmapView {
    const uint64_t* words = nullptr;  // bit i % 64 of word i / 64: all packets of chunk i are there
    uint32_t chunk_count = 0;         // of the message; 0 until its first packet has come
    uint32_t chunks_received = 0;
    uint64_t message_bytes = 0;  // 0 until its first packet has come

    bool is_complete() const { return chunk_count > 0 && chunks_received == chunk_count; }
    bool has(uint32_t chunk) const { return (words[chunk / 64] >> (chunk % 64) & 1) != 0; }
};

// Counters since the creation.
struct QueuePairStatistics {
    uint64_t packets_sent = 0;      // data and parity
    uint64_t packets_placed = 0;    // data whose bytes were new
    uint64_t packets_repeated = 0;  // data that was there already
    uint64_t bytes_copied = 0;      // of the data that were placed; the others were received there
    uint64_t packets_late = 0;      // of receives that were completed
    uint64_t packets_not_posted = 0;  // beyond the posted receives: the peer ignores clear-to-send
    uint64_t packets_malformed = 0;   // contradict their message, or do not fit in the receive
    uint64_t control_malformed = 0;
    uint64_t clear_to_send_requests = 0;  // sent
};

class QueuePair;  // queue_pair.h

// Owns what queue pairs share. Any thread, one at a time; outlives its queue pairs.
class Context {
  public:
    // Registers memory. `memory.data()` == nullptr: for protocol simulations, memory of that size that nobody
    // has. Errors: einval (empty), enospc (kMaxMemoryRegions).
    Result<RegisteredMemory> mr_reg(MutableByteSpan memory);
    // Ends a registration (not of a slice). Precondition: no message uses the memory.
    void mr_dereg(const RegisteredMemory& memory);
    // Errors: einval (attributes out of their ranges), enomem.
    Result<std::unique_ptr<QueuePair>> qp_create(const QueuePairAttributes& attributes);

  private:
    uint32_t region_count_ = 0;
};

// Errors: enomem.
Result<std::unique_ptr<Context>> context_create();

}  // namespace tiffin::rdma_blk::sdr
