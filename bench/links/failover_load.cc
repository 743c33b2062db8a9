// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What several links cost, and what happens when one is cut: tables in Markdown. bench/failover runs it, and says what is
// measured.
//
// usage: failover_load overhead ROUNDS ADDRESS_OF_ONE_LINK ADDRESS_OF_TWO
//        failover_load MEASUREMENT SAMPLES ADDRESS NAMESPACE LINK LINK
//
//        failover_load suspicions SECONDS ADDRESS
//
// MEASUREMENT is times, resent or through; LINK is CLIENT_DEVICE,CLIENT_ADDRESS,SERVER_DEVICE,SERVER_ADDRESS.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/links/link_cutter.h"
#include "bench/links/linked_memory.h"
#include "fs/vfs/host.h"

namespace tiffin::bench {
namespace {

using rdma_blk::LinkTrial;
using rdma_blk::OperationKind;
using rdma_blk::PathStatus;

constexpr uint64_t kMsNs = 1'000'000;
constexpr CutDirection kDirections[] = {CutDirection::both, CutDirection::to_server,
                                        CutDirection::to_client};

uint64_t percentile(std::vector<uint64_t> values, double fraction) {
    std::sort(values.begin(), values.end());
    return values.empty()
               ? 0
               : values[std::min(
                     values.size() - 1,
                     static_cast<size_t>(fraction * static_cast<double>(values.size())))];
}
double us(uint64_t ns) { return static_cast<double>(ns) / 1000; }

// ---- What a second link costs -----------------------------------------------------------------------------

void measure_overhead(uint64_t rounds, const std::string& one, const std::string& two) {
    LinkedMemory sessions[] = {LinkedMemory(one), LinkedMemory(two)};
    sessions[1].wait_until_well();
    std::vector<OperationShape> shapes;
    for (const OperationKind kind : {OperationKind::read, OperationKind::write}) {
        for (const uint32_t size : {64U, 1024U, 4096U, 65536U, 1U << 20}) {
            shapes.push_back({kind, size, 1});
        }
    }
    for (const OperationKind kind :
         {OperationKind::compare_swap, OperationKind::fetch_add, OperationKind::flush}) {
        shapes.push_back({kind, 8, 1});
    }
    std::printf(
        "| Operation | one link, median us | two links | ratio | lowest and highest ratio of a "
        "round | system calls, one | two |\n|---|---:|---:|---:|---|---:|---:|\n");
    for (const OperationShape& shape : shapes) {
        const int count = shape.size_bytes > 65536 ? 40 : 400;
        std::vector<uint64_t> all[2];
        uint64_t calls[2] = {};
        double least = 1e9;
        double most = 0;
        for (uint64_t round = 0; round < rounds; round++) {
            uint64_t medians[2] = {};
            for (size_t turn = 0; turn < 2; turn++) {
                const size_t which = (turn + round) % 2;  // who is first changes
                LinkedMemory& session = sessions[which];
                std::vector<uint64_t> latencies;
                const uint64_t calls_before = session.statistics().system_calls;
                for (int i = 0; i < count; i++) {
                    const uint64_t began_ns = host::monotonic_ns();
                    latencies.push_back(session.run(shape).back() - began_ns);
                }
                calls[which] += session.statistics().system_calls - calls_before;
                medians[which] = percentile(latencies, 0.5);
                all[which].insert(all[which].end(), latencies.begin(), latencies.end());
            }
            const double ratio = us(medians[1]) / us(medians[0]);
            least = std::min(least, ratio);
            most = std::max(most, ratio);
        }
        const double operations = static_cast<double>(all[0].size());
        const double medians[] = {us(percentile(all[0], 0.5)), us(percentile(all[1], 0.5))};
        std::printf("| %s | %.1f | %.1f | %.2f | %.2f to %.2f | %.2f | %.2f |\n",
                    shape.text().c_str(), medians[0], medians[1], medians[1] / medians[0], least,
                    most, static_cast<double>(calls[0]) / operations,
                    static_cast<double>(calls[1]) / operations);
        std::fflush(stdout);
    }
}

// ---- One cut ----------------------------------------------------------------------------------------------

struct Failover {
    size_t link = 0;
    uint64_t cut_ns = 0;
    PathStatus path;        // afterwards; counts are of this cut alone
    uint64_t first_ns = 0;  // completion that was seen after the link was suspected
    uint64_t all_ns = 0;    // of what was pending
    uint64_t reconnections = 0;
};

PathStatus since(const PathStatus& before, PathStatus now) {
    now.failovers -= before.failovers;
    now.resent_operations -= before.resent_operations;
    now.resent_bytes -= before.resent_bytes;
    now.recovered_operations -= before.recovered_operations;
    return now;
}

// The link is cut before `shape` is submitted, or while such operations have gone on for some milliseconds.
Failover fail_over(LinkedMemory& session, LinkCutter& cutter, const OperationShape& shape,
                   CutDirection direction, bool cuts_before, std::mt19937& random) {
    session.wait_until_well();
    for (int i = 0; i < 3; i++) {
        (void)session.run({OperationKind::read, 64, 1});
    }
    Failover failover;
    failover.link = session.active();
    const rdma_blk::Statistics before = session.statistics();
    if (cuts_before) {
        failover.cut_ns = cutter.cut(failover.link, direction);
        const std::vector<uint64_t>& completed = session.run(shape);
        failover.first_ns = completed.front();
        failover.all_ns = completed.back();
    } else {
        std::atomic<uint64_t> cut_ns{0};
        const uint32_t wait_us = 2000 + random() % 5000;
        std::thread thread([&] {
            usleep(wait_us);
            cut_ns.store(cutter.cut(failover.link, direction));
        });
        // The batch that was pending when requests left the link is the one whose end is seen after that.
        const auto failovers = [&] { return session.statistics().paths[failover.link].failovers; };
        while (cut_ns.load() == 0 || failovers() == before.paths[failover.link].failovers) {
            const std::vector<uint64_t>& completed = session.run(shape);
            const PathStatus path = session.statistics().paths[failover.link];
            if (path.failovers == before.paths[failover.link].failovers) {
                continue;
            }
            failover.all_ns = completed.back();
            for (const uint64_t at : completed) {
                if (failover.first_ns == 0 && at > path.suspected_ns) {
                    failover.first_ns = at;
                }
            }
        }
        thread.join();
        failover.cut_ns = cut_ns.load();
    }
    cutter.repair(failover.link);
    const rdma_blk::Statistics after = session.statistics();
    failover.path = since(before.paths[failover.link], after.paths[failover.link]);
    failover.reconnections = after.reconnections - before.reconnections;
    return failover;
}

// ---- How long it takes ------------------------------------------------------------------------------------

void print_times(const char* what, const std::vector<uint64_t>& values) {
    std::printf("| %s | %.0f | %.0f | %.0f |\n", what, us(percentile(values, 0.5)),
                us(percentile(values, 0.99)), us(percentile(values, 1)));
}

void measure_times(uint64_t samples, LinkedMemory& session, LinkCutter& cutter) {
    std::mt19937 random(1);
    std::vector<uint64_t> suspected;
    std::vector<uint64_t> settled;
    std::vector<uint64_t> first;
    std::vector<uint64_t> total;
    uint64_t left_out = 0;
    for (uint64_t sample = 0; sample < samples; sample++) {
        const OperationKind kind = sample % 2 == 0 ? OperationKind::write : OperationKind::read;
        const Failover failover =
            fail_over(session, cutter, {kind, 4096, 8}, kDirections[sample % 3], false, random);
        const PathStatus& path = failover.path;
        // It was suspected for another reason just before, or the cut came between two batches.
        if (path.suspected_ns < failover.cut_ns || path.settled_ns < path.suspected_ns ||
            failover.first_ns < path.settled_ns) {
            left_out++;
            continue;
        }
        suspected.push_back(path.suspected_ns - failover.cut_ns);
        settled.push_back(path.settled_ns - path.suspected_ns);
        first.push_back(failover.first_ns - path.suspected_ns);
        total.push_back(failover.first_ns - failover.cut_ns);
    }
    std::printf(
        "\n%zu cuts in turn of both directions and one, %llu left out\n\n"
        "| us | median | p99 | greatest |\n|---|---:|---:|---:|\n",
        total.size(), static_cast<unsigned long long>(left_out));
    print_times("from the cut until suspected", suspected);
    print_times("from there until the server has said what it had", settled);
    print_times("from suspected until the first completion", first);
    print_times("from the cut until the first completion", total);
}

// ---- What is sent again -----------------------------------------------------------------------------------

struct Way {
    const char* name;
    LinkTrial trial;
};

void measure_resent(uint64_t samples, const std::string& address, LinkCutter& cutter) {
    constexpr Way kWays[] = {{"as it is", LinkTrial::none},
                             {"all again", LinkTrial::resend_all},
                             {"connected anew", LinkTrial::reconnect_all}};
    std::printf(
        "\n| Write | depth | cut | bytes again: as it is | all | connected anew | operations had "
        "by the server | ms from the cut until all are done: as it is | all | connected anew |\n"
        "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|\n");
    std::mt19937 random(1);
    for (const uint32_t size : {64U, 4096U, 65536U, 1U << 20}) {
        for (const size_t depth : {size_t{1}, size_t{16}, size_t{256}}) {
            for (const CutDirection direction : kDirections) {
                const OperationShape shape{OperationKind::write, size, depth};
                std::vector<uint64_t> bytes[3];
                std::vector<uint64_t> time_ns[3];
                uint64_t recovered = 0;
                for (size_t way = 0; way < 3; way++) {
                    LinkedMemory session(address, kWays[way].trial);
                    for (uint64_t sample = 0; sample < samples; sample++) {
                        const Failover failover =
                            fail_over(session, cutter, shape, direction,
                                      direction != CutDirection::both, random);
                        bytes[way].push_back(failover.path.resent_bytes);
                        time_ns[way].push_back(failover.all_ns - failover.cut_ns);
                        recovered += way == 0 ? failover.path.recovered_operations : 0;
                    }
                }
                std::printf("| %s | %zu | %s |", shape.text().c_str() + 6, depth,
                            name_of(direction));
                for (const auto& values : bytes) {
                    std::printf(" %llu |",
                                static_cast<unsigned long long>(percentile(values, 0.5)));
                }
                std::printf(" %.1f |",
                            static_cast<double>(recovered) / static_cast<double>(samples));
                for (const auto& values : time_ns) {
                    std::printf(" %.1f |", us(percentile(values, 0.5)) / 1000);
                }
                std::printf("\n");
                std::fflush(stdout);
            }
        }
    }
}

// ---- Throughput through a failure -------------------------------------------------------------------------

void measure_through(uint64_t samples, LinkedMemory& session, LinkCutter& cutter) {
    constexpr uint64_t kCutNs = 1000 * kMsNs;
    constexpr uint64_t kRepairNs = 2500 * kMsNs;
    constexpr uint64_t kEndNs = 8000 * kMsNs;
    const OperationShape shape{OperationKind::write, 65536, 16};
    std::printf(
        "\n| | MB/s before the cut | longest time without a completion, ms | MB/s from 100 ms "
        "after the cut until the repair | in the 5 s after it | in the last second | link at the "
        "end |\n|---|---:|---:|---:|---:|---:|---:|\n");
    for (uint64_t sample = 0; sample < samples; sample++) {
        session.wait_until_well();
        const size_t link = session.active();
        const uint64_t began_ns = host::monotonic_ns();
        uint64_t bytes[4] = {};
        uint64_t longest_ns = 0;
        uint64_t last_ns = began_ns;
        bool is_cut = false;
        bool is_repaired = false;
        while (last_ns - began_ns < kEndNs) {
            if (!is_cut && last_ns - began_ns >= kCutNs) {
                (void)cutter.cut(link, CutDirection::both);
                is_cut = true;
            }
            if (!is_repaired && last_ns - began_ns >= kRepairNs) {
                cutter.repair(link);
                is_repaired = true;
            }
            for (const uint64_t at : session.run(shape)) {
                const uint64_t since_ns = at - began_ns;
                longest_ns = std::max(longest_ns, at - last_ns);
                last_ns = at;
                bytes[0] += since_ns < kCutNs ? shape.size_bytes : 0;
                bytes[1] +=
                    since_ns >= kCutNs + 100 * kMsNs && since_ns < kRepairNs ? shape.size_bytes : 0;
                bytes[2] += since_ns >= kRepairNs && since_ns < kRepairNs + 5000 * kMsNs
                                ? shape.size_bytes
                                : 0;
                bytes[3] +=
                    since_ns >= kEndNs - 1000 * kMsNs && since_ns < kEndNs ? shape.size_bytes : 0;
            }
        }
        const auto rate = [&](int which, uint64_t ns) {
            return static_cast<double>(bytes[which]) * 1000 / static_cast<double>(ns);
        };
        std::printf("| run %llu, cut link %zu | %.0f | %.1f | %.0f | %.0f | %.0f | %zu |\n",
                    static_cast<unsigned long long>(sample + 1), link + 1, rate(0, kCutNs),
                    us(longest_ns) / 1000, rate(1, kRepairNs - kCutNs - 100 * kMsNs),
                    rate(2, 5000 * kMsNs), rate(3, 1000 * kMsNs), session.active() + 1);
        std::fflush(stdout);
    }
}

// ---- Links that are well ----------------------------------------------------------------------------------

void count_suspicions(uint64_t seconds, const std::string& address) {
    LinkedMemory session(address);
    session.wait_until_well();
    const rdma_blk::Statistics before = session.statistics();
    std::mt19937 random(1);
    const uint64_t end_ns = host::monotonic_ns() + seconds * 1000 * kMsNs;
    uint64_t operations = 0;
    while (host::monotonic_ns() < end_ns) {
        const OperationKind kind = random() % 2 == 0 ? OperationKind::read : OperationKind::write;
        const uint32_t size = random() % 8 == 0 ? 65536 : 4096;
        operations += session.run({kind, size, 1 + random() % 16}).size();
        if (random() % 64 == 0) {
            usleep(random() % 2000);
        }
    }
    const rdma_blk::Statistics after = session.statistics();
    std::printf(
        "\n%llu operations in %llu s, %llu reconnections\n\n| Link | suspicions | "
        "condemnations | requests left it | delay, us |\n|---|---:|---:|---:|---:|\n",
        static_cast<unsigned long long>(operations), static_cast<unsigned long long>(seconds),
        static_cast<unsigned long long>(after.reconnections - before.reconnections));
    for (size_t link = 0; link < after.path_count; link++) {
        const PathStatus& path = after.paths[link];
        std::printf("| %zu | %llu | %llu | %llu | %u |\n", link + 1,
                    static_cast<unsigned long long>(path.suspicions),
                    static_cast<unsigned long long>(path.failures),
                    static_cast<unsigned long long>(path.failovers), path.delay_us);
    }
}

}  // namespace
}  // namespace tiffin::bench

int main(int count, char** arguments) {
    using namespace tiffin::bench;
    const std::string_view what = count > 2 ? arguments[1] : "";
    const uint64_t number = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 0;
    const int expected = what == "overhead" ? 5 : what == "suspicions" ? 4 : 7;
    if (number == 0 || count != expected) {
        std::fprintf(stderr, "bench/failover runs this, with its own arguments\n");
        return EXIT_FAILURE;
    }
    if (what == "overhead") {
        measure_overhead(number, arguments[3], arguments[4]);
        return EXIT_SUCCESS;
    }
    if (what == "suspicions") {
        count_suspicions(number, arguments[3]);
        return EXIT_SUCCESS;
    }
    LinkCutter cutter(arguments[4], {LinkCutter::Link::parse(arguments[5]),
                                     LinkCutter::Link::parse(arguments[6])});
    if (what == "resent") {
        measure_resent(number, arguments[3], cutter);
        return EXIT_SUCCESS;
    }
    LinkedMemory session(arguments[3]);
    if (what == "times") {
        measure_times(number, session, cutter);
    } else if (what == "through") {
        measure_through(number, session, cutter);
    } else {
        std::fprintf(stderr, "no such measurement\n");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
