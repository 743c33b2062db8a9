// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffind: serves volumes of memory. What it does is in rdma_blk/server; here are arguments, configuration,
// signals and the log.
#include <sys/resource.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "fuse/host/log_sink.h"
#include "fuse/host/processor_latency.h"
#include "fuse/host/wake_cost.h"
#include "fuse/session/daemon.h"
#include "fuse/tools/common/tool.h"
#include "rdma_blk/metrics/families.h"
#include "rdma_blk/metrics/http_endpoint.h"
#include "rdma_blk/server/administration.h"
#include "rdma_blk/server/keeper.h"
#include "rdma_blk/server/metrics.h"
#include "rdma_blk/server/server.h"
#include "rdma_blk/server/status_page.h"

namespace tiffin::fuse {
namespace {

using rdma_blk::Configuration;

constexpr int kUsageStatus = 2;
constexpr char kDefaultFile[] = "/etc/tiffind.toml";

struct Arguments {
    std::string file = kDefaultFile;
    bool check = false;
    bool no_keeper = false;
    int keeper_socket = -1;
    const RememberingLogSink* log = nullptr;
};

// Reads the file; that the default one does not exist is no mistake.
bool read_configuration(const std::string& file, Configuration& configuration,
                        std::string& problem) {
    configuration.busy_poll_us = default_busy_poll_us();  // unless it says something else
    std::error_code ignored;
    if (std::filesystem::is_directory(file, ignored)) {
        problem = file + ": is a directory";
        return false;
    }
    std::ifstream stream(file, std::ios::binary);
    if (!stream) {
        if (file == kDefaultFile && errno == ENOENT) {
            return true;
        }
        problem = file + ": cannot be read: " + std::strerror(errno);
        return false;
    }
    std::ostringstream text;
    text << stream.rdbuf();
    return rdma_blk::parse_configuration(text.str(), file, configuration, problem);
}

// Each connection is a descriptor; the rest is for volumes, files and the log.
void raise_descriptor_limit(uint32_t max_connections) {
    rlimit limit{};
    const rlim_t wanted = max_connections + 1024;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) {
        return;
    }
    limit.rlim_cur = std::min(wanted, limit.rlim_max);
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < wanted) {
        host::log(host::LogLevel::warning,
                  "the limit of open files is too low for max_connections");
    }
}

void reload(rdma_blk::Server& server, const std::string& file) {
    Configuration configuration;
    std::string problem;
    if (read_configuration(file, configuration, problem)) {
        raise_descriptor_limit(configuration.max_connections);
        server.reload(configuration);
        host::log(host::LogLevel::info, "configuration read again");
    } else {
        host::log(host::LogLevel::error, (problem + "; nothing was changed").c_str());
    }
}

// For a worker: one that is started again has what SIGHUP changed since the keeper has read the file.
Configuration read_again(const std::string& file, const Configuration& first) {
    Configuration fresh;
    std::string problem;
    if (!read_configuration(file, fresh, problem)) {
        host::log(host::LogLevel::error,
                  (problem + "; what was read at the start is used").c_str());
        return first;
    }
    return rdma_blk::reloaded_configuration(first, fresh);
}

static_assert(rdma_blk::kMaxCpuLatencyUs == kMaxProcessorLatencyUs);

// Near enough: several that come together are one.
uint64_t request_count(rdma_blk::Server& server) {
    const rdma_blk::ServerCounters& counters = server.counters();
    return counters.receive_calls.load(std::memory_order_relaxed) +
           counters.sdr_datagrams_received.load(std::memory_order_relaxed);
}

rdma_blk::LogSummary summary_of(const RememberingLogSink& log) {
    const RememberingLogSink::Counts counts = log.counts();
    return {counts.warnings, counts.errors, counts.last_error_ns, counts.last_error};
}

// Returns the signal that asks for the end. `page`: nullptr where none is served, and nothing has to wake up for its plot.
// kStopWithKeptMemory counts from the keeper only: another sender would end a server whose memory nothing keeps.
int wait_for_end(const sigset_t& signals, const std::function<void()>& reload,
                 rdma_blk::StatusPage* page) {
    constexpr timespec kInterval = {rdma_blk::StatusPage::kSampleSeconds, 0};
    while (true) {
        siginfo_t info{};
        const int signal = page == nullptr ? sigwaitinfo(&signals, &info)
                                           : sigtimedwait(&signals, &info, &kInterval);
        if (signal == rdma_blk::kStopWithKeptMemory && info.si_pid != getppid()) {
            host::log(host::LogLevel::warning,
                      "SIGUSR1 is ignored: SIGUSR2 to the keeper restarts the server");
        } else if (signal == SIGHUP) {
            reload();
        } else if (signal > 0) {
            return signal;
        } else if (page != nullptr) {
            page->sample(host::monotonic_ns());
        }
    }
}

