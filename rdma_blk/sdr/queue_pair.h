// SPDX-License-Identifier: MIT OR GPL-2.0-only
// One end of a queue pair: sdr.h explains how it is used. The parts that a carrier calls are those of
// Endpoint; the parts under "for schemes" are what reliable_connection.h is built on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fs/vfs/result.h"
#include "rdma_blk/sdr/bitmap.h"
#include "rdma_blk/sdr/endpoint.h"
#include "rdma_blk/sdr/packet.h"
#include "rdma_blk/sdr/sdr.h"

namespace tiffin::rdma_blk::sdr {

// What became of a run that arrived.
struct Arrival {
    enum class Kind : uint8_t { placed, repeated, late, not_posted, malformed };
    Kind kind = Kind::malformed;
    uint32_t new_packets = 0;  // placed: how many were new
};

class QueuePair final : public Endpoint {
  public:
    ~QueuePair() override;

    const QueuePairAttributes& attributes() const { return attributes_; }
    const QueuePairStatistics& statistics() const { return statistics_; }

    // ---- Set-up (paper: qp_info_get, qp_connect) ----
    QueuePairInfo qp_info_get() const;
    // Errors: einval (sizes differ), eexist (connected already).
    Result<void> qp_connect(const QueuePairInfo& peer);

    // ---- Sending ----
    // All of `memory` as one message; the number names it. Memory must stay as it is until send_poll() says
    // that it was sent. Errors: eagain (max_messages in flight, queue full), einval (size, not connected).
    Result<uint64_t> send_post(const RegisteredMemory& memory, uint32_t user_immediate);
    // A message that is sent in parts. `scheme` is told to the receiver in every packet.
    Result<uint64_t> send_stream_start(uint64_t message_bytes, uint32_t user_immediate,
                                       SchemeChoice scheme = {});
    // Sends `memory` as the bytes at `offset_bytes`, once. Offset: a multiple of packet_bytes; end: too,
    // or that of the message. Errors: eagain (queue full), einval.
    Result<void> send_stream_continue(uint64_t message_number, uint64_t offset_bytes,
                                      const RegisteredMemory& memory);
    // Nothing more comes; send_poll() says when all parts were sent. Errors: einval.
    Result<void> send_stream_end(uint64_t message_number);
    // Ok: all of it was handed to the carrier, memory and number are free. Errors: eagain (not yet), e2big
    // (the receive that was posted for it is smaller, or completed; nothing was sent, the number is free), einval.
    Result<void> send_poll(uint64_t message_number);

    // ---- Receiving ----
    // The next message goes to `memory`. Errors: eagain (max_messages or bytes_in_flight posted), einval.
    Result<uint64_t> recv_post(const RegisteredMemory& memory);
    // Errors: einval (not posted, or completed).
    Result<BitmapView> recv_bitmap_get(uint64_t message_number) const;
    // Errors: eagain (nothing has come yet), einval.
    Result<uint32_t> recv_imm_get(uint64_t message_number) const;
    // Gives the memory back, complete or not; due once for every recv_post(). Errors: einval.
    Result<void> recv_complete(uint64_t message_number);

    // ---- The control path (paper: the control queue pair of a scheme) ----
    // A small message of the scheme's own, which may be lost. Errors: eagain (kMaxUserControls queued), einval.
    Result<void> control_send(ByteSpan message);
    // Takes the oldest one that arrived; the size in bytes. Errors: eagain (none), einval (no room for it).
    Result<size_t> control_poll(MutableByteSpan out);

    // ---- For carriers ----
    uint32_t packet_bytes() const override { return attributes_.packet_bytes; }
    uint16_t channel_count() const override { return attributes_.channel_count; }
    uint64_t receives_posted() const override { return next_receive_; }
    void on_data(uint64_t now_ns, const DataRun& run) override;
    ExpectedPlace expected_place() override;
    void on_control(uint64_t now_ns, ByteSpan message) override;
    bool next_transmit(uint64_t now_ns, uint32_t max_packets, Transmit& out) override;
    bool may_transmit(uint64_t now_ns) const override;
    uint64_t next_timer_ns() const override;
    void on_timer(uint64_t now_ns) override;

