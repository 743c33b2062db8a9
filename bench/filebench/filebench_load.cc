// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Runs a workload of Filebench's kind in a folder: a set of files, and threads that each repeat a list of operations.
//
//     filebench_load FOLDER KEY=VALUE...
//
//   flow=NAME,...     what a thread repeats, of:
//                       create open close delete stat fsync write_whole read_whole append_random append_log
//                       read_sequential read_random write_random append_sequential
//   files=N           in the set                    width=N     files in a directory
//   mean_bytes=N      size of a file                gamma=0|1   sizes vary around it (gamma distribution, shape 1.5)
//   present=PERCENT   of the files exist before     threads=N   that run the flow
//   io_bytes=N        of one read or write          append_bytes=N  append_random adds 1 to N bytes
//   loops=N           all threads together end after so many passes (0: no limit)
//   seconds=X         they end after this time at the latest
//
// Operations mean what Filebench's flowops of that name mean, and each counts as one, closing included. Files are
// chosen at random: to create among those that do not exist, to delete among those that nobody has open, else among all.
// read_*, write_random and append_sequential work on one file that each thread opens once. A thread ends when there is
// nothing left to create or delete. Before the clock starts the files are made and synced.
//
// Prints one line of JSON: seconds, operations, loops, bytes_read, bytes_written, sync_seconds (to sync what was left dirty
// at the end), and timeline_operations (counted every 100 ms). Ends with status 1 when a system call fails.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/filebench/file_set.h"
#include "bench/filebench/settings.h"
#include "bench/filebench/worker.h"

namespace {

using namespace tiffin::bench;
using Clock = std::chrono::steady_clock;

constexpr auto kTick = std::chrono::milliseconds(100);

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

int main(int count, char** arguments) {
    Settings settings;
    for (int i = 2; i < count; ++i) {
        const std::string argument = arguments[i];
        const size_t equals = argument.find('=');
        if (equals == std::string::npos || !settings.values.contains(argument.substr(0, equals))) {
            refuse("unknown setting '" + argument + "'");
        }
        settings.values[argument.substr(0, equals)] = argument.substr(equals + 1);
    }
    if (count < 2 || settings.values["flow"].empty()) {
        refuse("usage: filebench_load FOLDER flow=NAME,... [KEY=VALUE...]");
    }
    static const std::vector<std::string> kKnown{
        "create",          "open",        "close",        "delete",           "stat",
        "fsync",           "write_whole", "read_whole",   "append_random",    "append_log",
        "read_sequential", "read_random", "write_random", "append_sequential"};
    std::vector<std::string> flow;
    for (size_t start = 0; start <= settings.values["flow"].size();) {
        const size_t comma =
            std::min(settings.values["flow"].find(',', start), settings.values["flow"].size());
        flow.push_back(settings.values["flow"].substr(start, comma - start));
        if (std::find(kKnown.begin(), kKnown.end(), flow.back()) == kKnown.end()) {
            refuse("unknown operation '" + flow.back() + "'");
        }
        start = comma + 1;
    }

    const std::string folder = arguments[1];
    FileSet set(folder, settings);
    set.make_files();
    Shared shared(settings);
    std::vector<std::unique_ptr<Worker>> workers;
    for (uint64_t i = 0; i < settings.number("threads"); ++i) {
        workers.push_back(std::make_unique<Worker>(set, settings, flow, shared, 100 + i));
    }
    shared.running = static_cast<int>(workers.size());
    const double limit_seconds = std::strtod(settings.values["seconds"].c_str(), nullptr);
    const auto operations = [&workers] {
        uint64_t sum = 0;
        for (const auto& worker : workers) {
            sum += worker->operations.load(std::memory_order_relaxed);
        }
        return sum;
    };
    std::vector<uint64_t> timeline;
    std::vector<std::thread> threads;
    const Clock::time_point start = Clock::now();
    Clock::time_point next_tick = start + kTick;
    threads.reserve(workers.size());
    for (const auto& worker : workers) {
        threads.emplace_back([&worker] { worker->run(); });
    }
    while (shared.running > 0 && seconds_since(start) < limit_seconds) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        if (Clock::now() >= next_tick) {
            timeline.push_back(operations());
            next_tick += kTick;
        }
    }
    shared.must_stop = true;
    for (std::thread& thread : threads) {
        thread.join();
    }
    const double seconds = std::chrono::duration<double>(shared.end - start).count();
    const Clock::time_point before_sync = Clock::now();
    sync_file_system(folder);
    const double sync_seconds = seconds_since(before_sync);
    uint64_t loops = 0;
    uint64_t bytes_read = 0;
    uint64_t bytes_written = 0;
    for (const auto& worker : workers) {
        loops += worker->loops;
        bytes_read += worker->bytes_read;
        bytes_written += worker->bytes_written;
    }
    std::printf(
        "{\"seconds\": %.6f, \"operations\": %llu, \"loops\": %llu, \"bytes_read\": %llu, "
        "\"bytes_written\": %llu, \"sync_seconds\": %.6f, \"timeline_operations\": [",
        seconds, static_cast<unsigned long long>(operations()),
        static_cast<unsigned long long>(loops), static_cast<unsigned long long>(bytes_read),
        static_cast<unsigned long long>(bytes_written), sync_seconds);
    for (size_t i = 0; i < timeline.size(); ++i) {
        std::printf("%s%llu", i == 0 ? "" : ", ", static_cast<unsigned long long>(timeline[i]));
    }
    std::printf("]}\n");
    return 0;
}
