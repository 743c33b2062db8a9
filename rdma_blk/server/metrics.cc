// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/server/metrics.h"

#include <iterator>

#include "rdma_blk/metrics/families.h"

namespace tiffin::rdma_blk {
namespace {

using metrics::add_value;
using metrics::Families;
using metrics::Family;
using metrics::Labels;
using metrics::Type;

constexpr const char* kRefusals[] = {
    "",        "held",      "fenced",   "no_session", "stale_incarnation",
    "no_room", "read_only", "stopping", "malformed",  "no_transport"};

// Families of counters with two labels: the volume, and another one.
struct VolumeCounter {
    const char* name;
    const char* help;
    const char* label;  // nullptr: the volume is all
    std::vector<std::pair<const char*, Counter VolumeCounters::*>> values;
};

const std::vector<VolumeCounter>& volume_counters() {
    using C = VolumeCounters;
    static const std::vector<VolumeCounter> counters = {
        {"tiffind_bytes_total",
         "Bytes of data read and written",
         "direction",
         {{"read", &C::bytes_read}, {"written", &C::bytes_written}}},
        {"tiffind_answers_total",
         "What became of requests",
         "result",
         {{"executed", &C::executed},
          {"answered_again", &C::answered_again},
          {"ignored", &C::ignored},
          {"refused_read_only", &C::refused_read_only},
          {"refused_stale", &C::refused_stale},
          {"refused_range", &C::refused_range},
          {"refused_other", &C::refused_other},
          {"malformed", &C::malformed}}},
        {"tiffind_sessions_opened_total",
         "Sessions, new ones",
         nullptr,
         {{"", &C::sessions_opened}}},
        {"tiffind_sessions_resumed_total",
         "Incarnations of sessions that came back",
         nullptr,
         {{"", &C::sessions_resumed}}},
        {"tiffind_session_paths_total",
         "Further connections of sessions: joined, ended as a client asked for it, and questions "
         "about failed ones",
         "event",
         {{"joined", &C::paths_joined},
          {"revoked", &C::paths_revoked},
          {"recovered", &C::recoveries}}},
        {"tiffind_fences_total", "Writers that were shut out", nullptr, {{"", &C::fences}}},
        {"tiffind_kills_total",
         "Processes that were killed as they had the memory mapped",
         nullptr,
         {{"", &C::kills}}},
        {"tiffind_flush_errors_total", "Flushes that failed", nullptr, {{"", &C::flush_errors}}},
        {"tiffind_flushed_bytes_total",
         "Bytes written to backings",
         nullptr,
         {{"", &C::flushed_bytes}}},
    };
    return counters;
}

template <uint64_t kFirst, size_t kCount>
void add_durations(Family& family, const Labels& labels,
                   const Durations<kFirst, kCount>& durations) {
    std::vector<std::pair<uint64_t, double>> buckets;
    for (size_t index = 0; index < kCount; index++) {
        buckets.emplace_back(durations.buckets[index].load(),
                             static_cast<double>(durations.bound_ns(index)) / 1e9);
    }
    metrics::add_histogram(family, labels, buckets, durations.buckets[kCount].load(),
                           static_cast<double>(durations.sum_ns.load()) / 1e9);
}

void collect_volume_counters(Server& server, const std::vector<VolumeInfo>& volumes,
                             Families& families) {
    for (const VolumeCounter& counter : volume_counters()) {
        Family& family = families.add(counter.name, counter.help, Type::Counter);
        for (const VolumeInfo& info : volumes) {
            const auto volume = server.find_volume(info.name.c_str());
            for (const auto& [value, member] : counter.values) {
                Labels labels = {{"volume", info.name}};
                if (counter.label != nullptr) {
                    labels.push_back({counter.label, value});
                }
                if (volume) {
                    add_value(family, labels,
                              static_cast<double>((volume->counters().*member).load()));
                }
            }
        }
    }
    Family& requests =
        families.add("tiffind_requests_total", "Requests that arrived", Type::Counter);
    for (const VolumeInfo& info : volumes) {
        const auto volume = server.find_volume(info.name.c_str());
        for (size_t kind = 1; volume && kind < std::size(kOperationNames); kind++) {
            add_value(requests, {{"volume", info.name}, {"operation", kOperationNames[kind]}},
                      static_cast<double>(volume->counters().requests[kind].load()));
        }
    }
    Family& flushes =
        families.add("tiffind_flush_seconds", "How long flushes to backings took", Type::Histogram);
    Family& turns = families.add(
        "tiffind_turn_duration_seconds",
        "Time in which requests that arrived together were executed and answered, without flushes "
        "to backings; not with shm and rc, which access the memory directly",
        Type::Histogram);
    for (const VolumeInfo& info : volumes) {
        if (const auto volume = server.find_volume(info.name.c_str())) {
            add_durations(flushes, {{"volume", info.name}}, volume->counters().flush_durations);
            add_durations(turns, {{"volume", info.name}}, volume->counters().turn_durations);
        }
    }
    Family& refused = families.add("tiffind_sessions_refused_total",
                                   "Openings, leases and paths that were refused", Type::Counter);
    for (const VolumeInfo& info : volumes) {
        const auto volume = server.find_volume(info.name.c_str());
        for (size_t reason = 1; volume && reason < std::size(kRefusals); reason++) {
            add_value(refused, {{"volume", info.name}, {"reason", kRefusals[reason]}},
                      static_cast<double>(volume->counters().sessions_refused[reason].load()));
        }
    }
}

void collect_volume_gauges(const std::vector<VolumeInfo>& volumes, Families& families) {
    const auto gauge = [&](const char* name, const char* help, auto value_of) {
        Family& family = families.add(name, help, Type::Gauge);
        for (const VolumeInfo& info : volumes) {
            add_value(family, {{"volume", info.name}}, static_cast<double>(value_of(info)));
        }
    };
    gauge("tiffind_volume_memory_bytes", "Memory of a volume, control space included",
          [](const VolumeInfo& info) { return info.memory_bytes; });
    gauge("tiffind_volume_size_bytes", "Size of a volume",
          [](const VolumeInfo& info) { return info.data_bytes; });
    gauge("tiffind_volume_has_writer", "1 if a client has the right to write, otherwise 0",
          [](const VolumeInfo& info) { return info.holder.empty() ? 0 : 1; });
    gauge("tiffind_volume_sessions", "Sessions that have a place",
          [](const VolumeInfo& info) { return info.session_count; });
    gauge("tiffind_volume_connected_sessions", "Sessions with a connection",
          [](const VolumeInfo& info) { return info.connected_session_count; });
    gauge("tiffind_volume_epoch", "Raised by each change of writer",
          [](const VolumeInfo& info) { return info.epoch; });
    gauge("tiffind_volume_content_incarnation", "Raised when unflushed content may be lost",
          [](const VolumeInfo& info) { return info.content_incarnation; });
}

// Of all paths of transport sdr.
void collect_datagrams(const ServerCounters& counters, Families& families) {
    const auto value = [](const Counter& counter) { return static_cast<double>(counter.load()); };
    Family& datagrams = families.add("tiffind_sdr_datagrams_total",
                                     "Datagrams by what became of them", Type::Counter);
    add_value(datagrams, {{"result", "sent"}}, value(counters.sdr_datagrams_sent));
    add_value(datagrams, {{"result", "received"}}, value(counters.sdr_datagrams_received));
    add_value(datagrams, {{"result", "refused"}}, value(counters.sdr_datagrams_refused));
    add_value(datagrams, {{"result", "dropped"}}, value(counters.sdr_datagrams_dropped));
    Family& packets =
        families.add("tiffind_sdr_uc_packets_total",
                     "Those of the datagrams that went over UC queue pairs", Type::Counter);
    add_value(packets, {{"result", "sent"}}, value(counters.sdr_uc_packets_sent));
    add_value(packets, {{"result", "received"}}, value(counters.sdr_uc_packets_received));
    Family& chunks = families.add("tiffind_sdr_chunks_total",
                                  "Parts of messages that were lost on their way here, and "
                                  "that were sent again from here",
                                  Type::Counter);
    add_value(chunks, {{"event", "lost"}}, value(counters.sdr_chunks_lost));
    add_value(chunks, {{"event", "repeated"}}, value(counters.sdr_chunks_repeated));
    Family& blocks =
        families.add("tiffind_sdr_blocks_total", "Blocks of an erasure code with losses, by result",
                     Type::Counter);
    add_value(blocks, {{"result", "decoded"}}, value(counters.sdr_blocks_decoded));
    add_value(blocks, {{"result", "failed"}}, value(counters.sdr_blocks_failed));
    add_value(
        families.add("tiffind_sdr_sessions", "Sessions with a path of datagrams", Type::Gauge), {},
        value(counters.sdr_paths));
}

void collect_server(Server& server, Families& families) {
    const ServerCounters& counters = server.counters();
    const auto value = [](const Counter& counter) { return static_cast<double>(counter.load()); };
    Family& handshakes =
        families.add("tiffind_handshakes_total", "Handshakes by result", Type::Counter);
    add_value(handshakes, {{"result", "done"}}, value(counters.handshakes_done));
    add_value(handshakes, {{"result", "denied"}}, value(counters.handshakes_denied));
    add_value(handshakes, {{"result", "failed"}}, value(counters.handshakes_failed));
    add_value(handshakes, {{"result", "timed_out"}}, value(counters.handshakes_timed_out));
    add_value(handshakes, {{"result", "displaced"}}, value(counters.handshakes_displaced));
    Family& ends = families.add("tiffind_connections_dropped_total",
                                "Connections ended by the server", Type::Counter);
    add_value(ends, {{"reason", "malformed"}}, value(counters.malformed_messages));
    add_value(ends, {{"reason", "stalled"}}, value(counters.stalled_connections));
    add_value(ends, {{"reason", "silent"}}, value(counters.silent_connections));
    add_value(ends, {{"reason", "no_room"}}, value(counters.connections_refused));
    const auto one = [&](const char* name, const char* help, Type type, double number) {
        add_value(families.add(name, help, type), {}, number);
    };
    one("tiffind_connections_accepted_total", "Connections", Type::Counter,
        value(counters.connections_accepted));
    one("tiffind_probes_sent_total", "Probes of silent clients", Type::Counter,
        value(counters.probes_sent));
    Family& calls =
        families.add("tiffind_system_calls_total",
                     "System calls of the threads that serve connections", Type::Counter);
    add_value(calls, {{"call", "wait"}}, value(counters.wait_calls));
    add_value(calls, {{"call", "receive"}}, value(counters.receive_calls));
    add_value(calls, {{"call", "send"}}, value(counters.send_calls));
    collect_datagrams(counters, families);
    one("tiffind_connections", "Connections now", Type::Gauge,
        static_cast<double>(server.connection_count()));
    one("tiffind_failed_volumes", "Volumes that cannot be served; the log has the reasons",
        Type::Gauge, static_cast<double>(server.failed_volumes().size()));
    one("tiffind_memory_bytes", "Memory of all volumes", Type::Gauge,
        static_cast<double>(server.memory_bytes()));
    one("tiffind_unread_answer_bytes", "Answers that clients have not read", Type::Gauge,
        static_cast<double>(counters.unread_answer_bytes.load()));
    one("tiffind_memory_limit_bytes", "Configured memory limit", Type::Gauge,
        static_cast<double>(server.memory_limit_bytes()));
}

}  // namespace

std::string metrics_text(Server& server) {
    Families families;
    const std::vector<VolumeInfo> volumes = server.list_volumes();
    collect_server(server, families);
    collect_volume_counters(server, volumes, families);
    collect_volume_gauges(volumes, families);
    return families.text();
}

}  // namespace tiffin::rdma_blk
