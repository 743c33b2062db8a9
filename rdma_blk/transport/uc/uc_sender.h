// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The sending half of a UC carrier: copies what an endpoint wants to send into memory of the device, and posts it. Used
// by a UcChannel.
#pragma once

#include <cstdint>
#include <memory>

#include "rdma_blk/sdr/udp/congestion.h"
#include "rdma_blk/sdr/udp/sent_times.h"
#include "rdma_blk/sdr/udp/trial_loss.h"
#include "rdma_blk/transport/sdr/mapped_slots.h"
#include "rdma_blk/transport/uc/uc_options.h"
#include "rdma_blk/transport/verbs/verbs.h"

namespace tiffin::rdma_blk {

class UcSender {
  public:
    // A run has at most so many packets: a chunk of the largest size.
    static constexpr uint32_t kRunPackets = 1U << sdr::kMaxPacketsPerChunkLog2;
    static constexpr uint32_t kPacketCells = 1024;  // posted and not sent yet
    static constexpr uint32_t kDatagramCells = 64;
    // Of the queue pairs: beside packets, one window may be opened.
    static constexpr uint32_t kDataDepth = kPacketCells + 1;

    UcSender(const UcOptions& options, const sdr::LandingLayout& layout, verbs::QueuePair& data,
             verbs::QueuePair& control);
    // Errors: enomem, eio.
    Result<void> open(verbs::Device& device);
    // The peer's layout holds for both. Errors: enomem.
    Result<void> connect(const UcInfo& peer);

    // How many packets may be sent now; 0: none, also no control message.
    uint32_t packets_allowed(uint64_t now_ns);
    // Precondition: packets_allowed(), and for a run at most kRunPackets packets. `windows`: of this end.
    Result<void> send(uint64_t now_ns, const sdr::Transmit& out, const sdr::UcWindow* windows);
    // False: there is no room, try again.
    bool has_room_for_feedback() const {
        return datagrams_posted_ - datagrams_sent_ < kDatagramCells;
    }
    Result<void> send_feedback(const sdr::FeedbackHeader& feedback, const sdr::UcWindow* windows);

    // What has completed: a work request of the data's queue pair, or one of the other.
    void on_packets_sent(uint64_t id) { cells_sent_ = id; }
    void on_datagram_sent() { datagrams_sent_++; }
    // What every datagram of the peer tells.
    void on_windows(const sdr::UcWindow* windows);
    void on_feedback(uint64_t now_ns, const sdr::FeedbackHeader& feedback);

    // When more may be sent although nothing comes; ~0: never.
    uint64_t timeout_at_ns() const { return congestion_->timeout_at_ns(); }
    uint64_t packets_sent() const {
        return statistics_.packets_written + statistics_.datagrams_sent;
    }
    uint64_t post_calls() const { return post_calls_; }  // doorbells
    void add_statistics(UcStatistics& sum) const;

  private:
    Result<void> send_run(uint64_t now_ns, const sdr::DataRun& run, const sdr::UcWindow* windows);
    Result<void> write_packets(const sdr::DataRun& run, const sdr::UcWindow& window);
    Result<void> send_datagram(sdr::UcHeader header, const void* body, size_t body_bytes);
    sdr::UcHeader header(sdr::PacketKind kind, const sdr::UcWindow* windows) const;
    void count(uint64_t now_ns, uint64_t packets);
    const sdr::UcWindow* window_of(const sdr::DataRun& run) const;
    bool drops();

    sdr::LandingLayout layout_;
    unsigned char key_[sdr::kUcKeyBytes];
    verbs::QueuePair& data_;
    verbs::QueuePair& control_;
    MappedSlots cells_;
    MappedSlots datagrams_;
    std::unique_ptr<verbs::Memory> cell_memory_;
    std::unique_ptr<verbs::Memory> datagram_memory_;
    uint64_t cells_posted_ = 0;  // cell n is at n modulo kPacketCells
    uint64_t cells_sent_ = 0;
    uint64_t datagrams_posted_ = 0;
    uint64_t datagrams_sent_ = 0;

    uint32_t peer_connection_id_ = 0;
    uint64_t peer_arenas_[sdr::kUcArenas] = {};
    sdr::UcWindow peer_windows_[sdr::kUcArenas] = {};
    std::unique_ptr<sdr::Congestion> congestion_;
    sdr::SentTimes sent_times_;
    uint64_t next_number_ = 0;
    uint64_t post_calls_ = 0;
    sdr::TrialLoss trial_loss_;
    UcStatistics statistics_;
};

}  // namespace tiffin::rdma_blk
