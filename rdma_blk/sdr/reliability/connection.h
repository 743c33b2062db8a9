// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The implementation of ReliableConnection: what all schemes share. Its functions are in one file for each
// event: connection.cc (calls of the owner), connection_transmit.cc, connection_control.cc (what a sender
// hears), connection_arrival.cc, connection_answers.cc (what a receiver says), connection_timer.cc.
#pragma once

#include <cstdint>
#include <memory>

#include "rdma_blk/sdr/queue_pair.h"
#include "rdma_blk/sdr/reliability/erasure_code.h"
#include "rdma_blk/sdr/reliability/measurements.h"
#include "rdma_blk/sdr/reliability/message_state.h"
#include "rdma_blk/sdr/reliability/range_log.h"
#include "rdma_blk/sdr/reliability/scheme_choice.h"
#include "rdma_blk/sdr/reliable_connection.h"

namespace tiffin::rdma_blk::sdr {

class Connection final : public ReliableConnection {
  public:
    Connection(std::unique_ptr<QueuePair> queue_pair, const ReliabilityAttributes& attributes);
    ~Connection() override;
    // Errors: enomem.
    Result<void> allocate();

    const ReliabilityStatistics& reliability_statistics() const override { return statistics_; }
    const QueuePairStatistics& queue_pair_statistics() const override {
        return queue_pair_->statistics();
    }
    QueuePairInfo info_get() const override { return queue_pair_->qp_info_get(); }
    Result<void> connect(const QueuePairInfo& peer) override {
        return queue_pair_->qp_connect(peer);
    }
    Result<uint64_t> send_post(uint64_t now_ns, const RegisteredMemory& memory,
                               uint32_t user_immediate) override;
    Result<uint64_t> send_post(uint64_t now_ns, const RegisteredMemory& memory,
                               uint32_t user_immediate, SchemeChoice scheme) override;
    SchemeChoice scheme_now(uint64_t message_bytes) override;
    bool send_delivered(uint64_t message_number) override;
    uint32_t free_sends() const override;
    Result<uint64_t> recv_post(uint64_t now_ns, const RegisteredMemory& memory) override;
    Result<BitmapView> recv_bitmap_get(uint64_t message_number) const override {
        return queue_pair_->recv_bitmap_get(message_number);
    }
    Result<void> recv_discard(uint64_t message_number) override;
    bool next_completion(Completion& completion) override;
    void fail() override;
    bool is_sending(uint64_t message_number) const override {
        return active_sending(message_number) != nullptr;
    }
    bool has_failed() const override { return failed_; }
    uint64_t silence_ns(uint64_t now_ns) const override;

    uint32_t packet_bytes() const override { return queue_attributes_.packet_bytes; }
    uint16_t channel_count() const override { return queue_attributes_.channel_count; }
    uint64_t receives_posted() const override { return queue_pair_->receives_posted(); }
    void on_data(uint64_t now_ns, const DataRun& run) override;
    ExpectedPlace expected_place() override {
        return failed_ ? ExpectedPlace() : queue_pair_->expected_place();
    }
    void on_control(uint64_t now_ns, ByteSpan message) override;
    void on_path_rate(uint16_t channel, uint64_t bytes_per_s) override;
    bool next_transmit(uint64_t now_ns, uint32_t max_packets, Transmit& out) override;
    bool may_transmit(uint64_t now_ns) const override;
    uint64_t next_timer_ns() const override;
    void on_timer(uint64_t now_ns) override;

  private:
    // How a receive ended, for as long as its sender may ask.
    struct Ended {
        bool is_known = false;
        bool is_delivered = false;
        bool is_queued = false;  // in answers_
        uint64_t message_number = 0;
        uint32_t missed_chunks = 0;
        uint32_t missed_runs = 0;
        uint32_t echo_time_us = 0;
        uint64_t echo_arrival_ns = 0;
    };