    // ---- For schemes ----
    struct ReceiveSlot {
        bool posted = false;
        uint64_t message_number = 0;
        RegisteredMemory memory;
        uint64_t message_bytes = 0;  // 0: no packet has come
        uint32_t user_immediate = 0;
        SchemeChoice scheme;
        uint32_t packet_count = 0;
        uint32_t chunk_count = 0;
        uint32_t chunks_received = 0;
        uint32_t chunks_seen = 0;     // 1 + the highest chunk of which anything has come
        uint32_t packets_seen = 0;    // 1 + the highest packet of data that has come
        uint64_t* packets = nullptr;  // bitmap
        uint64_t* chunks = nullptr;   // bitmap; the same as packets where a chunk is one packet
    };

    // on_data() with an answer. Parity is checked like data, but not placed.
    Arrival place(const DataRun& run);
    // The slot of a posted receive, or nullptr.
    const ReceiveSlot* receive_slot(uint64_t message_number) const;
    // The scheme has put the chunk's bytes in their place itself (decoding).
    void chunk_restored(uint64_t message_number, uint32_t chunk);

    bool is_clear_to_send(uint64_t message_number) const;
    // Of the peer's receive; 0: that was completed before anything was sent. Precondition: is_clear_to_send().
    uint64_t granted_bytes(uint64_t message_number) const;
    // Asks for the clear-to-send of a message from time to time until it has come.
    void want_clear_to_send(uint64_t now_ns, uint64_t message_number);
    // Whether the next send_stream_start() finds a slot.
    bool has_send_slot() const { return send_slot(next_send_).state == SendState::free; }
    bool send_queue_empty() const { return queue_count_ == 0; }
    // Queues parity packets. `payload` stays valid until they are sent. Errors: eagain, einval.
    Result<void> send_parity(uint64_t message_number, uint32_t first_packet, uint32_t packet_count,
                             const unsigned char* payload);
    // The part of next_transmit() that sends no data.
    bool next_control(uint64_t now_ns, Transmit& out);
    // Forgets what is queued of a message; its memory and number are free.
    void send_abort(uint64_t message_number);
    // Flags the packets that are queued from now on for a message.
    void set_data_flags(uint64_t message_number, uint8_t flags);
    void set_round_trip_us(uint32_t round_trip_us) { round_trip_us_ = round_trip_us; }
    // What was posted until now may be told by data from here on, for hold_ns.
    void hold_clear_to_send(uint64_t now_ns);
    // Clear-to-send may wait for so long for data that tell it; data tell from here on.
    void set_hold_ns(uint64_t hold_ns) { hold_ns_ = hold_ns; }
    // What data tell: messages before this one have been delivered.
    void set_delivered_until(uint64_t number) { delivered_until_ = number; }
    // What came with data: the peer's receives before this number are posted.
    void on_posted_until(uint16_t number);
    // The number that its last 16 bits stand for, near the next one to be sent.
    uint64_t near_next_send(uint16_t number) const {
        const auto ahead = static_cast<int16_t>(number - static_cast<uint16_t>(next_send_));
        const int64_t near = static_cast<int64_t>(next_send_) + ahead;
        return near < 0 ? 0 : static_cast<uint64_t>(near);
    }

  private:
    friend class Context;

    enum class SendState : uint8_t { free, open, ended, too_big };
    struct SendSlot {
        SendState state = SendState::free;
        uint8_t flags = 0;
        SchemeChoice scheme;
        uint64_t message_number = 0;
        uint64_t message_bytes = 0;
        uint32_t user_immediate = 0;
        uint32_t queued_ranges = 0;
        uint64_t granted_number = ~uint64_t{0};  // the message that granted_bytes is of
        uint64_t granted_bytes = 0;
    };
    // Packets that wait for their turn.
    struct SendRange {
        uint64_t message_number = 0;
        PacketKind kind = PacketKind::data;
        uint8_t flags = 0;
        uint32_t first_packet = 0;
        uint32_t packet_count = 0;
        const unsigned char* payload = nullptr;
        uint64_t payload_bytes = 0;
        const GatherList* gather = nullptr;  // instead of payload
        uint64_t gather_offset = 0;
    };
    struct UserControl {
        size_t size_bytes = 0;
        unsigned char bytes[kMaxUserControlBytes];
    };
    // Bounded queue of user control messages.
    struct UserControlQueue {
        UserControl entries[kMaxUserControls];
        uint32_t first = 0;
        uint32_t count = 0;

