// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a mount has done between two moments, for tiffin stats --interval and tiffin top.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "fuse/host/problem.h"
#include "fuse/tools/common/control_client.h"

namespace tiffin::fuse {

// What a mount says at one moment.
struct MountSample {
    std::chrono::steady_clock::time_point when;
    std::vector<NamedTotals> operations;
    std::string status;  // lines "key: value"; empty unless asked for
};

// Opens the mount and closes it again: watching a mount does not keep it from being unmounted.
OrProblem<MountSample> take_sample(const std::string& mount_point, bool with_status);

// One operation between two samples.
struct OperationRate {
    std::string name;
    OperationTotals totals;  // of the time between
    double per_s = 0;
    double errors_per_s = 0;
    double bytes_per_s = 0;
};

double seconds_between(const MountSample& before, const MountSample& now);

// All operations, in the order of the samples. After a new mount at the same place, that of the new one since its start.
std::vector<OperationRate> rates_between(const MountSample& before, const MountSample& now);

// "870 ns", "12.4 us", "3.10 ms", "2.00 s".
std::string duration_text(uint64_t ns);
// "12.4 MiB/s"; "-" for nothing.
std::string bandwidth_text(double bytes_per_s);
// "0.5", "12.0", "123", as many digits as fit a column.
std::string rate_text(double per_s);

// Waits for the interval that began with the sample.
void wait_since(const MountSample& sample, double interval_s);

}  // namespace tiffin::fuse
