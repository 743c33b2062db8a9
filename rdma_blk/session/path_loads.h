// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How much is on its way on each path of a session, and how fast a path carries it: what decides, with several links in use
// at once (LinkPolicy::spread), which one the next request takes.
//
// A path's rate is the greatest of the last seconds at which bytes were answered between the sending of a request and its
// answer, as BBR measures (draft-cardwell-iccrg-bbr-congestion-control, 4.1.1): a request that nothing travels with shows
// less than the path carries, and few bytes show nothing. A path that has not been used for that long has no known rate, so
// that it is tried again. No input or output, no clock, no lock; one thread at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "fs/vfs/result.h"
#include "rdma_blk/session/session_machine.h"

namespace tiffin::rdma_blk {

class PathLoads {
  public:
    // Errors: enomem.
    static Result<PathLoads> create(uint16_t slot_count);

    // A request, with its answer so many bytes, goes out on a path. / Its answer has come on that path, which it leaves now. / It
    // has left the path, answered on this one or another, or to go out again.
    void sent(uint16_t slot, size_t path, uint64_t bytes, uint64_t now_ns);
    void answered(uint16_t slot, size_t path, uint64_t now_ns);
    void left(uint16_t slot, size_t path);
    // Of what was sent last in this slot.
    uint64_t bytes(uint16_t slot) const { return slots_[slot].bytes; }
    // Nothing is on its way any more.
    void forget();

    uint64_t pending_bytes(size_t path) const { return paths_[path].pending_bytes; }
    // 0: it is not known.
    uint64_t rate_bytes_per_ms(size_t path, uint64_t now_ns) const;
    // The one of the `candidates`, a bit for each path and at least one, that answers the next `bytes` first: after what is on
    // its way there, at its rate, and its delay. One whose rate is not known is taken for as fast as the fastest, and
    // gets no more than it needs to show that, until it has answered; one whose delay is not known, for as far as the farthest.
    size_t best(uint32_t candidates, uint64_t bytes, const SessionMachine& machine,
                uint64_t now_ns) const;

  private:
    // A rate is the greatest of this time and of the same before it, and unknown when both are over.
    static constexpr uint64_t kWindowNs = 1'000'000'000;
    // Fewer bytes take as long as one byte.
    static constexpr uint64_t kLeastBytes = 16384;
    // Of a path where nothing is known of any: 10 Gbit/s.
    static constexpr uint64_t kAssumedBytesPerMs = 1'250'000;

    struct OfSlot {
        uint64_t bytes = 0;
        uint64_t sent_ns = 0;
        uint64_t answered_bytes = 0;  // of the path, when it was sent
    };
    struct OfPath {
        uint64_t pending_bytes = 0;
        uint64_t answered_bytes = 0;
        uint64_t window_ns = 0;             // when it began
        uint64_t rate_bytes_per_ms = 0;     // in this window
        uint64_t earlier_bytes_per_ms = 0;  // in the one before
    };

    explicit PathLoads(std::unique_ptr<OfSlot[]> slots) : slots_(std::move(slots)) {}

    std::unique_ptr<OfSlot[]> slots_;
    OfPath paths_[SessionMachine::kMaxPaths];
};

}  // namespace tiffin::rdma_blk
