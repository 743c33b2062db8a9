// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A client of rc without a device: a memory that executes what is posted in its order, and that is cut off at any point, with
// answers lost or not. Every value is checked, and how much is repeated.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "rdma_blk/session/one_sided_queue.h"
#include "tests/support/test_size.h"

namespace tiffin::rdma_blk {
namespace {

constexpr size_t kDepth = 16;
constexpr size_t kWords = 6;
constexpr uint64_t kLogChanges = 4;

enum class Fault : uint8_t { none, log_ahead, log_before_data, log_ignored, not_ended_first };

class LogTrial {
  public:
    LogTrial(uint64_t seed, Fault fault) : random_(seed), fault_(fault) {
        queue_ = OneSidedQueue::create(kDepth).release_value();
        queue_->connected();
        for (Slot& slot : slots_) {
            idle_.push_back(&slot);
        }
    }
    ~LogTrial() { queue_->fail_all(Error::enodev); }

    void run(uint64_t cuts) {
        for (uint64_t cut = 0; cut < cuts; cut++) {
            for (uint64_t steps = random_() % 40; steps > 0; steps--) {
                step();
            }
            break_and_recover();
        }
        while (queue_->pending_count() > 0) {
            post();
            execute(posted_.size());
            see_answers(seen_.size());
        }
        for (size_t word = 0; word < kWords; word++) {
            wrong_ += memory_[word] == submitted_[word] ? 0 : 1;
        }
    }
    uint64_t wrong() const { return wrong_; }
    // Changes that were executed twice in one recovery, at most.
    uint64_t most_repeated() const { return most_repeated_; }
    uint64_t recovered() const { return queue_->recovered_count(); }

  private:
    struct Slot {
        Operation operation;
        vfs::IoVector buffer{};
        uint64_t value = 0;
        size_t word = 0;
        uint64_t executions = 0;
    };
    // A write of an operation, or of the log.
    struct Work {
        Slot* slot = nullptr;
        uint64_t number = 0;  // the log's
        uint64_t id = 0;
    };

