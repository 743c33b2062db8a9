// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/tiffin/rates.h"

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

#include "fuse/host/size_text.h"

namespace tiffin::fuse {
namespace {

OperationTotals difference(const OperationTotals& now, const OperationTotals& before) {
    if (now.count < before.count) {
        return now;  // another mount
    }
    // Each counter is read at a moment of its own, so one may be behind.
    const auto since = [](uint64_t a, uint64_t b) { return a > b ? a - b : 0; };
    OperationTotals result;
    result.count = now.count - before.count;
    result.errors = since(now.errors, before.errors);
    result.bytes = since(now.bytes, before.bytes);
    result.total_ns = since(now.total_ns, before.total_ns);
    for (size_t i = 0; i < result.buckets.size(); i++) {
        result.buckets[i] = since(now.buckets[i], before.buckets[i]);
    }
    return result;
}

template <typename... Values>
std::string printed(const char* format, Values... values) {
    char text[48];
    snprintf(text, sizeof text, format, values...);
    return text;
}

}  // namespace

OrProblem<MountSample> take_sample(const std::string& mount_point, bool with_status) {
    auto client = ControlClient::open(mount_point);
    if (!client.ok()) {
        return client.problem();
    }
    MountSample sample;
    sample.when = std::chrono::steady_clock::now();
    auto operations = client->statistics();
    if (!operations.ok()) {
        return operations.problem();
    }
    sample.operations = std::move(*operations);
    if (with_status) {
        auto status = client->text(TextKind::status);
        if (!status.ok()) {
            return status.problem();
        }
        sample.status = std::move(*status);
    }
    return sample;
}

double seconds_between(const MountSample& before, const MountSample& now) {
    return std::max(std::chrono::duration<double>(now.when - before.when).count(), 1e-6);
}

std::vector<OperationRate> rates_between(const MountSample& before, const MountSample& now) {
    const double seconds = seconds_between(before, now);
    std::vector<OperationRate> rates;
    for (size_t i = 0; i < now.operations.size(); i++) {
        OperationRate rate;
        rate.name = now.operations[i].name;
        rate.totals = now.operations[i].totals;
        if (i < before.operations.size() && before.operations[i].name == rate.name) {
            rate.totals = difference(rate.totals, before.operations[i].totals);
        }
        rate.per_s = static_cast<double>(rate.totals.count) / seconds;
        rate.errors_per_s = static_cast<double>(rate.totals.errors) / seconds;
        rate.bytes_per_s = static_cast<double>(rate.totals.bytes) / seconds;
        rates.push_back(std::move(rate));
    }
    return rates;
}

std::string duration_text(uint64_t ns) {
    const auto value = static_cast<double>(ns);
    return ns < 1'000           ? printed("%llu ns", static_cast<unsigned long long>(ns))
           : ns < 1'000'000     ? printed("%.1f us", value / 1e3)
           : ns < 1'000'000'000 ? printed("%.2f ms", value / 1e6)
                                : printed("%.2f s", value / 1e9);
}

std::string bandwidth_text(double bytes_per_s) {
    return bytes_per_s < 0.5 ? "-" : format_size(static_cast<uint64_t>(bytes_per_s)) + "/s";
}

std::string rate_text(double per_s) {
    return printed(per_s >= 99.95 || per_s == 0 ? "%.0f" : "%.1f", per_s);
}

void wait_since(const MountSample& sample, double interval_s) {
    std::this_thread::sleep_until(sample.when +
                                  std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                      std::chrono::duration<double>(interval_s)));
}

}  // namespace tiffin::fuse
