// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a reader makes of a journal after power failures, damage, old frames and forgery.
#include <gtest/gtest.h>

#include <cstring>

#include "fs/tiffinfs/journal/journal.h"
#include "fuse/host/log_sink.h"
#include "tests/unit/tiffinfs/journal_fixture.h"

namespace tiffin::tiffinfs::test {
namespace {

constexpr uint64_t kRingBytes = kMinimumJournalBytes;

// The same device after a power failure in which everything completed was kept.
JournalVolume copy_of(JournalVolume& volume) {
    JournalVolume copy(volume.device().after_crash(CrashOutcome::keep_completed, 0), kRingBytes);
    copy.superblock = volume.superblock;
    return copy;
}

std::vector<Bytes> records_of(uint64_t first, uint64_t last, uint32_t size_bytes) {
    std::vector<Bytes> records;
    for (uint64_t number = first; number <= last; ++number) {
        records.push_back(make_transaction(number, size_bytes).records);
    }
    return records;
}

// Frames of one transaction each, numbered from `first` to `last`.
void write_frames(Journal& journal, uint64_t first, uint64_t last, uint32_t size_bytes) {
    for (uint64_t number = first; number <= last; ++number) {
        ASSERT_TRUE(append_and_commit(journal, make_transaction(number, size_bytes)));
    }
}

// ---- Power failures -----------------------------------------------------------------------------

// Three frames are acknowledged, the fourth is cut off: at every write unit, from either end, or
// with holes. Then the journal goes on in its place.
class TornFrame : public testing::TestWithParam<uint32_t> {};

TEST_P(TornFrame, LeavesExactlyWhatWasAcknowledged) {
    const uint32_t unit = GetParam();
    constexpr uint32_t kSize =
        4096 * 3 / 2;  // with its header and padding the largest frame: 8 KiB
    JournalVolume volume(kRingBytes, unit);
    auto journal = volume.start();
    write_frames(*journal, 1, 3, kSize);
    JournalVolume before = copy_of(volume);
    const JournalPosition cut = volume.read().end;
    write_frames(*journal, 4, 4, kSize);
    const uint64_t units = (volume.read().end.offset_bytes - cut.offset_bytes) / unit;
    const Bytes frame = volume.content(cut.offset_bytes, units * unit);

    for (uint64_t kept = 0; kept < units; ++kept) {
        for (const bool from_the_front : {true, false}) {
            JournalVolume torn = copy_of(before);
            const uint64_t first = from_the_front ? 0 : units - kept;
            torn.device().overwrite(torn.byte_on_device(cut.offset_bytes + first * unit),
                                    frame.data() + first * unit, kept * unit);
            // A unit that was kept may hold nothing but the padding behind the payload.
            if (torn.content(cut.offset_bytes, frame.size()) == frame) {
                continue;
            }
            Replay replay = torn.read();
            ASSERT_TRUE(replay.ok);
            ASSERT_EQ(replay.transactions, records_of(1, 3, kSize));
            ASSERT_EQ(replay.end.offset_bytes, cut.offset_bytes);
            ASSERT_EQ(replay.end.sequence, 4U);
            ASSERT_EQ(replay.torn_bytes > 0, from_the_front && kept > 0) << kept << " units kept";

            // The next mount writes a smaller frame over it.
            torn.superblock.incarnation = 2;
            auto next = torn.start(replay.end);
            write_frames(*next, 4, 4, 100);
            torn.superblock.incarnation = 1;  // the reader may still hold the older superblock
            replay = torn.read();
            ASSERT_TRUE(replay.ok);
            ASSERT_EQ(replay.transactions.size(), 4U);
            ASSERT_EQ(replay.transactions[3], make_transaction(4, 100).records);
            ASSERT_EQ(replay.torn_bytes, 0U);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(WriteUnits, TornFrame, testing::Values(64, 512, 4096));

// Random workloads, cut off at a random write, in all the ways a device may behave.
TEST(JournalRecovery, KeepsAPrefixWithAllThatWasAcknowledged) {
    std::mt19937_64 random(7);
    for (int round = 0; round < 300; ++round) {
        const bool volatile_cache = random() % 2 == 0;
        JournalVolume volume(kRingBytes, volatile_cache ? 512 : 64, volatile_cache);
        volume.superblock.journal_position = random() % kRingBytes / 512 * 512;
        auto journal = volume.start();
        volume.device().stop_after_writes(random() % 8);
        std::vector<Bytes> appended;
        size_t acknowledged = 0;
        fuse::CapturedLog log;
        while (!journal->dead()) {
            const auto size = static_cast<uint32_t>(28 + random() % 300 * 4);
            const Transaction transaction = make_transaction(appended.size() + 1, size);
            const uint64_t ticket = append(*journal, transaction);
            appended.push_back(transaction.records);
            if (random() % 2 == 0 && journal->commit(ticket).ok()) {
                acknowledged = appended.size();
            }
        }
        for (const CrashOutcome outcome : tiffin::test::kCrashOutcomes) {
            JournalVolume after(volume.device().after_crash(outcome, random()), kRingBytes);
            after.superblock = volume.superblock;
            const Replay replay = after.read();
            ASSERT_TRUE(replay.ok) << "round " << round;
            ASSERT_GE(replay.transactions.size(), acknowledged) << "round " << round;
            ASSERT_LE(replay.transactions.size(), appended.size());
            ASSERT_TRUE(std::equal(replay.transactions.begin(), replay.transactions.end(),
                                   appended.begin()));
        }
    }
}

// ---- Damage -------------------------------------------------------------------------------------

// Any flipped bit of a frame is noticed: in the last one it looks like a torn write, in all others
// acknowledged changes are gone.
TEST(JournalRecovery, NoticesEveryFlippedBit) {
    constexpr uint32_t kSize = 100;  // frames of 164 bytes in 192
    constexpr uint64_t kFrameBytes = 192;
    fuse::CapturedLog log;
    JournalVolume volume(kRingBytes, 64);
    volume.superblock.journal_position = kRingBytes - 3 * kFrameBytes - 64;  // the last one wraps
    auto journal = volume.start();
    write_frames(*journal, 1, 4, kSize);
    for (uint64_t number = 1; number <= 4; ++number) {
        const uint64_t begin =
            number == 4 ? 0 : volume.superblock.journal_position + (number - 1) * kFrameBytes;
        for (uint64_t byte = 0; byte < kFrameBytes; ++byte) {
            for (unsigned bit = 0; bit < 8; ++bit) {
                const uint64_t place = volume.byte_on_device(begin + byte);
                volume.device().flip_bit(place, bit);
                const Replay replay = volume.read();
                volume.device().flip_bit(place, bit);
                if (byte >= sizeof(FrameHeader) + kSize) {
                    ASSERT_TRUE(replay.ok);  // padding
                    ASSERT_EQ(replay.transactions.size(), 4U);
                    continue;
                }
                ASSERT_EQ(replay.transactions, records_of(1, number - 1, kSize));
                ASSERT_EQ(replay.ok, number == 4) << "byte " << byte << " bit " << bit;
                if (number == 4) {
                    ASSERT_GT(replay.torn_bytes, 0U) << "byte " << byte << " bit " << bit;
                } else {
                    ASSERT_EQ(replay.error, Error::euclean);
                    ASSERT_EQ(replay.end.sequence, number);
                }
            }
        }
    }
    EXPECT_TRUE(log.contains("error: journal: frame 2 at byte "));
    EXPECT_TRUE(log.contains("acknowledged changes cannot be replayed"));
}

TEST(JournalRecovery, ReportsDamageAgainAndAgain) {
    fuse::CapturedLog log;
    JournalVolume volume(kRingBytes);
    auto journal = volume.start();
    write_frames(*journal, 1, 2, 100);
    volume.device().flip_bit(volume.byte_on_device(70), 0);
    JournalReader reader(volume.device());
    ASSERT_TRUE(reader.start(volume.superblock, volume.start_position()).ok());
    FrameHeader header;
    for (int i = 0; i < 3; ++i) {
        Result<ByteSpan> payload = reader.next(header);
        ASSERT_FALSE(payload.ok());
        EXPECT_EQ(payload.error(), Error::euclean);
    }
    EXPECT_EQ(log.lines().size(), 1U);
}

// A frame that went to the wrong place was acknowledged all the same.
TEST(JournalRecovery, NoticesAMisplacedFrame) {
    fuse::CapturedLog log;
    JournalVolume volume(kRingBytes);
    auto journal = volume.start();
    write_frames(*journal, 1, 2, 100);
    const Bytes frame = volume.content(192, 192);
    const Bytes zeros(192);
    volume.device().overwrite(volume.byte_on_device(192), zeros.data(), zeros.size());
    volume.device().overwrite(volume.byte_on_device(20480), frame.data(), frame.size());
    EXPECT_EQ(volume.read().error, Error::euclean);
}

TEST(JournalRecovery, PassesReadErrorsOn) {
    JournalVolume volume(4 << 20);
    auto journal = volume.start();
    write_frames(*journal, 1, 3, 100);
    // In a frame, and where only the search for later frames reads.
    for (const uint64_t byte : {200U, 3U << 20}) {
        volume.device().fail_reads_at(volume.byte_on_device(byte));
        EXPECT_EQ(volume.read().error, Error::eio);
        volume.device().fail_reads_at(test::CrashDevice::kNowhere);
    }
    EXPECT_TRUE(volume.read().ok);
    // Once: what is needed is read again, without the rest of the window.
    volume.device().fail_read(1);
    EXPECT_TRUE(volume.read().ok);
}

// ---- Frames of other times ----------------------------------------------------------------------

// fsck gave up a damaged journal: frames behind the damage are whole, have the right sequences, and
// the incarnation of the run that was given up.
TEST(JournalRecovery, LeavesStaleFramesAlone) {
    fuse::CapturedLog log;
    JournalVolume volume(kRingBytes);
    auto journal = volume.start();
    write_frames(*journal, 1, 6, 100);
    journal.reset();
    volume.device().flip_bit(volume.byte_on_device(3 * 192 + 100), 0);  // frame 4
    Replay replay = volume.read();
    EXPECT_EQ(replay.error, Error::euclean);
    EXPECT_EQ(replay.transactions.size(), 3U);

    // The superblock that gives the rest up: a checkpoint of the three, a new incarnation.
    const Superblock old_superblock = volume.superblock;
    volume.superblock.incarnation = 2;
    volume.set_start_position(replay.end);
    replay = volume.read();
    EXPECT_TRUE(replay.ok);
    EXPECT_TRUE(replay.transactions.empty());

    // The new frame 4 is as long as the old one, so the old frame 5 is where a new one would be.
    journal = volume.start(replay.end);
    write_frames(*journal, 40, 40, 100);
    replay = volume.read();
    EXPECT_TRUE(replay.ok);
    EXPECT_EQ(replay.transactions, records_of(40, 40, 100));
    EXPECT_EQ(replay.end.sequence, 5U);

    // Should the new superblock be lost, the old one leads to the same end.
    volume.superblock = old_superblock;
    replay = volume.read();
    EXPECT_TRUE(replay.ok);
    EXPECT_EQ(replay.transactions.size(), 4U);
    EXPECT_EQ(replay.frames[3].incarnation, 2U);
}

// Writes a frame by hand, with everything right except what the caller chose.
void forge_frame(JournalVolume& volume, uint64_t offset, FrameHeader header, const Bytes& payload) {
    header.magic = kFrameMagic;
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    header.transaction_count = 1;
    header.checksum = 0;
    const uint32_t sum = host::crc32c(0, &header, sizeof(header));
    header.checksum = host::crc32c(sum, payload.data(), payload.size());
    volume.device().overwrite(volume.byte_on_device(offset), &header, sizeof(header));
    volume.device().overwrite(volume.byte_on_device(offset + sizeof(header)), payload.data(),
                              payload.size());
}

// Every identity of a frame counts: the same frame, right in all but one, is not accepted.
TEST(JournalRecovery, AcceptsOnlyFramesOfItsChain) {
    fuse::CapturedLog log;
    JournalVolume volume(kRingBytes);
    volume.superblock.incarnation = 5;
    auto journal = volume.start();
    write_frames(*journal, 1, 1, 100);
    Replay replay = volume.read();
    const JournalPosition place = replay.end;
    // The payload of frame 1 serves as one.
    const Bytes payload = volume.content(sizeof(FrameHeader), 100);
    FrameHeader good{};
    good.volume_nonce = volume.superblock.volume_nonce;
    good.incarnation = 5;
    good.sequence = 2;
    good.previous_checksum = place.previous_checksum;

    const auto with = [&](FrameHeader header) {
        JournalVolume copy = copy_of(volume);
        forge_frame(copy, place.offset_bytes, header, payload);
        return copy.read();
    };
    EXPECT_EQ(with(good).transactions.size(), 2U);
    FrameHeader header = good;
    header.incarnation = 6;
    EXPECT_EQ(with(header).transactions.size(), 2U);

    // Stale or foreign: the journal ends before it.
    header.incarnation = 4;
    replay = with(header);
    EXPECT_TRUE(replay.ok);
    EXPECT_EQ(replay.transactions.size(), 1U);
    header = good;
    header.volume_nonce ^= 1;
    replay = with(header);
    EXPECT_TRUE(replay.ok);
    EXPECT_EQ(replay.transactions.size(), 1U);
    header = good;
    header.sequence = 1;
    replay = with(header);
    EXPECT_TRUE(replay.ok);
    EXPECT_EQ(replay.transactions.size(), 1U);

    // Whole, of this run, but not the next one: something is missing.
    header.sequence = 3;
    EXPECT_EQ(with(header).error, Error::euclean);
    header = good;
    header.previous_checksum ^= 1;
    EXPECT_EQ(with(header).error, Error::euclean);
}

// ---- Hostile content ----------------------------------------------------------------------------

TEST(JournalRecovery, EndsOnAnyBytes) {
    fuse::CapturedLog log;
    std::mt19937_64 random(3);
    JournalVolume volume(kRingBytes);
    auto journal = volume.start();
    write_frames(*journal, 1, 20, 1000);
    const std::vector<Bytes> all = records_of(1, 20, 1000);
    for (int round = 0; round < 500; ++round) {
        JournalVolume copy = copy_of(volume);
        for (uint64_t changes = 1 + random() % 20; changes > 0; --changes) {
            // Half of them in headers, which are at multiples of 1088.
            const uint64_t offset = random() % 2 == 0
                                        ? random() % 20 * 1088 + random() % sizeof(FrameHeader)
                                        : random() % (20 * uint64_t{1088});
            const auto byte = static_cast<unsigned char>(random());
            copy.device().overwrite(copy.byte_on_device(offset), &byte, 1);
        }
        const Replay replay = copy.read();
        ASSERT_TRUE(replay.ok || replay.error == Error::euclean);
        ASSERT_LE(replay.transactions.size(), all.size());
        ASSERT_TRUE(
            std::equal(replay.transactions.begin(), replay.transactions.end(), all.begin()));
    }
    Bytes garbage(kRingBytes);
    for (unsigned char& byte : garbage) {
        byte = static_cast<unsigned char>(random());
    }
    volume.device().overwrite(volume.byte_on_device(0), garbage.data(), garbage.size());
    EXPECT_TRUE(volume.read().ok);
}

// A ring full of headers that each name a megabyte of payload must not make the search slow: it
// stops at a bound, and says that the journal is not right.
TEST(JournalRecovery, BoundsItsSearch) {
    fuse::CapturedLog log;
    constexpr uint64_t kBytes = 8U << 20;
    JournalVolume volume(kBytes);
    FrameHeader header{};
    header.magic = kFrameMagic;
    header.volume_nonce = volume.superblock.volume_nonce;
    header.incarnation = 1;
    header.sequence = 2;
    header.payload_bytes = kMaximumFramePayloadBytes;
    Bytes ring(kBytes);
    for (uint64_t offset = 0; offset < kBytes; offset += sizeof(header)) {
        memcpy(ring.data() + offset, &header, sizeof(header));
    }
    volume.device().overwrite(volume.byte_on_device(0), ring.data(), ring.size());
    EXPECT_EQ(volume.read().error, Error::euclean);
    EXPECT_LE(volume.device().counts().bytes_read, 4 * kBytes);
}

// Sequences and sizes at the ends of their ranges.
TEST(JournalRecovery, SurvivesExtremeNumbers) {
    fuse::CapturedLog log;
    JournalVolume volume(kRingBytes);
    volume.superblock.journal_sequence = ~uint64_t{0};
    volume.superblock.incarnation = ~uint64_t{0};
    volume.superblock.journal_position = kRingBytes;
    EXPECT_TRUE(volume.read().ok);
    EXPECT_EQ(volume.read().end.offset_bytes, 0U);
    const Transaction transaction = make_transaction(1, 100);
    FrameHeader header{};
    header.volume_nonce = volume.superblock.volume_nonce;
    volume.superblock.journal_sequence = kCounterLimit - 1;
    volume.superblock.incarnation = kCounterLimit - 1;
    header.incarnation = kCounterLimit - 1;
    header.sequence = kCounterLimit - 1;
    Bytes payload(sizeof(TransactionHeader));
    const TransactionHeader transaction_header{92, 1};
    memcpy(payload.data(), &transaction_header, sizeof(transaction_header));
    payload.insert(payload.end(), transaction.records.begin(), transaction.records.end());
    forge_frame(volume, 0, header, payload);
    Replay replay = volume.read();
    EXPECT_EQ(replay.transactions.size(), 1U);

    // No volume gets there.
    header.incarnation = kCounterLimit;
    forge_frame(volume, 0, header, payload);
    EXPECT_TRUE(volume.read().transactions.empty());

    for (const uint32_t payload_bytes : {0U, 1U, kMaximumFramePayloadBytes + 1, 0xffffffffU}) {
        header.magic = kFrameMagic;
        header.payload_bytes = payload_bytes;
        volume.device().overwrite(volume.byte_on_device(0), &header, sizeof(header));
        replay = volume.read();
        EXPECT_TRUE(replay.ok);
        EXPECT_TRUE(replay.transactions.empty());
        EXPECT_LE(replay.torn_bytes, kRingBytes);
    }
}

}  // namespace
}  // namespace tiffin::tiffinfs::test
