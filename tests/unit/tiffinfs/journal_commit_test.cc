// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Group commit: who writes, who waits, what is flushed, and what happens when the device fails.
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <thread>

#include "fs/tiffinfs/journal/journal.h"
#include "fuse/host/log_sink.h"
#include "tests/support/race_pauses.h"
#include "tests/support/units.h"
#include "tests/unit/tiffinfs/journal_fixture.h"

namespace tiffin::tiffinfs::test {
namespace {

// Holds every write back until it is let through.
class GateDevice final : public vfs::BlockDevice {
  public:
    explicit GateDevice(vfs::BlockDevice& below) : below_(below) {}

    const vfs::DeviceGeometry& geometry() const override { return below_.geometry(); }
    void submit(vfs::IoRequest& request) override { below_.submit(request); }
    using vfs::BlockDevice::write;
    Result<void> write(uint64_t offset_bytes, const vfs::IoVector* buffers,
                       size_t buffer_count) override {
        {
            std::unique_lock lock(mutex_);
            ++arrived_;
            changed_.notify_all();
            changed_.wait(lock, [this] { return open_; });
        }
        return below_.write(offset_bytes, buffers, buffer_count);
    }

    void wait_for_writer() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return arrived_ > 0; });
    }
    void open() {
        std::unique_lock lock(mutex_);
        open_ = true;
        changed_.notify_all();
    }

  private:
    vfs::BlockDevice& below_;
    std::mutex mutex_;
    std::condition_variable changed_;
    int arrived_ = 0;
    bool open_ = false;
};

std::unique_ptr<Journal> start_on(vfs::BlockDevice& device, const JournalVolume& volume) {
    auto journal = std::make_unique<Journal>(device);
    EXPECT_TRUE(
        journal->start(volume.superblock, volume.start_position(), volume.start_position(), 1, 1)
            .ok());
    return journal;
}

// Returns when `count` commits wait for a frame.
void wait_for_waiters(const Journal& journal, uint64_t count) {
    while (journal.counters().waits < count) {
        std::this_thread::yield();
    }
}

// While the first commit is under way, three more threads append; one of them writes for all.
TEST(JournalCommit, WaitersShareAFrame) {
    JournalVolume volume(kMiB);
    GateDevice gate(volume.device());
    auto journal = start_on(gate, volume);
    std::thread first([&] { EXPECT_TRUE(append_and_commit(*journal, make_transaction(1, 100))); });
    gate.wait_for_writer();

    std::vector<uint64_t> tickets;
    for (uint64_t number = 2; number <= 4; ++number) {
        // Appending goes on while the frame is being written.
        tickets.push_back(append(*journal, make_transaction(number, 100)));
    }
    std::vector<std::thread> others;
    others.reserve(tickets.size());
    for (const uint64_t ticket : tickets) {
        others.emplace_back([&, ticket] { EXPECT_TRUE(journal->commit(ticket).ok()); });
    }
    wait_for_waiters(*journal, 3);
    EXPECT_EQ(journal->durable_ticket(), 0U);
    gate.open();
    first.join();
    for (std::thread& other : others) {
        other.join();
    }
    EXPECT_EQ(journal->counters().frames, 2U);
    const Replay replay = volume.read();
    EXPECT_TRUE(replay.ok);
    ASSERT_EQ(replay.frames.size(), 2U);
    EXPECT_EQ(replay.frames[0].transaction_count, 1U);
    EXPECT_EQ(replay.frames[1].transaction_count, 3U);
}

