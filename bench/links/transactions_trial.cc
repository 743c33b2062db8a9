// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "bench/links/transactions_trial.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "fs/vfs/host.h"

namespace tiffin::bench {
namespace {

constexpr uint64_t kMsNs = 1'000'000;
constexpr uint64_t kFewestCommits = 50;  // of a phase

void wait_until_ns(uint64_t end_ns) {
    while (host::monotonic_ns() < end_ns) {
        usleep(500);
    }
}

}  // namespace

// ---- Threads -------------------------------------------------------------------------------------------------

TransactionThreads::TransactionThreads(TransactionMemory& memory, size_t count, uint64_t seed)
    : commit_times_(count) {
    for (size_t index = 0; index < count; index++) {
        clients_.push_back(
            std::make_unique<TransactionClient>(memory, static_cast<uint32_t>(index), seed));
    }
    for (size_t index = 0; index < count; index++) {
        threads_.emplace_back([this, index] { work(index); });
    }
}

TransactionThreads::~TransactionThreads() {
    {
        std::lock_guard lock(mutex_);
        is_ending_ = true;
        is_pausing_.store(true);
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) {
        thread.join();
    }
}

void TransactionThreads::work(size_t index) {
    while (true) {
        if (is_pausing_.load()) {
            std::unique_lock lock(mutex_);
            paused_++;
            changed_.notify_all();
            changed_.wait(lock, [&] { return is_ending_ || !is_pausing_.load(); });
            paused_--;
            if (is_ending_) {
                return;
            }
        }
        if (clients_[index]->run(is_pausing_)) {
            commit_times_[index].push_back(host::monotonic_ns());
            commits_++;
        }
    }
}

void TransactionThreads::resume() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return paused_ == threads_.size(); });
    for (std::vector<uint64_t>& times : commit_times_) {
        times.clear();
    }
    is_pausing_.store(false);
    changed_.notify_all();
}

void TransactionThreads::pause() {
    std::unique_lock lock(mutex_);
    is_pausing_.store(true);
    changed_.wait(lock, [&] { return paused_ == threads_.size(); });
}

void TransactionThreads::run_until_commits(uint64_t count) const {
    while (commits_.load() < count) {
        usleep(500);
    }
}

std::vector<uint64_t> TransactionThreads::commit_times() const {
    std::vector<uint64_t> all;
    for (const std::vector<uint64_t>& times : commit_times_) {
        all.insert(all.end(), times.begin(), times.end());
    }
    std::sort(all.begin(), all.end());
    return all;
}

// ---- Failures ------------------------------------------------------------------------------------------------

namespace {

struct PhaseTimes {
    uint64_t began_ns = 0;
    uint64_t cut_ns = 0;
    uint64_t repaired_ns = 0;
    uint64_t ended_ns = 0;
};

// Also until there were some commits, except where clients may wait without end for locks that are left.
void run_phase(const TransactionThreads& threads, const TransactionMemory& memory,
               uint64_t end_ns) {
    const uint64_t before = threads.commits();
    wait_until_ns(end_ns);
    if (memory.way() != Way::resubmit) {
        threads.run_until_commits(before + kFewestCommits);
    }
}

PhaseTimes run_failure(const TransactionTrial& trial, CutDirection direction,
                       TransactionThreads& threads, TransactionMemory& memory, LinkCutter& cutter) {
    PhaseTimes times;
    memory.wait_until_well();
    times.began_ns = host::monotonic_ns();
    threads.resume();
    run_phase(threads, memory, times.began_ns + trial.phase_ns);
    const uint64_t seen = memory.failures_seen();
    size_t link = memory.active(0);
    times.cut_ns = cutter.cut(link, direction);
    while (memory.failures_seen() == seen) {
        // The session may have gone back to the link that it prefers just before.
        if (memory.active(link) != link) {
            cutter.repair(link);
            link = memory.active(link);
            times.cut_ns = cutter.cut(link, direction);
        }
        usleep(500);
    }
    run_phase(threads, memory, times.cut_ns + trial.phase_ns);
    cutter.repair(link);
    times.repaired_ns = host::monotonic_ns();
    run_phase(threads, memory, times.repaired_ns + trial.phase_ns);
    threads.pause();
    times.ended_ns = host::monotonic_ns();
    return times;
}

void add_throughput(const PhaseTimes& times, const std::vector<uint64_t>& commits,
                    uint64_t phase_ns, TransactionResults& results) {
    const uint64_t ends[] = {times.began_ns, times.cut_ns, times.repaired_ns, times.ended_ns};
    for (size_t phase = 0; phase < 3; phase++) {
        results.phase_ns[phase] += ends[phase + 1] - ends[phase];
        results.phase_commits[phase] +=
            static_cast<uint64_t>(std::count_if(commits.begin(), commits.end(), [&](uint64_t at) {
                return at >= ends[phase] && at < ends[phase + 1];
            }));
    }
    uint64_t last_ns = times.cut_ns;
    uint64_t longest_ns = 0;
    for (const uint64_t at : commits) {
        if (at > last_ns) {
            longest_ns = std::max(longest_ns, at - last_ns);
            last_ns = at;
        }
    }
    results.longest_gaps_ns.push_back(std::max(longest_ns, times.ended_ns - last_ns));
    results.bins.resize(3 * phase_ns / kBinNs);
    for (const uint64_t at : commits) {
        const uint64_t since_ns = at + phase_ns - times.cut_ns;
        if (at + phase_ns >= times.cut_ns && since_ns / kBinNs < results.bins.size()) {
            results.bins[since_ns / kBinNs]++;
        }
    }
}

}  // namespace

