// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Clients that run transactions in threads, failures while they do, and the checks after each.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bench/links/link_cutter.h"
#include "bench/links/transactions_checks.h"
#include "bench/links/transactions_client.h"
#include "bench/links/transactions_memory.h"

namespace tiffin::bench {

// A thread for each client, all of which run or pause together. At first they pause.
class TransactionThreads {
  public:
    TransactionThreads(TransactionMemory& memory, size_t count, uint64_t seed);
    ~TransactionThreads();
    TransactionThreads(const TransactionThreads&) = delete;
    TransactionThreads& operator=(const TransactionThreads&) = delete;

    void resume();
    // Returns once none is in a transaction.
    void pause();
    uint64_t commits() const { return commits_.load(); }
    // Waits, while they run, for the first commits.
    void run_until_commits(uint64_t count) const;

    // While they pause.
    const TransactionClients& clients() const { return clients_; }
    // host::monotonic_ns() of each commit since resume(), ascending.
    std::vector<uint64_t> commit_times() const;

  private:
    void work(size_t index);

    TransactionClients clients_;
    std::vector<std::vector<uint64_t>> commit_times_;
    std::mutex mutex_;
    std::condition_variable changed_;
    size_t paused_ = 0;
    bool is_ending_ = false;
    std::atomic<bool> is_pausing_{true};
    std::atomic<uint64_t> commits_{0};
    std::vector<std::thread> threads_;
};

struct TransactionTrial {
    std::vector<CutDirection> directions;
    uint64_t failures = 0;
    uint64_t phase_ns = 0;
    size_t clients = 0;
    uint64_t seed = 0;

    bool is_possible() const { return clients > 0 && clients <= kMostClients; }
};

constexpr uint64_t kBinNs = 100'000'000;

struct TransactionResults {
    Way way = Way::as_it_is;
    uint64_t failures = 0;
    uint64_t inconsistent_failures = 0;
    uint64_t committed = 0;
    uint64_t aborted = 0;
    Inconsistencies found;  // the sum of all failures
    uint64_t missed = 0;    // count_missed(): the rings are too small
    // Commits, and the time that the phases took: before the cut, until the repair, after it.
    uint64_t phase_commits[3] = {};
    uint64_t phase_ns[3] = {};
    std::vector<uint64_t> longest_gaps_ns;  // from a cut on, without a commit
    // Commits by time from the cut, the first bin a phase before it.
    std::vector<uint64_t> bins;
};

TransactionResults run_transactions(const TransactionTrial& trial, Way way,
                                    const std::string& address, LinkCutter& cutter);

void print_consistency(const std::vector<TransactionResults>& results);
void print_throughput(const std::vector<TransactionResults>& results, uint64_t phase_ns);

}  // namespace tiffin::bench
