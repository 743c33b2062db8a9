// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The journal as a ring: many laps, wrapping, and the accounting of reservations.
#include <gtest/gtest.h>

#include <deque>

#include "fs/tiffinfs/journal/journal.h"
#include "tests/support/test_size.h"
#include "tests/support/units.h"
#include "tests/unit/tiffinfs/journal_fixture.h"

namespace tiffin::tiffinfs::test {
namespace {

// Does what a volume does: reserve, append, commit now and then, make checkpoints when the ring is
// full, and sometimes stop and mount again. Compares what is read back with what must be there.
class RingWorkload {
  public:
    RingWorkload(uint64_t journal_bytes, uint32_t write_unit_bytes, uint64_t seed)
        : volume_(journal_bytes, write_unit_bytes), random_(seed) {
        mount();
    }

    void run(int steps) {
        for (int step = 0; step < steps; ++step) {
            switch (chance(20)) {
                case 0:
                    ASSERT_TRUE(journal_->commit(journal_->last_ticket()).ok());
                    check();
                    break;
                case 1:
                    reserve_and_give_back();
                    break;
                case 2:
                    remount();
                    break;
                case 3:
                    checkpoint();
                    break;
                default:
                    append_one();
                    break;
            }
            if (testing::Test::HasFatalFailure()) {
                return;
            }
        }
        check();
    }
    uint64_t bytes_written() const { return bytes_written_ + journal_->counters().bytes; }

  private:
    uint64_t chance(uint64_t bound) { return random_() % bound; }

    // Mostly small, sometimes as large as can be.
    uint32_t random_size() {
        const uint32_t maximum = journal_->maximum_transaction_bytes();
        const uint64_t bound = chance(4) == 0 ? maximum : std::min<uint32_t>(maximum, 2000);
        const uint64_t size = chance(16) == 0 ? bound : chance(bound);
        return static_cast<uint32_t>(std::max<uint64_t>(28, size / 4 * 4));
    }

    void append_one() {
        const uint32_t reserved = random_size();
        if (!journal_->try_reserve(reserved)) {
            checkpoint();
            ASSERT_TRUE(journal_->try_reserve(reserved));
        }
        const auto size = static_cast<uint32_t>(
            chance(2) == 0 ? reserved : std::max<uint64_t>(28, chance(reserved) / 4 * 4));
        const Transaction transaction = make_transaction(++number_, size);
        const uint64_t ticket =
            journal_->append(transaction.span(), transaction.record_count, reserved);
        live_.push_back(transaction.records);
        if (chance(2) == 0) {
            ASSERT_TRUE(journal_->commit(ticket).ok());
        }
    }

    // Takes as much as there is, then gives it back.
    void reserve_and_give_back() {
        const uint64_t available = journal_->available_bytes();
        std::vector<uint32_t> sizes;
        for (uint32_t size = random_size(); journal_->try_reserve(size); size = random_size()) {
            sizes.push_back(size);
        }
        for (const uint32_t size : sizes) {
            journal_->unreserve(size);
        }
        ASSERT_EQ(journal_->available_bytes(), available);
    }

    void checkpoint() {
        ++volume_.superblock.generation;
        const uint64_t ticket = journal_->seal(volume_.superblock.generation + 1);
        ASSERT_TRUE(journal_->commit(ticket).ok());
        volume_.set_start_position(journal_->sealed_position());
        journal_->release_before(journal_->sealed_position());
        live_.clear();
        ASSERT_FALSE(journal_->fuller_than(0));
    }

    void remount() {
        ASSERT_TRUE(journal_->commit(journal_->last_ticket()).ok());
        check();
        mount();
    }
    void mount() {
        const Replay replay = volume_.read();
        ASSERT_TRUE(replay.ok);
        bytes_written_ += journal_ != nullptr ? journal_->counters().bytes : 0;
        ++volume_.superblock.incarnation;
        // What was replayed is in a checkpoint now; frames of the old incarnation are stale.
        volume_.set_start_position(replay.end);
        live_.clear();
        journal_ = volume_.start(replay.end);
        ASSERT_NE(journal_, nullptr);
    }

    void check() {
        ASSERT_TRUE(journal_->commit(journal_->last_ticket()).ok());
        const Replay replay = volume_.read();
        ASSERT_TRUE(replay.ok);
        ASSERT_EQ(replay.transactions, live_);
        ASSERT_EQ(replay.torn_bytes, 0U);
    }

