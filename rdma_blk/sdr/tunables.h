// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Every number of the SDR transport that somebody chose, on one page, and the relations between them that
// the code relies on. Numbers that follow from the format are in packet_format.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rdma_blk/sdr/packet_format.h"

namespace tiffin::rdma_blk::sdr {

// ---- Sizes -----------------------------------------------------------------------------------------------

inline constexpr uint32_t kMinPacketBytes = 64;
inline constexpr uint32_t kDefaultPacketBytes = 1408;  // + 64 + 8 (UDP) + 20 (IPv4) = 1500
inline constexpr uint32_t kMaxPacketBytes = 65536;  // of simulated links; UDP: kMaxUdpPacketBytes
inline constexpr uint8_t kMaxPacketsPerChunkLog2 =
    6;                                          // a chunk's packets fit into a word of the bitmap
inline constexpr uint16_t kMaxMessages = 1024;  // in flight; the paper's 10 bits of message id
inline constexpr uint32_t kMaxPacketsPerMessage = 1U << 28;
inline constexpr uint32_t kMaxMemoryRegions = 1024;
// After a message of so many packets the next one's first ones are received straight to their place, too.
inline constexpr uint32_t kLargeMessagePackets = 4;
inline constexpr uint32_t kSendQueueRanges = 256;  // parts of streams that wait for their turn
inline constexpr uint32_t kMaxUserControls = 16;   // queued in each direction

// ---- Clear-to-send ---------------------------------------------------------------------------------------

// How long a sender waits for a clear-to-send before it asks, at first and at last (it doubles).
inline constexpr uint64_t kFirstGrantRequestNs = 10'000'000;
inline constexpr uint64_t kMaxGrantRequestNs = 160'000'000;

// ---- Round trips and losses ------------------------------------------------------------------------------

// Selective repeat: the timeout is this multiple of the round trip (the paper's "SR RTO"), but at least the
// minimum: a peer's thread may sleep, and its acknowledgements are not sent for each packet.
inline constexpr uint32_t kTimeoutRoundTripsPercent = 300;
inline constexpr uint64_t kMinTimeoutNs = 2'000'000;
inline constexpr uint64_t kMaxTimeoutNs = 2'000'000'000;
// How often the timeout may double while nothing at all is heard.
inline constexpr uint32_t kMaxTimeoutDoublings = 6;
// After this long without a word of the peer, while something is expected of it, the connection has failed.
inline constexpr uint64_t kDefaultGiveUpNs = 10'000'000'000;
inline constexpr uint64_t kMaxGiveUpNs = uint64_t{1}
                                         << 62;  // as good as never; sums do not overflow
// While the peer is heard without such a silence, the oldest message has failed it, too, when nothing of it is newly
// acknowledged for so long, and for so many timeouts, in which so many of its chunks have gone, repeats included: that is not
// loss. With silences, after twice the time to give up.
inline constexpr uint64_t kSilenceNs = kMaxTimeoutNs;
// One thing that is not answered, and its repeat, may both have been lost: silence is what follows so many, at times apart.
inline constexpr uint32_t kToldForSilence = 3;
inline constexpr uint64_t kToldApartNs = 100'000'000;
inline constexpr uint64_t kHopelessNs = 5'000'000'000;
inline constexpr uint64_t kHopelessTimeouts = 4;
inline constexpr uint64_t kHopelessChunks = 16;

// Receivers: the share of a round trip after which silence means that what is missing was lost, and the
// least and most it may be; the same is how long reordering is waited for.
inline constexpr uint32_t kSilencePercent = 12;
inline constexpr uint64_t kMinSilenceNs = 200'000;
inline constexpr uint64_t kMaxSilenceNs = 100'000'000;
// Chunks that must have come behind a gap before it is taken for a loss.
inline constexpr uint32_t kReorderChunks = 3;
// A gap that was asked for is asked for again after this share of a round trip, in which its variation is contained.
inline constexpr uint32_t kRepeatNackPercent = 102;
inline constexpr uint64_t kMinRepeatNackNs = 500'000;

// Messages of at most this many chunks can be acknowledged by packets of the other direction; but for one of so many,
// so that round trips are measured.
inline constexpr uint32_t kHeldChunks = 4;
inline constexpr uint64_t kMeasuredMessages = 64;

// An acknowledgement is sent after this many new chunks, or this share of a round trip.
inline constexpr uint32_t kAcknowledgeChunks = 256;
inline constexpr uint32_t kAcknowledgePercent = 12;
inline constexpr uint64_t kMinAcknowledgeDelayNs = 100'000;
inline constexpr uint64_t kMaxAcknowledgeDelayNs = 20'000'000;
// Acknowledgements in a row that tell of all gaps; what does not fit comes with the next ones.
inline constexpr uint32_t kMaxAcknowledgementsInARow = 4;

// Loss is measured over about this many chunks; what is assumed at first counts as this many.
inline constexpr double kLossMemoryChunks = 1e6;
inline constexpr double kLossPriorChunks = 256;
// The length of bursts: of about this many; what chance would make of them counts as this many.
inline constexpr double kRunMemory = 1000;
inline constexpr double kRunPrior = 2;

// Ranges of chunks that wait for an answer: to a transmission (sender) or a request (receiver).
inline constexpr uint32_t kMinRangeLog = 1024;
inline constexpr uint32_t kMaxRangeLog = 1U << 17;

// Echoes of times: none; and what is no round trip any more.
inline constexpr uint32_t kNoEchoUs = ~uint32_t{0};
inline constexpr uint32_t kMaxRoundTripUs = 30'000'000;

// ---- Erasure codes ---------------------------------------------------------------------------------------

inline constexpr uint32_t kMaxDataChunks = 64;         // k
inline constexpr uint32_t kMaxParityChunks = 16;       // m
inline constexpr uint32_t kMaxParityPackets = 256;     // m * packets of a chunk
inline constexpr uint64_t kMinErasureBytes = 131072;   // smaller messages are repeated, never coded
inline constexpr uint32_t kDefaultParityGroups = 256;  // that a receiver keeps at the same time
inline constexpr uint64_t kMaxParityMemoryBytes = uint64_t{64} << 20;
// What the choice of a scheme assumes of a link as long as nobody knows its rate: 10 Gbit/s.
inline constexpr uint64_t kAssumedRateBytesPerS = 1'250'000'000;
inline constexpr uint32_t kDefaultDataChunks = 32;
inline constexpr uint32_t kDefaultParityChunks = 8;

// ---- The UDP carrier -------------------------------------------------------------------------------------

inline constexpr uint32_t kMaxUdpPacketBytes =
    65507 - 64;  // with all headers the largest UDP datagram
inline constexpr uint64_t kInitialWindowPackets = 32;
inline constexpr uint64_t kMinWindowPackets = 4;
// What may wait in queues: a quarter of the round trip, but at least this.
inline constexpr uint64_t kMinQueueTargetNs = 1'000'000;
inline constexpr uint32_t kCongestionLossPercent = 20;
// A queue that stays above that for so many round trips is kept full by a competitor.
inline constexpr uint32_t kCompetitorRounds = 8;
// Rounds with losses after which a flow yields even if its competitor does not.
inline constexpr uint32_t kLossRounds = 16;
// After a probe, until the window shows in the round trips again.
inline constexpr uint64_t kSettlingRounds = 2;
// Probes in a row that agree on a longer round trip before it is believed.
inline constexpr uint32_t kLongerPathProbes = 3;
// A competitor that is met within so many round trips was there before.
inline constexpr uint64_t kEarlyRounds = 64;
// The smallest round trip is looked for again when it has not been seen for that long, and so many round trips.
inline constexpr uint64_t kRoundTripMemoryNs = 10'000'000'000;
inline constexpr uint64_t kRoundTripMemoryRounds = 100;
// The rate of a path is forgotten by this share with each round trip that filled it.
inline constexpr uint64_t kRateMemoryRounds = 16;
inline constexpr uint64_t kMinFeedbackTimeoutNs = 20'000'000;
inline constexpr uint64_t kInitialFeedbackTimeoutNs =
    1'000'000'000;  // before anything was measured
// Feedback is sent after this many packets, or this long after one.
inline constexpr uint32_t kFeedbackPackets = 32;
inline constexpr uint64_t kFeedbackDelayNs = 250'000;
// Probes of the path's greatest datagram (RFC 8899): how many of a size are sent before it does not fit, how long each is
// waited for, how exactly the size is to be known, and when a larger one is looked for again.
inline constexpr uint32_t kPathProbeAttempts = 3;
inline constexpr uint64_t kPathProbeTimeoutNs = 1'000'000'000;
inline constexpr uint32_t kPathProbeStepBytes = 16;
inline constexpr uint64_t kPathRaiseNs = 600'000'000'000;
inline constexpr uint32_t kPathBaseBytes = 1200;
inline constexpr uint32_t kPathLeastBytes = 548;  // + 8 (UDP) + 20 = 576, which IPv4 asks of all
// Timeouts of a window in a row, after which the path may have become too narrow.
inline constexpr uint32_t kBlackHoleTimeouts = 3;
// An endpoint that wants to send while its channel may not: feedback or a completion wakes the thread, or this time passes.
inline constexpr uint64_t kBlockedRetryNs = 1'000'000;
// Asked of the kernel for each socket; what it gives is what counts.
inline constexpr int kSocketBufferBytes = 4 << 20;
inline constexpr uint32_t kMaxSegments = 64;          // of one send with segmentation offload
inline constexpr uint32_t kMaxSegmentsBytes = 65000;  // with the headers of all
inline constexpr uint32_t kMaxSendParts = 512;        // pieces of memory of one send
inline constexpr uint32_t kReceiveBatch = 16;         // buffers of one receive call
inline constexpr uint16_t kMaxChannels = 16;

// ---- Relations -------------------------------------------------------------------------------------------

static_assert((kMaxMessages & (kMaxMessages - 1)) == 0, "slots are found by masking");
static_assert((1U << kMaxPacketsPerChunkLog2) <= 64,
              "a chunk lies in one word of the packets' bitmap");
static_assert(kMaxPacketsPerMessage < (1U << 31), "sums of two packet indices do not overflow");
static_assert(kFirstGrantRequestNs <= kMaxGrantRequestNs);
static_assert(kMaxGrantRequestNs * 10 <= kDefaultGiveUpNs,
              "a lost request must not end a connection");
static_assert(kTimeoutRoundTripsPercent > 100 + kAcknowledgePercent,
              "an acknowledgement that waits must come before the timeout");
static_assert(kMinTimeoutNs > kMinAcknowledgeDelayNs && kMinTimeoutNs > 2 * kMinSilenceNs);
static_assert(kRepeatNackPercent > 100, "a repetition needs a round trip to arrive");
static_assert(kMinRepeatNackNs > 2 * kMinSilenceNs && kMinRepeatNackNs < kMinTimeoutNs);
static_assert(kMaxTimeoutNs * 2 <= kDefaultGiveUpNs, "several timeouts fit before giving up");
static_assert(kHopelessNs > kPathProbeAttempts * kPathProbeTimeoutNs + kPathProbeTimeoutNs,
              "the path's greatest datagram is known by then, and the next connection uses it");
static_assert(kMaxSendParts >= 2 * kMaxSegments, "a header and a payload for each packet");
static_assert(kMaxDataChunks + kMaxParityChunks <= 255, "the field has 256 elements");
static_assert(kMaxParityPackets % 64 == 0);
static_assert(kMinWindowPackets <= kInitialWindowPackets);
static_assert(kMinFeedbackTimeoutNs > 10 * kFeedbackDelayNs,
              "feedback that waits must come in time");

}  // namespace tiffin::rdma_blk::sdr
