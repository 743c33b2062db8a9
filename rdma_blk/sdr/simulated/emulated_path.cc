// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/sdr/simulated/emulated_path.h"

#include <arpa/inet.h>

#include <algorithm>

namespace tiffin::rdma_blk::sdr {

Result<std::unique_ptr<EmulatedPath>> EmulatedPath::create(
    const simulation::EmulatorOptions& options) {
    auto emulator = TRY(simulation::UdpEmulator::create(options));
    return std::unique_ptr<EmulatedPath>(new EmulatedPath(std::move(emulator), options.path_count));
}

void EmulatedPath::advertise(UdpInfo& ours) {
    for (uint16_t path = 0; path < std::min(ours.channel_count, path_count_); path++) {
        sockaddr_in6& address = ours.addresses[path];
        sockaddr_in6 carrier = address;
        if (IN6_IS_ADDR_UNSPECIFIED(&carrier.sin6_addr)) {  // all of this machine's
            (void)inet_pton(AF_INET6, "::ffff:127.0.0.1", &carrier.sin6_addr);
        }
        carrier_host_ = carrier;
        emulator_->set_near_peer(path, carrier);
        address.sin6_port = emulator_->far_address(path).sin6_port;
    }
}

void EmulatedPath::route(UdpInfo& peer) {
    for (uint16_t path = 0; path < std::min(peer.channel_count, path_count_); path++) {
        emulator_->set_far_peer(path, peer.addresses[path]);
        peer.addresses[path] = carrier_host_;
        peer.addresses[path].sin6_port = emulator_->near_address(path).sin6_port;
    }
}

}  // namespace tiffin::rdma_blk::sdr
