// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Drives an SDR Endpoint over Unreliable Connected queue pairs of an RDMA device, after arXiv:2505.05366, section 3.2: each
// packet is one RDMA WRITE WITH IMMEDIATE into memory of the receiver, whose immediate says what it is
// (rdma_blk/sdr/uc/uc_format.h); what is not packets of messages goes over a second queue pair with send and receive.
//
//     carrier = TRY(UcCarrier::create(*connection, options));
//     carrier->info_get()  <exchange>  carrier->start(peer_info);
//     {
//         MutexGuard guard(carrier->mutex());     // around every call of the endpoint
//         connection->send_post(host::monotonic_ns(), ...);
//     }
//     carrier->kick();                            // something may be there to send
//     seen = carrier->wait(seen, timeout_us);     // until something has changed; then look for completions
//
// The device writes before anybody looks, so packets do not land in the memory of receives: they land in arenas of this
// carrier (rdma_blk/sdr/uc/landing_layout.h), and the endpoint copies from there what it wants, as it does from a datagram.
// Each generation of messages has an arena, under a memory window (type 2B) that is closed before the arena is used again:
// a packet that comes later than that is written nowhere, and nobody hears of it.
//
// A fabric of RDMA is trusted, as by transport rc: nothing is authenticated. A peer can write into the arenas whatever it
// wants; what it says is checked before it is used, and it gets at no other memory.
//
// One thread. This is not in rdma_blk/sdr because that library knows no devices: verbs are on the floor of transports.
#pragma once

#include <cstdint>
#include <memory>

#include "fs/vfs/host.h"
#include "fs/vfs/result.h"
#include "rdma_blk/sdr/endpoint.h"
#include "rdma_blk/sdr/sdr.h"
#include "rdma_blk/sdr/uc/landing_layout.h"
#include "rdma_blk/transport/verbs/verbs.h"

namespace tiffin::rdma_blk {

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

class UcCarrier {
  public:
    // Takes all memory and the queue pairs. Endpoint and device outlive the carrier. Errors: einval (options out of
    // range, or packet_bytes or channel_count other than the endpoint's), e2big (see landing_layout()), eopnotsupp (the
    // device has no windows of type 2B), enomem, eio (of the device: locked memory, for example).
    static Result<std::unique_ptr<UcCarrier>> create(sdr::Endpoint& endpoint, verbs::Device& device,
                                                     const UcOptions& options);
    // Stops the thread.
    virtual ~UcCarrier() = default;

    virtual UcInfo info_get() const = 0;
    // Errors: einval (the layouts differ, or the peer's receive_depth is out of range), e2big (packets are larger than
    // the path's MTU), eio, eagain or enomem (thread).
    virtual Result<void> start(const UcInfo& peer) = 0;

    virtual host::Mutex& mutex() = 0;
    virtual void kick() = 0;
    // As UdpCarrier::wait().
    virtual uint64_t wait(uint64_t seen, uint64_t timeout_us) = 0;
    virtual UcStatistics statistics() = 0;
};

}  // namespace tiffin::rdma_blk
