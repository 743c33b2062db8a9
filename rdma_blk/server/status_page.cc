// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/server/status_page.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

namespace tiffin::rdma_blk {
namespace {

constexpr const char* kHead = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="refresh" content="5"><title>tiffind</title><style>
:root{color-scheme:light dark;--line:#8884;--quiet:#777;--read:#2a78d6;--written:#d9730d;--bad:#c62828}
body{font:15px/1.45 system-ui,sans-serif;max-width:76rem;margin:1.5rem auto;padding:0 1rem}
h1{font-size:1.4rem;margin:0}h2{font-size:1.05rem;margin:1.8rem 0 .4rem}p{margin:.3rem 0}
.quiet,th{color:var(--quiet);font-weight:400}.bad{color:var(--bad)}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%}
td,th{text-align:left;padding:.3rem .9rem .3rem 0;border-bottom:1px solid var(--line);white-space:nowrap}
td.text{white-space:normal;overflow-wrap:anywhere;min-width:8rem}
.n{text-align:right;font-variant-numeric:tabular-nums}
svg{width:100%;height:9rem;border:1px solid var(--line);border-left:0;border-right:0}
polyline{fill:none;stroke-width:2;vector-effect:non-scaling-stroke}
.read{stroke:var(--read)}.written{stroke:var(--written)}
.key{display:inline-block;width:1.2rem;height:.2rem;margin:0 .3rem .2rem .8rem}
</style></head><body>
)";

template <typename... Values>
std::string printed(const char* format, Values... values) {
    char text[160];
    snprintf(text, sizeof(text), format, values...);
    return text;
}

std::string size_text(double bytes) {
    constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    while (bytes >= 1024 && unit + 1 < std::size(kUnits)) {
        bytes /= 1024;
        unit++;
    }
    const bool has_decimal = unit > 0 && bytes < 100 && bytes != static_cast<uint64_t>(bytes);
    return printed(has_decimal ? "%.1f %s" : "%.0f %s", bytes, kUnits[unit]);
}

std::string number_cell(const std::string& text) { return "<td class=n>" + text + "</td>"; }
std::string text_cell(const std::string& text) {
    return "<td class=text>" + html_escaped(text) + "</td>";
}

// A table of rows that may be none.
std::string table(const char* title, const std::string& head, const std::string& rows,
                  const char* without_rows) {
    std::string text = std::string("<h2>") + title + "</h2>\n";
    if (rows.empty()) {
        return text + "<p class=quiet>" + without_rows + "</p>\n";
    }
    return text + "<div class=scroll><table><tr>" + head + "</tr>\n" + rows + "</table></div>\n";
}

double per_second(uint64_t now, uint64_t before, double seconds) {
    return now > before ? static_cast<double>(now - before) / seconds : 0;
}

std::string ago(int64_t ns) {
    const int64_t seconds = std::max<int64_t>(ns / 1'000'000'000, 0);
    return seconds < 120    ? std::to_string(seconds) + " s"
           : seconds < 7200 ? std::to_string(seconds / 60) + " min"
                            : std::to_string(seconds / 3600) + " h";
}

std::string time_text(int64_t realtime_ns) {
    const auto seconds = static_cast<time_t>(realtime_ns / 1'000'000'000);
    tm parts{};
    gmtime_r(&seconds, &parts);
    char text[40];
    return std::string(text, strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &parts));
}

}  // namespace

std::string html_escaped(const std::string& text) {
    std::string result;
    for (const char letter : text) {
        switch (letter) {
            case '&':
                result += "&amp;";
                break;
            case '<':
                result += "&lt;";
                break;
            case '>':
                result += "&gt;";
                break;
            case '"':
                result += "&quot;";
                break;
            case '\'':
                result += "&#39;";
                break;
            default:
                result += letter;
        }
    }
    return result;
}

void StatusPage::sample(uint64_t now_ns) {
    std::map<std::string, Counts> counts;
    for (const VolumeInfo& info : server_.list_volumes()) {
        const auto volume = server_.find_volume(info.name.c_str());
        if (!volume) {
            continue;  // deleted meanwhile
        }
        const VolumeCounters& counters = volume->counters();
        Counts& now = counts[info.name];
        for (const Counter& requests : counters.requests) {
            now.requests += requests.load();
        }
        now.read_bytes = counters.bytes_read.load();
        now.written_bytes = counters.bytes_written.load();
    }
    MutexLock lock(mutex_);
    const double seconds = static_cast<double>(now_ns - sampled_ns_) / 1e9;
    if (sampled_ns_ != 0 && seconds > 0) {
        Rates all;
        rates_.clear();
        for (const auto& [name, now] : counts) {
            const Counts before = counts_[name];  // zero for a new one
            Rates& rates = rates_[name];
            rates.requests = per_second(now.requests, before.requests, seconds);
            rates.read_bytes = per_second(now.read_bytes, before.read_bytes, seconds);
            rates.written_bytes = per_second(now.written_bytes, before.written_bytes, seconds);
            all.requests += rates.requests;
            all.read_bytes += rates.read_bytes;
            all.written_bytes += rates.written_bytes;
        }
        points_.push_back(all);
        if (points_.size() > kPoints) {
            points_.pop_front();
        }
    }
    counts_ = std::move(counts);
    sampled_ns_ = now_ns;
}

std::string StatusPage::plot_line(const char* name, double Rates::*value, double most) const {
    std::string text = std::string("<polyline class=") + name + " points=\"";
    size_t x = kPoints - points_.size();
    for (const Rates& point : points_) {
        text += printed("%zu,%.1f ", x++, 100 - 96 * point.*value / most);
    }
    return text + "\"/>";
}

std::string StatusPage::plot() const {
    double most = 1;
    for (const Rates& point : points_) {
        most = std::max({most, point.read_bytes, point.written_bytes});
    }
    const Rates now = points_.empty() ? Rates() : points_.back();
    return "<h2>The last ten minutes</h2>\n<p>" + printed("%.0f requests/s", now.requests) +
           "<span class=key style=\"background:var(--read)\"></span>read " +
           size_text(now.read_bytes) +
           "/s<span class=key style=\"background:var(--written)\"></span>written " +
           size_text(now.written_bytes) +
           "/s <span class=quiet>&nbsp; top of the plot: " + size_text(most) + "/s</span></p>\n" +
           printed(
               "<svg viewBox=\"0 0 %zu 100\" preserveAspectRatio=none role=img "
               "aria-label=\"Bytes read and written\">",
               kPoints - 1) +
           plot_line("read", &Rates::read_bytes, most) +
           plot_line("written", &Rates::written_bytes, most) +
           "</svg>\n<p class=quiet>Clients that access the memory directly (transports shm and rc) "
           "are not counted.</p>\n";
}

std::string StatusPage::volume_rows(const std::vector<VolumeInfo>& volumes) const {
    std::string rows;
    for (const VolumeInfo& info : volumes) {
        const auto found = rates_.find(info.name);
        const Rates rates = found == rates_.end() ? Rates() : found->second;
        rows += "<tr>" + text_cell(info.name) +
                number_cell(size_text(static_cast<double>(info.data_bytes))) +
                number_cell(size_text(static_cast<double>(info.memory_bytes))) +
                text_cell(info.holder.empty() ? "none" : info.holder) +
                number_cell(std::to_string(info.connected_session_count) + " of " +
                            std::to_string(info.session_count)) +
                number_cell(printed("%.0f", rates.requests)) +
                number_cell(size_text(rates.read_bytes)) +
                number_cell(size_text(rates.written_bytes)) +
                text_cell(info.backing.empty() ? "none" : info.backing) + "</tr>\n";
    }
    return rows;
}

std::string StatusPage::client_rows(const std::vector<VolumeInfo>& volumes, uint64_t now_ns) const {
    constexpr size_t kMostRows = 500;
    std::string rows;
    size_t count = 0;
    for (const VolumeInfo& info : volumes) {
        const auto volume = server_.find_volume(info.name.c_str());
        for (const SessionInfo& session :
             volume ? volume->sessions(now_ns) : std::vector<SessionInfo>()) {
            if (++count > kMostRows) {
                return rows + "<tr><td colspan=6>and more</td></tr>\n";
            }
            rows +=
                "<tr>" + text_cell(session.name.empty() ? "without a name" : session.name) +
                text_cell(info.name) + "<td>" +
                (session.is_fenced ? "fenced off"
                 : session.writes  ? "writes"
                                   : "reads") +
                "</td><td>" +
                (session.path_count == 0 ? "<span class=bad>disconnected</span>" : "connected") +
                "</td>" + number_cell(std::to_string(session.path_count)) +
                number_cell(ago(static_cast<int64_t>(session.silent_ms) * 1'000'000)) + "</tr>\n";
        }
    }
    return rows;
}

std::string StatusPage::problems(int64_t realtime_ns) const {
    std::string rows;
    for (const auto& [name, reason] : server_.failed_volumes()) {
        rows +=
            "<tr><td class=bad>not served</td>" + text_cell(name) + text_cell(reason) + "</tr>\n";
    }
    const LogSummary log = log_();
    if (log.last_error_ns != 0) {
        rows += "<tr><td>last error</td><td>" + time_text(log.last_error_ns) +
                "<br><span class=quiet>" + ago(realtime_ns - log.last_error_ns) +
                " ago</span></td>" + text_cell(log.last_error) + "</tr>\n";
    }
    const ServerCounters& counters = server_.counters();
    return table("Problems", "<th><th><th>", rows, "No errors.") + "<p class=quiet>" +
           printed("Log: %llu errors, %llu warnings. ", static_cast<unsigned long long>(log.errors),
                   static_cast<unsigned long long>(log.warnings)) +
           printed("Connections refused: %llu by key, %llu for lack of room. ",
                   static_cast<unsigned long long>(counters.handshakes_denied.load()),
                   static_cast<unsigned long long>(counters.connections_refused.load())) +
           printed("Connections closed: %llu silent, %llu stalled, %llu with malformed messages.",
                   static_cast<unsigned long long>(counters.silent_connections.load()),
                   static_cast<unsigned long long>(counters.stalled_connections.load()),
                   static_cast<unsigned long long>(counters.malformed_messages.load())) +
           "</p>\n";
}

std::string StatusPage::html(uint64_t now_ns, int64_t realtime_ns) {
    const std::vector<VolumeInfo> volumes = server_.list_volumes();
    std::string text = kHead;
    text += "<h1>tiffind</h1>\n<p class=quiet>" + time_text(realtime_ns) + " &nbsp; " +
            "connections: " + std::to_string(server_.connection_count()) +
            " &nbsp; memory: " + size_text(static_cast<double>(server_.memory_bytes())) + " of " +
            size_text(static_cast<double>(server_.memory_limit_bytes())) +
            " &nbsp; <a href=\"/metrics\">metrics for Prometheus</a></p>\n";
    {
        MutexLock lock(mutex_);
        text += plot();
        text += table("Volumes",
                      "<th>Name<th class=n>Size<th class=n>Memory<th>Writer<th class=n>Connected"
                      "<th class=n>Requests/s<th class=n>Read/s<th class=n>Written/s<th>Backing",
                      volume_rows(volumes),
                      "There is no volume: create one with tiffin volume create.");
    }
    text += table("Clients",
                  "<th>Client<th>Volume<th>Access<th>State<th class=n>Paths<th class=n>Silent for",
                  client_rows(volumes, now_ns), "No client has a session.");
    text += problems(realtime_ns);
    return text + "</body></html>\n";
}

}  // namespace tiffin::rdma_blk
