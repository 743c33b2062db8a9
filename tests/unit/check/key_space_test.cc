// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The keys as the checker sees them, with changes on top: against a map, and how much searches look at.
#include "fuse/check/key_space.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <vector>

#include "fuse/check/check.h"
#include "fuse/check/context.h"
#include "fuse/check/extent_edit.h"
#include "fuse/check/tree_walk.h"
#include "tests/unit/check/check_support.h"
#include "tests/unit/check/image_editor.h"

namespace tiffin::check {
namespace {

using test::CrashDevice;
using tiffinfs::Key;
using tiffinfs::Kind;
using tiffinfs::make_key;

constexpr uint64_t kNode = 5000;  // a node id that nobody has

class KeySpaceTest : public testing::Test {
  protected:
    void SetUp() override {
        make_populated(device_, 500);
        superblock_ = ImageEditor(device_).superblock();
        context_.layout = MUST(tiffinfs::Layout::from(superblock_));
        SpaceMap nodes(context_.layout);
        keys_ = std::make_unique<KeySpace>(device_, superblock_,
                                           walk_tree(context_, superblock_, nodes).leaves);
        MUST(keys_->scan([&](Key key, ByteSpan value) {
            expected_[key] = {value.begin(), value.end()};
            return true;
        }));
        ASSERT_GT(expected_.size(), 1000U);
    }

    Key end() const { return Key{~uint64_t{0}, 0}; }

    // Steps and reads that a search takes.
    template <typename Search>
    uint64_t cost_of(Search search) {
        const uint64_t steps = keys_->steps();
        const uint64_t reads = device_.counts().reads;
        search();
        return keys_->steps() - steps + device_.counts().reads - reads;
    }

    CrashDevice device_{kDeviceBytes};
    CheckOptions options_;
    Report report_;
    Context context_{device_, options_, report_};
    tiffinfs::Superblock superblock_{};
    std::unique_ptr<KeySpace> keys_;
    std::map<Key, Bytes> expected_;
    KeyValue found_;
};

TEST_F(KeySpaceTest, DoesWhatAMapDoes) {
    std::mt19937_64 random(1);
    std::vector<Key> all;
    for (const auto& [key, value] : expected_) {
        all.push_back(key);
        all.push_back(tiffinfs::next_key(key));
    }
    const auto any = [&] { return all[random() % all.size()]; };
    for (int i = 0; i < 3000; ++i) {
        const Key key = any();
        switch (random() % 8) {
            case 0:
                keys_->put(key, ByteSpan(reinterpret_cast<const unsigned char*>("new"), 3));
                expected_[key] = {'n', 'e', 'w'};
                break;
            case 1: {
                const Key last = all[std::min<size_t>(all.size() - 1, random() % all.size() + 20)];
                if (key < last && random() % 20 == 0) {
                    keys_->erase_range(key, last);
                    expected_.erase(expected_.lower_bound(key), expected_.lower_bound(last));
                }
                break;
            }
            default:
                keys_->erase(key);
                expected_.erase(key);
        }
        const Key a = any();
        const Key b = any();
        const auto first = expected_.lower_bound(a);
        const bool exists = first != expected_.end() && first->first < b;
        ASSERT_EQ(MUST(keys_->find_first(a, b, found_)), exists) << i;
        if (exists) {
            ASSERT_TRUE(found_.key == first->first && found_.value == first->second) << i;
        }
        auto last = expected_.upper_bound(b);
        const bool exists_before = last != expected_.begin() && a <= (--last)->first;
        ASSERT_EQ(MUST(keys_->find_last(b, a, found_)), exists_before) << i;
        if (exists_before) {
            ASSERT_TRUE(found_.key == last->first && found_.value == last->second) << i;
        }
    }
    std::map<Key, Bytes> seen;
    MUST(keys_->scan([&](Key key, ByteSpan value) {
        seen[key] = {value.begin(), value.end()};
        return true;
    }));
    EXPECT_TRUE(seen == expected_);
}

TEST_F(KeySpaceTest, PassesOverRemovedKeysInFewSteps) {
    for (const auto& [key, value] : expected_) {
        keys_->erase(key);
    }
    const auto search = [&] {
        EXPECT_FALSE(MUST(keys_->find_first(tiffinfs::kMinimumKey, end(), found_)));
        EXPECT_FALSE(MUST(keys_->find_last(end(), tiffinfs::kMinimumKey, found_)));
    };
    search();
    EXPECT_LE(cost_of(search), 8U);
    EXPECT_TRUE(keys_->changes().empty());
}

TEST_F(KeySpaceTest, RemovingWhatDoesNotExistLeavesNothing) {
    for (uint64_t i = 0; i < 1000; ++i) {
        const Key key = make_key(kNode, Kind::extent, i * 3);
        keys_->put(key, ByteSpan());
        keys_->erase(key);
        EXPECT_FALSE(keys_->is_gone(key));
    }
    EXPECT_TRUE(keys_->changes().empty());
}

// The map of one file, changed again and again: each change looks at its neighbours only.
TEST_F(KeySpaceTest, ExtentsLookAtTheirNeighbours) {
    const uint64_t total = superblock_.total_blocks;
    constexpr uint64_t kExtents = 4000;
    const auto map = [&](uint64_t block) {
        const tiffinfs::ExtentValue value{300 + block % 7 * 2, 1, 1,
                                          tiffinfs::extent_flag::unwritten};
        const Bytes bytes = bytes_of(value);
        MUST(map_extent(*keys_, total, make_key(kNode, Kind::extent, block),
                        ByteSpan(bytes.data(), bytes.size())));
    };
    const auto map_all = [&] {
        for (uint64_t i = 0; i < kExtents; ++i) {
            map(i * 2);
        }
    };
    const auto unmap_many_times = [&] {
        for (uint64_t i = 0; i < kExtents; ++i) {
            MUST(unmap_range(*keys_, total, kNode, kExtents * 2, kExtents * 2 + 100));
        }
    };
    EXPECT_LE(cost_of(map_all), 10 * kExtents);
    EXPECT_LE(cost_of(unmap_many_times), 10 * kExtents);
    keys_->erase_range(make_key(kNode, Kind::extent, 0), make_key(kNode, Kind::orphan, 0));
    EXPECT_LE(cost_of(unmap_many_times), 10 * kExtents);
    EXPECT_LE(cost_of([&] { map(kExtents * 2); }), 10U);
}

// One frame may hold hundred thousands of records.
TEST(Replay, IsCancelledInTheMiddleOfAFrame) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 5);
    ImageEditor editor(device);
    constexpr uint32_t kRecords = 1000;
    Bytes records;
    for (uint32_t i = 0; i < kRecords; ++i) {
        const Bytes record =
            ImageEditor::record(tiffinfs::RecordType::erase, make_key(kNode, Kind::extent, i), {});
        records.insert(records.end(), record.begin(), record.end());
    }
    editor.append_frame(records, kRecords);
    bool in_journal = false;
    uint32_t asked = 0;
    CheckOptions options;
    options.repair = true;
    options.on_progress = [&](const Progress& progress) {
        in_journal = progress.phase == Phase::journal;
    };
    options.is_cancelled = [&] { return in_journal && ++asked > kRecords + kRecords / 2; };
    device.reset_counts();
    const Report report = check_file_system(device, options);
    EXPECT_TRUE(report.cancelled);
    EXPECT_FALSE(report.changed);
    EXPECT_EQ(asked, kRecords + kRecords / 2 + 1);
    EXPECT_EQ(device.counts().writes, 0U);
}

}  // namespace
}  // namespace tiffin::check
