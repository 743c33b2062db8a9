// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/common/remote_metrics.h"

#include <string>
#include <string_view>
#include <vector>

#include "rdma_blk/volume/remote_block_device.h"

namespace tiffin::fuse {
namespace {

using metrics::add_value;
using metrics::Families;
using metrics::Family;
using metrics::Labels;
using metrics::Type;
using rdma_blk::PathStatus;
using rdma_blk::ServerStatus;
using rdma_blk::Statistics;

constexpr const char* kConnectionStates[] = {"connecting", "ready",       "reconnecting",
                                             "fenced",     "memory_lost", "closed"};
constexpr const char* kPathStates[] = {"active", "ready", "suspect", "joining", "down"};
constexpr const char* kPathRemoved = "removed";

using Servers = std::vector<ServerStatus>;

void collect_states(const Servers& servers, Families& families) {
    Family& states = families.add("tiffin_remote_state",
                                  "1 for the state of the connection to a server, 0 for the others",
                                  Type::Gauge);
    Family& info = families.add("tiffin_remote_info",
                                "The transport to a server, and whether data are encrypted on a "
                                "network; always 1",
                                Type::Gauge);
    for (const ServerStatus& server : servers) {
        const auto now = static_cast<size_t>(server.connection.state);
        for (size_t i = 0; i < std::size(kConnectionStates); i++) {
            add_value(states, {{"server", server.name}, {"state", kConnectionStates[i]}},
                      i == now ? 1 : 0);
        }
        add_value(info,
                  {{"server", server.name},
                   {"transport", server.connection.transport_name},
                   {"in_clear", server.is_in_clear ? "yes" : "no"}},
                  1);
    }
}

// Of what a server, or a link of it, counts.
template <typename Source>
struct Counter {
    const char* name;
    const char* help;
    uint64_t Source::*value;
};

constexpr Counter<Statistics> kCounters[] = {
    {"tiffin_remote_round_trips_total", "Waits for an answer of a server",
     &Statistics::round_trips},
    {"tiffin_remote_reconnections_total", "Connections that were made again",
     &Statistics::reconnections},
    {"tiffin_remote_replayed_operations_total",
     "Operations that were sent again after a reconnection", &Statistics::replayed_operations},
    {"tiffin_remote_failovers_total", "Changes of requests from a failed link to another one",
     &Statistics::failovers},
    {"tiffin_remote_resent_operations_total", "Operations that were sent again on another link",
     &Statistics::resent_operations},
    {"tiffin_remote_resent_bytes_total", "Bytes that were sent again on another link",
     &Statistics::resent_bytes},
    {"tiffin_remote_recovered_operations_total",
     "Operations of a failed link that were found to be executed",
     &Statistics::recovered_operations},
    {"tiffin_remote_datagrams_sent_total", "sdr: datagrams sent", &Statistics::datagrams_sent},
    {"tiffin_remote_datagrams_received_total", "sdr: datagrams received",
     &Statistics::datagrams_received},
    {"tiffin_remote_chunks_lost_total", "sdr: parts of answers that were lost",
     &Statistics::chunks_lost},
    {"tiffin_remote_chunks_repeated_total", "sdr: parts of requests that were sent again",
     &Statistics::chunks_repeated},
};

void collect_counters(const Servers& servers, Families& families) {
    for (const Counter<Statistics>& counter : kCounters) {
        Family& family = families.add(counter.name, counter.help, Type::Counter);
        for (const ServerStatus& server : servers) {
            add_value(family, {{"server", server.name}},
                      static_cast<double>(server.statistics.*counter.value));
        }
    }
    Family& operations =
        families.add("tiffin_remote_operations_total", "Operations on a server", Type::Counter);
    Family& bytes = families.add("tiffin_remote_bytes_total",
                                 "Bytes of data read from and written to a server", Type::Counter);
    for (const ServerStatus& server : servers) {
        const Statistics& statistics = server.statistics;
        for (size_t kind = 1; kind < std::size(rdma_blk::kOperationNames); kind++) {
            add_value(operations,
                      {{"server", server.name}, {"operation", rdma_blk::kOperationNames[kind]}},
                      static_cast<double>(statistics.operations[kind]));
        }
        add_value(bytes, {{"server", server.name}, {"direction", "read"}},
                  static_cast<double>(statistics.bytes_read));
        add_value(bytes, {{"server", server.name}, {"direction", "written"}},
                  static_cast<double>(statistics.bytes_written));
    }
    Family& dirty =
        families.add("tiffin_remote_dirty_bytes",
                     "Written data that a server has not stored on its disk", Type::Gauge);
    Family& round_trip = families.add("tiffin_remote_round_trip_seconds",
                                      "sdr: round-trip time of the network, smoothed; absent if "
                                      "it was not measured",
                                      Type::Gauge);
    for (const ServerStatus& server : servers) {
        add_value(dirty, {{"server", server.name}}, static_cast<double>(server.dirty_bytes));
        if (server.statistics.round_trip_us != 0) {
            add_value(round_trip, {{"server", server.name}}, server.statistics.round_trip_us / 1e6);
        }
    }
}

constexpr Counter<PathStatus> kPathCounters[] = {
    {"tiffin_remote_path_suspicions_total", "How often a link was suspected to have failed",
     &PathStatus::suspicions},
    {"tiffin_remote_path_failures_total", "How often a link failed", &PathStatus::failures},
    {"tiffin_remote_path_failovers_total", "Changes of requests from this link to another one",
     &PathStatus::failovers},
    {"tiffin_remote_path_resent_operations_total",
     "Operations of this link that were sent again on another one", &PathStatus::resent_operations},
    {"tiffin_remote_path_resent_bytes_total",
     "Bytes of this link that were sent again on another one", &PathStatus::resent_bytes},
    {"tiffin_remote_path_recovered_operations_total",
     "Operations of this link that were found to be executed", &PathStatus::recovered_operations},
};

Labels labels_of(const ServerStatus& server, uint32_t index) {
    return {{"server", server.name}, {"path", std::to_string(index + 1)}};
}

// Where a server has several links.
void collect_paths(const Servers& servers, Families& families) {
    Family& states = families.add("tiffin_remote_path_state",
                                  "1 for the state of a link, 0 for the others", Type::Gauge);
    Family& delays = families.add("tiffin_remote_path_delay_seconds",
                                  "Round-trip time of probes on a link, smoothed", Type::Gauge);
    Family& bytes = families.add("tiffin_remote_path_bytes_total",
                                 "Bytes sent and received on a link", Type::Counter);
    for (const ServerStatus& server : servers) {
        for (uint32_t index = 0; index < server.statistics.path_count; index++) {
            const PathStatus& path = server.statistics.paths[index];
            if (std::string_view(path.state) == kPathRemoved) {
                continue;
            }
            const Labels labels = labels_of(server, index);
            const auto with = [&](const char* name, const char* value) {
                Labels more = labels;
                more.push_back({name, value});
                return more;
            };
            for (const char* state : kPathStates) {
                add_value(states, with("state", state),
                          std::string_view(path.state) == state ? 1 : 0);
            }
            add_value(delays, labels, path.delay_us / 1e6);
            add_value(bytes, with("direction", "sent"), static_cast<double>(path.bytes_sent));
            add_value(bytes, with("direction", "received"),
                      static_cast<double>(path.bytes_received));
        }
    }
    for (const Counter<PathStatus>& counter : kPathCounters) {
        Family& family = families.add(counter.name, counter.help, Type::Counter);
        for (const ServerStatus& server : servers) {
            for (uint32_t index = 0; index < server.statistics.path_count; index++) {
                add_value(family, labels_of(server, index),
                          static_cast<double>(server.statistics.paths[index].*counter.value));
            }
        }
    }
}

}  // namespace

void collect_remote_device(const vfs::BlockDevice& device, Families& families) {
    const auto* remote = dynamic_cast<const rdma_blk::RemoteBlockDevice*>(&device);
    if (remote == nullptr) {
        return;
    }
    const Servers servers = remote->status();
    collect_states(servers, families);
    collect_counters(servers, families);
    collect_paths(servers, families);
}

}  // namespace tiffin::fuse