    // ---- connection.cc ----
    Sending& sending(uint64_t number) { return sending_[number & slot_mask_]; }
    Receiving& receiving(uint64_t number) { return receiving_[number & slot_mask_]; }
    const Sending* active_sending(uint64_t number) const;
    Ended& ended(uint64_t number) { return ended_[number & (2 * slot_mask_ + 1)]; }
    bool is_usable(const SchemeChoice& scheme) const;
    SchemeChoice fit_scheme(SchemeChoice scheme, uint64_t message_bytes) const;
    uint32_t free_completions() const;
    bool has_room_for_completion() const { return free_completions() > 0; }
    void complete_send(Sending& sending, bool ok, Error error);
    void complete_unacknowledged(Sending& delivered);
    void close_receive(Receiving& receiving, bool delivered);
    void note_end(const Receiving& receiving, bool delivered);
    void push_completion(const Completion& completion);
    void fail_with(bool tell_peer);
    void hear(uint64_t now_ns);
    void expect(uint64_t now_ns);

    // ---- connection_transmit.cc ----
    void queue_next(uint64_t now_ns, uint32_t max_packets);
    bool queue_wanted(uint32_t most_chunks);
    bool queue_first_pass(uint64_t now_ns, uint32_t most_chunks);
    bool queue_data(Sending& sending, uint32_t first_chunk, uint32_t chunk_count);
    bool queue_parity(Sending& sending, uint32_t group);
    void encode_group(const Sending& sending, const GroupShape& shape);
    void note_transmitted(uint64_t now_ns, const DataRun& run);
    void trim_sent_log();
    void forget_oldest_recent();
    void expire_recent(uint64_t now_ns);

    // ---- connection_control.cc ----
    void on_acknowledgement(uint64_t now_ns, const ControlView& view);
    void on_repeat_request(uint64_t now_ns, const ControlView& view);
    void measure_round_trip(uint64_t now_ns, const AcknowledgementBody& body);
    void acknowledge_range(Sending& sending, uint64_t begin, uint64_t end);
    void want_range(Sending& sending, uint64_t begin, uint64_t end);
    void forget_wanted(Sending& sending);

    // ---- connection_arrival.cc ----
    void note_arrival(uint64_t now_ns, const DataRun& run, const QueuePair::ReceiveSlot& slot,
                      Receiving& receiving);
    void on_parity(uint64_t now_ns, const DataRun& run, const QueuePair::ReceiveSlot& slot,
                   Receiving& receiving);
    uint32_t keep_parity(const DataRun& run, uint32_t offset, const QueuePair::ReceiveSlot& slot,
                         Receiving& receiving);
    void decode_touched(const DataRun& run, const QueuePair::ReceiveSlot& slot,
                        Receiving& receiving);
    void try_decode(uint32_t group, const QueuePair::ReceiveSlot& slot, Receiving& receiving);
    void decode_group(const GroupShape& shape, const GroupState& state, uint64_t wanted,
                      const QueuePair::ReceiveSlot& slot, const ParityStore::Group& parity);
    void judge(uint32_t end, const QueuePair::ReceiveSlot& slot, Receiving& receiving);
    void judge_later(uint64_t now_ns, const QueuePair::ReceiveSlot& slot, Receiving& receiving);
    uint64_t silence_time_ns(uint64_t now_ns, const Receiving& receiving) const;
    void ask(uint32_t begin, uint32_t end, const QueuePair::ReceiveSlot& slot,
             Receiving& receiving);
    void ask_silent(uint64_t now_ns, const QueuePair::ReceiveSlot& slot, Receiving& receiving);
    void set_asks_tail(Receiving& receiving, bool asks);
    void answer_late(uint64_t number);
    bool may_hold(const Receiving& receiving, const QueuePair::ReceiveSlot& slot) const;
    void hold_answer(const Receiving& receiving);
    void release_held(uint64_t now_ns);
    void note_delivered_until();
    void forget_held();
    void on_told(const DataRun& run);

    // ---- connection_answers.cc ----
    bool make_answer(uint64_t now_ns, Transmit& out);
    bool make_ended_answer(uint64_t now_ns, Transmit& out);
    bool make_request(uint64_t now_ns, Transmit& out);
    bool make_progress_answer(uint64_t now_ns, Transmit& out);
    void fill_acknowledgement(uint64_t now_ns, Receiving& receiving,
                              const QueuePair::ReceiveSlot& slot, Transmit& out);