    void submit() {
        if (idle_.empty()) {
            return;
        }
        Slot& slot = *idle_.back();
        idle_.pop_back();
        slot.operation.reset();
        slot.word = random_() % kWords;
        slot.executions = 0;
        slot.operation.kind = random_() % 4 == 0 ? OperationKind::read : OperationKind::write;
        slot.operation.offset_bytes = slot.word * sizeof(uint64_t);
        slot.operation.after_earlier = random_() % 3 == 0;
        if (slot.operation.kind == OperationKind::write) {
            slot.value = ++submitted_[slot.word];
        }
        slot.buffer = {&slot.value, sizeof(slot.value)};
        slot.operation.buffers = &slot.buffer;
        slot.operation.buffer_count = 1;
        queue_->submit(slot.operation);
    }
    Slot& slot_of(const Operation& operation) {
        return *std::find_if(std::begin(slots_), std::end(slots_),
                             [&](const Slot& slot) { return &slot.operation == &operation; });
    }
    void post() {
        bool is_control = false;
        while (Operation* operation = queue_->peek(is_control)) {
            bool is_fenced = false;
            const uint64_t id = queue_->start_device(is_fenced);
            const Work log{nullptr, operation->submit_number + (fault_ == Fault::log_ahead ? 1 : 0),
                           id};
            const bool is_logged =
                operation->kind == OperationKind::write && ++unlogged_ == kLogChanges;
            if (is_logged && fault_ == Fault::log_before_data) {
                posted_.push_back(log);
            }
            posted_.push_back({&slot_of(*operation), 0, id});
            if (is_logged && fault_ != Fault::log_before_data) {
                posted_.push_back(log);
            }
            unlogged_ = is_logged ? 0 : unlogged_;
        }
    }
    void execute_one(const Work& work) {
        if (work.slot == nullptr) {
            log_ = work.number;
            return;
        }
        Slot& slot = *work.slot;
        if (slot.operation.kind == OperationKind::write) {
            // What somebody has been told of is not undone.
            wrong_ += slot.value < completed_[slot.word] ? 1 : 0;
            repeated_ += slot.executions++ > 0 ? 1 : 0;
            memory_[slot.word] = slot.value;
        } else {
            slot.value = memory_[slot.word];
        }
    }
    void execute(size_t count) {
        for (; count > 0 && !posted_.empty(); count--) {
            const Work work = posted_.front();
            posted_.pop_front();
            execute_one(work);
            if (work.slot != nullptr) {
                seen_.push_back(work.id);
            }
        }
    }
    void completed(Slot& slot) {
        wrong_ += slot.operation.outcome == Outcome::executed ? 0 : 1;
        if (slot.operation.kind == OperationKind::write) {
            completed_[slot.word] = std::max(completed_[slot.word], slot.value);
        } else {
            wrong_ += slot.value >= completed_[slot.word] ? 0 : 1;
        }
        idle_.push_back(&slot);
    }
    void see_answers(size_t count) {
        for (; count > 0 && !seen_.empty(); count--) {
            seen_.pop_front();
            Slot& slot = slot_of(queue_->oldest());
            queue_->finish_oldest();
            completed(slot);
        }
    }
    void step() {
        switch (random_() % 4) {
            case 0:
                submit();
                break;
            case 1:
                post();
                break;
            case 2:
                execute(random_() % 4);
                break;
            default:
                see_answers(random_() % 4);
        }
    }
    void break_and_recover() {
        seen_.clear();  // answers that were on their way are lost
        std::deque<Work> late;
        std::swap(late, posted_);
        queue_->broken(1);
        repeated_ = 0;
        const uint64_t executed_through = fault_ == Fault::log_ignored ? 0 : log_;
        while (Operation* found = queue_->find_executed(executed_through)) {
            Slot& slot = slot_of(*found);
            queue_->finish_executed(*found);
            completed(slot);
        }
        queue_->connected();
        post();
        execute(posted_.size());
        see_answers(seen_.size());
        most_repeated_ = std::max(most_repeated_, repeated_);
        if (fault_ == Fault::not_ended_first) {
            for (const Work& work : late) {
                execute_one(work);
            }
        }
    }

    std::mt19937_64 random_;
    const Fault fault_;
    Slot slots_[kDepth + 4];
    std::vector<Slot*> idle_;
    std::unique_ptr<OneSidedQueue> queue_;
    std::deque<Work> posted_;    // not executed
    std::deque<uint64_t> seen_;  // executed, and the answer is on its way
    uint64_t unlogged_ = 0;
    uint64_t log_ = 0;
    uint64_t memory_[kWords] = {};
    uint64_t submitted_[kWords] = {};
    uint64_t completed_[kWords] = {};
    uint64_t wrong_ = 0;
    uint64_t repeated_ = 0;
    uint64_t most_repeated_ = 0;
};

TEST(CompletionLogTest, CutsAnywhere) {
    for (uint64_t seed = 1; seed <= 10; seed++) {
        LogTrial trial(seed, Fault::none);
        trial.run(tiffin::test::test_size(10'000, 1'000));
        EXPECT_EQ(trial.wrong(), 0U) << "seed " << seed;
        EXPECT_LE(trial.most_repeated(), kLogChanges) << "seed " << seed;
        EXPECT_GT(trial.recovered(), 0U);
    }
}

TEST(CompletionLogTest, FaultsAreFound) {
    for (const Fault fault : {Fault::log_ahead, Fault::log_before_data, Fault::not_ended_first}) {
        LogTrial trial(1, fault);
        trial.run(1'000);
        EXPECT_GT(trial.wrong(), 0U) << "fault " << static_cast<int>(fault);
    }
    LogTrial trial(1, Fault::log_ignored);
    trial.run(1'000);
    EXPECT_GT(trial.most_repeated(), kLogChanges);
}

}  // namespace
}  // namespace tiffin::rdma_blk