TransactionResults run_transactions(const TransactionTrial& trial, Way way,
                                    const std::string& address, LinkCutter& cutter) {
    TransactionResults results;
    results.way = way;
    results.failures = trial.failures;
    TransactionMemory memory(address, way);
    TransactionThreads threads(memory, trial.clients, trial.seed);
    TableImage tables;
    tables.load_into(memory);
    CheckedCommits checked;
    for (uint64_t failure = 0; failure < trial.failures; failure++) {
        const CutDirection direction = trial.directions[failure % trial.directions.size()];
        const PhaseTimes times = run_failure(trial, direction, threads, memory, cutter);
        const std::vector<uint64_t> commits = threads.commit_times();
        add_throughput(times, commits, trial.phase_ns, results);
        tables.read_from(memory);
        const Inconsistencies found = check_tables(tables, threads.clients());
        results.missed += count_missed(tables, threads.clients(), checked);
        for (size_t kind = 0; kind < kInconsistencies; kind++) {
            results.found.counts[kind] += found.counts[kind];
        }
        std::fprintf(stderr, "%s: failure %llu, %s: %zu commits, inconsistent: %s\n",
                     kWayNames[static_cast<size_t>(way)],
                     static_cast<unsigned long long>(failure + 1), name_of(direction),
                     commits.size(), found.text().c_str());
        if (found.total() != 0) {
            // So that each failure counts by itself.
            results.inconsistent_failures++;
            checked = CheckedCommits();
            tables = TableImage();
            tables.load_into(memory);
            for (const auto& client : threads.clients()) {
                client->forget_commits();
            }
        }
    }
    results.committed = threads.commits();
    for (const auto& client : threads.clients()) {
        results.aborted += client->aborts();
    }
    return results;
}

// ---- Tables --------------------------------------------------------------------------------------------------

namespace {

// Below the names of so many columns of numbers.
void print_rule(size_t columns) {
    std::printf("\n|---|");
    for (size_t column = 0; column < columns; column++) {
        std::printf("---:|");
    }
    std::printf("\n");
}

}  // namespace

void print_consistency(const std::vector<TransactionResults>& results) {
    std::printf(
        "\n| After a cut | failures | committed | aborted | failures with inconsistencies |");
    for (const char* name : kInconsistencyNames) {
        std::printf(" %s |", name);
    }
    print_rule(4 + kInconsistencies);
    for (const TransactionResults& result : results) {
        std::printf("| %s | %llu | %llu | %llu | %llu |",
                    kWayNames[static_cast<size_t>(result.way)],
                    static_cast<unsigned long long>(result.failures),
                    static_cast<unsigned long long>(result.committed),
                    static_cast<unsigned long long>(result.aborted),
                    static_cast<unsigned long long>(result.inconsistent_failures));
        for (const uint64_t count : result.found.counts) {
            std::printf(" %llu |", static_cast<unsigned long long>(count));
        }
        std::printf("\n");
    }
}

void print_throughput(const std::vector<TransactionResults>& results, uint64_t phase_ns) {
    std::printf(
        "\n| After a cut | transactions/s before the cut | until the repair | after it | longest "
        "time without a commit, ms: median | greatest |\n|---|---:|---:|---:|---:|---:|\n");
    for (const TransactionResults& result : results) {
        std::printf("| %s |", kWayNames[static_cast<size_t>(result.way)]);
        for (size_t phase = 0; phase < 3; phase++) {
            std::printf(" %.0f |", static_cast<double>(result.phase_commits[phase]) * 1e9 /
                                       static_cast<double>(result.phase_ns[phase]));
        }
        std::vector<uint64_t> gaps = result.longest_gaps_ns;
        std::sort(gaps.begin(), gaps.end());
        std::printf(" %.0f | %.0f |\n", static_cast<double>(gaps[gaps.size() / 2]) / kMsNs,
                    static_cast<double>(gaps.back()) / kMsNs);
    }
    std::printf("\n| Transactions/s, by ms from the cut |");
    const auto first_ms = -static_cast<int64_t>(phase_ns / kMsNs);
    const size_t bins = results.empty() ? 0 : results.front().bins.size();
    for (size_t bin = 0; bin < bins; bin++) {
        std::printf(" %lld |",
                    static_cast<long long>(first_ms) + 100 * static_cast<long long>(bin));
    }
    print_rule(bins);
    for (const TransactionResults& result : results) {
        std::printf("| %s |", kWayNames[static_cast<size_t>(result.way)]);
        for (const uint64_t count : result.bins) {
            std::printf(" %.0f |", static_cast<double>(count) * 1e9 / static_cast<double>(kBinNs) /
                                       static_cast<double>(result.failures));
        }
        std::printf("\n");
    }
    std::fflush(stdout);
}

}  // namespace tiffin::bench
