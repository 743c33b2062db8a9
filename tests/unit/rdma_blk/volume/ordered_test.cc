// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Ordered writes of the remote device: one batch, the record only behind its data, and what a file system's fsync
// becomes by that.
#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "tests/support/test_volume.h"
#include "tests/support/units.h"
#include "tests/unit/rdma_blk/volume/device_fixture.h"

namespace tiffin::rdma_blk {
namespace {

using Bytes = std::vector<unsigned char>;

// Some writes and a record, with memory of their own.
struct Ordered {
    explicit Ordered(std::vector<uint64_t> places, size_t size_bytes = 4096,
                     unsigned char fill = 0xaa) {
        contents.assign(places.size(), Bytes(size_bytes, fill));
        vectors.resize(places.size());
        for (size_t i = 0; i < places.size(); ++i) {
            vectors[i] = {contents[i].data(), contents[i].size()};
            writes.push_back({places[i], &vectors[i], 1});
        }
    }
    // The last place is the record's.
    Result<void> run(vfs::BlockDevice& device) {
        return device.write_ordered(Span<const vfs::OrderedWrite>(writes.data(), writes.size() - 1),
                                    writes.back());
    }

    std::vector<Bytes> contents;
    std::vector<vfs::IoVector> vectors;
    std::vector<vfs::OrderedWrite> writes;
};

class OrderedWrites : public testing::TestWithParam<Durability> {};

INSTANTIATE_TEST_SUITE_P(Durabilities, OrderedWrites,
                         testing::Values(Durability::process, Durability::power));

TEST_P(OrderedWrites, AreOneRoundTripAndDurable) {
    TestVolume volume(1, 16 * kMiB, GetParam());
    auto device = volume.open();
    ASSERT_NE(device, nullptr) << volume.problem;
    EXPECT_TRUE(device->combines_ordered_writes());
    const bool has_disk = GetParam() == Durability::power;
    // Written before, and so durable before the record is.
    ASSERT_TRUE(device->write(8 * kMiB, Bytes(4096, 1).data(), 4096).ok());
    const auto before = volume.memories[0]->counts();
    ASSERT_TRUE(Ordered({0, kMiB, 2 * kMiB, 3 * kMiB}).run(*device).ok());
    const auto after = volume.memories[0]->counts();
    EXPECT_EQ(after.submits - before.submits, 1U);
    EXPECT_EQ(after.operations - before.operations, has_disk ? 6U : 4U);
    EXPECT_EQ(after.flushes - before.flushes, has_disk ? 2U : 0U);
    for (const uint64_t place : {uint64_t{0}, kMiB, 2 * kMiB, 3 * kMiB}) {
        EXPECT_EQ(volume.servers[0]->data[place + 4095], 0xaa);
    }
    if (has_disk) {
        EXPECT_EQ(volume.servers[0]->durable, volume.servers[0]->data);
        // Nothing is left that a restart of the server could lose.
        EXPECT_EQ(volume.memories[0]->flushed_mark(), volume.memories[0]->change_mark());
        const auto flushes = volume.memories[0]->counts().flushes;
        ASSERT_TRUE(device->flush().ok());
        EXPECT_EQ(volume.memories[0]->counts().flushes, flushes);
    }
}

TEST_P(OrderedWrites, ARecordAloneIsOneRoundTrip) {
    TestVolume volume(1, 16 * kMiB, GetParam());
    auto device = volume.open();
    ASSERT_NE(device, nullptr) << volume.problem;
    const auto before = volume.memories[0]->counts();
    ASSERT_TRUE(Ordered({kMiB}).run(*device).ok());
    EXPECT_EQ(volume.memories[0]->counts().submits - before.submits, 1U);
    EXPECT_EQ(volume.memories[0]->counts().operations - before.operations,
              GetParam() == Durability::power ? 2U : 1U);
}

TEST_P(OrderedWrites, ARecordDoesNotTakeEffectWithoutItsData) {
    for (const Outcome outcome : {Outcome::not_executed, Outcome::unknown}) {
        TestVolume volume(1, 16 * kMiB, GetParam());
        auto device = volume.open();
        ASSERT_NE(device, nullptr) << volume.problem;
        volume.memories[0]->set_judge(
            [&](const Operation& operation) -> std::optional<test::LocalMemory::Fault> {
                if (operation.kind == OperationKind::write && operation.offset_bytes == kMiB) {
                    return test::LocalMemory::Fault{outcome, Error::eio, false};
                }
                return std::nullopt;
            });
        EXPECT_FALSE(Ordered({0, kMiB, 2 * kMiB}).run(*device).ok());
        EXPECT_EQ(volume.servers[0]->data[2 * kMiB], 0);
        volume.memories[0]->set_judge({});
        // What was written of it is not taken for durable.
        ASSERT_TRUE(device->flush().ok());
        if (GetParam() == Durability::power) {
            EXPECT_EQ(volume.servers[0]->durable, volume.servers[0]->data);
        }
    }
}

TEST(OrderedWritesOfDisks, AFailedFlushKeepsTheRecordOutAndTheDataDirty) {
    TestVolume volume(1, 16 * kMiB, Durability::power);
    auto device = volume.open();
    ASSERT_NE(device, nullptr) << volume.problem;
    ASSERT_TRUE(device->write(8 * kMiB, Bytes(4096, 1).data(), 4096).ok());
    volume.memories[0]->set_judge(
        [](const Operation& operation) -> std::optional<test::LocalMemory::Fault> {
            if (operation.kind == OperationKind::flush) {
                return test::LocalMemory::Fault{};
            }
            return std::nullopt;
        });
    EXPECT_FALSE(Ordered({0, kMiB}).run(*device).ok());
    EXPECT_EQ(volume.servers[0]->data[kMiB], 0);
    EXPECT_LT(volume.memories[0]->flushed_mark(), volume.memories[0]->change_mark());
    volume.memories[0]->set_judge({});
    ASSERT_TRUE(device->flush().ok());
    EXPECT_EQ(volume.servers[0]->durable, volume.servers[0]->data);
}

// LocalMemory takes 8 ranges with a flush.
TEST(OrderedWritesOfDisks, MoreThanAFlushTakesIsFlushedBefore) {
    for (uint64_t chunks : {7, 8, 9, 30}) {
        TestVolume volume(1, 16 * kMiB, Durability::power);
        auto device = volume.open();
        ASSERT_NE(device, nullptr) << volume.problem;
        for (uint64_t i = 0; i < chunks; ++i) {
            ASSERT_TRUE(
                device->write(i * 4 * DirtyMap::kChunkBytes, Bytes(4096, 1).data(), 4096).ok());
        }
        ASSERT_TRUE(Ordered({12 * kMiB, 13 * kMiB, 14 * kMiB}).run(*device).ok());
        EXPECT_EQ(volume.servers[0]->durable, volume.servers[0]->data);
        EXPECT_EQ(volume.memories[0]->flushed_mark(), volume.memories[0]->change_mark());
    }
}

// One range, and more than a round: what is behind it must not stay behind the record.
TEST(OrderedWritesOfDisks, MoreThanARoundTakesIsFlushedBefore) {
    constexpr uint64_t kVolumeBytes = 4 * DirtyMap::kRoundBytes;
    TestVolume volume(1, kVolumeBytes, Durability::power);
    auto device = volume.open();
    ASSERT_NE(device, nullptr) << volume.problem;
    const Bytes content(kMiB, 1);
    for (uint64_t at = 0; at < 3 * DirtyMap::kRoundBytes + kMiB; at += kMiB) {
        ASSERT_TRUE(device->write(at, content.data(), content.size()).ok());
    }
    ASSERT_TRUE(Ordered({kVolumeBytes - 2 * kMiB, kVolumeBytes - kMiB}).run(*device).ok());
    EXPECT_TRUE(volume.servers[0]->durable == volume.servers[0]->data);
    EXPECT_EQ(volume.memories[0]->flushed_mark(), volume.memories[0]->change_mark());
}

TEST_P(OrderedWrites, WhatDoesNotFitIsDoneStepByStep) {
    for (const size_t servers : {1, 3}) {
        TestVolume volume(servers, 16 * kMiB, GetParam());
        volume.memory_options.limits.transfer_bytes = 64 << 10;
        auto device = volume.open({.write = true, .stripe_bytes = 16384});
        ASSERT_NE(device, nullptr) << volume.problem;
        EXPECT_EQ(device->combines_ordered_writes(), servers == 1);
        ASSERT_TRUE(Ordered({0, kMiB, 2 * kMiB}, 256 << 10).run(*device).ok());
        std::vector<uint64_t> many;
        for (uint64_t i = 0; i < 20; ++i) {
            many.push_back(4 * kMiB + i * 8192);
        }
        ASSERT_TRUE(Ordered(many).run(*device).ok());
        Bytes read(4096);
        ASSERT_TRUE(device->read(many.back(), read.data(), read.size()).ok());
        EXPECT_EQ(read, Bytes(4096, 0xaa));
        for (auto& server : volume.servers) {
            if (GetParam() == Durability::power) {
                EXPECT_EQ(server->durable, server->data);
            }
        }
    }
}

// A server keeps what waits for its disk, and stops reading when that gets much: probes would not be answered.
TEST_P(OrderedWrites, ALargeRecordDoesNotWaitAtTheServerForItsDisk) {
    const bool has_disk = GetParam() == Durability::power;
    for (const size_t size_bytes : {64 << 10, 128 << 10}) {
        TestVolume volume(1, 16 * kMiB, GetParam());
        auto device = volume.open();
        ASSERT_NE(device, nullptr) << volume.problem;
        const bool is_large = size_bytes > volume.memory_options.limits.eager_bytes;
        const uint64_t before = volume.memories[0]->counts().submits;
        ASSERT_TRUE(Ordered({0, kMiB}, size_bytes).run(*device).ok());
        const uint64_t submits = volume.memories[0]->counts().submits - before;
        EXPECT_EQ(submits > 1, has_disk && is_large) << submits;
        if (has_disk) {
            EXPECT_EQ(volume.servers[0]->durable, volume.servers[0]->data);
        }
    }
}

TEST_P(OrderedWrites, WhatIsWrongIsRefusedAndNothingWritten) {
    TestVolume volume(1, 16 * kMiB, GetParam());
    auto device = volume.open();
    ASSERT_NE(device, nullptr) << volume.problem;
    const uint64_t before = volume.memories[0]->counts().writes;
    EXPECT_EQ(Ordered({0, 16 * kMiB}).run(*device).error(), Error::eio);
    EXPECT_EQ(Ordered({1, kMiB}).run(*device).error(), Error::einval);
    EXPECT_EQ(volume.memories[0]->counts().writes, before);
}

// Writers, flushes and ordered writes at once: LocalMemory asserts that nothing is written while it is
// flushed, unless the order is said.
TEST_P(OrderedWrites, GetAlongWithOthers) {
    for (uint32_t seed = 1; seed <= 3; ++seed) {
        TestVolume volume(1, 16 * kMiB, GetParam());
        volume.memory_options.seed = seed;
        auto device = volume.open();
        ASSERT_NE(device, nullptr) << volume.problem;
        std::vector<std::thread> threads;
        std::atomic<uint32_t> failed{0};
        for (uint32_t thread = 0; thread < 4; ++thread) {
            threads.emplace_back([&, thread] {
                std::mt19937 random(seed * 100 + thread);
                // Everyone has pages of his own in every chunk.
                const auto place = [&] {
                    return random() % 64 * DirtyMap::kChunkBytes + thread * 16384 +
                           random() % 2 * 4096;
                };
                const Bytes bytes(4096, static_cast<unsigned char>(thread + 1));
                for (int i = 0; i < 60; ++i) {
                    if (thread < 2) {
                        const uint64_t first = place();
                        uint64_t second = place();
                        second = second == first ? first ^ 4096 : second;
                        failed += !Ordered({first, second}).run(*device).ok();
                    } else if (random() % 8 == 0) {
                        failed += !device->flush().ok();
                    } else {
                        failed += !device->write(place(), bytes.data(), bytes.size()).ok();
                    }
                }
            });
        }
        for (auto& thread : threads) {
            thread.join();
        }
        EXPECT_EQ(failed, 0U);
        ASSERT_TRUE(device->flush().ok());
        if (GetParam() == Durability::power) {
            EXPECT_EQ(volume.servers[0]->durable, volume.servers[0]->data);
        }
    }
}

// ---- A file system ----------------------------------------------------------------------------------------------

TEST_P(OrderedWrites, FsyncOfASmallFileIsOneRoundTrip) {
    TestVolume volume(1, 64 * kMiB, GetParam());
    auto device = volume.open();
    ASSERT_NE(device, nullptr) << volume.problem;
    test::TestVolume files(*device);
    ASSERT_TRUE(files.make().ok());
    ASSERT_TRUE(files.mount().ok());
    ASSERT_TRUE(files.write("/warm", 0, std::string(100, 'x')).ok());
    ASSERT_TRUE(files.write("/block", 0, std::string(4096, 'x')).ok());
    ASSERT_TRUE(files.sync().ok());
    const auto submits = [&] { return volume.memories[0]->counts().submits; };

    uint64_t before = submits();
    ASSERT_TRUE(files.write("/warm", 0, std::string(100, 'y')).ok());
    ASSERT_TRUE(files.fsync("/warm").ok());
    EXPECT_EQ(submits() - before, 1U);

    // A block of data goes before its record: the call that writes it has returned.
    before = submits();
    ASSERT_TRUE(files.write("/block", 0, std::string(4096, 'y')).ok());
    EXPECT_EQ(submits() - before, 1U);
    ASSERT_TRUE(files.fsync("/block").ok());
    EXPECT_EQ(submits() - before, 2U);

    // All of it is there after a power failure.
    files.abandon();
    device.reset();
    if (GetParam() == Durability::power) {
        volume.servers[0]->lose_power();
    }
    device = volume.open();
    ASSERT_NE(device, nullptr) << volume.problem;
    test::TestVolume again(*device);
    ASSERT_TRUE(again.mount().ok());
    EXPECT_EQ(again.read("/warm").value(), std::string(100, 'y'));
    EXPECT_EQ(again.read("/block").value(), std::string(4096, 'y'));
    ASSERT_TRUE(again.unmount().ok());
}

}  // namespace
}  // namespace tiffin::rdma_blk
