// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/sdr/udp/path_probe.h"

#include "rdma_blk/sdr/tunables.h"

namespace tiffin::rdma_blk::sdr {

PathProbe::PathProbe(uint32_t least_bytes, uint32_t base_bytes, uint32_t used_bytes,
                     uint32_t most_bytes)
    : least_bytes_(least_bytes),
      base_bytes_(base_bytes),
      used_bytes_(used_bytes),
      most_bytes_(most_bytes),
      narrow_bytes_(most_bytes + 1),
      size_bytes_(base_bytes) {}

bool PathProbe::next_probe(uint64_t now_ns, Probe& probe) {
    if (now_ns < due_ns_) {
        return false;
    }
    if (state_ == State::complete) {  // it may have become wider
        stays_narrow_ = is_too_narrow();
        narrow_bytes_ = most_bytes_ + 1;
        choose(now_ns);
    }
    if (attempts_ == kPathProbeAttempts) {
        narrow_bytes_ = size_bytes_;
        choose(now_ns);
    }
    if (now_ns < due_ns_) {
        return false;  // nothing is left to be tried
    }
    attempts_++;
    due_ns_ = now_ns + kPathProbeTimeoutNs;
    probe = {size_bytes_, ++number_};
    return true;
}

void PathProbe::on_reply(uint64_t now_ns, const Probe& probe) {
    const bool is_answer = state_ != State::complete && attempts_ > 0 &&
                           probe.datagram_bytes == size_bytes_ && probe.number <= number_ &&
                           number_ - probe.number < attempts_;
    if (is_answer) {
        if (confirmed_bytes_ == 0) {
            narrow_bytes_ =
                most_bytes_ + 1;  // what was lost while nothing came says nothing of sizes
        }
        confirmed_bytes_ = size_bytes_;
        choose(now_ns);
    }
}

void PathProbe::on_used_size_came(uint64_t now_ns) {
    const bool is_new = confirmed_bytes_ < used_bytes_ && !is_too_narrow();
    if (is_new && state_ != State::complete) {
        confirmed_bytes_ = used_bytes_;
        choose(now_ns);
    }
}

void PathProbe::on_black_hole(uint64_t now_ns) {
    if (state_ == State::complete) {
        confirmed_bytes_ = 0;
        narrow_bytes_ = most_bytes_ + 1;
        choose(now_ns);
    }
}

// The next size, after something was learnt.
void PathProbe::choose(uint64_t now_ns) {
    attempts_ = 0;
    due_ns_ = now_ns;
    stays_narrow_ = stays_narrow_ && confirmed_bytes_ < used_bytes_;
    if (confirmed_bytes_ == 0) {
        // Not even the smallest: whatever the reason is, it may pass.
        const bool has_failed = narrow_bytes_ <= least_bytes_;
        state_ = has_failed || state_ == State::error ? State::error : State::base;
        due_ns_ = has_failed ? now_ns + kPathProbeTimeoutNs : now_ns;
        narrow_bytes_ = has_failed ? most_bytes_ + 1 : narrow_bytes_;
        size_bytes_ = narrow_bytes_ <= base_bytes_ ? least_bytes_ : base_bytes_;
        return;
    }
    state_ = State::searching;
    if (confirmed_bytes_ < used_bytes_ && used_bytes_ < narrow_bytes_) {
        size_bytes_ = used_bytes_;
    } else if (confirmed_bytes_ < most_bytes_ && narrow_bytes_ > most_bytes_) {
        size_bytes_ = most_bytes_;  // often it is the answer
    } else if (narrow_bytes_ - confirmed_bytes_ > kPathProbeStepBytes) {
        size_bytes_ = confirmed_bytes_ + (narrow_bytes_ - confirmed_bytes_) / 2;
    } else {
        state_ = State::complete;
        due_ns_ = now_ns + kPathRaiseNs;
    }
}

}  // namespace tiffin::rdma_blk::sdr
