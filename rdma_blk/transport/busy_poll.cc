// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/busy_poll.h"

#include <sched.h>

#include <algorithm>

#include "fs/vfs/host.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint64_t kMicrosecondNs = 1000;

bool has_one_processor() {
    cpu_set_t processors;
    return sched_getaffinity(0, sizeof(processors), &processors) == 0 &&
           CPU_COUNT(&processors) == 1;
}

}  // namespace

BusyPoll::BusyPoll(uint32_t limit_us)
    : limit_ns_(has_one_processor() ? 0 : limit_us * kMicrosecondNs) {}

bool BusyPoll::begin() {
    if (limit_ns_ == 0) {
        return false;
    }
    began_ns_ = host::monotonic_ns();
    return pays_ && began_ns_ >= rests_until_ns_;
}

bool BusyPoll::yield() {
    sched_yield();
    const uint64_t now_ns = host::monotonic_ns();
    if (now_ns - began_ns_ < limit_ns_) {
        return true;
    }
    rests_until_ns_ = now_ns + rest_ns_;
    rest_ns_ = std::min(2 * rest_ns_, kMostRestNs);
    met_ = 0;
    return false;
}

void BusyPoll::slept() {
    if (limit_ns_ != 0) {
        pays_ = host::monotonic_ns() - began_ns_ < limit_ns_;
    }
}

}  // namespace tiffin::rdma_blk
