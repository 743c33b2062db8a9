// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The receiving half of a UC carrier: arenas and their windows, descriptions, and immediates made into runs. Used by a
// UcChannel.
#pragma once

#include <cstdint>
#include <memory>

#include "rdma_blk/sdr/packet.h"
#include "rdma_blk/transport/sdr/mapped_slots.h"
#include "rdma_blk/transport/uc/uc_options.h"
#include "rdma_blk/transport/verbs/verbs.h"

namespace tiffin::rdma_blk {

class UcReceiver {
  public:
    static constexpr uint64_t kBindId = ~uint64_t{0};  // of the work request that opens a window
    static constexpr uint32_t kHeldImmediates = 4096;

    UcReceiver(verbs::Device& device, const sdr::LandingLayout& layout)
        : device_(device), layout_(layout) {}
    // Errors: enomem, eio.
    Result<void> open();
    // Closes all windows; due before their queue pair is destroyed.
    void close();
    // Another one for the same arenas, before anything has come. Precondition: it needs no more memory.
    void set_layout(const sdr::LandingLayout& layout) { layout_ = layout; }
    uint64_t arena_address(uint32_t index) const {
        return reinterpret_cast<uint64_t>(arenas_[index].memory.at(0));
    }

    // ---- Generations ----
    // Opens what is missing for receives before `posted`, on the queue pair of the data; true: it is not open yet, and
    // nobody may be told of these receives before on_bound(). Errors: eio.
    Result<bool> open_windows(uint64_t posted, verbs::QueuePair& data);
    void on_bound();
    // For headers.
    const sdr::UcWindow* windows() const { return windows_; }

    // ---- What comes ----
    // A datagram of the control queue pair, but no feedback, with its header's number.
    void note_datagram(uint64_t now_ns, uint64_t number) { note_packet(now_ns, number); }
    void on_description(uint64_t now_ns, const sdr::UcHeader& header, ByteSpan body,
                        sdr::Endpoint& endpoint);
    void on_immediate(uint64_t now_ns, uint32_t bits, sdr::Endpoint& endpoint);
    // Hands over what on_immediate() has collected.
    void flush(uint64_t now_ns, sdr::Endpoint& endpoint);

    // ---- Feedback ----
    uint64_t feedback_ns() const { return feedback_ns_; }  // when it is due
    uint32_t unreported() const { return unreported_; }
    sdr::FeedbackHeader take_feedback(uint64_t now_ns);

    // Packets, and datagrams but feedback and control messages.
    uint64_t packets_received() const {
        return statistics_.packets_received + statistics_.datagrams_received;
    }
    void add_statistics(UcStatistics& sum) const;

  private:
    struct Arena {
        MappedSlots memory;
        std::unique_ptr<verbs::Memory> registered;
        std::unique_ptr<verbs::Window> window;
        uint64_t generation = 0;
        bool is_open = false;
    };
    // Of a message, as its latest description says.
    struct Description {
        bool is_known = false;
        sdr::DataRun run;
        uint64_t first_number = 0;  // packet number of the run's first packet

        bool has(const sdr::UcImmediate& immediate) const {
            return (run.kind == sdr::PacketKind::parity) == immediate.is_parity &&
                   immediate.packet >= run.first_packet &&
                   immediate.packet - run.first_packet < run.packet_count;
        }
    };

    Description& description(uint32_t arena, uint16_t message_id) {
        return descriptions_[arena * layout_.max_messages + message_id];
    }
    void close_arena(uint32_t index);
    void note_packet(uint64_t now_ns, uint64_t number);
    void note_arrival(uint64_t now_ns);
    void take_immediate(uint64_t now_ns, const sdr::UcImmediate& immediate,
                        sdr::Endpoint& endpoint);
    void hold(uint32_t bits);
    void release_held(uint64_t now_ns, uint32_t arena, uint16_t message_id,
                      sdr::Endpoint& endpoint);
    void report_late(uint64_t now_ns, sdr::DataRun run, sdr::Endpoint& endpoint);

    verbs::Device& device_;
    sdr::LandingLayout layout_;
    Arena arenas_[sdr::kUcArenas];
    sdr::UcWindow windows_[sdr::kUcArenas] = {};
    uint64_t next_generation_ = 0;  // those before have been opened
    bool is_binding_ = false;       // the last one of them is not open yet

    std::unique_ptr<Description[]> descriptions_;  // of each slot of each arena
    std::unique_ptr<uint32_t[]> held_;             // immediates without a description
    uint32_t held_count_ = 0;
    sdr::DataRun collected_;  // packet_count 0: nothing

    bool has_any_ = false;
    uint64_t highest_number_ = 0;
    uint64_t highest_arrival_ns_ = 0;
    uint64_t received_ = 0;  // packets and datagrams
    uint32_t unreported_ = 0;
    uint64_t feedback_ns_ = sdr::kNoTimer;
    UcStatistics statistics_;
};

}  // namespace tiffin::rdma_blk
