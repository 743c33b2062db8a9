// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Who stands between two carriers and passes on what they send, such as an emulated link. One of the two ends has it;
// the other does not know.
//
//     info = carrier->info_get();  <fill in the host>;  detour.advertise(info);  <tell the peer>
//     <hear from the peer>;  detour.route(peer_info);  carrier->start(peer_info)
#pragma once

#include "rdma_blk/sdr/udp/udp_carrier.h"

namespace tiffin::rdma_blk::sdr {

class UdpDetour {
  public:
    virtual ~UdpDetour() = default;
    // Both are called with the lock of a session held: they take no other and do not wait.
    //
    // Puts the detour's ports into what the peer will be told: the peer then sends to it. Its hosts stay as they are,
    // so the detour is on this machine.
    virtual void advertise(UdpInfo& ours) = 0;
    // Puts the detour in the peer's place, after advertise().
    virtual void route(UdpInfo& peer) = 0;
};

}  // namespace tiffin::rdma_blk::sdr
