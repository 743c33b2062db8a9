// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A bank in remote memory, for as long as the file STOP is not there: threads move money between shared words by fetch_add
// and compare_swap, and read back blocks that they wrote. Every value that comes back is checked (WordHistory), and the
// total. Anything that is not executed ends it with an error. While the file CALM is there they pause.
//
// usage: bank ADDRESS PROGRESS STOP CALM
//
// The file PROGRESS has one line at any time, of fixed length: how often all threads have got on, how often requests
// left a link, and the state of each link.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "fs/vfs/host.h"
#include "fuse/host/remote_device.h"
#include "tests/support/word_history.h"

namespace tiffin::rdma_blk {
namespace {

using test::WordHistory;

constexpr size_t kWords = 6;
constexpr size_t kThreads = 4;
constexpr uint64_t kFirstBalance = uint64_t{1} << 30;
constexpr uint64_t kWordStride = 64;
constexpr uint64_t kBlocksOffset = uint64_t{1} << 20;
constexpr size_t kMostBlockBytes = size_t{256} << 10;
constexpr size_t kBlockSizes[] = {64, 4096, size_t{64} << 10, kMostBlockBytes};

[[noreturn]] void stop(const std::string& problem) {
    std::fprintf(stderr, "bank: %s\n", problem.c_str());
    std::_Exit(EXIT_FAILURE);  // threads are running
}

uint64_t added(uint64_t value, int64_t amount) {
    return value + WordHistory::kStep + static_cast<uint64_t>(amount);
}

class Bank {
  public:
    explicit Bank(RemoteMemory& memory) : memory_(memory) {
        for (size_t word = 0; word < kWords; word++) {
            uint64_t value = kFirstBalance;
            run(OperationKind::write, word * kWordStride, &value, sizeof(value));
            histories_.emplace_back(value);
        }
    }
    void start() {
        for (size_t number = 0; number < kThreads; number++) {
            threads_.emplace_back([this, number] { work(number); });
        }
    }
    // How often each thread has finished a round since all had the last time.
    uint64_t laps() {
        bool have_all = true;
        for (size_t number = 0; number < kThreads; number++) {
            have_all = have_all && rounds_[number].load() > seen_[number];
        }
        if (have_all) {
            laps_++;
            for (size_t number = 0; number < kThreads; number++) {
                seen_[number] = rounds_[number].load();
            }
        }
        return laps_;
    }
    void set_calm(bool is_calm) { is_calm_.store(is_calm); }
    void finish() {
        is_ending_.store(true);
        for (std::thread& thread : threads_) {
            thread.join();
        }
        uint64_t total = 0;
        uint64_t changes = 0;
        for (size_t word = 0; word < kWords; word++) {
            uint64_t value = 0;
            run(OperationKind::read, word * kWordStride, &value, sizeof(value));
            histories_[word].finished(value);
            check_history(word);
            total += value % WordHistory::kStep;
            changes += histories_[word].change_count();
        }
        if (total != kWords * kFirstBalance) {
            stop("the total is " + std::to_string(total) + " and should be " +
                 std::to_string(kWords * kFirstBalance));
        }
        const Statistics statistics = memory_.statistics();
        std::printf(
            "%llu changes of words, %llu blocks; %llu failovers, %llu reconnections, "
            "%llu resent (%llu bytes), %llu recovered\n",
            static_cast<unsigned long long>(changes),
            static_cast<unsigned long long>(blocks_.load()),
            static_cast<unsigned long long>(statistics.failovers),
            static_cast<unsigned long long>(statistics.reconnections),
            static_cast<unsigned long long>(statistics.resent_operations),
            static_cast<unsigned long long>(statistics.resent_bytes),
            static_cast<unsigned long long>(statistics.recovered_operations));
        // A machine that is busy enough makes the good link look silent just before the other one is cut.
        if (10 * statistics.reconnections > statistics.failovers + 10) {
            stop("the session was not kept");
        }
    }

  private:
    static void check(const Operation& operation, const char* what) {
        if (operation.outcome != Outcome::executed) {
            stop(std::string(what) + " ended with outcome " +
                 std::to_string(static_cast<int>(operation.outcome)) + ", error " +
                 std::to_string(static_cast<int>(operation.error)));
        }
    }
    void run(OperationKind kind, uint64_t offset, void* data, size_t size) {
        Operation operation;
        vfs::IoVector buffer{data, size};
        operation.kind = kind;
        operation.offset_bytes = offset;
        operation.buffers = &buffer;
        operation.buffer_count = 1;
        memory_.submit(operation);
        memory_.wait(operation);
        check(operation, kind == OperationKind::read ? "a read" : "a write");
    }
    static void set_atomic(Operation& operation, OperationKind kind, size_t word,
                           uint64_t& buffer_memory, vfs::IoVector& buffer) {
        buffer = {&buffer_memory, sizeof(buffer_memory)};
        operation.kind = kind;
        operation.offset_bytes = word * kWordStride;
        operation.buffers = &buffer;
        operation.buffer_count = 1;
    }
    // The first thing that is wrong ends it, while what has led to it is still to be seen.
    void check_history(size_t word) {
        if (!histories_[word].problems().empty()) {
            stop("word " + std::to_string(word) + ", " + histories_[word].problems().front());
        }
    }
    uint64_t known(size_t word) {
        std::lock_guard lock(mutex_);
        return histories_[word].known_version();
    }

