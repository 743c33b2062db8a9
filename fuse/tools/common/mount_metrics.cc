// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/common/mount_metrics.h"

#include <chrono>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "fs/vfs/host.h"
#include "fuse/host/release_wait.h"
#include "fuse/host/status_text.h"
#include "fuse/session/version.h"
#include "fuse/tools/common/remote_metrics.h"

namespace tiffin::fuse {
namespace {

using metrics::Families;
using metrics::Family;
using metrics::Type;

// Prometheus refuses a whole answer for one byte that is not UTF-8.
std::string as_utf8(const std::string& text) {
    using Json = nlohmann::json;
    return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace))
        .get<std::string>();
}

constexpr auto kReleasePoll = std::chrono::milliseconds(100);
// civetweb sees every two seconds that it is to end.
constexpr auto kUsualRelease = std::chrono::seconds(3);

template <typename Count>
double seconds(Count ns) {
    return static_cast<double>(ns) / 1e9;
}

// ---- Requests ------------------------------------------------------------------------------------

// Of the session's buckets, which are powers of two of a nanosecond, those of a microsecond to four seconds; faster and
// slower requests are together.
constexpr size_t kFirstBucket = 10;
constexpr size_t kLastBucket = 31;

void add_durations(Family& family, const metrics::Labels& labels, const OperationTotals& totals) {
    std::vector<std::pair<uint64_t, double>> buckets;
    uint64_t count = 0;
    for (size_t i = 0; i <= kLastBucket; i++) {
        count += totals.buckets[i];
        if (i >= kFirstBucket - 1) {
            buckets.emplace_back(std::exchange(count, 0), seconds(uint64_t{2} << i));
        }
    }
    uint64_t beyond = 0;
    for (size_t i = kLastBucket + 1; i < totals.buckets.size(); i++) {
        beyond += totals.buckets[i];
    }
    metrics::add_histogram(family, labels, buckets, beyond, seconds(totals.total_ns));
}

void collect_requests(const Session& session, Families& families) {
    Family& durations = families.add("tiffin_request_duration_seconds",
                                     "Time from the arrival of a request of the kernel to its "
                                     "answer",
                                     Type::Histogram);
    Family& errors =
        families.add("tiffin_request_errors_total", "Requests that failed", Type::Counter);
    Family& bytes =
        families.add("tiffin_request_bytes_total",
                     "Data or directory entries in requests and answers", Type::Counter);
    for (size_t i = 0; i < kOperationCount; i++) {
        const auto operation = static_cast<Operation>(i);
        const metrics::Labels labels = {{"operation", operation_name(operation)}};
        const OperationTotals totals = session.statistics().totals(operation);
        add_durations(durations, labels, totals);
        metrics::add_value(errors, labels, static_cast<double>(totals.errors));
        metrics::add_value(bytes, labels, static_cast<double>(totals.bytes));
    }
    if (const std::optional<uint32_t> under_way = session.requests_under_way()) {
        families.add("tiffin_requests_under_way",
                     "Requests that were received and not yet answered", Type::Gauge, {},
                     *under_way);
    }
}

// ---- The file system -----------------------------------------------------------------------------

// A number that a file system says of itself (vfs::FileSystem::describe()).
struct DescribedNumber {
    std::string_view key;
    const char* name;
    const char* help;
    Type type;
};

constexpr DescribedNumber kDescribed[] = {
    {"nodes", "tiffin_inodes", "Files, directories and other objects", Type::Gauge},
    {"nodes waiting for deletion", "tiffin_inodes_waiting_for_deletion",
     "Inodes without a name that are still to be deleted", Type::Gauge},
    {"objects in memory", "tiffin_inodes_cached", "Inodes in memory", Type::Gauge},
    {"damaged blocks", "tiffin_volume_damaged_blocks",
     "Blocks in groups whose bitmap is damaged, which are not used", Type::Gauge},
    {"generation", "tiffin_volume_generation", "Number of the current checkpoint", Type::Gauge},
    {"cache budget bytes", "tiffin_cache_limit_bytes", "Configured memory for metadata",
     Type::Gauge},
    {"cache resident bytes", "tiffin_cache_resident_bytes", "Metadata in memory", Type::Gauge},
    {"cache dirty bytes", "tiffin_cache_dirty_bytes",
     "Metadata in memory that the next checkpoint writes", Type::Gauge},
    {"cache hits", "tiffin_cache_hits_total", "Tree nodes that were found in memory",
     Type::Counter},
    {"cache misses", "tiffin_cache_misses_total", "Tree nodes that were read from the device",
     Type::Counter},
    {"cache evictions", "tiffin_cache_evictions_total", "Tree nodes that were dropped from memory",
     Type::Counter},
    {"journal capacity bytes", "tiffin_journal_capacity_bytes", "Size of the journal", Type::Gauge},
    {"journal pending bytes", "tiffin_journal_pending_bytes",
     "Journal that a recovery would replay", Type::Gauge},
    {"journal frames", "tiffin_journal_frames_total", "Writes to the journal", Type::Counter},
    {"journal bytes", "tiffin_journal_written_bytes_total", "Bytes written to the journal",
     Type::Counter},
    {"journal flushes", "tiffin_journal_flushes_total", "Flushes of the device for the journal",
     Type::Counter},
    {"transactions", "tiffin_transactions_total", "Transactions", Type::Counter},
    {"checkpoints", "tiffin_checkpoints_total", "Checkpoints", Type::Counter},
};