// Threads append and commit; a full ring is released as a checkpoint would do it.
TEST(JournalCommit, ManyThreadsKeepTheirOrder) {
    constexpr int kThreads = 4;
    constexpr uint64_t kTransactions = 400;
    const tiffin::test::RacePauses pauses;
    JournalVolume volume(kMinimumJournalBytes);
    auto journal = volume.start();
    std::shared_mutex gate;                  // held shared while a transaction is open
    std::map<uint64_t, uint64_t> committed;  // by thread: what a checkpoint has seen
    std::vector<std::atomic<uint64_t>> appended(kThreads);

    const auto transaction_of = [](uint64_t thread, uint64_t i) {
        return make_transaction((thread << 32) | i, static_cast<uint32_t>(28 + i % 50 * 40));
    };
    const auto checkpoint = [&] {
        std::unique_lock lock(gate);
        ++volume.superblock.generation;
        const uint64_t ticket = journal->seal(volume.superblock.generation + 1);
        ASSERT_TRUE(journal->commit(ticket).ok());
        volume.set_start_position(journal->sealed_position());
        journal->release_before(journal->sealed_position());
        for (uint64_t thread = 0; thread < kThreads; ++thread) {
            committed[thread] = appended[thread];
        }
    };
    const auto work = [&](uint64_t thread) {
        for (uint64_t i = 1; i <= kTransactions; ++i) {
            const Transaction transaction = transaction_of(thread, i);
            uint64_t ticket = 0;
            for (;;) {
                {
                    std::shared_lock lock(gate);
                    if (journal->try_reserve(transaction.size_bytes())) {
                        ticket = journal->append(transaction.span(), transaction.record_count,
                                                 transaction.size_bytes());
                        appended[thread] = i;
                        break;
                    }
                }
                checkpoint();
            }
            if (i % 3 != 0) {
                EXPECT_TRUE(journal->commit(ticket).ok());
                EXPECT_GE(journal->durable_ticket(), ticket);
            }
        }
    };
    std::vector<std::thread> threads;
    for (uint64_t thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back(work, thread);
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(journal->last_ticket(), kThreads * kTransactions);
    EXPECT_TRUE(journal->commit(journal->last_ticket()).ok());
    EXPECT_EQ(journal->pending_bytes(), 0U);

    // What the last checkpoint has not seen is there, in the order of each thread.
    const Replay replay = volume.read();
    EXPECT_TRUE(replay.ok);
    for (const Bytes& records : replay.transactions) {
        RecordHeader header{};
        memcpy(&header, records.data(), sizeof(header));
        const uint64_t thread = header.key.node >> 32;
        const uint64_t i = header.key.node & 0xffffffff;
        EXPECT_EQ(++committed[thread], i);
        EXPECT_EQ(records, transaction_of(thread, i).records);
    }
    for (uint64_t thread = 0; thread < kThreads; ++thread) {
        EXPECT_EQ(committed[thread], kTransactions);
    }
}

// Who asks for the last ticket gets one that has been given out, and one that is not smaller the next time: while buffers
// are closed and used again.
TEST(JournalCommit, TheLastTicketIsOneThatWasGivenOut) {
    constexpr uint64_t kTransactions = 600;
    const tiffin::test::RacePauses pauses(64);
    JournalVolume volume(kMinimumJournalBytes);
    auto journal = volume.start();
    const Transaction transaction = make_transaction(1, 1500);
    std::atomic<uint64_t> begun{0};
    std::atomic<bool> done{false};
    std::thread observer([&] {
        uint64_t last = 0;
        while (!done) {
            const uint64_t ticket = journal->last_ticket();
            EXPECT_LE(ticket, begun);
            EXPECT_GE(ticket, last);
            last = ticket;
            EXPECT_TRUE(journal->commit(ticket).ok());
        }
    });
    for (uint64_t i = 1; i <= kTransactions; ++i) {
        while (!journal->try_reserve(transaction.size_bytes())) {
            const uint64_t sealed = journal->seal(++volume.superblock.generation + 1);
            EXPECT_TRUE(journal->commit(sealed).ok());
            volume.set_start_position(journal->sealed_position());
            journal->release_before(journal->sealed_position());
        }
        begun = i;
        EXPECT_EQ(
            journal->append(transaction.span(), transaction.record_count, transaction.size_bytes()),
            i);
    }
    done = true;
    observer.join();
    EXPECT_EQ(journal->last_ticket(), kTransactions);
}

// ---- Flushing -----------------------------------------------------------------------------------

TEST(JournalCommit, FlushesAVolatileCacheAfterTheFrame) {
    JournalVolume volume(kMiB, 512, true);
    auto journal = volume.start();
    volume.device().reset_counts();
    EXPECT_TRUE(append_and_commit(*journal, make_transaction(1, 100)));
    EXPECT_EQ(volume.device().counts().writes, 1U);
    EXPECT_EQ(volume.device().counts().flushes, 1U);
    EXPECT_EQ(volume.device().unflushed_writes(), 0U);
}

TEST(JournalCommit, FlushesDataBeforeTheFrame) {
    JournalVolume volume(kMiB, 512, true);
    auto journal = volume.start();
    volume.device().start_recording();
    const Bytes data(4096, 0x77);
    ASSERT_TRUE(volume.device().write(0, data.data(), data.size()).ok());
    journal->data_written();
    EXPECT_TRUE(append_and_commit(*journal, make_transaction(1, 100)));
    EXPECT_TRUE(append_and_commit(*journal, make_transaction(2, 100)));
    const auto recording = volume.device().take_recording();
    using Kind = tiffin::test::RecordedIo::Kind;
    std::vector<Kind> kinds;
    for (const auto& change : recording.changes) {
        kinds.push_back(change.kind);
    }
    // Data, its flush, frame 1, its flush; nothing but the second frame and its flush after that.
    EXPECT_EQ(kinds, (std::vector<Kind>{Kind::write, Kind::flush, Kind::write, Kind::flush,
                                        Kind::write, Kind::flush}));
    EXPECT_EQ(journal->counters().flushes, 3U);
}

// Data that was written while a frame was under way is flushed with that frame.
TEST(JournalCommit, FlushesDataTogetherWithAFrame) {
    JournalVolume volume(kMiB, 512, true);
    GateDevice gate(volume.device());
    auto journal = start_on(gate, volume);
    std::thread first([&] { EXPECT_TRUE(append_and_commit(*journal, make_transaction(1, 100))); });
    gate.wait_for_writer();
    const Bytes data(4096, 0x77);
    EXPECT_TRUE(volume.device().write(0, data.data(), data.size()).ok());
    journal->data_written();
    gate.open();
    first.join();
    EXPECT_EQ(journal->counters().flushes, 1U);
    EXPECT_TRUE(append_and_commit(*journal, make_transaction(2, 100)));
    EXPECT_EQ(journal->counters().flushes, 2U);
}

TEST(JournalCommit, NeverFlushesADurableDevice) {
    JournalVolume volume(kMiB, 64, false);
    auto journal = volume.start();
    journal->data_written();
    EXPECT_TRUE(append_and_commit(*journal, make_transaction(1, 100)));
    EXPECT_EQ(volume.device().counts().flushes, 0U);
}

// ---- Failures -----------------------------------------------------------------------------------

// Whatever fails, the write, the flush before or the one after it: nothing is written any more.
void expect_dead_after(JournalVolume& volume, Journal& journal) {
    EXPECT_TRUE(journal.dead());
    EXPECT_EQ(journal.durable_ticket(), 1U);
    EXPECT_TRUE(journal.commit(1).ok());
    volume.device().reset_counts();
    const uint64_t available = journal.available_bytes();
    const uint64_t ticket = append(journal, make_transaction(3, 100));
    EXPECT_EQ(ticket, 3U);
    EXPECT_EQ(journal.available_bytes(), available);
    EXPECT_EQ(journal.commit(2).error(), Error::eio);
    EXPECT_EQ(journal.commit(3).error(), Error::eio);
    EXPECT_EQ(journal.seal(7), 3U);
    EXPECT_EQ(volume.device().counts().writes, 0U);
    EXPECT_EQ(volume.device().counts().flushes, 0U);
}

TEST(JournalCommit, AFailedWriteKillsTheJournal) {
    fuse::CapturedLog log;
    JournalVolume volume(kMiB);
    auto journal = volume.start();
    EXPECT_TRUE(append_and_commit(*journal, make_transaction(1, 100)));
    volume.device().fail_write(1);
    const uint64_t ticket = append(*journal, make_transaction(2, 100));
    EXPECT_EQ(journal->commit(ticket).error(), Error::eio);
    expect_dead_after(volume, *journal);
    ASSERT_EQ(log.lines().size(), 1U);
    EXPECT_EQ(log.lines()[0],
              "error: journal: frame 2 of 192 bytes at byte 16576 of the device could not be "
              "written (error 5); nothing will be written from now on");
    EXPECT_EQ(volume.read().transactions.size(), 1U);
}

TEST(JournalCommit, AFailedFlushKillsTheJournal) {
    for (const uint64_t failing_flush : {1U, 2U}) {
        fuse::CapturedLog log;
        JournalVolume volume(kMiB, 512, true);
        auto journal = volume.start();
        EXPECT_TRUE(append_and_commit(*journal, make_transaction(1, 100)));
        volume.device().fail_flush(failing_flush);
        journal->data_written();
        const uint64_t ticket = append(*journal, make_transaction(2, 100));
        EXPECT_EQ(journal->commit(ticket).error(), Error::eio);
        expect_dead_after(volume, *journal);
        EXPECT_EQ(log.lines().size(), 1U);
    }
}

TEST(JournalCommit, ADeadJournalTakesAnyNumberOfTransactions) {
    JournalVolume volume(kMinimumJournalBytes);
    auto journal = volume.start();
    const Transaction transaction = make_transaction(1, 3000);
    append(*journal, transaction);
    journal->kill();
    for (int i = 0; i < 100; ++i) {
        append(*journal, transaction);
    }
    EXPECT_EQ(journal->last_ticket(), 101U);
    EXPECT_EQ(journal->commit(101).error(), Error::eio);
    EXPECT_EQ(volume.device().counts().writes, 0U);
}

TEST(JournalCommit, KillEndsWaitingCommitsAtOnce) {
    JournalVolume volume(kMiB);
    GateDevice gate(volume.device());
    auto journal = start_on(gate, volume);
    std::thread leader([&] { (void)journal->commit(append(*journal, make_transaction(1, 100))); });
    gate.wait_for_writer();
    const uint64_t ticket = append(*journal, make_transaction(2, 100));
    std::thread follower([&] { EXPECT_EQ(journal->commit(ticket).error(), Error::eio); });
    wait_for_waiters(*journal, 1);
    journal->kill();
    // The device has not answered, but the follower does not wait for it.
    follower.join();
    gate.open();
    leader.join();
    // What was under way became durable, nothing came after it.
    EXPECT_TRUE(journal->commit(1).ok());
    EXPECT_EQ(journal->commit(2).error(), Error::eio);
    EXPECT_EQ(volume.read().transactions.size(), 1U);
}

// A full set of buffers and a device that fails: appending must come back.
TEST(JournalCommit, AppendingReturnsWhenTheJournalDiesUnderIt) {
    fuse::CapturedLog log;
    JournalVolume volume(kMinimumJournalBytes);
    auto journal = volume.start();
    volume.device().fail_write(1);
    for (uint64_t number = 1; number <= 10; ++number) {
        append(*journal, make_transaction(number, 3000));
    }
    EXPECT_TRUE(journal->dead());
    EXPECT_EQ(journal->commit(10).error(), Error::eio);
}

// Wherever it meets those who append and commit: what a commit promised is there, tickets rise, and everybody comes back.
TEST(JournalCommit, KilledUnderLoadItKeepsWhatItPromised) {
    constexpr uint64_t kRounds = 30;
    constexpr uint64_t kThreads = 4;
    constexpr uint64_t kTransactions = 4000;  // of each at most: they fit into the ring
    constexpr uint64_t kAfterwards = 50;
    for (uint64_t round = 1; round <= kRounds; ++round) {
        JournalVolume volume(8 * kMiB);
        auto journal = volume.start();
        std::vector<uint64_t> promised[kThreads];
        std::vector<std::thread> threads;
        for (uint64_t number = 0; number < kThreads; ++number) {
            threads.emplace_back([&, number] {
                uint64_t last_ticket = 0;
                uint64_t afterwards = 0;
                for (uint64_t i = 1; i <= kTransactions && afterwards < kAfterwards; ++i) {
                    const uint64_t name = number * kTransactions + i;
                    const uint64_t ticket = append(*journal, make_transaction(name, 100));
                    EXPECT_GT(ticket, last_ticket);
                    last_ticket = ticket;
                    if (i % 3 == number % 3 && journal->commit(ticket).ok()) {
                        promised[number].push_back(name);
                    }
                    if (number == 0 && i == round * 5) {
                        journal->kill();
                    }
                    afterwards += journal->dead() ? 1 : 0;
                }
            });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
        EXPECT_EQ(journal->commit(journal->last_ticket()).error(), Error::eio);
        const Replay replay = volume.read();
        ASSERT_TRUE(replay.ok);
        const std::set<Bytes> there(replay.transactions.begin(), replay.transactions.end());
        for (const std::vector<uint64_t>& names : promised) {
            for (const uint64_t name : names) {
                EXPECT_TRUE(there.contains(make_transaction(name, 100).records))
                    << "round " << round << ", transaction " << name;
            }
        }
    }
}

}  // namespace
}  // namespace tiffin::tiffinfs::test