    // ---- connection_timer.cc ----
    uint64_t timeout_ns() const;
    uint64_t sender_timer_ns() const;
    uint64_t receiver_timer_ns() const;
    uint64_t repeat_request_ns() const;
    uint64_t tail_request_ns() const;
    bool waits_for_peer() const;
    void note_told(uint64_t now_ns);
    bool next_control(uint64_t now_ns, Transmit& out);
    void note_control(uint64_t now_ns);
    uint64_t hopeless_ns() const;
    uint64_t probe_time_ns(const Sending& sending) const;
    void expire_sent(uint64_t now_ns);
    void expire_asked(uint64_t now_ns);
    void probe(uint64_t now_ns, Sending& sending);

    std::unique_ptr<QueuePair> queue_pair_;
    const QueuePairAttributes& queue_attributes_;
    ReliabilityAttributes attributes_;
    ReliabilityStatistics statistics_;
    uint64_t channel_rates_bytes_per_s_[kMaxChannels] = {};
    uint64_t slot_mask_;
    bool failed_ = false;
    bool must_tell_failure_ = false;
    uint64_t last_heard_ns_ = 0;
    uint64_t heard_since_ns_ = 0;  // without a silence
    // Since the peer was heard: how often it has been told something, at times apart, and the first and last of these.
    uint32_t told_count_ = 0;
    uint64_t told_since_ns_ = 0;
    uint64_t told_ns_ = 0;

    std::unique_ptr<Sending[]> sending_;
    std::unique_ptr<Receiving[]> receiving_;
    std::unique_ptr<uint64_t[]> words_;    // of all bitmaps
    std::unique_ptr<Ended[]> ended_;       // twice as many as slots
    std::unique_ptr<uint64_t[]> answers_;  // ring of message numbers whose end is to be told
    uint32_t answers_first_ = 0;
    uint32_t answers_count_ = 0;
    // Messages whose end will be told by data, or at held_ns_ by acknowledgements.
    std::unique_ptr<uint64_t[]> held_;
    uint32_t held_count_ = 0;
    uint64_t held_ns_ = 0;
    bool peer_knows_round_trip_ = false;
    std::unique_ptr<Completion[]> completions_;
    uint32_t completions_first_ = 0;
    uint32_t completions_count_ = 0;

    // Windows of message numbers: those before oldest_* are settled.
    uint64_t oldest_send_ = 0;
    uint64_t oldest_since_ns_ = 0;
    uint64_t next_send_ = 0;
    uint64_t first_pass_ = 0;  // messages before this were sent once
    uint32_t active_sends_ = 0;
    uint64_t oldest_receive_ = 0;
    uint64_t delivered_until_ = 0;  // that data tell: all before this, or they have failed
    uint64_t next_receive_ = 0;
    uint64_t senders_next_ =
        0;  // 1 + the highest message of which something has come, if only late
    uint32_t open_receives_ = 0;
    uint32_t begun_receives_ = 0;  // of which something has come

    uint64_t wanted_total_ = 0;
    uint64_t to_ask_total_ = 0;                    // chunks, and tails
    uint64_t next_acknowledgement_ns_ = kNoTimer;  // at the earliest
    RangeLog sent_;                                // sender, schemes that repeat by timer
    RangeLog asked_;                               // receiver, schemes that ask
    RangeLog recent_;                              // sender, the same schemes
    uint32_t timeout_doublings_ = 0;
    uint32_t peer_round_trip_us_;  // what the peer says, for what this end receives
    RoundTrip round_trip_;
    LossMeter loss_;
    RunMeter runs_;
    SchemeChooser choice_;

    ErasureCode code_;
    ParityStore parity_;
    std::unique_ptr<unsigned char[]> parity_out_;    // of the group that is being sent
    std::unique_ptr<unsigned char[]> padded_chunk_;  // the last chunk of a message, filled up
};

}  // namespace tiffin::rdma_blk::sdr
