// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Messages that arrive: reliability schemes over a queue pair (arXiv:2505.05366, section 4). Each message is
// delivered exactly as it was sent, or the connection fails: an end with messages in flight learns it at the latest
// after give_up_ns, and a failed end answers whatever still comes with the failure. An end of whose receives nothing has
// come waits for nobody, so it may not hear of the failure: whoever needs to know sends from time to time. The sender
// chooses the scheme, for each message if it likes; the receiver learns it from the packets.
//
// A receive's memory may be read as chunks come (recv_bitmap_get()), but not written before its completion: an erasure
// code computes what is missing from what is there.
//
//     connection = TRY(reliable_connection_create(context, queue_pair_attributes, attributes));
//     connection->connect(peer_info);
//     connection->recv_post(memory);                        // on the receiving end, first
//     connection->send_post(now_ns, memory, immediate);     // on the sending end
//     drive it as any Endpoint;
//     while (connection->next_completion(completion)) ...   // memory is the caller's again
//
// Sans I/O, as all of this folder: no clock, no threads; the caller serialises all calls.
#pragma once

#include <cstdint>
#include <memory>

#include "fs/vfs/result.h"
#include "rdma_blk/sdr/endpoint.h"
#include "rdma_blk/sdr/sdr.h"

namespace tiffin::rdma_blk::sdr {

struct ReliabilityAttributes {
    // For messages that are sent without a choice of their own. Not none. An erasure code is used from
    // kMinErasureBytes on; below it, it is selective_repeat_nack.
    SchemeChoice scheme{SchemeKind::selective_repeat_nack, 0, 0};
    // Choose by measured loss, round trip and message size instead (scheme_choice.h).
    bool automatic = false;
    // Before anything was measured: the round trip.
    uint32_t initial_round_trip_us = 20'000;
    // For automatic: with shorter round trips nothing is coded, as a repetition costs less than a code's processor time.
    uint32_t least_erasure_round_trip_us = 0;
    // For automatic: the share of chunks that is lost, before anything was measured; the rate of the link. 0: what the
    // carrier measures (UDP does), and 10 Gbit/s until then.
    double initial_loss = 0;
    uint64_t link_rate_bytes_per_s = 0;
    // Retransmission timeout in percent of a round trip; kTimeoutRoundTripsPercent is the paper's 3 round trips.
    uint32_t timeout_percent = kTimeoutRoundTripsPercent;
    // After this long without a word of the peer while something is expected of it, or without progress of a message
    // that is repeated, the connection has failed. 1 to kMaxGiveUpNs.
    uint64_t give_up_ns = kDefaultGiveUpNs;
    // For traffic in both directions (requests and answers): acknowledgements of small messages that came without a
    // loss, and clear-to-send, may wait for so long for a packet of data that tells them by the way; 0: they go at
    // once. Less than kMinTimeoutNs. Receives should have one capacity then.
    uint32_t hold_us = 0;
    // Groups of an erasure code whose parity is kept at the same time, by a receiver; each takes up to
    // parity_buffer_chunks chunks of memory. 0: no parity is kept, everything that is lost is repeated. The parity of a peer
    // whose scheme has more than parity_buffer_chunks of it is dropped as well (statistics.parity_dropped).
    uint32_t parity_groups = kDefaultParityGroups;
    uint32_t parity_buffer_chunks = kDefaultParityChunks;
    // Simulations without bytes: nothing is encoded or decoded, and no memory is taken for it.
    bool without_bytes = false;
};

struct Completion {
    bool is_send = false;
    uint64_t message_number = 0;
    // ok: all bytes were delivered. Otherwise ecanceled (the peer gave its receive up), e2big (the receive
    // is too small; the connection fails with it, as the receive could never be filled), etimedout (the connection
    // has failed).
    bool ok = false;
    Error error = Error::eio;
    uint64_t message_bytes = 0;
    uint32_t user_immediate = 0;
};

// Counters since the creation.
struct ReliabilityStatistics {
    uint64_t chunks_sent = 0;      // for the first time
    uint64_t chunks_repeated = 0;  // again
    uint64_t parity_chunks_sent = 0;
    uint64_t timeouts = 0;  // ranges whose timer has expired
    uint64_t probes = 0;    // packets that were sent to hear from the peer
    uint64_t acknowledgements_sent = 0;
    uint64_t chunks_asked_for = 0;  // in negative acknowledgements
    uint64_t groups_decoded = 0;
    uint64_t chunks_decoded = 0;
    uint64_t groups_failed = 0;   // that could not be decoded, and were repeated
    uint64_t parity_dropped = 0;  // packets, for want of a buffer
    uint32_t round_trip_us = 0;   // smoothed
    double loss = 0;              // measured share of chunks, smoothed
    double mean_loss_run = 1;     // measured: lost chunks that were neighbours; 1: each by itself
    uint64_t path_rate_bytes_per_s = 0;  // measured by the carrier; 0: not known
};

class ReliableConnection : public Endpoint {
  public:
    virtual const ReliabilityStatistics& reliability_statistics() const = 0;
    virtual const QueuePairStatistics& queue_pair_statistics() const = 0;