    JournalVolume volume_;
    std::mt19937_64 random_;
    std::unique_ptr<Journal> journal_;
    uint64_t number_ = 0;
    uint64_t bytes_written_ = 0;
    std::vector<Bytes> live_;
};

class JournalRing : public testing::TestWithParam<std::tuple<uint64_t, uint32_t>> {};

TEST_P(JournalRing, ReadsBackOverManyLaps) {
    const auto [journal_bytes, write_unit_bytes] = GetParam();
    for (uint64_t seed = 1; seed <= ::tiffin::test::test_size(3, 1); ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        RingWorkload workload(journal_bytes, write_unit_bytes, seed);
        workload.run(journal_bytes > kMiB ? 1500 : 1000);
        ASSERT_FALSE(HasFatalFailure());
        EXPECT_GT(workload.bytes_written(), 3 * journal_bytes);
    }
}

INSTANTIATE_TEST_SUITE_P(Sizes, JournalRing,
                         testing::Values(std::tuple(kMinimumJournalBytes, 64),
                                         std::tuple(kMinimumJournalBytes, 4096),
                                         std::tuple(uint64_t{512} << 10, 512), std::tuple(kMiB, 64),
                                         std::tuple(4 * kMiB, 4096),
                                         std::tuple(uint64_t{69632}, 1)));

// Every accepted reservation can be written one by one, in frames of its own, and the head never
// meets the tail (the journal asserts that): from every place in the ring.
TEST(JournalRingLimits, EveryAcceptedReservationFits) {
    for (const uint32_t unit : {64U, 512U, 4096U}) {
        for (uint64_t start = 0; start < kMinimumJournalBytes; start += 1024) {
            JournalVolume volume(kMinimumJournalBytes, unit);
            volume.superblock.journal_position = start;
            auto journal = volume.start();
            // The sizes leave the worst rest at the end of the ring and in the write units.
            std::deque<uint32_t> reserved;
            const uint32_t sizes[] = {journal->maximum_transaction_bytes(), 28, unit, 4032};
            for (size_t i = 0; journal->try_reserve(sizes[i % 4]); ++i) {
                reserved.push_back(sizes[i % 4]);
            }
            ASSERT_GE(reserved.size(), 4U);
            uint64_t number = 0;
            for (const uint32_t size : reserved) {
                const Transaction transaction = make_transaction(++number, size);
                ASSERT_TRUE(journal
                                ->commit(journal->append(transaction.span(),
                                                         transaction.record_count, size))
                                .ok());
            }
            ASSERT_EQ(volume.read().transactions.size(), reserved.size());
            // A checkpoint frees everything.
            ASSERT_TRUE(journal->commit(journal->seal(9)).ok());
            journal->release_before(journal->sealed_position());
            ASSERT_EQ(journal->available_bytes(), kMinimumJournalBytes - kMinimumJournalBytes / 8);
        }
    }
}

TEST(JournalRingLimits, KnowsHowFullItIs) {
    JournalVolume volume(kMiB);
    auto journal = volume.start();
    EXPECT_EQ(journal->capacity_bytes(), kMiB);
    EXPECT_FALSE(journal->fuller_than(0));
    const uint32_t maximum = journal->maximum_transaction_bytes();
    EXPECT_EQ(maximum, kMiB / 8 - sizeof(FrameHeader));
    EXPECT_FALSE(journal->try_reserve(maximum + 1));
    EXPECT_FALSE(journal->try_reserve(~uint32_t{0}));
    EXPECT_TRUE(append_and_commit(*journal, make_transaction(1, maximum)));
    EXPECT_TRUE(journal->fuller_than(12));
    EXPECT_FALSE(journal->fuller_than(13));
    EXPECT_TRUE(append_and_commit(*journal, make_transaction(2, maximum)));
    EXPECT_TRUE(journal->fuller_than(24));

    // Releasing the first frame only.
    Replay replay = volume.read();
    journal->release_before({kMiB / 8, 2, replay.frames[0].checksum});
    EXPECT_FALSE(journal->fuller_than(13));
    EXPECT_TRUE(journal->fuller_than(12));

    JournalVolume large(64 * kMiB);
    EXPECT_EQ(large.start()->maximum_transaction_bytes(), kMaximumTransactionBytes);
}

// A mount that finds the ring full to the last byte may read it, and write after a checkpoint.
TEST(JournalRingLimits, AFullRingTakesNothing) {
    JournalVolume volume(kMiB);
    Journal journal(volume.device());
    ASSERT_TRUE(journal.start(volume.superblock, {4096, 9, 0}, {4096, 5, 0}, 2, 2).ok());
    EXPECT_TRUE(journal.fuller_than(99));
    EXPECT_EQ(journal.available_bytes(), 0U);
    EXPECT_FALSE(journal.try_reserve(28));
    journal.release_before({4096, 9, 0});
    EXPECT_FALSE(journal.fuller_than(0));
    EXPECT_TRUE(journal.try_reserve(28));
}

}  // namespace
}  // namespace tiffin::tiffinfs::test
