// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "bench/perf/perf.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>

#include <nlohmann/json.hpp>

#include "fuse/host/remote_address.h"
#include "fuse/host/wake_cost.h"
#include "rdma_blk/wire/format.h"

namespace tiffin::fuse {
namespace {

constexpr double kPercentiles[] = {0.50, 0.90, 0.99, 0.999};

// The echo end in a process of its own, as a memory server is one. Ends with this object.
class EchoProcess {
  public:
    static OrProblem<std::unique_ptr<EchoProcess>> start() {
        OrProblem<EchoServer> server = EchoServer::open("127.0.0.1", 0);
        if (!server.ok()) {
            return server.problem();
        }
        const pid_t process = fork();
        if (process < 0) {
            return Problem{"no process for the plain sockets: " + system_error_text(errno)};
        }
        if (process == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            server->serve();
            _exit(EXIT_FAILURE);
        }
        return std::unique_ptr<EchoProcess>(new EchoProcess(process, server->port()));
    }
    ~EchoProcess() {
        (void)kill(process_, SIGKILL);
        (void)waitpid(process_, nullptr, 0);
    }
    EchoProcess(const EchoProcess&) = delete;
    EchoProcess& operator=(const EchoProcess&) = delete;

    uint16_t port() const { return port_; }

  private:
    EchoProcess(pid_t process, uint16_t port) : process_(process), port_(port) {}

