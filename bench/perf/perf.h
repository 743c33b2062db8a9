// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffin perf: latency and bandwidth of a transport, with plain sockets in the same run for comparison.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/perf/emulated_link.h"
#include "bench/perf/latency_histogram.h"
#include "fuse/host/problem.h"

namespace tiffin::fuse {

struct PerfOptions {
    std::string address;             // tiffin://HOST/VOLUME
    std::string operation = "read";  // write, compare_swap, fetch_add, flush
    uint64_t size_bytes = 4096;      // atomics have 8
    uint32_t depth = 1;
    uint32_t threads = 1;
    double duration_s = 3;
    std::string
        baseline;  // HOST:PORT of `tiffin perf --echo`; empty: this host, when the server is here
    bool no_baseline = false;
    bool overwrite = false;  // write: the volume's content may go
    bool json = false;
    std::optional<PerfLink> link;  // between here and the server; sdr only
};

// What sdr's end here did for the operations of a run, and what an emulated link did.
struct PerfDatagrams {
    uint64_t sent = 0;
    uint64_t received = 0;
    uint64_t chunks_lost = 0;  // of what came here: decoded, or asked for
    uint64_t chunks_repeated = 0;
    uint64_t blocks_decoded = 0;
    uint64_t blocks_failed = 0;
    uint64_t reconnections = 0;
    uint32_t round_trip_us = 0;  // smoothed, at the end
    std::optional<rdma_blk::simulation::EmulatorCounters> link;
};

// One carrier's part of a run.
struct PerfResult {
    std::string carrier;  // "tcp", "plain TCP", "memory copy"
    uint64_t bytes_per_operation = 0;
    uint32_t depth = 0;
    uint32_t threads = 0;
    double seconds = 0;
    LatencyHistogram latencies;
    // Of remote memory: what the operations of this run took.
    bool has_costs = false;
    double round_trips_per_operation = 0;
    double system_calls_per_operation = 0;
    double copied_bytes_per_operation = 0;
    std::optional<PerfDatagrams> datagrams;
};

// What is measured, as sizes on the wire: of what is sent, and of what comes back.
struct PerfExchange {
    uint64_t request_bytes = 0;
    uint64_t reply_bytes = 0;
};

// What is wrong with what is asked for.
std::optional<Problem> check_perf_options(const PerfOptions& options);
// Of options that are right.
std::optional<Problem> run_perf(const PerfOptions& options);
// Answers plain TCP and UDP exchanges at HOST:PORT until it is ended.
std::optional<Problem> run_echo(const std::string& address);

// ---- remote_memory.cc: through RemoteMemory. Where the memory is in this process (shm), copies out of the same memory
// are measured, too, for comparison, unless options.no_baseline: `copies`.
OrProblem<PerfResult> measure_remote(const PerfOptions& options, std::optional<PerfResult>& copies);

// ---- plain_sockets.cc: plain sockets. The echo end of one exchange after the other.
class EchoServer {
  public:
    // Listens on both protocols; port 0 takes a free one.
    static OrProblem<EchoServer> open(const std::string& host, uint16_t port);
    EchoServer(EchoServer&& other) noexcept;
    EchoServer& operator=(EchoServer&&) = delete;
    ~EchoServer();

    uint16_t port() const { return port_; }
    // Until the process ends.
    void serve();

  private:
    EchoServer() = default;

    int stream_ = -1;
    int datagram_ = -1;
    uint16_t port_ = 0;
};

OrProblem<PerfResult> measure_stream(const PerfOptions& options, const PerfExchange& exchange,
                                     const std::string& host, uint16_t port);
// One exchange at a time, of at most kMaxDatagramBytes. Both ends look for so long for what comes before they sleep, as
// transports do (rdma_blk/transport/busy_poll.h); 0: they sleep at once.
inline constexpr uint64_t kMaxDatagramBytes = 60000;
OrProblem<PerfResult> measure_datagrams(const PerfOptions& options, const PerfExchange& exchange,
                                        const std::string& host, uint16_t port,
                                        uint32_t busy_poll_us);

}  // namespace tiffin::fuse
