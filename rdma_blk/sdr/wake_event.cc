// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/sdr/wake_event.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "fs/vfs/host.h"

namespace tiffin::rdma_blk::sdr {
namespace {

// Bounds the time of a stop; less than a second.
constexpr uint64_t kLongestSleepNs = 100'000'000;

}  // namespace

WakeEvent::~WakeEvent() {
    if (descriptor_ >= 0) {
        close(descriptor_);
    }
}

Result<void> WakeEvent::open() {
    descriptor_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return descriptor_ < 0 ? Result<void>(static_cast<Error>(errno)) : Result<void>();
}

void WakeEvent::kick() {
    const uint64_t one = 1;
    if (descriptor_ >= 0) {
        // Fails only when the counter is full, and then the thread is awake anyway.
        (void)!write(descriptor_, &one, sizeof(one));
    }
}

bool WakeEvent::sleep(int descriptor, uint64_t until_ns) {
    const uint64_t now_ns = host::monotonic_ns();
    const uint64_t sleep_ns = std::min(until_ns - std::min(until_ns, now_ns), kLongestSleepNs);
    const timespec time{0, static_cast<long>(sleep_ns)};
    pollfd waits[2] = {{descriptor, POLLIN, 0}, {descriptor_, POLLIN, 0}};
    (void)ppoll(waits, 2, &time, nullptr);
    if ((waits[1].revents & POLLIN) == 0) {
        return false;
    }
    uint64_t count = 0;
    (void)!read(descriptor_, &count, sizeof(count));
    return true;
}

}  // namespace tiffin::rdma_blk::sdr
