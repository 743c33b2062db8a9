// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffin stats: how many requests a mount has served, and how long they took.
#include <cstdio>
#include <memory>

#include <nlohmann/json.hpp>

#include "fuse/host/size_text.h"
#include "fuse/tools/common/control_client.h"
#include "fuse/tools/tiffin/commands.h"

namespace tiffin::fuse {
namespace {

constexpr double kPercentiles[] = {0.50, 0.90, 0.99, 0.999};

// "870 ns", "12.4 us", "3.10 ms", "2.00 s".
std::string duration_text(uint64_t ns) {
    char text[32];
    auto value = static_cast<double>(ns);
    if (ns < 1'000) {
        snprintf(text, sizeof text, "%llu ns", static_cast<unsigned long long>(ns));
    } else if (ns < 1'000'000) {
        snprintf(text, sizeof text, "%.1f us", value / 1e3);
    } else if (ns < 1'000'000'000) {
        snprintf(text, sizeof text, "%.2f ms", value / 1e6);
    } else {
        snprintf(text, sizeof text, "%.2f s", value / 1e9);
    }
    return text;
}

uint64_t mean_ns(const OperationTotals& totals) {
    return totals.count == 0 ? 0 : totals.total_ns / totals.count;
}

void print_table(const std::vector<NamedTotals>& all) {
    printf("%-16s %12s %8s %12s %10s %10s %10s %10s %10s\n", "request", "count", "errors", "data",
           "mean", "50%", "90%", "99%", "99.9%");
    for (const NamedTotals& named : all) {
        const OperationTotals& totals = named.totals;
        if (totals.count == 0) {
            continue;
        }
        std::string data = totals.bytes == 0 ? "-" : format_size(totals.bytes);
        printf("%-16s %12llu %8llu %12s %10s", named.name.c_str(),
               static_cast<unsigned long long>(totals.count),
               static_cast<unsigned long long>(totals.errors), data.c_str(),
               duration_text(mean_ns(totals)).c_str());
        for (double fraction : kPercentiles) {
            printf(" %10s", duration_text(percentile_ns(totals, fraction)).c_str());
        }
        printf("\n");
    }
}

void print_json(const std::vector<NamedTotals>& all) {
    nlohmann::ordered_json document = nlohmann::ordered_json::object();
    for (const NamedTotals& named : all) {
        const OperationTotals& totals = named.totals;
        nlohmann::ordered_json entry;
        entry["count"] = totals.count;
        entry["errors"] = totals.errors;
        entry["bytes"] = totals.bytes;
        entry["total_ns"] = totals.total_ns;
        entry["mean_ns"] = mean_ns(totals);
        entry["p50_ns"] = percentile_ns(totals, 0.50);
        entry["p90_ns"] = percentile_ns(totals, 0.90);
        entry["p99_ns"] = percentile_ns(totals, 0.99);
        entry["p999_ns"] = percentile_ns(totals, 0.999);
        // Bucket i: at least 2^i and less than 2^(i+1) nanoseconds.
        entry["buckets"] = totals.buckets;
        document[named.name] = std::move(entry);
    }
    printf("%s\n", document.dump(2).c_str());
}

}  // namespace

std::optional<Problem> print_stats(const std::string& mount_point, bool as_json) {
    auto client = ControlClient::open(mount_point);
    if (!client.ok()) {
        return client.problem();
    }
    auto all = client->statistics();
    if (!all.ok()) {
        return all.problem();
    }
    if (as_json) {
        print_json(*all);
    } else {
        print_table(*all);
    }
    return std::nullopt;
}

}  // namespace tiffin::fuse