int serve(const Arguments& arguments, const Configuration& configuration,
          rdma_blk::MemoryKeeper& keeper) {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
        sigaddset(&signals, signal);
    }
    if (!arguments.no_keeper) {
        sigaddset(&signals, rdma_blk::kStopWithKeptMemory);
    }
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // in all threads, so that sigwait() gets them
    (void)std::signal(SIGUSR2, SIG_IGN);            // for a keeper only
    raise_descriptor_limit(configuration.max_connections);
    rdma_blk::Server server(configuration, keeper);
    std::string problem;
    if (!server.start(problem).ok()) {
        print_problem("tiffind", Problem{problem.empty() ? "cannot start" : problem});
        return EXIT_FAILURE;
    }
    (void)mkdir(configuration.runtime_directory.c_str(), 0755);
    rdma_blk::AdministrationSocket administration(server);
    const std::string path = configuration.runtime_directory + "/admin.sock";
    const Result<void> listening = administration.start(path);
    if (!listening.ok()) {
        print_problem("tiffind",
                      Problem{path + ": " + std::strerror(errno_value(listening.error()))});
        return EXIT_FAILURE;
    }
    // Without metrics volumes can be served all the same.
    rdma_blk::StatusPage page(server, [&arguments] { return summary_of(*arguments.log); });
    std::unique_ptr<metrics::HttpEndpoint> endpoint;
    if (!configuration.metrics.empty()) {
        auto started = metrics::HttpEndpoint::start(
            configuration.metrics,
            {{"/metrics", metrics::kTextFormat, [&server] { return metrics_text(server); }},
             {"/", "text/html; charset=utf-8",
              [&page] { return page.html(host::monotonic_ns(), host::realtime_ns()); }}},
            problem);
        if (started.ok()) {
            endpoint = started.release_value();
        } else {
            host::log(host::LogLevel::error, problem.c_str());
        }
    }
    ProcessorLatency latency;
    if (configuration.cpu_latency_us) {
        latency.start({.latency_us = *configuration.cpu_latency_us},
                      [&server] { return request_count(server); });
    }
    keeper.server_is_ready();
    host::log(host::LogLevel::info, "ready");
    page.sample(host::monotonic_ns());
    const int signal = wait_for_end(
        signals, [&] { reload(server, arguments.file); }, endpoint ? &page : nullptr);
    host::log(host::LogLevel::info, "stopping");
    latency.stop();
    endpoint.reset();
    administration.stop();
    return server.stop(signal != rdma_blk::kStopWithKeptMemory) ? EXIT_SUCCESS : EXIT_FAILURE;
}

// As keeper and worker, as the keeper's worker, or without a keeper.
int serve_as(const Arguments& arguments, const Configuration& configuration,
             const std::vector<std::string>& command) {
    if (arguments.no_keeper) {
        rdma_blk::MemoryKeeper no_keeper;
        return serve(arguments, configuration, no_keeper);
    }
    if (arguments.keeper_socket >= 0) {
        const std::unique_ptr<rdma_blk::MemoryKeeper> keeper =
            rdma_blk::connect_to_keeper(arguments.keeper_socket);
        if (!keeper) {
            print_problem("tiffind", Problem{std::string(rdma_blk::kKeeperSocketOption) +
                                             " is for the keeper of a tiffind"});
            return kUsageStatus;
        }
        return serve(arguments, configuration, *keeper);
    }
    return rdma_blk::run_with_keeper(
        [&](rdma_blk::MemoryKeeper& keeper) {
            return serve(arguments, read_again(arguments.file, configuration), keeper);
        },
        command);
}

int run(int argc, char** argv) {
    if (!prepare_process("tiffind")) {
        return EXIT_FAILURE;
    }
    CLI::App app("Serves volumes of memory to other machines.", "tiffind");
    add_version_flag(app);
    Arguments arguments;
    app.add_option("-c,--config", arguments.file,
                   "The configuration; /etc/tiffind.toml if it exists");
    app.add_flag("--check", arguments.check, "Only check the configuration");
    app.add_flag("--no-keeper", arguments.no_keeper,
                 "One process: the memory ends with it, by accident or not");
    app.add_option(rdma_blk::kKeeperSocketOption, arguments.keeper_socket)->group("");  // not shown
    if (std::optional<int> status = parse_arguments(app, argc, argv, kUsageStatus)) {
        return *status;
    }
    Configuration configuration;
    std::string problem;
    if (!read_configuration(arguments.file, configuration, problem)) {
        print_problem("tiffind", Problem{problem});
        return kUsageStatus;
    }
    if (arguments.check) {
        return EXIT_SUCCESS;
    }
    StderrLogSink standard_error("tiffind", std::getenv("JOURNAL_STREAM") == nullptr);
    RememberingLogSink log(standard_error);
    arguments.log = &log;
    set_log_sink(&log);
    ignore_meaningless_signals();
    const int status = serve_as(arguments, configuration, {argv, argv + argc});
    set_log_sink(nullptr);
    return status;
}

}  // namespace
}  // namespace tiffin::fuse

int main(int argc, char** argv) { return tiffin::fuse::run(argc, argv); }
