// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The journal without failures: what is appended is read back, at the cost that was promised.
#include "fs/tiffinfs/journal/journal.h"

#include <gtest/gtest.h>

#include "fuse/host/allocation_hooks.h"
#include "tests/support/units.h"
#include "tests/unit/tiffinfs/journal_fixture.h"

namespace tiffin::tiffinfs::test {
namespace {

TEST(Journal, AnEmptyOneIsRead) {
    JournalVolume volume(kMiB);
    const Replay replay = volume.read();
    EXPECT_TRUE(replay.ok);
    EXPECT_TRUE(replay.transactions.empty());
    EXPECT_EQ(replay.end.offset_bytes, 0U);
    EXPECT_EQ(replay.end.sequence, 1U);
    EXPECT_EQ(replay.torn_bytes, 0U);
}

TEST(Journal, ReadsBackWhatWasCommitted) {
    JournalVolume volume(kMiB);
    auto journal = volume.start();
    ASSERT_NE(journal, nullptr);
    std::vector<Bytes> expected;
    for (uint64_t number = 1; number <= 10; ++number) {
        const Transaction transaction =
            make_transaction(number, static_cast<uint32_t>(28 + 400 * (number - 1)));
        EXPECT_EQ(append(*journal, transaction), number);
        expected.push_back(transaction.records);
    }
    EXPECT_EQ(journal->durable_ticket(), 0U);
    EXPECT_GT(journal->pending_bytes(), 0U);
    EXPECT_TRUE(journal->commit(10).ok());
    EXPECT_EQ(journal->durable_ticket(), 10U);
    EXPECT_EQ(journal->pending_bytes(), 0U);

    const Replay replay = volume.read();
    EXPECT_TRUE(replay.ok);
    EXPECT_EQ(replay.transactions, expected);
    ASSERT_EQ(replay.frames.size(), 1U);
    EXPECT_EQ(replay.frames[0].transaction_count, 10U);
    EXPECT_EQ(replay.frames[0].generation, 2U);
    EXPECT_EQ(replay.frames[0].incarnation, 1U);
    EXPECT_EQ(replay.end.sequence, 2U);
    EXPECT_EQ(replay.torn_bytes, 0U);
}

TEST(Journal, OneCommitIsOneWrite) {
    JournalVolume volume(kMiB, 64);
    auto journal = volume.start();
    for (uint64_t number = 1; number <= 3; ++number) {
        volume.device().reset_counts();
        EXPECT_TRUE(append_and_commit(*journal, make_transaction(number, 8 + 300)));
        EXPECT_EQ(volume.device().counts().writes, 1U);
        EXPECT_LE(volume.device().counts().bytes_written, 448U);
        EXPECT_EQ(volume.device().counts().flushes, 0U);
        EXPECT_EQ(volume.device().counts().reads, 0U);
    }
    EXPECT_EQ(journal->counters().frames, 3U);
    EXPECT_EQ(journal->counters().bytes, 3 * 384U);
    EXPECT_EQ(journal->counters().flushes, 0U);

    // Committing what is durable already costs nothing.
    volume.device().reset_counts();
    EXPECT_TRUE(journal->commit(3).ok());
    EXPECT_TRUE(journal->commit(0).ok());
    EXPECT_EQ(volume.device().counts().writes, 0U);
}

TEST(Journal, RefusesAJournalOutsideTheDevice) {
    JournalVolume volume(kMiB);
    const Superblock good = volume.superblock;
    const auto refused = [&] {
        JournalReader reader(volume.device());
        Result<void> reads = reader.start(volume.superblock, volume.start_position());
        EXPECT_FALSE(reads.ok());
        EXPECT_EQ(reads.error(), Error::euclean);
        return volume.start() == nullptr;
    };
    volume.superblock.journal_block_count = kMiB / kBlockBytes + 2;
    EXPECT_TRUE(refused());
    volume.superblock.journal_block_count = ~uint64_t{0};
    EXPECT_TRUE(refused());
    volume.superblock.journal_block_count = kMinimumJournalBytes / kBlockBytes - 1;
    EXPECT_TRUE(refused());
    volume.superblock = good;
    volume.superblock.journal_first_block = ~uint64_t{0} - 3;
    EXPECT_TRUE(refused());
    volume.superblock = good;
    volume.superblock.journal_position = kMiB + 1;
    EXPECT_TRUE(refused());
    volume.superblock = good;
    EXPECT_FALSE(volume.start() == nullptr);
}

TEST(Journal, GivesBackItsMemoryWhenThereIsNotEnough) {
    JournalVolume volume(kMiB);
    for (uint64_t number = 1; number <= 3; ++number) {
        fuse::AllocationWatch watch;
        Journal journal(volume.device());
        watch.fail_allocation(number);
        Result<void> started = journal.start(volume.superblock, {}, {}, 1, 1);
        ASSERT_FALSE(started.ok());
        EXPECT_EQ(started.error(), Error::enomem);
        EXPECT_EQ(watch.live_bytes(), 0);
        // It may be tried again.
        EXPECT_TRUE(journal.start(volume.superblock, {}, {}, 1, 1).ok());
    }
    fuse::AllocationWatch watch;
    JournalReader reader(volume.device());
    watch.fail_allocation(1);
    Result<void> started = reader.start(volume.superblock, {});
    ASSERT_FALSE(started.ok());
    EXPECT_EQ(started.error(), Error::enomem);
}

// As that of a volume that is mounted to be read.
TEST(Journal, ThatIsNotStartedHasNothingToCommit) {
    JournalVolume volume(kMiB);
    Journal journal(volume.device());
    EXPECT_EQ(journal.last_ticket(), 0U);
    EXPECT_EQ(journal.pending_bytes(), 0U);
    EXPECT_TRUE(journal.commit(journal.last_ticket()).ok());
}

// ---- Generations --------------------------------------------------------------------------------

TEST(Journal, SealsAGeneration) {
    JournalVolume volume(kMiB);
    auto journal = volume.start();
    append(*journal, make_transaction(1, 100));
    EXPECT_EQ(journal->seal(3), 1U);
    append(*journal, make_transaction(2, 100));
    EXPECT_EQ(journal->seal(4), 2U);
    const uint64_t last = append(*journal, make_transaction(3, 100));
    EXPECT_TRUE(journal->commit(2).ok());
    const JournalPosition sealed = journal->sealed_position();
    EXPECT_TRUE(journal->commit(last).ok());
    EXPECT_EQ(journal->sealed_position().offset_bytes, sealed.offset_bytes);

    Replay replay = volume.read();
    ASSERT_EQ(replay.frames.size(), 3U);
    for (uint64_t i = 0; i < 3; ++i) {
        EXPECT_EQ(replay.frames[i].generation, 2 + i);
    }
    volume.set_start_position(sealed);
    replay = volume.read();
    EXPECT_TRUE(replay.ok);
    ASSERT_EQ(replay.transactions.size(), 1U);
    EXPECT_EQ(replay.transactions[0], make_transaction(3, 100).records);
}

TEST(Journal, SealsAGenerationWithoutFrames) {
    JournalVolume volume(kMiB);
    auto journal = volume.start();
    EXPECT_EQ(journal->seal(3), 0U);
    EXPECT_EQ(journal->sealed_position().sequence, 1U);
    EXPECT_TRUE(append_and_commit(*journal, make_transaction(1, 100)));
    EXPECT_EQ(volume.read().frames[0].generation, 3U);
    // Everything is durable before the seal: the position is known at once.
    EXPECT_EQ(journal->seal(4), 1U);
    EXPECT_EQ(journal->sealed_position().sequence, 2U);
    EXPECT_EQ(journal->sealed_position().offset_bytes, 192U);
}

TEST(Journal, SealsWhenAllBuffersAreFull) {
    JournalVolume volume(kMinimumJournalBytes);
    auto journal = volume.start();
    // 8 KiB frames: two transactions of 3 KiB fit one; six fill all buffers.
    for (uint64_t number = 1; number <= 6; ++number) {
        append(*journal, make_transaction(number, 3072));
    }
    EXPECT_EQ(journal->counters().frames, 0U);
    EXPECT_EQ(journal->seal(3), 6U);
    EXPECT_EQ(journal->counters().frames, 1U);
    EXPECT_TRUE(journal->commit(6).ok());
    EXPECT_EQ(journal->sealed_position().sequence, 4U);
}

TEST(Journal, AppendingWritesWhenAllBuffersAreFull) {
    JournalVolume volume(kMiB);
    auto journal = volume.start();
    std::vector<Bytes> expected;
    for (uint64_t number = 1; number <= 9; ++number) {
        const Transaction transaction =
            make_transaction(number, journal->maximum_transaction_bytes() / 128 * 64);
        append(*journal, transaction);
        expected.push_back(transaction.records);
    }
    EXPECT_EQ(journal->counters().frames, 2U);
    EXPECT_EQ(journal->durable_ticket(), 4U);
    EXPECT_TRUE(journal->commit(9).ok());
    EXPECT_EQ(volume.read().transactions, expected);
}

// ---- Other devices ------------------------------------------------------------------------------

// An image that was written on a device with small write units and copied to one with larger ones.
TEST(Journal, ReadsFramesOfADeviceWithOtherWriteUnits) {
    for (const uint32_t writer_unit : {64U, 512U, 4096U}) {
        for (const uint32_t reader_unit : {64U, 512U, 4096U}) {
            JournalVolume volume(kMinimumJournalBytes, writer_unit);
            auto journal = volume.start();
            std::vector<Bytes> expected;
            for (uint64_t number = 1; number <= 5; ++number) {
                const Transaction transaction = make_transaction(number, 28);
                ASSERT_TRUE(append_and_commit(*journal, transaction));
                expected.push_back(transaction.records);
            }
            JournalVolume copy(
                std::make_unique<CrashDevice>(
                    volume.device().crash_image(CrashOutcome::keep_completed, 1),
                    JournalVolume::geometry(kMinimumJournalBytes, reader_unit, false)),
                kMinimumJournalBytes);
            Replay replay = copy.read();
            EXPECT_TRUE(replay.ok);
            EXPECT_EQ(replay.transactions, expected);
            EXPECT_EQ(replay.end.offset_bytes % reader_unit, 0U);

            // A position between frames is good for another reader.
            JournalReader first_reader(copy.device());
            ASSERT_TRUE(first_reader.start(copy.superblock, copy.start_position()).ok());
            FrameHeader header;
            ASSERT_TRUE(first_reader.next(header).ok());
            ASSERT_TRUE(first_reader.next(header).ok());
            copy.set_start_position(first_reader.position());
            EXPECT_EQ(copy.read().transactions, std::vector(expected.begin() + 2, expected.end()));
            copy.set_start_position(volume.start_position());

            // And it goes on there.
            auto next = copy.start(replay.end);
            ASSERT_TRUE(append_and_commit(*next, make_transaction(6, 28)));
            expected.push_back(make_transaction(6, 28).records);
            EXPECT_EQ(copy.read().transactions, expected);
        }
    }
}

TEST(Journal, WritesNothingOutsideItsPlace) {
    JournalVolume volume(kMinimumJournalBytes, 64);
    auto journal = volume.start();
    for (uint64_t number = 1; number <= 200; ++number) {
        const Transaction transaction = make_transaction(number, 4000);
        ASSERT_TRUE(append_and_commit(*journal, transaction));
        const uint64_t ticket = journal->seal(number);
        ASSERT_TRUE(journal->commit(ticket).ok());
        journal->release_before(journal->sealed_position());
    }
    const uint64_t journal_begin = volume.byte_on_device(0);
    const uint64_t journal_end = volume.byte_on_device(kMinimumJournalBytes);
    Bytes all(volume.device().geometry().size_bytes);
    ASSERT_TRUE(volume.device().read(0, all.data(), all.size()).ok());
    for (uint64_t i = 0; i < all.size(); ++i) {
        if (i < journal_begin || i >= journal_end) {
            ASSERT_EQ(all[i], 0) << "byte " << i;
        }
    }
}

}  // namespace
}  // namespace tiffin::tiffinfs::test
