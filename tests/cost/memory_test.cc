// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a file system keeps in memory for each node that its host remembers: a kernel that has looked at a
// million files holds references to all of them. Counted are the bytes that go through the host's allocator,
// without any clock and without what a C library adds.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fs/tiffinfs/objects/object.h"
#include "fs/tiffinfs/tiffinfs.h"
#include "fuse/host/allocation_hooks.h"
#include "fuse/host/memory_device.h"
#include "tests/support/test_size.h"

namespace tiffin::test {
namespace {

constexpr uint64_t kCacheBytes = 4U << 20;
constexpr uint32_t kMaximumObjects = 2048;
// Of a full cache: a node's own structure beside its page.
constexpr uint64_t kNodeOverheadBytes = 512;
// Bitmaps, workspaces, tables that are there from the start.
constexpr uint64_t kFixedBytes = 4U << 20;
// A slot of 16 bytes, in a table that is seven eighths full at most and grows by a quarter.
constexpr uint64_t kReferenceBytes = 24;

vfs::Name name_of(const std::string& text) { return {text.data(), text.size()}; }

class Memory : public testing::Test {
  protected:
    Memory() {
        device_ = std::move(fuse::MemoryDevice::create(512U << 20).value());
        EXPECT_TRUE(tiffinfs::make_file_system(*device_, {}).ok());
    }
    ~Memory() override { unmount(); }

    void mount() {
        tiffinfs::MountOptions options;
        options.volume.commit_interval_ms = 0;
        options.volume.cache_bytes = kCacheBytes;
        options.access_time = tiffinfs::AccessTimePolicy::noatime;
        options.maximum_objects = kMaximumObjects;
        Result<vfs::FileSystem*> mounted = tiffinfs::mount(*device_, options);
        ASSERT_TRUE(mounted.ok());
        fs_ = mounted.value();
    }
    void unmount() {
        if (fs_ != nullptr) {
            EXPECT_TRUE(fs_->unmount().ok());
            tiffinfs::destroy(fs_);
            fs_ = nullptr;
        }
    }

    static std::string name(uint64_t number) { return "file-" + std::to_string(number); }
    // Both keep the reference.
    void create(uint64_t number) {
        ASSERT_TRUE(fs_->create({}, vfs::kRootNode, name_of(name(number)), 0644, 0, 0, {}).ok());
    }
    vfs::NodeId lookup(uint64_t number) {
        Result<vfs::Attributes> found = fs_->lookup(vfs::kRootNode, name_of(name(number)));
        EXPECT_TRUE(found.ok());
        return found.ok() ? found->node : 0;
    }

    const uint64_t files_ = test_size(60'000, 20'000);
    std::unique_ptr<fuse::MemoryDevice> device_;
    vfs::FileSystem* fs_ = nullptr;
};

TEST_F(Memory, ForEachNodeThatAHostRemembersIsAFewBytes) {
    mount();
    for (uint64_t i = 0; i < files_; ++i) {
        create(i);
    }
    unmount();

    fuse::AllocationWatch watch;
    mount();
    std::vector<vfs::NodeId> nodes;
    int64_t half_way_bytes = 0;
    for (uint64_t i = 0; i < files_; ++i) {
        if (i == files_ / 2) {
            half_way_bytes = watch.live_bytes();
        }
        nodes.push_back(lookup(i));
    }
    const int64_t full_bytes = watch.live_bytes();
    RecordProperty("bytes_for_a_node",
                   std::to_string(static_cast<double>(full_bytes - half_way_bytes) /
                                  static_cast<double>(files_ / 2)));
    // The caches were full half way: what came then is references only.
    EXPECT_LE(full_bytes - half_way_bytes,
              static_cast<int64_t>(files_ / 2 * kReferenceBytes * 5 / 4));
    const uint64_t bound_bytes = kCacheBytes + kCacheBytes / vfs::kBlockBytes * kNodeOverheadBytes +
                                 kMaximumObjects * 2 * sizeof(tiffinfs::Object) +
                                 files_ * kReferenceBytes + kFixedBytes;
    EXPECT_LE(full_bytes, static_cast<int64_t>(bound_bytes));

    // What the host forgets is given back.
    for (const vfs::NodeId node : nodes) {
        fs_->forget(node, 1);
    }
    EXPECT_LE(watch.live_bytes(),
              full_bytes - static_cast<int64_t>(files_ * sizeof(uint64_t) * 2 * 9 / 10));
    unmount();
    EXPECT_EQ(watch.live_bytes(), 0);
}

// Changes keep nodes in memory until a checkpoint: it comes before they exceed the budget by much.
TEST_F(Memory, OfChangesIsBoundedByTheCache) {
    fuse::AllocationWatch watch;
    mount();
    int64_t most_bytes = 0;
    for (uint64_t i = 0; i < files_ / 2; ++i) {
        create(i);
        fs_->forget(lookup(i), 2);
        most_bytes = std::max(most_bytes, watch.live_bytes());
    }
    const uint64_t nodes = kCacheBytes / vfs::kBlockBytes;
    EXPECT_LE(most_bytes,
              static_cast<int64_t>(nodes * (vfs::kBlockBytes + kNodeOverheadBytes) * 3 / 2 +
                                   kMaximumObjects * 2 * sizeof(tiffinfs::Object) + kFixedBytes));
    unmount();
    EXPECT_EQ(watch.live_bytes(), 0);
}

}  // namespace
}  // namespace tiffin::test
