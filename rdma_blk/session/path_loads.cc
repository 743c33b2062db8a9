// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/session/path_loads.h"

#include <algorithm>
#include <new>
#include <utility>

#include "fs/vfs/host.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint64_t kNsPerMs = 1'000'000;

}  // namespace

Result<PathLoads> PathLoads::create(uint16_t slot_count) {
    std::unique_ptr<OfSlot[]> slots(new (std::nothrow) OfSlot[slot_count]);
    if (!slots) {
        return Error::enomem;
    }
    return PathLoads(std::move(slots));
}

void PathLoads::sent(uint16_t slot, size_t path, uint64_t bytes, uint64_t now_ns) {
    OfPath& one = paths_[path];
    slots_[slot] = {bytes, now_ns, one.answered_bytes};
    one.pending_bytes += bytes;
}

void PathLoads::answered(uint16_t slot, size_t path, uint64_t now_ns) {
    const OfSlot& request = slots_[slot];
    OfPath& one = paths_[path];
    one.answered_bytes += request.bytes;
    const uint64_t answered_bytes = one.answered_bytes - request.answered_bytes;
    if (now_ns <= request.sent_ns || answered_bytes < kLeastBytes) {
        return;
    }
    if (now_ns >= one.window_ns + kWindowNs) {
        const bool is_recent = now_ns < one.window_ns + 2 * kWindowNs;
        one.earlier_bytes_per_ms = is_recent ? one.rate_bytes_per_ms : 0;
        one.rate_bytes_per_ms = 0;
        one.window_ns = now_ns;
    }
    const uint64_t rate = answered_bytes * kNsPerMs / (now_ns - request.sent_ns);
    one.rate_bytes_per_ms = std::max({one.rate_bytes_per_ms, rate, uint64_t{1}});
}

void PathLoads::left(uint16_t slot, size_t path) {
    TIFFIN_ASSERT(paths_[path].pending_bytes >= slots_[slot].bytes);
    paths_[path].pending_bytes -= slots_[slot].bytes;
}

void PathLoads::forget() {
    for (OfPath& path : paths_) {
        path.pending_bytes = 0;
    }
}

uint64_t PathLoads::rate_bytes_per_ms(size_t path, uint64_t now_ns) const {
    const OfPath& one = paths_[path];
    const bool is_known = now_ns < one.window_ns + 2 * kWindowNs;
    return is_known ? std::max(one.rate_bytes_per_ms, one.earlier_bytes_per_ms) : 0;
}

size_t PathLoads::best(uint32_t candidates, uint64_t bytes, const SessionMachine& machine,
                       uint64_t now_ns) const {
    TIFFIN_ASSERT(candidates != 0);
    const auto is_candidate = [&](size_t path) { return (candidates >> path & 1) != 0; };
    uint64_t greatest_delay_ns = 0;
    uint64_t greatest_rate = 0;
    for (size_t path = 0; path < SessionMachine::kMaxPaths; path++) {
        if (is_candidate(path)) {
            greatest_delay_ns = std::max(greatest_delay_ns, machine.least_delay_ns(path));
            greatest_rate = std::max(greatest_rate, rate_bytes_per_ms(path, now_ns));
        }
    }
    const uint64_t assumed_rate = greatest_rate != 0 ? greatest_rate : kAssumedBytesPerMs;
    size_t best = SessionMachine::kNoPath;
    uint64_t best_ns = 0;
    for (size_t path = 0; path < SessionMachine::kMaxPaths; path++) {
        const uint64_t known = rate_bytes_per_ms(path, now_ns);
        const uint64_t rate = known != 0 ? known : assumed_rate;
        const uint64_t least_ns = machine.least_delay_ns(path);
        const uint64_t delay_ns = least_ns != 0 ? least_ns : greatest_delay_ns;
        // As much as it needs to show that rate, and not all that is free before its first answer.
        const uint64_t trial_bytes = std::max(kLeastBytes, rate * delay_ns / kNsPerMs);
        const bool is_being_tried =
            known == 0 && greatest_rate != 0 && pending_bytes(path) >= trial_bytes;
        if (!is_candidate(path) || is_being_tried) {
            continue;
        }
        const uint64_t answer_ns = delay_ns + (pending_bytes(path) + bytes) * kNsPerMs / rate;
        if (best == SessionMachine::kNoPath || answer_ns < best_ns) {
            best = path;
            best_ns = answer_ns;
        }
    }
    return best;
}

}  // namespace tiffin::rdma_blk
