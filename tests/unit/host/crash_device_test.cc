// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/support/crash_device.h"

#include <set>

#include "tests/support/device_testing.h"

namespace tiffin::test {
namespace {

using fuse::Bytes;
using fuse::error_of;
using fuse::read_bytes;
using fuse::write_bytes;

constexpr uint64_t kDeviceBytes = 1 << 20;

Bytes filled(unsigned char value, size_t size_bytes = 4096) { return Bytes(size_bytes, value); }

vfs::DeviceGeometry geometry_with(uint32_t write_unit_bytes, bool volatile_cache) {
    vfs::DeviceGeometry geometry;
    geometry.size_bytes = kDeviceBytes;
    geometry.write_unit_bytes = write_unit_bytes;
    geometry.volatile_cache = volatile_cache;
    return geometry;
}

TEST(CrashDevice, KeepsTheContract) {
    CrashDevice device(4 << 20);
    fuse::check_device_contract(device);
    CrashDevice small_units(geometry_with(64, false));
    fuse::check_device_contract(small_units);
}

TEST(CrashDevice, TakesRequestsFromManyThreads) {
    CrashDevice device(4 << 20);
    fuse::check_concurrent_submits(device);
}

TEST(CrashDevice, Counts) {
    CrashDevice device(kDeviceBytes);
    ASSERT_TRUE(write_bytes(device, 0, filled(1, 8192)).ok());
    ASSERT_TRUE(write_bytes(device, 4096, filled(2)).ok());
    EXPECT_EQ(device.unflushed_writes(), 2U);
    ASSERT_TRUE(device.flush().ok());
    EXPECT_EQ(device.unflushed_writes(), 0U);
    ASSERT_TRUE(device.discard(0, 4096).ok());
    EXPECT_EQ(read_bytes(device, 0, 4096), filled(CrashDevice::kDiscardPattern));
    const IoCounts counts = device.counts();
    EXPECT_EQ(counts.reads, 1U);
    EXPECT_EQ(counts.bytes_read, 4096U);
    EXPECT_EQ(counts.writes, 2U);
    EXPECT_EQ(counts.bytes_written, 12288U);
    EXPECT_EQ(counts.flushes, 1U);
    EXPECT_EQ(counts.discards, 1U);
    device.reset_counts();
    EXPECT_EQ(device.counts().writes, 0U);
}

// ---- Power failures ------------------------------------------------------------------------

TEST(CrashDevice, StopsAfterTheChosenWrite) {
    CrashDevice device(kDeviceBytes);
    device.stop_after_writes(2);
    EXPECT_TRUE(write_bytes(device, 0, filled(1)).ok());
    EXPECT_TRUE(device.flush().ok());
    EXPECT_TRUE(write_bytes(device, 4096, filled(2)).ok());
    EXPECT_FALSE(device.stopped());
    EXPECT_EQ(error_of(write_bytes(device, 8192, filled(3))), EIO);
    EXPECT_TRUE(device.stopped());
    EXPECT_EQ(error_of(write_bytes(device, 0, filled(4))), EIO);
    EXPECT_EQ(error_of(device.flush()), EIO);
    EXPECT_EQ(error_of(device.discard(0, 4096)), EIO);
    EXPECT_TRUE(read_bytes(device, 0, 4096).empty());

    auto dropped = device.after_crash(CrashOutcome::drop_unflushed, 0);
    EXPECT_EQ(read_bytes(*dropped, 0, 4096), filled(1));
    EXPECT_EQ(read_bytes(*dropped, 4096, 4096), filled(0));
    EXPECT_EQ(read_bytes(*dropped, 8192, 4096), filled(0));
    auto kept = device.after_crash(CrashOutcome::keep_completed, 0);
    EXPECT_EQ(read_bytes(*kept, 0, 4096), filled(1));
    EXPECT_EQ(read_bytes(*kept, 4096, 4096), filled(2));
    EXPECT_EQ(read_bytes(*kept, 8192, 4096), filled(0));
    EXPECT_FALSE(kept->stopped());
    EXPECT_EQ(kept->counts().writes, 0U);
}

TEST(CrashDevice, TheWriteUnderWayMayBeTorn) {
    CrashDevice device(geometry_with(512, false));
    ASSERT_TRUE(write_bytes(device, 0, filled(1)).ok());
    device.stop_after_writes(0);
    EXPECT_FALSE(write_bytes(device, 0, filled(2)).ok());
    std::set<Bytes> images;
    for (uint64_t seed = 0; seed < 50; ++seed) {
        auto after = device.after_crash(CrashOutcome::keep_random_units, seed);
        const Bytes bytes = read_bytes(*after, 0, 4096);
        for (size_t unit = 0; unit < 4096; unit += 512) {
            const Bytes part(bytes.begin() + static_cast<ptrdiff_t>(unit),
                             bytes.begin() + static_cast<ptrdiff_t>(unit + 512));
            EXPECT_TRUE(part == filled(1, 512) || part == filled(2, 512)) << "a unit is whole";
        }
        images.insert(bytes);
    }
    EXPECT_GT(images.size(), 20U);
}

TEST(CrashDevice, WithoutACacheCompletedWritesAreDurable) {
    CrashDevice device(geometry_with(64, false));
    ASSERT_TRUE(write_bytes(device, 0, filled(1)).ok());
    for (CrashOutcome outcome : kCrashOutcomes) {
        auto after = device.after_crash(outcome, 7);
        EXPECT_EQ(read_bytes(*after, 0, 4096), filled(1));
    }
}

// Which of four unflushed writes to different places survive, as a set of bits, over many seeds.
std::set<unsigned> survivors(CrashOutcome outcome) {
    CrashDevice device(kDeviceBytes);
    for (unsigned char i = 0; i < 4; ++i) {
        EXPECT_TRUE(write_bytes(device, uint64_t{i} * 4096, filled(1, 512)).ok());
    }
    std::set<unsigned> result;
    for (uint64_t seed = 0; seed < 300; ++seed) {
        auto after = device.after_crash(outcome, seed);
        unsigned bits = 0;
        for (unsigned i = 0; i < 4; ++i) {
            if (read_bytes(*after, uint64_t{i} * 4096, 512) == filled(1, 512)) {
                bits |= 1U << i;
            }
        }
        result.insert(bits);
    }
    return result;
}

TEST(CrashDevice, OutcomesAreWhatTheySay) {
    EXPECT_EQ(survivors(CrashOutcome::drop_unflushed), (std::set<unsigned>{0}));
    EXPECT_EQ(survivors(CrashOutcome::keep_completed), (std::set<unsigned>{15}));
    EXPECT_EQ(survivors(CrashOutcome::keep_prefix), (std::set<unsigned>{0, 1, 3, 7, 15}));
    EXPECT_EQ(survivors(CrashOutcome::keep_suffix), (std::set<unsigned>{0, 8, 12, 14, 15}));
    EXPECT_EQ(survivors(CrashOutcome::keep_random_writes).size(), 16U);
    EXPECT_EQ(survivors(CrashOutcome::keep_random_units).size(), 16U);
}

TEST(CrashDevice, OverwrittenUnitsMayHoldAnyVersion) {
    CrashDevice device(kDeviceBytes);
    ASSERT_TRUE(write_bytes(device, 0, filled(1, 512)).ok());
    ASSERT_TRUE(device.flush().ok());
    ASSERT_TRUE(write_bytes(device, 0, filled(2, 512)).ok());
    ASSERT_TRUE(write_bytes(device, 0, filled(3, 512)).ok());
    std::set<unsigned char> seen;
    for (uint64_t seed = 0; seed < 100; ++seed) {
        auto after = device.after_crash(CrashOutcome::keep_random_writes, seed);
        seen.insert(read_bytes(*after, 0, 512).at(0));
    }
    EXPECT_EQ(seen, (std::set<unsigned char>{1, 2, 3}));
}

TEST(CrashDevice, TheSameSeedGivesTheSameImage) {
    CrashDevice device(kDeviceBytes);
    for (uint32_t i = 0; i < 20; ++i) {
        ASSERT_TRUE(write_bytes(device, uint64_t{i} * 8192, fuse::pattern(8192, i)).ok());
    }
    for (CrashOutcome outcome : kCrashOutcomes) {
        auto one = device.after_crash(outcome, 99);
        auto two = device.after_crash(outcome, 99);
        EXPECT_EQ(read_bytes(*one, 0, kDeviceBytes), read_bytes(*two, 0, kDeviceBytes));
    }
}

TEST(CrashDevice, ImagesDoNotChangeEachOther) {
    CrashDevice device(kDeviceBytes);
    ASSERT_TRUE(write_bytes(device, 0, filled(1)).ok());
    auto after = device.after_crash(CrashOutcome::keep_completed, 0);
    ASSERT_TRUE(write_bytes(*after, 0, filled(2)).ok());
    EXPECT_EQ(read_bytes(device, 0, 4096), filled(1));
    ASSERT_TRUE(write_bytes(device, 0, filled(3)).ok());
    EXPECT_EQ(read_bytes(*after, 0, 4096), filled(2));
}

// ---- Faults --------------------------------------------------------------------------------

TEST(CrashDevice, FailsTheChosenOperation) {
    CrashDevice device(kDeviceBytes);
    device.fail_write(2);
    EXPECT_TRUE(write_bytes(device, 0, filled(1)).ok());
    EXPECT_EQ(error_of(write_bytes(device, 0, filled(2))), EIO);
    EXPECT_EQ(read_bytes(device, 0, 4096), filled(1)) << "the failed write had no effect";
    EXPECT_TRUE(write_bytes(device, 0, filled(3)).ok());

    Bytes bytes(4096);
    device.fail_read(1);
    EXPECT_EQ(error_of(device.read(0, bytes.data(), 4096)), EIO);
    EXPECT_EQ(error_of(device.read(0, bytes.data(), 4096)), 0);

    device.fail_flush(1);
    EXPECT_EQ(error_of(device.flush()), EIO);
    EXPECT_NE(device.unflushed_writes(), 0U);
    EXPECT_EQ(error_of(device.flush()), 0);

    device.fail_read(1);
    device.fail_read(0);
    EXPECT_EQ(error_of(device.read(0, bytes.data(), 4096)), 0);
}

TEST(CrashDevice, DamageIsForGood) {
    CrashDevice device(kDeviceBytes);
    ASSERT_TRUE(write_bytes(device, 0, filled(0x10)).ok());
    device.flip_bit(100, 0);
    const unsigned char other[3] = {7, 8, 9};
    device.overwrite(511, other, 3);
    for (CrashOutcome outcome : kCrashOutcomes) {
        const Bytes bytes = read_bytes(*device.after_crash(outcome, 1), 0, 4096);
        ASSERT_EQ(bytes.size(), 4096U);
        EXPECT_EQ(bytes[99], 0x10);
        EXPECT_EQ(bytes[100], 0x11);
        EXPECT_EQ(bytes[511], 7);
        EXPECT_EQ(bytes[513], 9);
    }
}

// ---- Recordings ----------------------------------------------------------------------------

TEST(CrashReplay, ShowsEveryCrashPointOfOneRun) {
    CrashDevice device(kDeviceBytes);
    ASSERT_TRUE(write_bytes(device, 0, filled(1)).ok());
    device.start_recording();
    ASSERT_TRUE(write_bytes(device, 0, filled(2)).ok());
    ASSERT_TRUE(device.flush().ok());
    ASSERT_TRUE(write_bytes(device, 0, filled(3)).ok());
    CrashReplay replay(device.take_recording());
    EXPECT_EQ(replay.size(), 3U);

    std::string dropped;
    std::string kept;
    std::string torn;
    do {
        const auto first_byte = [&replay](CrashOutcome outcome) {
            return std::to_string(read_bytes(*replay.after_crash(outcome, 1), 0, 512).at(0));
        };
        dropped += first_byte(CrashOutcome::drop_unflushed);
        kept += first_byte(CrashOutcome::keep_completed);
        std::set<std::string> seen;
        for (uint64_t seed = 0; seed < 40; ++seed) {
            auto after = replay.after_crash(CrashOutcome::keep_random_units, seed);
            seen.insert(std::to_string(read_bytes(*after, 0, 512).at(0)));
        }
        for (const std::string& value : seen) {
            torn += value;
        }
        torn += ' ';
    } while (replay.advance());
    EXPECT_EQ(replay.position(), 3U);
    EXPECT_FALSE(replay.advance());
    // Before the write; before the flush; before the second write; at the end.
    EXPECT_EQ(dropped, "1122");
    EXPECT_EQ(kept, "1223");
    EXPECT_EQ(torn, "12 12 23 23 ");
}

// ---- SparseImage ---------------------------------------------------------------------------

TEST(SparseImage, IsZeroUntilWritten) {
    SparseImage image(100000);
    EXPECT_EQ(image.allocated_bytes(), 0U);
    Bytes bytes(100000, 1);
    image.read(0, bytes.data(), bytes.size());
    EXPECT_EQ(bytes, filled(0, 100000));
    const Bytes source = fuse::pattern(40000, 1);
    image.write(12345, source.data(), source.size());
    bytes.resize(40000);
    image.read(12345, bytes.data(), bytes.size());
    EXPECT_EQ(bytes, source);
    EXPECT_LE(image.allocated_bytes(), 65536U);
}

TEST(SparseImage, CopiesAreIndependent) {
    SparseImage image(65536);
    image.write(0, "abc", 3);
    SparseImage copy = image.copy();
    image.write(0, "x", 1);
    copy.write(2, "z", 1);
    SparseImage second = copy.copy();
    second.write(1, "y", 1);
    const auto text = [](const SparseImage& from) {
        std::string bytes(3, ' ');
        from.read(0, bytes.data(), 3);
        return bytes;
    };
    EXPECT_EQ(text(image), "xbc");
    EXPECT_EQ(text(copy), "abz");
    EXPECT_EQ(text(second), "ayz");
}

TEST(SparseImageDeathTest, KnowsItsBounds) {
    SparseImage image(4096);
    char byte = 0;
    EXPECT_DEATH(image.read(4096, &byte, 1), "assertion failed");
    EXPECT_DEATH(image.write(UINT64_MAX, &byte, 1), "assertion failed");
}

}  // namespace
}  // namespace tiffin::test