constexpr const char* kStates[] = {"read-write", "read-only", "frozen", "shut down"};

void collect_described(std::string_view key, std::string_view value, Families& families) {
    if (key == "state") {
        Family& state = families.add(
            "tiffin_volume_state", "1 for the state of the volume, 0 for the others", Type::Gauge);
        for (const char* each : kStates) {
            metrics::add_value(state, {{"state", each}}, value == each ? 1 : 0);
        }
    }
    const std::optional<uint64_t> number = whole_number(value);
    if (!number.has_value()) {
        return;
    }
    for (const DescribedNumber& described : kDescribed) {
        if (key == described.key) {
            families.add(described.name, described.help, described.type, {},
                         static_cast<double>(*number));
        }
    }
}

// After a shutdown there is no space to tell of; other file systems may describe nothing.
void collect_file_system(vfs::FileSystem& file_system, Families& families) {
    const Result<vfs::FileSystemStatistics> space = file_system.statistics();
    if (space.ok()) {
        const auto bytes = [&](uint64_t blocks) {
            return static_cast<double>(blocks) * space.value().block_bytes;
        };
        families.add("tiffin_volume_size_bytes", "Space for files, used or free", Type::Gauge, {},
                     bytes(space.value().total_blocks));
        families.add("tiffin_volume_free_bytes", "Free space, with reserves", Type::Gauge, {},
                     bytes(space.value().free_blocks));
        families.add("tiffin_volume_available_bytes", "Free space that programs can use",
                     Type::Gauge, {}, bytes(space.value().available_blocks));
    }
    TextSink sink;
    if (!file_system.describe(sink).ok()) {
        return;
    }
    for_each_status_line(sink.text, [&](std::string_view key, std::string_view value) {
        collect_described(key, value, families);
    });
}

}  // namespace

MountMetrics::MountMetrics(const Names& names, const RememberingLogSink& log)
    : names_{as_utf8(names.device), as_utf8(names.mount_point), as_utf8(names.file_system)},
      log_(log),
      start_ns_(host::realtime_ns()) {}

std::optional<Problem> MountMetrics::listen(const std::string& address) {
    ReleaseWait wait(kReleasePoll, kUsualRelease);
    while (true) {
        std::string problem;
        auto started = metrics::HttpEndpoint::start(
            address, {{"/metrics", metrics::kTextFormat, [this] { return text(); }}}, problem);
        if (started.ok()) {
            endpoint_ = started.release_value();
            return std::nullopt;
        }
        if (started.error() != Error::ebusy || !wait.again(problem)) {
            return Problem{problem, started.error()};
        }
    }
}

MountMetrics::Attachment::Attachment(MountMetrics& metrics, const Sources& sources)
    : metrics_(metrics) {
    MutexLock lock(metrics_.mutex_);
    metrics_.sources_ = sources;
}

MountMetrics::Attachment::~Attachment() {
    MutexLock lock(metrics_.mutex_);
    metrics_.sources_.reset();
}

void MountMetrics::collect_log(Families& families) const {
    const RememberingLogSink::Counts counts = log_.counts();
    Family& messages =
        families.add("tiffin_log_messages_total", "Messages in the log, by level", Type::Counter);
    metrics::add_value(messages, {{"level", "error"}}, static_cast<double>(counts.errors));
    metrics::add_value(messages, {{"level", "warning"}}, static_cast<double>(counts.warnings));
    Family& last = families.add("tiffin_last_error_timestamp_seconds",
                                "Time of the last error in the log, with its text; absent without "
                                "an error",
                                Type::Gauge);
    if (counts.last_error_ns != 0) {
        metrics::add_value(last, {{"reason", as_utf8(counts.last_error)}},
                           seconds(counts.last_error_ns));
    }
}

std::string MountMetrics::text() {
    Families families;
    families.add("tiffin_mount_info", "What is mounted where; always 1", Type::Gauge,
                 {{"device", names_.device},
                  {"mount_point", names_.mount_point},
                  {"file_system", names_.file_system},
                  {"version", kVersion}},
                 1);
    families.add("tiffin_start_time_seconds", "When the program was started", Type::Gauge, {},
                 seconds(start_ns_));
    collect_log(families);
    MutexLock lock(mutex_);
    if (sources_.has_value()) {
        collect_requests(*sources_->session, families);
        collect_file_system(*sources_->file_system, families);
        if (sources_->device != nullptr) {
            collect_remote_device(*sources_->device, families);
        }
    }
    return families.text();
}

}  // namespace tiffin::fuse
