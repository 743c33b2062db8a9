// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What it costs here to wake a thread on another processor: from 5 to more than 100 microseconds there and back, in
// virtual machines most, where an idle processor is taken back by the hypervisor.
#pragma once

#include <cstdint>
#include <optional>

namespace tiffin::fuse {

inline constexpr uint32_t kLeastDefaultBusyPollUs = 50;
inline constexpr uint32_t kMostDefaultBusyPollUs = 200;

// The default of the time to poll before sleeping: twice the time that two threads take to wake each other and back,
// between the bounds above. A thread that polls in vain thus wastes about what sleeping costs, and two
// that wait for each other find back to looking after they have slept once. Measured at the first call, in some milliseconds;
// the same ever after.
uint32_t default_busy_poll_us();

// What was given, or else the default, which is measured only then.
inline uint32_t busy_poll_us_or_default(const std::optional<uint32_t>& given_us) {
    return given_us ? *given_us : default_busy_poll_us();
}

// Whether two threads that wake each other take more than kExpensiveWakeNs there and back; measured as above.
bool is_waking_expensive();
inline constexpr uint64_t kExpensiveWakeNs = 25'000;

// The choice from one measurement.
uint32_t busy_poll_us_for(uint64_t wake_round_trip_ns);

}  // namespace tiffin::fuse
