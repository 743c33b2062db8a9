// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How fast a path delivers: the most that came in a round trip lately (after BBR, Cardwell et al., ACM Queue 2016).
// What comes in a round was sent in the one before, so that says whether the path was filled.
#pragma once

#include <algorithm>
#include <cstdint>

#include "rdma_blk/sdr/tunables.h"

namespace tiffin::rdma_blk::sdr {

class DeliveryRate {
  public:
    explicit DeliveryRate(uint64_t packet_bytes) : packet_bytes_(packet_bytes) {}

    // Nothing was on the way before this packet, and for a while: `paused`.
    void on_sent(uint64_t bytes, bool paused) {
        current_.bytes += bytes;
        current_.packets++;
        current_.has_paused = current_.has_paused || paused;
    }

    // A round ends in which `came` packets came. `peak_packets`: the most that was on the way in it. `is_filled`: that was
    // what the path takes, as far as the window knows.
    void end_round(uint64_t now_ns, uint64_t came, uint64_t peak_packets, bool is_filled) {
        const bool is_timed = began_ns_ != 0 && now_ns > began_ns_ && !current_.has_paused;
        if (is_timed && before_.packets > 0) {
            // Late feedback may tell of more than was on the way.
            const uint64_t packets = std::min(came, before_.peak_packets);
            const auto bytes = static_cast<double>(packets) * static_cast<double>(before_.bytes) /
                               static_cast<double>(before_.packets);
            add(static_cast<uint64_t>(bytes * 1e9 / static_cast<double>(now_ns - began_ns_)),
                before_.is_filled);
        }
        before_ = current_;
        before_.peak_packets = peak_packets;
        // Packets count alike for the window, whatever their sizes: with small ones it is full of next to nothing.
        before_.is_filled = is_filled && !current_.has_paused &&
                            current_.bytes >= current_.packets * packet_bytes_ / 2;
        current_ = {};
        began_ns_ = now_ns;
    }

    // 0: no round has filled the path yet.
    uint64_t bytes_per_s() const { return bytes_per_s_; }

  private:
    // What was sent in a round.
    struct Sent {
        uint64_t bytes = 0;
        uint64_t packets = 0;
        uint64_t peak_packets = 0;
        bool has_paused = false;
        bool is_filled = false;
    };

    // One that did not fill the path says no more than that it can do this.
    void add(uint64_t seen_bytes_per_s, bool is_filled) {
        if (bytes_per_s_ == 0 && !is_filled) {
            return;
        }
        const uint64_t faded = is_filled ? bytes_per_s_ / kRateMemoryRounds : 0;
        bytes_per_s_ = std::max(seen_bytes_per_s, bytes_per_s_ - faded);
    }

    uint64_t packet_bytes_;
    uint64_t began_ns_ = 0;
    Sent current_;
    Sent before_;
    uint64_t bytes_per_s_ = 0;
};

}  // namespace tiffin::rdma_blk::sdr
