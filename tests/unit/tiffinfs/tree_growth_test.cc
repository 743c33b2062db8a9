// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: who looks for a key finds it also while the nodes on the way are being split, which takes two changes:
// one to the node that loses its upper half, and one to the node above. Method: a writer that only appends, with
// values so large that inner nodes are split all the time, and readers who look for the latest keys. The moment
// between the two changes is short: it is met by chance (with a pause put there, thousands of times in a run).
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "fs/tiffinfs/tiffinfs.h"
#include "fs/tiffinfs/volume/volume.h"
#include "fuse/host/memory_device.h"
#include "tests/support/test_size.h"

namespace tiffin::tiffinfs {
namespace {

constexpr uint64_t kNode = 1000;

Key key_at(uint64_t number) { return make_key(kNode, Kind::extent, number); }

Result<void> append(Volume& volume, uint64_t number, ByteSpan value) {
    Transaction transaction(volume);
    TRY(transaction.begin(SpacePriority::normal, {.scattered = 1}));
    TRY(transaction.put(key_at(number), value));
    TRY(transaction.prepare());
    (void)transaction.commit();
    return {};
}

// Looks for keys just behind the end until it is told to stop; how many were not found.
uint64_t miss(Volume& volume, const std::atomic<uint64_t>& end, const std::atomic<bool>& stop) {
    std::vector<unsigned char> buffer(kMaximumValueBytes);
    uint64_t missed = 0;
    for (uint64_t round = 0; !stop.load(std::memory_order_relaxed); ++round) {
        const uint64_t count = end.load(std::memory_order_acquire);
        if (count == 0) {
            continue;
        }
        const uint64_t number = count - 1 - (round % 4 < count ? round % 4 : 0);
        const Result<uint32_t> got =
            volume.tree().get(key_at(number), MutableByteSpan(buffer.data(), buffer.size()));
        missed += got.ok() ? 0 : 1;
    }
    return missed;
}

TEST(TreeGrowth, KeysAreFoundWhileInnerNodesAreSplit) {
    auto device = fuse::MemoryDevice::create(512U << 20);
    ASSERT_TRUE(device.ok());
    ASSERT_TRUE(make_file_system(*device.value(), {}).ok());
    VolumeOptions options;
    options.cache_bytes = 256U << 20;
    options.commit_interval_ms = 0;
    Result<Volume*> opened = Volume::open(*device.value(), options);
    ASSERT_TRUE(opened.ok());
    Volume& volume = *opened.value();
    std::atomic<uint64_t> end{0};
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> missed{0};
    std::vector<std::thread> readers;
    for (int i = 0; i < 3; ++i) {
        readers.emplace_back([&] { missed += miss(volume, end, stop); });
    }
    const std::string value(1200, 'v');
    const uint64_t count = test::test_size(60'000, 4'000);
    for (uint64_t number = 0; number < count; ++number) {
        ASSERT_TRUE(
            append(volume, number,
                   ByteSpan(reinterpret_cast<const unsigned char*>(value.data()), value.size()))
                .ok());
        end.store(number + 1, std::memory_order_release);
    }
    stop = true;
    for (std::thread& reader : readers) {
        reader.join();
    }
    EXPECT_EQ(missed, 0U);
    ASSERT_TRUE(volume.close().ok());
    Volume::destroy(&volume);
}

}  // namespace
}  // namespace tiffin::tiffinfs
