// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How long the segments of a link's next connection may be, where the path swallows longer ones and tells neither end (RFC
// 4821 calls that a black hole; Linux looks for it only if it is configured to). Connections that carry small messages and
// fall silent as soon as there is something large are the sign of it: after two in a row the next one has shorter segments,
// in both directions, as a peer keeps to what it is offered (TCP_MAXSEG). A link that is cut, or a server that
// stops, looks the same for one connection, and seldom for two.
//
// Sans I/O; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace tiffin::rdma_blk {

class SegmentSize {
  public:
    // Offered, without the 40 to 60 bytes of headers: what IPv6 and nearly all tunnels carry, and what IPv4 does in any case.
    static constexpr int kShorterBytes[] = {1200, 500};
    // A connection has carried large segments in a direction in which it has carried so much.
    static constexpr uint64_t kMuchBytes = 16384;
    // When a shorter one has been in use for so long, the next connection tries again whether longer ones pass.
    static constexpr uint64_t kRaiseNs = 600'000'000'000;

    struct Ending {
        bool was_silent = false;  // something was pending, nothing came
        bool is_sure =
            false;  // ... nor did what was sent arrive, on a connection that had just been made
        uint64_t acknowledged_bytes = 0;
        uint64_t received_bytes = 0;
    };

    // TCP_MAXSEG of a connection that is made now; 0: what the kernel takes.
    int next_bytes(uint64_t now_ns) {
        if (step_ != 0 && now_ns - since_ns_ >= kRaiseNs) {
            known_step_ = step_;
            step_ = 0;
            silent_ = kMostSilent - 1;  // one that is silent is enough
        }
        return step_ == 0 ? 0 : kShorterBytes[step_ - 1];
    }

    // A connection has ended. True: the next one's segments are shorter.
    bool ended(uint64_t now_ns, const Ending& ending) {
        if (ending.acknowledged_bytes >= kMuchBytes && ending.received_bytes >= kMuchBytes) {
            silent_ = 0;
            return false;
        }
        if (!ending.was_silent) {
            return false;
        }
        silent_ += ending.is_sure ? kMostSilent : 1;
        if (silent_ < kMostSilent) {
            return false;
        }
        since_ns_ = now_ns;
        step_ = known_step_ > step_ ? known_step_ : step_ + 1;
        known_step_ = 0;
        if (step_ > std::size(kShorterBytes)) {  // their length is not the reason
            step_ = 0;
            silent_ = 0;
        }
        return step_ != 0;
    }

  private:
    static constexpr uint32_t kMostSilent = 2;

    size_t step_ = 0;  // 0: the kernel's, else 1 + the index of what is in use
    size_t known_step_ = 0;
    uint32_t silent_ = 0;  // connections in a row, up to kMostSilent and more
    uint64_t since_ns_ = 0;
};

}  // namespace tiffin::rdma_blk
