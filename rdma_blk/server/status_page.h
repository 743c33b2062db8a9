// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The server's page for people: volumes, clients, errors, and what has gone on in the last minutes. One HTML document that
// loads nothing; texts of clients in it are escaped.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fs/vfs/host.h"
#include "rdma_blk/server/server.h"

namespace tiffin::rdma_blk {

// What the log has had, as the page shows it.
struct LogSummary {
    uint64_t warnings = 0;
    uint64_t errors = 0;
    int64_t last_error_ns = 0;  // since 1970; 0: there was none
    std::string last_error;
};

// `text` for HTML, between tags or in an attribute in quotes.
std::string html_escaped(const std::string& text);

class StatusPage {
  public:
    static constexpr uint64_t kSampleSeconds = 5;
    static constexpr size_t kPoints = 120;  // ten minutes

    // The server outlives it. `log` may be called from any thread.
    StatusPage(Server& server, std::function<LogSummary()> log)
        : server_(server), log_(std::move(log)) {}

    // Every kSampleSeconds, or nearly: what has been done since the last time becomes a point of the plot. One thread.
    void sample(uint64_t now_ns) EXCLUDES(mutex_);
    // Any thread.
    std::string html(uint64_t now_ns, int64_t realtime_ns) EXCLUDES(mutex_);

  private:
    struct Counts {
        uint64_t requests = 0;
        uint64_t read_bytes = 0;
        uint64_t written_bytes = 0;
    };
    // Of a second.
    struct Rates {
        double requests = 0;
        double read_bytes = 0;
        double written_bytes = 0;
    };

    std::string plot() const REQUIRES(mutex_);
    std::string plot_line(const char* name, double Rates::*value, double most) const
        REQUIRES(mutex_);
    std::string volume_rows(const std::vector<VolumeInfo>& volumes) const REQUIRES(mutex_);
    std::string client_rows(const std::vector<VolumeInfo>& volumes, uint64_t now_ns) const;
    std::string problems(int64_t realtime_ns) const;

    Server& server_;
    const std::function<LogSummary()> log_;
    host::Mutex mutex_{host::LockClass::leaf};
    uint64_t sampled_ns_ GUARDED_BY(mutex_) = 0;  // 0: not yet
    std::map<std::string, Counts> counts_ GUARDED_BY(mutex_);
    std::map<std::string, Rates> rates_ GUARDED_BY(mutex_);
    std::deque<Rates> points_ GUARDED_BY(mutex_);  // of all volumes, the newest last
};

}  // namespace tiffin::rdma_blk
