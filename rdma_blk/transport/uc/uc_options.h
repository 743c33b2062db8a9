// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What one end of a UC connection is given, tells its peer, and counts.
#pragma once

#include <cstdint>

#include "rdma_blk/sdr/endpoint.h"
#include "rdma_blk/sdr/sdr.h"
#include "rdma_blk/sdr/uc/landing_layout.h"
#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk {

inline constexpr uint32_t kMinUcReceiveDepth = 64;
inline constexpr uint32_t kMaxUcReceiveDepth = 65536;

struct UcOptions {
    // Of the endpoint, all of it: of max_messages and max_message_bytes that cannot be checked, and packets of an
    // endpoint that has more would find no place. packet_bytes is at most the MTU of the path (256, 512, ... 4096),
    // channel_count is 1.
    sdr::QueuePairAttributes queue_pair;
    // Parity of messages with this erasure code has a place to land; that of others, where they need more, is not sent.
    sdr::SchemeChoice code{sdr::SchemeKind::erasure_mds, sdr::kDefaultDataChunks,
                           sdr::kDefaultParityChunks};
    // Packets that may have come and not been looked at yet: what comes beyond is lost. 64 to 65536.
    uint32_t receive_depth = 4096;
    // Keys of the two directions' tags; both ends have them from a connection that is trusted.
    unsigned char send_key[sdr::kUcKeyBytes] = {};
    unsigned char receive_key[sdr::kUcKeyBytes] = {};
    // For trials: this share of what is sent is lost, in parts of a million.
    uint32_t drop_ppm = 0;
};

// What the peer must know.
struct UcInfo {
    uint32_t connection_id = 0;
    uint32_t receive_depth = 0;
    sdr::LandingLayout layout;
    uint64_t arenas[sdr::kUcArenas] = {};  // addresses
    wire::QueuePairAddress data;
    wire::QueuePairAddress control;
};

struct UcStatistics {
    uint64_t packets_written = 0;   // posted
    uint64_t packets_received = 0;  // immediates that came
    uint64_t packets_stray = 0;     // of those: of no generation that is open, or of no cell
    uint64_t packets_held = 0;      // of those: came before the description of their message
    uint64_t packets_dropped = 0;   // of messages whose description did not come; and by drop_ppm
    uint64_t packets_homeless =
        0;                        // not written: no window is known for them, or parity has no cell
    uint64_t datagrams_sent = 0;  // over the control queue pair
    uint64_t datagrams_received = 0;  // well-formed
    uint64_t datagrams_refused = 0;
    uint64_t runs_late = 0;       // that the peer has sent of a generation that is over
    uint64_t windows_opened = 0;  // generations that have begun
    // The device has: nothing is sent or received any more. An endpoint that sends finds out by its timers; one that
    // only receives waits for nobody, so its owner looks here when wait() returns, which the failure wakes.
    bool has_failed = false;
};

}  // namespace tiffin::rdma_blk
