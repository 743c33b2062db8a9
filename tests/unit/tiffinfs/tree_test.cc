// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: the tree holds exactly what was put, through splits, merges, generations, checkpoints, crashes
// and several threads. Method: random transactions against a std::map, with printed seeds.
#include "fs/tiffinfs/tree/tree.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "fs/tiffinfs/tiffinfs.h"
#include "fs/tiffinfs/volume/volume.h"
#include "fuse/host/memory_device.h"
#include "tests/support/test_size.h"

namespace tiffin::tiffinfs {
namespace {

struct KeyLess {
    bool operator()(const Key& a, const Key& b) const { return a < b; }
};
using Model = std::map<Key, std::string, KeyLess>;

std::unique_ptr<vfs::BlockDevice> make_device(uint64_t size_bytes) {
    auto device = fuse::MemoryDevice::create(size_bytes);
    EXPECT_TRUE(device.ok());
    return std::move(device.value());
}

Volume* open_volume(vfs::BlockDevice& device, uint64_t cache_bytes = 64U << 20) {
    VolumeOptions options;
    options.cache_bytes = cache_bytes;
    options.commit_interval_ms = 0;
    Result<Volume*> volume = Volume::open(device, options);
    EXPECT_TRUE(volume.ok());
    return volume.ok() ? volume.value() : nullptr;
}

struct Collector final : TreeVisitor {
    Model found;
    bool visit(Key key, ByteSpan value) override {
        found[key] = std::string(reinterpret_cast<const char*>(value.data()), value.size());
        return true;
    }
};

// Keys of the test live under node ids from 1000 on, clear of the root directory.
constexpr Key kFirst{1000, 0};

Model contents(Volume& volume) {
    Collector collector;
    EXPECT_TRUE(volume.tree().scan(kFirst, kMaximumKey, collector).ok());
    return collector.found;
}

ByteSpan bytes_of(const std::string& text) {
    return ByteSpan(reinterpret_cast<const unsigned char*>(text.data()), text.size());
}

Result<uint64_t> apply(Volume& volume, const std::vector<std::pair<Key, std::string>>& puts,
                       const std::vector<Key>& erasures) {
    Transaction transaction(volume);
    TRY(transaction.begin(SpacePriority::normal,
                          {.scattered = static_cast<uint32_t>(puts.size() + erasures.size())}));
    for (const auto& [key, value] : puts) {
        TRY(transaction.put(key, bytes_of(value)));
    }
    for (Key key : erasures) {
        TRY(transaction.erase(key));
    }
    TRY(transaction.prepare());
    return transaction.commit();
}

struct RandomRun {
    uint64_t seed;
    int operations;
    uint64_t key_space;
    uint32_t value_max;
};

class TreeRandom : public testing::TestWithParam<RandomRun> {};

TEST_P(TreeRandom, MatchesModelThroughCheckpointsAndCrashes) {
    RandomRun run = GetParam();
    SCOPED_TRACE("seed " + std::to_string(run.seed));
    std::mt19937_64 random(run.seed);
    auto device = make_device(256U << 20);
    ASSERT_TRUE(make_file_system(*device, {}).ok());
    Volume* volume = open_volume(*device, 2U << 20);
    ASSERT_NE(volume, nullptr);
    Model model;
    const auto operations =
        static_cast<int>(::tiffin::test::test_size(static_cast<uint64_t>(run.operations), 1500));
    for (int i = 0; i < operations; ++i) {
        std::vector<std::pair<Key, std::string>> puts;
        std::vector<Key> erasures;
        int count = 1 + static_cast<int>(random() % 4);
        for (int j = 0; j < count; ++j) {
            Key key = make_key(1000 + random() % run.key_space, Kind::entry, random() % 16);
            bool taken = false;
            for (auto& [other, value] : puts) {
                taken = taken || other == key;
            }
            for (Key other : erasures) {
                taken = taken || other == key;
            }
            if (taken) {
                continue;
            }
            if (random() % 3 != 0) {
                puts.emplace_back(key, std::string(random() % run.value_max,
                                                   static_cast<char>('a' + random() % 26)));
            } else {
                erasures.push_back(key);
            }
        }
        ASSERT_TRUE(apply(*volume, puts, erasures).ok());
        for (auto& [key, value] : puts) {
            model[key] = value;
        }
        for (Key key : erasures) {
            model.erase(key);
        }
        uint64_t dice = random() % 2000;
        if (dice < 4) {
            ASSERT_TRUE(volume->checkpoint().ok());
        } else if (dice == 4) {
            ASSERT_TRUE(volume->close().ok());
            Volume::destroy(volume);
            volume = open_volume(*device, 2U << 20);
            ASSERT_NE(volume, nullptr);
        } else if (dice == 5) {
            // A crash after a commit loses nothing.
            ASSERT_TRUE(volume->sync().ok());
            Volume::destroy(volume);
            volume = open_volume(*device, 2U << 20);
            ASSERT_NE(volume, nullptr);
        }
        if (dice < 6) {
            ASSERT_EQ(contents(*volume), model);
        }
    }
    ASSERT_EQ(contents(*volume), model);
    // Everything goes: the tree shrinks back.
    while (!model.empty()) {
        ASSERT_TRUE(apply(*volume, {}, {model.begin()->first}).ok());
        model.erase(model.begin());
    }
    ASSERT_TRUE(contents(*volume).empty());
    EXPECT_EQ(volume->tree().root().level, 0);
    ASSERT_TRUE(volume->close().ok());
    Volume::destroy(volume);
}

INSTANTIATE_TEST_SUITE_P(Seeds, TreeRandom,
                         testing::Values(RandomRun{1, 30000, 2000, 64},
                                         RandomRun{2, 10000, 500, 1280},
                                         RandomRun{3, 20000, 5000, 300},
                                         RandomRun{4, 5000, 20, 1280}));

// Refuses this thread's reads while it is told to.
class GuardedDevice final : public vfs::BlockDevice {
  public:
    explicit GuardedDevice(vfs::BlockDevice& device) : device_(device) {}
    const vfs::DeviceGeometry& geometry() const override { return device_.geometry(); }
    void submit(vfs::IoRequest& request) override { device_.submit(request); }
    using vfs::BlockDevice::read;
    Result<void> read(uint64_t offset_bytes, const vfs::IoVector* buffers,
                      size_t buffer_count) override {
        refused += refusing ? 1 : 0;
        return device_.read(offset_bytes, buffers, buffer_count);
    }

