// SPDX-License-Identifier: MIT OR GPL-2.0-only
// An emulated link between a UDP carrier of this process and its peer, wherever that is: for trying a long or lossy path
// with real sockets.
#pragma once

#include <memory>

#include "fs/vfs/result.h"
#include "rdma_blk/sdr/udp/udp_detour.h"
#include "rdma_blk/simulation/emulator/udp_emulator.h"

namespace tiffin::rdma_blk::sdr {

class EmulatedPath final : public UdpDetour {
  public:
    // `options.path_count` is the number of the carrier's channels; each gets a path of the same link. Outlives the
    // carrier. Errors: those of UdpEmulator::create().
    static Result<std::unique_ptr<EmulatedPath>> create(const simulation::EmulatorOptions& options);

    void advertise(UdpInfo& ours) override;
    void route(UdpInfo& peer) override;
    simulation::UdpEmulator& emulator() { return *emulator_; }

  private:
    EmulatedPath(std::unique_ptr<simulation::UdpEmulator> emulator, uint16_t path_count)
        : emulator_(std::move(emulator)), path_count_(path_count) {}

    std::unique_ptr<simulation::UdpEmulator> emulator_;
    uint16_t path_count_;
    sockaddr_in6 carrier_host_ = {};  // where the carrier's sockets lie, seen from the emulator
};

}  // namespace tiffin::rdma_blk::sdr