    virtual QueuePairInfo info_get() const = 0;
    // Errors: as qp_connect().
    virtual Result<void> connect(const QueuePairInfo& peer) = 0;

    // Sends all of `memory`; the number names the message. Errors: eagain (max_messages in flight), einval,
    // enodev (the connection has failed).
    virtual Result<uint64_t> send_post(uint64_t now_ns, const RegisteredMemory& memory,
                                       uint32_t user_immediate) = 0;
    // With a scheme of its own.
    virtual Result<uint64_t> send_post(uint64_t now_ns, const RegisteredMemory& memory,
                                       uint32_t user_immediate, SchemeChoice scheme) = 0;
    // The scheme of a message that is sent now without a choice of its own.
    virtual SchemeChoice scheme_now(uint64_t message_bytes) = 0;
    // The peer has shown in another way that it has all of the message: it completes as if it had been acknowledged, and
    // its memory is not read any more. Nothing happens if it has completed. False: not all of it had been sent, so the peer
    // has no idea what it says; what it has of the message stays incomplete, and the connection should end.
    virtual bool send_delivered(uint64_t message_number) = 0;
    // Whether it was posted and has not completed.
    virtual bool is_sending(uint64_t message_number) const = 0;
    // So many messages send_post() takes now without eagain. Numbers are given in order, so a message that is not
    // acknowledged yet keeps the number max_messages after its own from being used, however many later ones have
    // arrived. Once the connection has failed: none.
    virtual uint32_t free_sends() const = 0;
    // The next message goes to `memory`. Errors: eagain, einval, enodev.
    virtual Result<uint64_t> recv_post(uint64_t now_ns, const RegisteredMemory& memory) = 0;
    // Which chunks are there already, while the message is on its way. Errors: einval.
    virtual Result<BitmapView> recv_bitmap_get(uint64_t message_number) const = 0;
    // Gives a posted receive up: its memory is free at once, there is no completion, and the sender's ends with
    // ecanceled. Errors: einval (not posted, or completed).
    virtual Result<void> recv_discard(uint64_t message_number) = 0;

    // Takes the oldest completion; false: none.
    virtual bool next_completion(Completion& completion) = 0;

    // Gives up: everything pending completes with etimedout, and the peer is told (which may be lost).
    virtual void fail() = 0;
    virtual bool has_failed() const = 0;
    // For how long nothing has come of the peer although something was sent that it has to answer; 0: not often enough. On a
    // way of long queues, which swallow bursts, the repeat timer makes the peer seem silent for seconds.
    virtual uint64_t silence_ns(uint64_t now_ns) const = 0;
};

// Errors: einval (attributes), enomem. The context outlives the connection.
Result<std::unique_ptr<ReliableConnection>> reliable_connection_create(
    Context& context, const QueuePairAttributes& queue_pair_attributes,
    const ReliabilityAttributes& attributes);

}  // namespace tiffin::rdma_blk::sdr
