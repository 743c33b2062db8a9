// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffin top: what a mount is doing now.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuse/host/status_text.h"
#include "fuse/tools/tiffin/commands.h"
#include "fuse/tools/tiffin/rates.h"
#include "fuse/tools/tiffin/screen.h"
#include "rdma_blk/transport/open.h"

namespace tiffin::fuse {
namespace {

using Lines = std::vector<std::string>;

template <typename... Values>
std::string row(const char* format, const Values&... values) {
    char text[256];
    snprintf(text, sizeof text, format, values.c_str()...);
    return text;
}

using Status = std::map<std::string, std::string>;

// The lines of a status, by key.
Status parse_status(const std::string& text) {
    Status status;
    for_each_status_line(text, [&](std::string_view key, std::string_view value) {
        status[std::string(key)] = value;
    });
    return status;
}

std::string value_of(const Status& status, const std::string& key) {
    const auto found = status.find(key);
    return found == status.end() ? "" : found->second;
}

uint64_t number_of(const Status& status, const std::string& key) {
    return std::strtoull(value_of(status, key).c_str(), nullptr, 10);
}

// What has been added to a counter of the status in each second.
double growth_per_s(const Status& before, const Status& now, const std::string& key,
                    double seconds) {
    const uint64_t old = number_of(before, key);
    const uint64_t fresh = number_of(now, key);
    return fresh < old ? 0 : static_cast<double>(fresh - old) / seconds;
}

void add_head(const std::string& mount_point, const std::vector<OperationRate>& rates,
              const Status& status, double seconds, Lines& lines) {
    OperationTotals all;
    double bytes_per_s = 0;
    for (const OperationRate& rate : rates) {
        all.count += rate.totals.count;
        all.errors += rate.totals.errors;
        bytes_per_s += rate.bytes_per_s;
    }
    // One of them asks for this.
    const uint64_t under_way = number_of(status, "requests under way");
    lines.push_back("tiffin top  " + mount_point + "  " + value_of(status, "device") + "  " +
                    value_of(status, "state") + ", up " + value_of(status, "uptime"));
    lines.push_back(
        rate_text(static_cast<double>(all.count) / seconds) + " requests/s  " +
        rate_text(static_cast<double>(all.errors) / seconds) + " errors/s  " +
        bandwidth_text(bytes_per_s) + "  " +
        (status.contains("requests under way")
             ? std::to_string(under_way - std::min<uint64_t>(under_way, 1)) + " under way"
             : "") +
        "  in " + duration_text(static_cast<uint64_t>(seconds * 1e9)));
}

void add_operations(std::vector<OperationRate> rates, Lines& lines) {
    std::stable_sort(rates.begin(), rates.end(),
                     [](const auto& a, const auto& b) { return a.totals.count > b.totals.count; });
    lines.emplace_back();
    lines.push_back(row("%-16s %9s %9s %9s %9s %9s %12s", std::string("REQUEST"),
                        std::string("per s"), std::string("50%"), std::string("99%"),
                        std::string("mean"), std::string("errors/s"), std::string("data")));
    for (const OperationRate& rate : rates) {
        if (rate.totals.count != 0) {
            lines.push_back(row("%-16s %9s %9s %9s %9s %9s %12s", rate.name, rate_text(rate.per_s),
                                duration_text(percentile_ns(rate.totals, 0.50)),
                                duration_text(percentile_ns(rate.totals, 0.99)),
                                duration_text(mean_ns(rate.totals)), rate_text(rate.errors_per_s),
                                bandwidth_text(rate.bytes_per_s)));
        }
    }
}

// "server HOST:PORT state" and so on; "server HOST:PORT link N" where it has several.
void add_servers(const Status& before, const Status& now, double seconds, Lines& lines) {
    constexpr std::string_view kServer = "server ";
    constexpr std::string_view kState = " state";
    bool has_title = false;
    for (const auto& [key, state] : now) {
        if (!key.starts_with(kServer) || !key.ends_with(kState)) {
            continue;
        }
        if (!std::exchange(has_title, true)) {
            lines.emplace_back();
            lines.push_back(row("%-28s %-14s %12s %12s %12s", std::string("SERVER"),
                                std::string("state"), std::string("operations/s"),
                                std::string("read"), std::string("written")));
        }
        const std::string prefix = key.substr(0, key.size() - kState.size() + 1);
        const std::string name = prefix.substr(kServer.size(), prefix.size() - kServer.size() - 1);
        const auto growth = [&](const char* what) {
            return growth_per_s(before, now, prefix + what, seconds);
        };
        const std::string transport = value_of(now, prefix + "transport");
        lines.push_back(row("%-28s %-14s %12s %12s %12s",
                            name + " " + transport.substr(0, transport.find(' ')), state,
                            rate_text(growth("operations")), bandwidth_text(growth("bytes read")),
                            bandwidth_text(growth("bytes written"))));
        for (size_t link = 1; link <= rdma_blk::kMaxLinks; link++) {
            std::string line = "link " + std::to_string(link);
            if (!now.contains(prefix + line)) {
                continue;  // it was removed
            }
            const std::string state_of_link = value_of(now, prefix + line);
            line.insert(0, "  ").append(": ").append(state_of_link);
            lines.push_back(std::move(line));
        }
    }
}

Lines picture(const std::string& mount_point, const MountSample& before, const MountSample& now) {
    const double seconds = seconds_between(before, now);
    const std::vector<OperationRate> rates = rates_between(before, now);
    const Status status = parse_status(now.status);
    Lines lines;
    add_head(mount_point, rates, status, seconds, lines);
    add_servers(parse_status(before.status), status, seconds, lines);
    add_operations(rates, lines);
    return lines;
}

std::optional<Problem> show(const std::string& mount_point, double interval_s, Screen& screen) {
    screen.draw({"tiffin top  " + mount_point, "waiting for the first interval; q ends"});
    auto before = take_sample(mount_point, true);
    while (before.ok()) {
        const auto until = before->when + std::chrono::duration<double>(interval_s);
        std::chrono::duration<double> left(0);
        while ((left = until - std::chrono::steady_clock::now()).count() > 0) {
            if (!screen.wait(left.count())) {
                return std::nullopt;
            }
        }
        auto now = take_sample(mount_point, true);
        if (now.ok()) {
            screen.draw(picture(mount_point, *before, *now));
        }
        before = std::move(now);
    }
    return before.problem();
}

}  // namespace

std::optional<Problem> run_top(const std::string& mount_point, double interval_s) {
    if (isatty(STDOUT_FILENO) == 0) {
        return Problem{"standard output is not a terminal: use tiffin stats --interval SECONDS"};
    }
    return run_on_screen([&](Screen& screen) { return show(mount_point, interval_s, screen); });
}

}  // namespace tiffin::fuse
