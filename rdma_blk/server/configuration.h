// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffind's configuration: a TOML file. docs/remote.md has the table of keys; what is not in it is refused.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rdma_blk/remote_memory.h"
#include "rdma_blk/server/memory_region.h"
#include "rdma_blk/wire/format.h"
#include "rdma_blk/wire/listen_address.h"

namespace tiffin::rdma_blk {

inline constexpr uint32_t kMaxCpuLatencyUs = 10'000;

struct VolumeConfiguration {
    uint64_t size_bytes = 0;
    uint64_t words_bytes = 4096;
    std::string backing;
};

struct Configuration {
    std::vector<ListenAddress> listen = {{"::", 4847}};
    uint32_t threads = 2;
    uint32_t busy_poll_us = kDefaultBusyPollUs;
    std::optional<uint32_t> cpu_latency_us;  // absent: the kernel is asked for nothing
    uint64_t memory_limit_bytes = 0;         // 0: half of the machine's
    Wish huge_pages = Wish::try_it;
    Wish lock_memory = Wish::try_it;
    uint32_t max_connections = 1024;
    uint32_t max_sessions = 256;
    uint16_t slots = 64;
    uint64_t staging_bytes = (1 << 20) + (64 << 10);
    uint64_t send_buffer_bytes = 4 << 20;
    uint32_t handshake_timeout_ms = 5000;
    uint32_t max_handshakes = 64;
    uint32_t probe_interval_ms = 1000;
    uint32_t lease_timeout_s = 60;
    uint32_t stall_timeout_s = 30;
    bool shm_kills = true;  // shm_fencing
    uint16_t sdr_port = 4847;
    uint32_t max_sdr_sessions = 64;
    uint16_t sdr_landing_slots = 16;
    uint8_t highest_version = wire::kHighestVersion;  // for trials, not in files: of the protocol
    uint32_t sdr_drop_ppm = 0;  // for trials, not in files: as MessagePathOptions::drop_ppm
    std::string metrics = "127.0.0.1:9847";
    std::string state_directory = "/var/lib/tiffind";
    std::string runtime_directory = "/run/tiffind";
    std::map<std::string, VolumeConfiguration> volumes;
};

// Reads `text`; `file` is for messages. False: `problem` has one line, "FILE:LINE: what is wrong".
bool parse_configuration(const std::string& text, const std::string& file,
                         Configuration& configuration, std::string& problem);

// What a running server does with a configuration that it reads again: `fresh`, but for what changes with a
// restart only (listen, threads, busy_poll_us, cpu_latency_us, directories, metrics).
Configuration reloaded_configuration(const Configuration& running, Configuration fresh);
// Whether that leaves something of `fresh` out.
bool needs_restart(const Configuration& running, const Configuration& fresh);
// Whether something of `fresh` counts only for volumes that start from now on (max_sessions, slots, lease_timeout_s,
// probe_interval_ms, shm_fencing, huge_pages, lock_memory).
bool needs_restart_of_volumes(const Configuration& running, const Configuration& fresh);

}  // namespace tiffin::rdma_blk