    static inline thread_local bool refusing = false;
    std::atomic<int> refused{0};

  private:
    vfs::BlockDevice& device_;
};

// Since a commit cannot fail, it must need nothing that prepare() has not brought into memory: whatever
// becomes of the leaf that a key was to go to, by the same transaction or another one.
TEST(Tree, CommitsReadNothing) {
    for (uint64_t seed = 1; seed <= test::test_size(6, 2); ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        auto memory = make_device(64U << 20);
        GuardedDevice device(*memory);
        ASSERT_TRUE(make_file_system(device, {}).ok());
        // No node stays in memory that is not held there.
        Volume* volume = open_volume(device, 16U << 10);
        ASSERT_NE(volume, nullptr);
        std::mt19937_64 random(seed);
        Model model;
        for (int i = 0; i < 6000; ++i) {
            // Few large values for each leaf, which often loses all of them.
            const bool growing = i / 1000 % 2 == 0;
            const uint64_t node = 1000 + random() % 400;
            Transaction transaction(*volume);
            ASSERT_TRUE(transaction.begin(SpacePriority::normal, {.scattered = 3}).ok());
            for (uint64_t j = 0; j < 1 + random() % 3; ++j) {
                const Key key = make_key(node, Kind::entry, random() % 3);
                if (random() % 4 < (growing ? 3U : 1U)) {
                    const std::string value(600 + random() % 680, 'v');
                    ASSERT_TRUE(transaction.put(key, bytes_of(value)).ok());
                    model[key] = value;
                } else {
                    ASSERT_TRUE(transaction.erase(key).ok());
                    model.erase(key);
                }
            }
            ASSERT_TRUE(transaction.prepare().ok());
            GuardedDevice::refusing = true;
            transaction.commit();
            GuardedDevice::refusing = false;
            ASSERT_EQ(device.refused, 0) << "transaction " << i;
            if (i % 50 == 0) {
                ASSERT_TRUE(volume->checkpoint().ok());
            }
        }
        ASSERT_EQ(contents(*volume), model);
        while (!model.empty()) {
            ASSERT_TRUE(apply(*volume, {}, {model.begin()->first}).ok());
            model.erase(model.begin());
        }
        EXPECT_EQ(volume->tree().root().level, 0);
        ASSERT_TRUE(volume->close().ok());
        Volume::destroy(volume);
    }
}

// The same with the leaf of a prepared key emptied by another transaction.
TEST(Tree, CommitsReadNothingWhateverOthersErase) {
    auto memory = make_device(64U << 20);
    GuardedDevice device(*memory);
    ASSERT_TRUE(make_file_system(device, {}).ok());
    constexpr uint64_t kKeys = 400;
    const std::string value(1200, 'v');
    Volume* volume = open_volume(device);
    ASSERT_NE(volume, nullptr);
    for (uint64_t i = 0; i < kKeys; ++i) {
        ASSERT_TRUE(apply(*volume, {{make_key(1000 + i, Kind::entry, 1), value}}, {}).ok());
    }
    ASSERT_TRUE(volume->close().ok());
    Volume::destroy(volume);
    for (uint64_t i = 0; i + 6 < kKeys; i += 3) {
        volume = open_volume(device, 16U << 10);
        ASSERT_NE(volume, nullptr);
        Transaction prepared(*volume);
        ASSERT_TRUE(prepared.begin(SpacePriority::normal, {.scattered = 1}).ok());
        ASSERT_TRUE(prepared.put(make_key(1000 + i + 3, Kind::entry, 0), bytes_of(value)).ok());
        ASSERT_TRUE(prepared.prepare().ok());
        std::thread([&] {
            std::vector<Key> keys;
            for (uint64_t j = i; j < i + 6; ++j) {
                keys.push_back(make_key(1000 + j, Kind::entry, 1));
            }
            EXPECT_TRUE(apply(*volume, {}, keys).ok());
            // Nothing else keeps nodes in memory.
            Collector collector;
            EXPECT_TRUE(volume->tree().scan(kMinimumKey, kMaximumKey, collector).ok());
        }).join();
        GuardedDevice::refusing = true;
        prepared.commit();
        GuardedDevice::refusing = false;
        ASSERT_EQ(device.refused, 0) << "key " << i;
        Volume::destroy(volume);  // not closed: the next round finds all keys again
    }
}

TEST(Tree, ScansFromTheLastKeyBefore) {
    auto device = make_device(64U << 20);
    ASSERT_TRUE(make_file_system(*device, {}).ok());
    Volume* volume = open_volume(*device);
    ASSERT_NE(volume, nullptr);
    std::mt19937_64 random(20261126);
    const std::string value(500, 'x');
    Model model;
    for (uint64_t i = 0; i < 1000; ++i) {
        const Key key = make_key(1000 + random() % 3, Kind::extent, random() % 2000);
        model[key] = value;
        ASSERT_TRUE(apply(*volume, {{key, value}}, {}).ok());
    }
    const auto any_key = [&] {
        return make_key(999 + random() % 5, Kind::extent, random() % 2100);
    };
    for (int i = 0; i < 20000; ++i) {
        const Key not_before = any_key();
        const Key first = any_key();
        const Key end = random() % 4 == 0
                            ? any_key()
                            : make_key(first.node, Kind::extent, first.offset() + random() % 50);
        Model expected(model.lower_bound(first), model.end());
        const auto before = model.lower_bound(first);
        if (!model.contains(first) && before != model.begin() &&
            not_before <= std::prev(before)->first) {
            expected.insert(*std::prev(before));
        }
        expected.erase(expected.lower_bound(end), expected.end());
        Collector collector;
        ASSERT_TRUE(volume->tree().scan_from_last(not_before, first, end, collector).ok());
        ASSERT_EQ(collector.found, expected) << "query " << i;
    }
    ASSERT_TRUE(volume->close().ok());
    Volume::destroy(volume);
}

TEST(Tree, FindLastAndFirstCrossLeaves) {
    auto device = make_device(64U << 20);
    ASSERT_TRUE(make_file_system(*device, {}).ok());
    Volume* volume = open_volume(*device);
    ASSERT_NE(volume, nullptr);
    std::string value(500, 'x');
    for (uint64_t i = 0; i < 1000; ++i) {
        ASSERT_TRUE(apply(*volume, {{make_key(1000, Kind::extent, i * 10), value}}, {}).ok());
    }
    auto found = std::make_unique<KeyAndValue>();
    for (uint64_t i = 0; i < 9990; ++i) {
        ASSERT_TRUE(
            volume->tree()
                .find_last(make_key(1000, Kind::extent, i), make_key(1000, Kind::extent, 0), *found)
                .ok());
        ASSERT_EQ(found->key.offset(), i / 10 * 10);
        ASSERT_TRUE(volume->tree()
                        .find_first(make_key(1000, Kind::extent, i),
                                    make_key(1000, Kind::extent, ~0ULL), *found)
                        .ok());
        ASSERT_EQ(found->key.offset(), (i + 9) / 10 * 10);
    }
    Result<void> none = volume->tree().find_last(make_key(999, Kind::extent, 5),
                                                 make_key(999, Kind::extent, 0), *found);
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.error(), Error::enoent);
    ASSERT_TRUE(volume->close().ok());
    Volume::destroy(volume);
}

TEST(Tree, ThreadsChangeTheirOwnKeysWhileCheckpointsRun) {
    auto device = make_device(256U << 20);
    ASSERT_TRUE(make_file_system(*device, {}).ok());
    Volume* volume = open_volume(*device, 8U << 20);
    ASSERT_NE(volume, nullptr);
    constexpr int kThreads = 4;
    std::vector<Model> models(kThreads);
    std::vector<std::thread> threads;
    std::atomic<bool> stop{false};
    std::atomic<int> failures{0};
    for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
            std::mt19937_64 random(static_cast<uint64_t>(t) + 77);
            for (int i = 0; i < 4000; ++i) {
                // Interleaved node ids: the threads meet in the same leaves.
                Key key = make_key(1000 + random() % 300 * kThreads + static_cast<uint64_t>(t),
                                   Kind::entry, random() % 4);
                std::string value(random() % 200, static_cast<char>('a' + t));
                if (random() % 4 != 0) {
                    failures += apply(*volume, {{key, value}}, {}).ok() ? 0 : 1;
                    models[static_cast<size_t>(t)][key] = value;
                } else {
                    failures += apply(*volume, {}, {key}).ok() ? 0 : 1;
                    models[static_cast<size_t>(t)].erase(key);
                }
            }
        });
    }
    std::thread checkpointer([&] {
        while (!stop) {
            failures += volume->checkpoint().ok() ? 0 : 1;
            std::this_thread::yield();
        }
    });
    for (std::thread& thread : threads) {
        thread.join();
    }
    stop = true;
    checkpointer.join();
    EXPECT_EQ(failures, 0);
    Model all;
    for (Model& model : models) {
        all.insert(model.begin(), model.end());
    }
    EXPECT_EQ(contents(*volume), all);
    ASSERT_TRUE(volume->close().ok());
    Volume::destroy(volume);
    volume = open_volume(*device);
    ASSERT_NE(volume, nullptr);
    EXPECT_EQ(contents(*volume), all);
    ASSERT_TRUE(volume->close().ok());
    Volume::destroy(volume);
}

}  // namespace
}  // namespace tiffin::tiffinfs
