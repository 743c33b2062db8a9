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
// Datagrams of the second queue pair have tags under the keys of UcOptions. Packets have none: who knows a key of a window
// can write into the arenas whatever he wants, as a fabric of RDMA is trusted to let nobody else. What they say is checked
// before it is used, and they get at no other memory. Whoever trusts less protects the messages (MessagePath does).
//
// This is a UcChannel and a thread, for who has none of his own; uc_channel.h is the same without. This is not in rdma_blk/sdr because that library knows no devices: verbs are on the floor of transports.
#pragma once

#include <cstdint>
#include <memory>

#include "fs/vfs/host.h"
#include "fs/vfs/result.h"
#include "rdma_blk/sdr/endpoint.h"
#include "rdma_blk/transport/uc/uc_options.h"
#include "rdma_blk/transport/verbs/verbs.h"

namespace tiffin::rdma_blk {

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
