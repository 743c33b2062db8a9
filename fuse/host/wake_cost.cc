// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/wake_cost.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "fs/vfs/host.h"

namespace tiffin::fuse {
namespace {

constexpr size_t kExchanges = 21;

// Programs have handlers of signals.
bool wait_for_event(int descriptor) {
    uint64_t count = 0;
    ssize_t got = 0;
    do {
        got = read(descriptor, &count, sizeof count);
    } while (got < 0 && errno == EINTR);
    return got == sizeof count;
}

bool send_event(int descriptor) {
    const uint64_t one = 1;
    return write(descriptor, &one, sizeof one) == sizeof one;
}

struct Echo {
    int to;
    int fro;
};

void answer_events(void* argument) {
    const Echo& echo = *static_cast<Echo*>(argument);
    for (size_t i = 0; i < kExchanges; i++) {
        if (!wait_for_event(echo.to) || !send_event(echo.fro)) {
            break;
        }
    }
}

// The median of some exchanges, so that neither the first nor one in which somebody else had the processor counts;
// 0: there is no measuring.
uint64_t measure_exchanges(int to, int fro) {
    std::array<uint64_t, kExchanges> times_ns{};
    Echo echo{to, fro};
    host::Thread other;
    if (!other.start("wake cost", answer_events, &echo).ok()) {
        return 0;
    }
    for (uint64_t& time_ns : times_ns) {
        const uint64_t begin_ns = host::monotonic_ns();
        if (!send_event(to) || !wait_for_event(fro)) {
            break;
        }
        time_ns = host::monotonic_ns() - begin_ns;
    }
    other.join();
    std::nth_element(times_ns.begin(), times_ns.begin() + kExchanges / 2, times_ns.end());
    return times_ns[kExchanges / 2];
}

uint64_t measure_wake_round_trip_ns() {
    const int to = eventfd(0, EFD_CLOEXEC);
    const int fro = eventfd(0, EFD_CLOEXEC);
    const uint64_t time_ns = to >= 0 && fro >= 0 ? measure_exchanges(to, fro) : 0;
    for (const int descriptor : {to, fro}) {
        if (descriptor >= 0) {
            close(descriptor);
        }
    }
    return time_ns;
}

}  // namespace

uint32_t busy_poll_us_for(uint64_t wake_round_trip_ns) {
    return static_cast<uint32_t>(std::clamp<uint64_t>(
        2 * wake_round_trip_ns / 1000, kLeastDefaultBusyPollUs, kMostDefaultBusyPollUs));
}

uint32_t default_busy_poll_us() {
    static const uint32_t limit_us = busy_poll_us_for(measure_wake_round_trip_ns());
    return limit_us;
}

}  // namespace tiffin::fuse
