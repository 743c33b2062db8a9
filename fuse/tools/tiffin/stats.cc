// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffin stats: how many requests a mount has served, and how long they took; since its start, or at intervals.
#include <cerrno>
#include <cstdio>
#include <memory>

#include <nlohmann/json.hpp>

#include "fuse/host/size_text.h"
#include "fuse/tools/common/control_client.h"
#include "fuse/tools/common/output.h"
#include "fuse/tools/tiffin/commands.h"
#include "fuse/tools/tiffin/rates.h"

namespace tiffin::fuse {
namespace {

constexpr double kPercentiles[] = {0.50, 0.90, 0.99, 0.999};

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

nlohmann::ordered_json json_of(const OperationTotals& totals) {
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
    return entry;
}

void print_json(const std::vector<NamedTotals>& all) {
    nlohmann::ordered_json document = nlohmann::ordered_json::object();
    for (const NamedTotals& named : all) {
        document[named.name] = json_of(named.totals);
    }
    printf("%s\n", document.dump(2).c_str());
}

void print_rates(const std::vector<OperationRate>& rates, double seconds) {
    printf("%-16s %10s %10s %14s %10s %10s %10s    %.1f s\n", "request", "per s", "errors/s",
           "data", "mean", "50%", "99%", seconds);
    for (const OperationRate& rate : rates) {
        if (rate.totals.count != 0) {
            printf("%-16s %10s %10s %14s %10s %10s %10s\n", rate.name.c_str(),
                   rate_text(rate.per_s).c_str(), rate_text(rate.errors_per_s).c_str(),
                   bandwidth_text(rate.bytes_per_s).c_str(),
                   duration_text(mean_ns(rate.totals)).c_str(),
                   duration_text(percentile_ns(rate.totals, 0.50)).c_str(),
                   duration_text(percentile_ns(rate.totals, 0.99)).c_str());
        }
    }
}

// One line, so that a program can read them one by one.
void print_json_rates(const std::vector<OperationRate>& rates, double seconds) {
    nlohmann::ordered_json document;
    document["seconds"] = seconds;
    document["operations"] = nlohmann::ordered_json::object();
    for (const OperationRate& rate : rates) {
        nlohmann::ordered_json entry = json_of(rate.totals);
        entry["per_s"] = rate.per_s;
        entry["bytes_per_s"] = rate.bytes_per_s;
        document["operations"][rate.name] = std::move(entry);
    }
    printf("%s\n", document.dump().c_str());
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

std::optional<Problem> watch_stats(const std::string& mount_point, double interval_s,
                                   uint64_t count, bool as_json) {
    auto before = take_sample(mount_point, false);
    for (uint64_t i = 0; before.ok() && (count == 0 || i < count); i++) {
        wait_since(*before, interval_s);
        auto now = take_sample(mount_point, false);
        if (now.ok()) {
            const std::vector<OperationRate> rates = rates_between(*before, *now);
            (as_json ? print_json_rates : print_rates)(rates, seconds_between(*before, *now));
            if (!flush_output()) {
                return std::nullopt;  // told at the end
            }
        }
        before = std::move(now);
    }
    return before.ok() ? std::nullopt : std::optional(before.problem());
}

}  // namespace tiffin::fuse
