// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/way_choice.h"

#include <algorithm>

#include "fs/vfs/host.h"

namespace tiffin::rdma_blk {
namespace {

uint64_t bytes_of(const Operation& operation) {
    uint64_t sum = 0;
    for (size_t index = 0; index < operation.buffer_count; index++) {
        sum += operation.buffers[index].size_bytes;
    }
    return sum;
}

}  // namespace

// ---- When there is a trial ----------------------------------------------------------------------------------

// While datagrams are the way, the stream tells nothing: they are tried against it now and then.
void WayChoice::look(uint64_t now_ns, const StreamCounts& counts) {
    next_look_ns_ = now_ns + kLookNs;
    if (is_trying_ || is_trial_due_) {
        return;
    }
    if (now_ns < quiet_until_ns_ || counts.packets < seen_.packets) {
        seen_ = counts;  // of this time, or of another connection
        return;
    }
    const uint64_t packets = counts.packets - seen_.packets;
    const uint64_t lost = counts.lost - std::min(counts.lost, seen_.lost);
    const bool has_lost = lost >= options_.least_losses &&
                          lost * 1'000'000 >= packets * uint64_t{options_.least_loss_ppm};
    if (has_lost || options_.least_losses == 0 || way_ == Way::datagrams) {
        is_trial_due_ = true;
        if (has_datagrams_) {
            begin_trial();
        }
    }
}

void WayChoice::datagrams_begin() {
    has_datagrams_ = true;
    if (is_trial_due_) {
        begin_trial();
    }
}

// A trial that was due stays so: it begins again with the next connection.
void WayChoice::datagrams_end() {
    has_datagrams_ = false;
    is_trial_due_ = is_trial_due_ || is_trying_;
    is_trying_ = false;
}

void WayChoice::datagrams_failed(uint64_t now_ns) {
    has_datagrams_ = false;
    is_trial_due_ = false;
    is_trying_ = false;
    pause(now_ns, Way::stream);
}

void WayChoice::begin_trial() {
    is_trial_due_ = false;
    is_trying_ = true;
    trial_++;
    sent_ = 0;
    done_ = 0;
    for (auto& way : sums_) {
        for (Sum& sum : way) {
            sum = Sum{};
        }
    }
}

void WayChoice::pause(uint64_t now_ns, Way way) {
    pause_ns_ = way == way_ ? std::min(2 * pause_ns_, kMostPauseNs) : kLeastPauseNs;
    way_ = way;
    quiet_until_ns_ = now_ns + pause_ns_;
}

// ---- Requests -------------------------------------------------------------------------------------------------

WayChoice::Load WayChoice::load_of(const Operation& operation) {
    const bool is_large = bytes_of(operation) > kLargeBytes;
    switch (operation.kind) {
        case OperationKind::read:
            return is_large ? Load::large_read : Load::small_read;
        case OperationKind::write:
            return is_large ? Load::large_write : Load::small_write;
        default:
            return Load::none;  // a flush may wait for a disk
    }
}

WayChoice::Way WayChoice::turn(uint32_t request) const {
    return request / options_.window_requests % 2 == 0 ? Way::stream : Way::datagrams;
}

WayChoice::Way WayChoice::way() const {
    if (!has_datagrams_) {
        return Way::stream;
    }
    const bool takes_turns = is_trying_ && sent_ < 2 * kTurns * options_.window_requests;
    return takes_turns ? turn(sent_) : way_;
}

// All that were sent in a trial are waited for: who stopped after so many answers would not hear of the slow ones.
uint32_t WayChoice::sent(Load load) {
    if (!is_trying_ || load == Load::none || sent_ == 2 * kTurns * options_.window_requests) {
        return 0;
    }
    sent_++;
    return 2 * trial_ + static_cast<uint32_t>(turn(sent_ - 1));
}

void WayChoice::done(uint64_t now_ns, uint32_t mark, const Operation& operation,
                     uint64_t duration_ns) {
    if (!is_trying_ || mark / 2 != trial_) {
        return;  // 0, or of a trial that was cut off
    }
    const Load load = load_of(operation);
    TIFFIN_ASSERT(load != Load::none);
    Sum& sum = sums_[mark % 2][static_cast<size_t>(load)];
    sum.requests++;
    sum.units += load == Load::large_read || load == Load::large_write ? bytes_of(operation) : 1;
    sum.duration_ns += duration_ns;
    done_++;
    if (done_ == 2 * kTurns * options_.window_requests) {
        judge(now_ns);
    }
}

// What all of the trial's requests would have taken on either way, by the means of each load.
void WayChoice::judge(uint64_t now_ns) {
    double total_ns[2] = {0, 0};
    for (size_t load = 0; load < kLoads; load++) {
        const Sum& stream = sums_[0][load];
        const Sum& datagrams = sums_[1][load];
        if (std::min(stream.requests, datagrams.requests) < kLeastRequests) {
            continue;
        }
        const auto units = static_cast<double>(stream.units + datagrams.units);
        for (size_t way = 0; way < 2; way++) {
            const Sum& sum = sums_[way][load];
            total_ns[way] +=
                static_cast<double>(sum.duration_ns) / static_cast<double>(sum.units) * units;
        }
    }
    verdict_ns_[0] = static_cast<uint64_t>(total_ns[0]);
    verdict_ns_[1] = static_cast<uint64_t>(total_ns[1]);
    is_trying_ = false;
    // The other way has to be better by a tenth.
    const bool stays =
        way_ == Way::stream ? total_ns[1] > 0.9 * total_ns[0] : total_ns[0] > 0.9 * total_ns[1];
    const Way other = way_ == Way::stream ? Way::datagrams : Way::stream;
    pause(now_ns, stays || total_ns[0] == 0 ? way_ : other);
}

}  // namespace tiffin::rdma_blk