    void work(size_t number) {
        std::mt19937_64 random(number);
        std::vector<unsigned char> block(kMostBlockBytes);
        std::vector<unsigned char> found(kMostBlockBytes);
        while (!is_ending_.load()) {
            const size_t from = random() % kWords;
            const size_t to = (from + 1 + random() % (kWords - 1)) % kWords;
            const auto amount = static_cast<int64_t>(random() % 1000);
            switch (random() % 4) {
                case 0:
                    swap(from, -amount);
                    swap(to, amount);
                    break;
                case 1:
                    use_block(number, random(), block, found);
                    break;
                default:
                    transfer(from, to, amount, random() % 2 == 0);
                    break;
            }
            rounds_[number]++;
            // About as long as it works: the machine has other tests to run.
            const uint64_t most_us = is_calm_.load() ? 200000 : 4000;
            std::this_thread::sleep_for(std::chrono::microseconds(random() % most_us));
        }
    }
    // Both words in one batch.
    void transfer(size_t from, size_t to, int64_t amount, bool is_ordered) {
        Operation operations[2];
        uint64_t memory[2] = {};
        vfs::IoVector buffers[2];
        const size_t words[2] = {from, to};
        const int64_t amounts[2] = {-amount, amount};
        uint64_t before[2];
        for (size_t index = 0; index < 2; index++) {
            set_atomic(operations[index], OperationKind::fetch_add, words[index], memory[index],
                       buffers[index]);
            operations[index].operand = added(0, amounts[index]);
            before[index] = known(words[index]);
        }
        operations[0].next = &operations[1];
        operations[1].after_earlier = is_ordered;
        memory_.submit(operations[0]);
        for (size_t index = 0; index < 2; index++) {
            memory_.wait(operations[index]);
            check(operations[index], "a fetch_add");
            std::lock_guard lock(mutex_);
            histories_[words[index]].changed(operations[index].old_value,
                                             added(operations[index].old_value, amounts[index]),
                                             before[index]);
            check_history(words[index]);
        }
    }
    void swap(size_t word, int64_t amount) {
        uint64_t expected = 0;  // so the first one finds out
        while (true) {
            Operation operation;
            uint64_t memory = 0;
            vfs::IoVector buffer;
            set_atomic(operation, OperationKind::compare_swap, word, memory, buffer);
            operation.compare = expected;
            operation.operand = added(expected, amount);
            const uint64_t before = known(word);
            memory_.submit(operation);
            memory_.wait(operation);
            check(operation, "a compare_swap");
            std::lock_guard lock(mutex_);
            if (operation.old_value == expected) {
                histories_[word].changed(expected, operation.operand, before);
                check_history(word);
                return;
            }
            histories_[word].seen(operation.old_value, before);
            check_history(word);
            expected = operation.old_value;
        }
    }
    void use_block(size_t number, uint64_t chosen, std::vector<unsigned char>& block,
                   std::vector<unsigned char>& found) {
        const size_t size = kBlockSizes[chosen % std::size(kBlockSizes)];
        const uint64_t offset = kBlocksOffset + number * kMostBlockBytes;
        for (size_t at = 0; at < size; at += sizeof(chosen)) {
            const uint64_t value = chosen + at;
            std::memcpy(&block[at], &value, sizeof(value));
        }
        run(OperationKind::write, offset, block.data(), size);
        run(OperationKind::read, offset, found.data(), size);
        if (std::memcmp(block.data(), found.data(), size) != 0) {
            stop("a block of " + std::to_string(size) + " bytes is not what was written");
        }
        blocks_++;
    }

    RemoteMemory& memory_;
    std::mutex mutex_;
    std::vector<WordHistory> histories_;  // under mutex_ while threads run
    std::vector<std::thread> threads_;
    std::atomic<bool> is_ending_{false};
    std::atomic<bool> is_calm_{false};
    std::atomic<uint64_t> rounds_[kThreads] = {};
    std::atomic<uint64_t> blocks_{0};
    uint64_t seen_[kThreads] = {};
    uint64_t laps_ = 0;
};

void write_progress(int file, uint64_t laps, const Statistics& statistics) {
    std::string line = std::to_string(laps) + " " + std::to_string(statistics.failovers);
    for (uint32_t path = 0; path < statistics.path_count; path++) {
        line += std::string(" ") + statistics.paths[path].state;
    }
    line.resize(100, ' ');
    line += '\n';
    if (pwrite(file, line.data(), line.size(), 0) != static_cast<ssize_t>(line.size())) {
        stop("the file of progress cannot be written");
    }
}

}  // namespace
}  // namespace tiffin::rdma_blk

int main(int count, char** arguments) {
    using namespace tiffin;
    constexpr std::string_view kScheme = "tiffin:";
    if (count != 5 || std::string_view(arguments[1]).substr(0, kScheme.size()) != kScheme) {
        rdma_blk::stop("usage: bank ADDRESS PROGRESS STOP CALM");
    }
    const auto address =
        fuse::parse_remote_address(std::string_view(arguments[1]).substr(kScheme.size()));
    if (!address.ok()) {
        rdma_blk::stop(address.problem().text);
    }
    auto opened = fuse::open_remote_session(*address, {.read_only = false});
    if (!opened.ok()) {
        rdma_blk::stop(opened.problem().text);
    }
    const int progress = open(arguments[2], O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (progress < 0) {
        rdma_blk::stop("the file of progress cannot be opened");
    }
    {
        rdma_blk::Bank bank(**opened);
        bank.start();
        while (access(arguments[3], F_OK) != 0) {
            rdma_blk::write_progress(progress, bank.laps(), (*opened)->statistics());
            bank.set_calm(access(arguments[4], F_OK) == 0);
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        bank.finish();
    }
    (*opened)->close();
    close(progress);
    return EXIT_SUCCESS;
}