    pid_t process_;
    uint16_t port_;
};

bool is_this_host(const std::string& host) {
    return host == "localhost" || host.starts_with("127.") || host == "::1";
}

// What an exchange of plain sockets has to carry to do the same.
PerfExchange exchange_of(const PerfOptions& options) {
    const uint64_t head = sizeof(rdma_blk::wire::MessageHeader);
    const uint64_t request = head + sizeof(rdma_blk::wire::Request);
    const uint64_t response = head + sizeof(rdma_blk::wire::Response);
    if (options.operation == "read") {
        return PerfExchange{request, response + options.size_bytes};
    }
    if (options.operation == "write") {
        return PerfExchange{request + options.size_bytes, response};
    }
    const uint64_t range = options.operation == "flush" ? sizeof(rdma_blk::wire::FlushRange) : 0;
    return PerfExchange{request + range, response};
}

OrProblem<rdma_blk::RemoteAddress> parse_endpoint(const std::string& text) {
    OrProblem<RemoteVolumeAddress> address = parse_remote_address("//" + text + "/echo");
    if (!address.ok()) {
        return address.problem();
    }
    return address->servers[0];
}

std::optional<Problem> add_baselines(const PerfOptions& options, std::vector<PerfResult>& results,
                                     std::string& remark) {
    OrProblem<RemoteVolumeAddress> address =
        parse_remote_address(std::string_view(options.address).substr(strlen("tiffin:")));
    if (!address.ok()) {
        return address.problem();
    }
    std::string host = "127.0.0.1";
    uint16_t port = 0;
    std::unique_ptr<EchoProcess> process;
    if (!options.baseline.empty()) {
        OrProblem<rdma_blk::RemoteAddress> endpoint = parse_endpoint(options.baseline);
        if (!endpoint.ok()) {
            return endpoint.problem();
        }
        host = endpoint->host;
        port = endpoint->port;
    } else if (is_this_host(address->servers[0].host)) {
        auto started = EchoProcess::start();
        if (!started.ok()) {
            return started.problem();
        }
        process = std::move(*started);
        port = process->port();
    } else {
        remark =
            "no plain sockets for comparison: run tiffin perf --echo HOST:PORT there, and name "
            "it with --baseline";
        return std::nullopt;
    }
    const PerfExchange exchange = exchange_of(options);
    OrProblem<PerfResult> stream = measure_stream(options, exchange, host, port);
    if (!stream.ok()) {
        return stream.problem();
    }
    stream->bytes_per_operation = options.size_bytes;
    results.push_back(std::move(*stream));
    if (exchange.request_bytes > kMaxDatagramBytes || exchange.reply_bytes > kMaxDatagramBytes) {
        remark = "no plain UDP: more than a datagram holds";
        return std::nullopt;
    }
    std::vector<uint32_t> ways{0};  // of waiting
    const uint32_t busy_poll_us = busy_poll_us_or_default(address->busy_poll_us);
    if (busy_poll_us != 0) {
        ways.push_back(busy_poll_us);
    }
    for (const uint32_t way : ways) {
        OrProblem<PerfResult> datagrams = measure_datagrams(options, exchange, host, port, way);
        if (!datagrams.ok()) {
            return datagrams.problem();
        }
        datagrams->bytes_per_operation = options.size_bytes;
        results.push_back(std::move(*datagrams));
    }
    return std::nullopt;
}

double operations_per_s(const PerfResult& result) {
    return result.seconds <= 0 ? 0 : static_cast<double>(result.latencies.count()) / result.seconds;
}

double bytes_per_s(const PerfResult& result) {
    return operations_per_s(result) * static_cast<double>(result.bytes_per_operation);
}

std::string microseconds(uint64_t ns) {
    return fmt::format("{:.1f}", static_cast<double>(ns) / 1000);
}

// Powers of two, with a bar for each that has some.
void print_histogram(const LatencyHistogram& latencies) {
    constexpr uint32_t kParts = LatencyHistogram::kParts;
    constexpr double kWidth = 50;
    for (uint32_t i = 0; i < LatencyHistogram::kBuckets; i += kParts) {
        uint64_t count = 0;
        for (uint32_t part = i; part < i + kParts; ++part) {
            count += latencies.bucket(part);
        }
        if (count == 0) {
            continue;
        }
        const double share = static_cast<double>(count) / static_cast<double>(latencies.count());
        fmt::print("  {:>10} us  {:>10}  {:5.1f}%  {}\n",
                   microseconds(LatencyHistogram::first_ns(i)), count, share * 100,
                   std::string(static_cast<size_t>(std::lround(share * kWidth)), '#'));
    }
}

void print_datagrams(const PerfOptions& options, const PerfDatagrams& datagrams) {
    fmt::print(
        "sdr: {} datagrams sent, {} received; {} chunks of what came were lost, {} were repeated "
        "by this end; {} blocks decoded, {} failed; round trip {:.3f} ms\n",
        datagrams.sent, datagrams.received, datagrams.chunks_lost, datagrams.chunks_repeated,
        datagrams.blocks_decoded, datagrams.blocks_failed,
        static_cast<double>(datagrams.round_trip_us) / 1000);
    if (datagrams.reconnections != 0) {
        fmt::print("sdr: {} reconnections\n", datagrams.reconnections);
    }
    if (datagrams.link && options.link) {
        const auto& link = *datagrams.link;
        fmt::print(
            "emulated link, {}: {} datagrams forwarded, {} lost, {} dropped by its queue, {} for "
            "want of memory\n",
            describe_link(*options.link), link.forwarded, link.lost, link.tail_dropped,
            link.overflowed + link.failed);
    }
}

void print_text(const PerfOptions& options, const std::vector<PerfResult>& results,
                const std::string& remark) {
    fmt::print("{} of {} bytes, {} thread{}, {:.1f} s each; latencies in microseconds\n\n",
               options.operation, options.size_bytes, options.threads,
               options.threads == 1 ? "" : "s", options.duration_s);
    fmt::print("{:<12} {:>5} {:>11} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10}\n", "carrier",
               "depth", "per second", "MB/s", "mean", "50%", "90%", "99%", "99.9%", "greatest");
    for (const PerfResult& result : results) {
        const LatencyHistogram& latencies = result.latencies;
        fmt::print("{:<12} {:>5} {:>11.0f} {:>9.1f} {:>9}", result.carrier, result.depth,
                   operations_per_s(result), bytes_per_s(result) / 1e6,
                   microseconds(latencies.mean_ns()));
        for (const double fraction : kPercentiles) {
            fmt::print(" {:>9}", microseconds(latencies.percentile_ns(fraction)));
        }
        fmt::print(" {:>10}\n", microseconds(latencies.greatest_ns()));
    }
    for (const PerfResult& result : results) {
        if (result.has_costs) {
            fmt::print(
                "\n{}: {:.2f} round trips, {:.2f} system calls, {:.0f} copied bytes for each\n",
                result.carrier, result.round_trips_per_operation, result.system_calls_per_operation,
                result.copied_bytes_per_operation);
        }
    }
    for (const PerfResult& result : results) {
        if (result.datagrams) {
            print_datagrams(options, *result.datagrams);
        }
    }
    for (const PerfResult& result : results) {
        fmt::print("\n{}\n", result.carrier);
        print_histogram(result.latencies);
    }
    if (!remark.empty()) {
        fmt::print("\n{}\n", remark);
    }
}

// What was emulated, and what became of the datagrams: by the link's model, its queue, this host.
nlohmann::ordered_json to_json(const PerfLink& link,
                               const rdma_blk::simulation::EmulatorCounters& counters) {
    nlohmann::ordered_json entry;
    entry["loss"] = link.loss;
    entry["burst"] = link.burst;
    entry["delay_us"] = static_cast<double>(link.delay_ns) / 1000;
    if (link.has_rate()) {
        entry["bits_per_s"] = link.bits_per_second;
    }
    entry["datagrams_received"] = counters.received;
    entry["datagrams_forwarded"] = counters.forwarded;
    entry["datagrams_lost"] = counters.lost;
    entry["datagrams_tail_dropped"] = counters.tail_dropped;
    entry["datagrams_overflowed"] = counters.overflowed;
    entry["datagrams_failed"] = counters.failed;
    return entry;
}

nlohmann::ordered_json to_json(const PerfResult& result) {
    const LatencyHistogram& latencies = result.latencies;
    nlohmann::ordered_json entry;
    entry["carrier"] = result.carrier;
    entry["depth"] = result.depth;
    entry["threads"] = result.threads;
    entry["seconds"] = result.seconds;
    entry["operations"] = latencies.count();
    entry["operations_per_s"] = operations_per_s(result);
    entry["bytes_per_s"] = bytes_per_s(result);
    entry["least_ns"] = latencies.least_ns();
    entry["mean_ns"] = latencies.mean_ns();
    entry["p50_ns"] = latencies.percentile_ns(0.50);
    entry["p90_ns"] = latencies.percentile_ns(0.90);
    entry["p99_ns"] = latencies.percentile_ns(0.99);
    entry["p999_ns"] = latencies.percentile_ns(0.999);
    entry["greatest_ns"] = latencies.greatest_ns();
    if (result.has_costs) {
        entry["round_trips_per_operation"] = result.round_trips_per_operation;
        entry["system_calls_per_operation"] = result.system_calls_per_operation;
        entry["copied_bytes_per_operation"] = result.copied_bytes_per_operation;
    }
    if (result.datagrams) {
        const PerfDatagrams& datagrams = *result.datagrams;
        entry["datagrams_sent"] = datagrams.sent;
        entry["datagrams_received"] = datagrams.received;
        entry["chunks_lost"] = datagrams.chunks_lost;
        entry["chunks_repeated"] = datagrams.chunks_repeated;
        entry["blocks_decoded"] = datagrams.blocks_decoded;
        entry["blocks_failed"] = datagrams.blocks_failed;
        entry["reconnections"] = datagrams.reconnections;
        entry["round_trip_us"] = datagrams.round_trip_us;
    }
    auto& buckets = entry["histogram"] = nlohmann::ordered_json::array();
    for (uint32_t i = 0; i < LatencyHistogram::kBuckets; ++i) {
        if (latencies.bucket(i) != 0) {
            buckets.push_back(
                {{"from_ns", LatencyHistogram::first_ns(i)}, {"count", latencies.bucket(i)}});
        }
    }
    return entry;
}

std::optional<Problem> check_link_address(std::string_view text) {
    const OrProblem<RemoteVolumeAddress> address =
        parse_remote_address(text.substr(strlen("tiffin:")));
    if (!address.ok()) {
        return address.problem();
    }
    const rdma_blk::RemoteAddress& server = address->servers[0];
    if (server.transport != rdma_blk::TransportChoice::automatic &&
        server.transport != rdma_blk::TransportChoice::sdr) {
        return Problem{
            "--loss, --burst, --delay and --rate need transport=sdr: the emulated link passes on "
            "datagrams, and other transports send none"};
    }
    if (server.sdr.carrier != rdma_blk::SdrCarrier::udp) {
        return Problem{"--loss, --burst, --delay and --rate need sdr_carrier=udp"};
    }
    return std::nullopt;
}

}  // namespace

std::optional<Problem> check_perf_options(const PerfOptions& options) {
    if (!options.address.starts_with("tiffin:")) {
        return Problem{"name a remote volume: tiffin://HOST/VOLUME"};
    }
    static constexpr const char* kOperations[] = {"read", "write", "compare_swap", "fetch_add",
                                                  "flush"};
    if (std::find(std::begin(kOperations), std::end(kOperations), options.operation) ==
        std::end(kOperations)) {
        return Problem{"the operation \"" + options.operation +
                       "\" is unknown: read, write, compare_swap, fetch_add or flush"};
    }
    if (options.operation == "write" && !options.overwrite) {
        return Problem{"writing destroys what is on the volume: say --overwrite if it may"};
    }
    if (options.size_bytes == 0 || options.size_bytes > (64 << 20) || options.depth == 0 ||
        options.depth > 1024 || options.threads == 0 || options.threads > 256 ||
        !(options.duration_s > 0 && options.duration_s <= 3600)) {
        return Problem{
            "out of bounds: size up to 64M, depth up to 1024, threads up to 256, duration "
            "up to 3600 seconds"};
    }
    if (options.link && !options.baseline.empty()) {
        return Problem{
            "--baseline has no meaning over an emulated link: plain sockets do not pass it"};
    }
    return options.link ? check_link_address(options.address) : std::nullopt;
}

std::optional<Problem> run_perf(const PerfOptions& wanted) {
    PerfOptions options = wanted;
    if (options.operation == "compare_swap" || options.operation == "fetch_add") {
        options.size_bytes = sizeof(uint64_t);
    }
    std::vector<PerfResult> results;
    std::string remark;
    // Before the transport's threads, since it makes a process.
    if (options.link) {
        remark = "no plain sockets for comparison: they do not pass the emulated link";
    } else if (!options.no_baseline) {
        if (std::optional<Problem> problem = add_baselines(options, results, remark)) {
            return problem;
        }
    }
    std::optional<PerfResult> copies;
    OrProblem<PerfResult> remote = measure_remote(options, copies);
    if (!remote.ok()) {
        return remote.problem();
    }
    if (copies) {
        copies->bytes_per_operation = options.size_bytes;
        results.insert(results.begin(), std::move(*copies));
    }
    remote->bytes_per_operation = options.size_bytes;
    results.insert(results.begin(), std::move(*remote));
    if (!options.json) {
        print_text(options, results, remark);
        return std::nullopt;
    }
    nlohmann::ordered_json document;
    document["operation"] = options.operation;
    document["size_bytes"] = options.size_bytes;
    if (options.link && results[0].datagrams && results[0].datagrams->link) {
        document["link"] = to_json(*options.link, *results[0].datagrams->link);
    }
    document["results"] = nlohmann::ordered_json::array();
    for (const PerfResult& result : results) {
        document["results"].push_back(to_json(result));
    }
    printf("%s\n", document.dump(2).c_str());
    return std::nullopt;
}

std::optional<Problem> run_echo(const std::string& address) {
    OrProblem<rdma_blk::RemoteAddress> endpoint = parse_endpoint(address);
    if (!endpoint.ok()) {
        return endpoint.problem();
    }
    OrProblem<EchoServer> server = EchoServer::open(endpoint->host, endpoint->port);
    if (!server.ok()) {
        return server.problem();
    }
    server->serve();
    return Problem{"the echo end has ended", Error::eio};
}

}  // namespace tiffin::fuse