        bool push(ByteSpan message);
        const UserControl* front() const { return count == 0 ? nullptr : &entries[first]; }
        void pop();
    };

    explicit QueuePair(const QueuePairAttributes& attributes);
    Result<void> allocate();

    SendSlot& send_slot(uint64_t number) { return send_slots_[number & slot_mask_]; }
    const SendSlot& send_slot(uint64_t number) const { return send_slots_[number & slot_mask_]; }
    SendSlot* open_send(uint64_t number);
    Result<void> queue_range(SendSlot& slot, const SendRange& range);
    void drop_front_range();
    void tell(DataRun& run);
    bool bring_sendable_to_front(uint64_t now_ns);
    bool transmit_range(uint64_t now_ns, uint32_t max_packets, Transmit& out);
    void fill_run(uint64_t now_ns, const SendSlot& slot, const SendRange& range,
                  uint32_t packet_count, DataRun& run) const;

    Arrival::Kind admit(const DataRun& run, ReceiveSlot*& slot);
    bool learn_message(ReceiveSlot& slot, const DataRun& run) const;
    uint32_t place_packets(ReceiveSlot& slot, const DataRun& run);
    void coalesce(ReceiveSlot& slot, uint32_t first_packet, uint32_t packet_end) const;

    void on_clear_to_send(const ControlView& message);
    void on_clear_to_send_request(const ControlView& message);
    bool make_clear_to_send(uint64_t now_ns, Transmit& out);
    bool make_clear_to_send_request(uint64_t now_ns, Transmit& out);
    bool make_user_control(Transmit& out);

    QueuePairAttributes attributes_;
    QueuePairStatistics statistics_;
    uint64_t slot_mask_;
    bool connected_ = false;
    uint32_t round_trip_us_ = 0;

    std::unique_ptr<SendSlot[]> send_slots_;
    uint64_t next_send_ = 0;
    std::unique_ptr<SendRange[]> queue_;  // kSendQueueRanges
    uint32_t queue_first_ = 0;
    uint32_t queue_count_ = 0;

    std::unique_ptr<ReceiveSlot[]> receive_slots_;
    std::unique_ptr<uint64_t[]> receive_words_;
    size_t words_per_bitmap_ = 0;
    uint64_t next_receive_ = 0;
    uint64_t newest_receive_ = 0;  // the highest number of which data have come
    uint32_t newest_packet_count_ = 0;
    uint64_t posted_bytes_ = 0;

    // Clear-to-send, receiver: messages [announce_from_, announce_end_) are to be announced.
    uint64_t announce_from_ = 0;
    uint64_t announce_end_ = 0;
    bool must_announce_ = false;
    // With hold_ns_: since when it waits (0: not yet); whether the sender has asked; whether it has heard of a capacity
    // that all receives have.
    uint64_t hold_ns_ = 0;
    uint64_t announce_since_ns_ = 0;
    bool is_asked_ = false;
    uint64_t told_capacity_ = 0;
    bool has_one_capacity_ = true;
    uint64_t delivered_until_ = 0;
    // Sender: of the clear-to-send that came last.
    uint64_t peer_capacity_ = 0;
    // Sender: the message whose clear-to-send is missing.
    bool wants_grant_ = false;
    uint64_t wanted_number_ = 0;
    uint64_t request_time_ns_ = kNoTimer;
    uint64_t request_interval_ns_ = 0;

    std::unique_ptr<UserControlQueue> controls_out_;
    std::unique_ptr<UserControlQueue> controls_in_;
};

}  // namespace tiffin::rdma_blk::sdr
