// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/wake_cost.h"

#include <errno.h>
#include <sched.h>
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

// The calling thread goes to the first or the second processor that it may use. Left to the scheduler, two threads that
// wake each other often share one, where it costs next to nothing; a server elsewhere does not. With a single
// processor nothing changes.
void use_processor(int which) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < 2) {
        return;
    }
    int passed = 0;
    for (int processor = 0; processor < CPU_SETSIZE; processor++) {
        if (CPU_ISSET(processor, &allowed) && passed++ == which) {
            cpu_set_t only;
            CPU_ZERO(&only);
            CPU_SET(processor, &only);
            (void)sched_setaffinity(0, sizeof(only), &only);
            return;
        }
    }
}

struct Echo {
    int to;
    int fro;
    uint64_t median_ns = 0;  // what the asker has seen; 0: nothing
};

void answer_events(void* argument) {
    const Echo& echo = *static_cast<Echo*>(argument);
    use_processor(1);
    for (size_t i = 0; i < kExchanges; i++) {
        if (!wait_for_event(echo.to) || !send_event(echo.fro)) {
            break;
        }
    }
}

// The median of some exchanges, so that neither the first nor one in which another thread had the processor counts.
void ask_events(Echo& echo) {
    std::array<uint64_t, kExchanges> times_ns{};
    for (uint64_t& time_ns : times_ns) {
        const uint64_t begin_ns = host::monotonic_ns();
        if (!send_event(echo.to) || !wait_for_event(echo.fro)) {
            break;
        }
        time_ns = host::monotonic_ns() - begin_ns;
    }
    std::nth_element(times_ns.begin(), times_ns.begin() + kExchanges / 2, times_ns.end());
    echo.median_ns = times_ns[kExchanges / 2];
}

// A thread of its own asks, as the caller may go on using all processors. 0: there is no measuring.
uint64_t measure_exchanges(int to, int fro) {
    Echo echo{to, fro};
    const auto ask_elsewhere = [](void* argument) {
        use_processor(0);
        ask_events(*static_cast<Echo*>(argument));
    };
    host::Thread answering;
    host::Thread asking;
    if (!answering.start("wake cost", answer_events, &echo).ok()) {
        return 0;
    }
    if (asking.start("wake cost", ask_elsewhere, &echo).ok()) {
        asking.join();
    } else {
        ask_events(echo);
    }
    answering.join();
    return echo.median_ns;
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

uint64_t wake_round_trip_ns() {
    static const uint64_t time_ns = measure_wake_round_trip_ns();
    return time_ns;
}

}  // namespace

uint32_t busy_poll_us_for(uint64_t wake_round_trip_ns) {
    return static_cast<uint32_t>(std::clamp<uint64_t>(
        2 * wake_round_trip_ns / 1000, kLeastDefaultBusyPollUs, kMostDefaultBusyPollUs));
}

uint32_t default_busy_poll_us() { return busy_poll_us_for(wake_round_trip_ns()); }

bool is_waking_expensive() { return wake_round_trip_ns() > kExpensiveWakeNs; }

}  // namespace tiffin::fuse
