// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What an operation costs in device I/O right after a mount, when nothing is in memory, and what its commit then
// writes. The costs are exact. Reads: once each node on the ways to the keys that the operation is about, and once
// the bitmap of the group where space is taken or freed. Journal: one frame, with the records that a change needs and
// no others. Which nodes lie on those ways depends on how full leaves happen to be: so TreeOnDevice looks, before
// the volume is mounted. What is in memory already is the subject of device_io_test.cc.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fs/tiffinfs/data/file_data.h"
#include "fs/tiffinfs/tiffinfs.h"
#include "fs/tiffinfs/volume/superblock.h"
#include "tests/cost/tree_on_device.h"
#include "tests/support/crash_device.h"
#include "tests/support/test_volume.h"
#include "tests/support/units.h"

namespace tiffin::test {
namespace {

using tiffinfs::Key;
using tiffinfs::Kind;
using tiffinfs::make_key;

constexpr uint32_t kFiles = 5000;
constexpr uint64_t kLargeBlocks = 256;  // of one extent
constexpr uint64_t kExtents = 600;      // of the fragmented file
// As that of memory: so small that an inode too many makes the frame longer.
constexpr uint32_t kWriteUnitBytes = 64;

std::string name_of(uint32_t number) { return "file-" + std::to_string(number); }

// ---- What records take in the journal: see format.h. ------------------------------------------------

constexpr uint32_t record(size_t value_bytes) {
    return static_cast<uint32_t>(sizeof(tiffinfs::RecordHeader) + ((value_bytes + 3) & ~size_t{3}));
}
constexpr uint32_t kErase = record(0);
constexpr uint32_t kInode = record(sizeof(tiffinfs::InodeValue));
constexpr uint32_t kOrphan = record(0);
constexpr uint32_t kIntent = record(sizeof(tiffinfs::IntentValue));
constexpr uint32_t kUnmap = record(sizeof(uint64_t));
constexpr uint32_t entry_record(std::string_view name) {
    return record(sizeof(tiffinfs::EntryValue) + name.size());
}
constexpr uint32_t extent_record(uint32_t blocks) {
    return record(sizeof(tiffinfs::ExtentValue) + blocks * sizeof(uint32_t));
}

// What an operation cannot do without.
struct Needs {
    std::vector<KeyRange> keys;  // besides the way to the directory
    uint64_t bitmaps;            // of both slots each
    uint64_t data_reads;         // of one block each
    uint64_t data_blocks;        // to be written, in one request
    std::vector<uint32_t> records;
    uint32_t transactions;
};

Needs to_look(std::vector<KeyRange> keys) { return {std::move(keys), 0, 0, 0, {}, 0}; }
// All that is here lies in one group.
Needs to_change(std::vector<KeyRange> keys, std::vector<uint32_t> records) {
    return {std::move(keys), 1, 0, 0, std::move(records), 1};
}
Needs to_write(std::vector<KeyRange> keys, uint64_t data_reads, uint64_t data_blocks,
               std::vector<uint32_t> records) {
    return {std::move(keys), 1, data_reads, data_blocks, std::move(records), 1};
}

class ColdCost : public testing::Test {
  protected:
    ColdCost() : device_(geometry()), volume_(device_), tree_(device_) {}

    static vfs::DeviceGeometry geometry() {
        vfs::DeviceGeometry geometry;
        geometry.size_bytes = 256U << 20;
        geometry.write_unit_bytes = kWriteUnitBytes;
        geometry.volatile_cache = true;
        geometry.supports_discard = true;
        return geometry;
    }

    // A tree with inner nodes below the root, and in it one of everything, far away from the root directory, whose
    // leaf a mount reads.
    void SetUp() override {
        ASSERT_TRUE(volume_.make(8U << 20).ok());
        fix_hash_key();
        ASSERT_TRUE(volume_.mount().ok());
        ASSERT_TRUE(volume_.make_directory("/directory").ok());
        ASSERT_TRUE(volume_.make_directory("/other").ok());
        for (uint32_t i = 0; i < kFiles; ++i) {
            ASSERT_TRUE(volume_.create("/directory/" + name_of(i)).ok());
            ASSERT_TRUE(i % 8 != 0 || volume_.create("/other/" + name_of(i)).ok());
        }
        ASSERT_TRUE(volume_.write("/directory/small", 0, "content").ok());
        ASSERT_TRUE(
            volume_.write("/directory/large", 0, test_content(1, kLargeBlocks * kBlock)).ok());
        ASSERT_TRUE(volume_.set_xattr("/directory/large", "user.name", "value").ok());
        ASSERT_TRUE(volume_.make_symlink("/directory/symlink", "target").ok());
        ASSERT_TRUE(volume_.make_directory("/directory/empty").ok());
        for (uint64_t i = 0; i < kExtents; ++i) {
            // With a hole behind each.
            ASSERT_TRUE(
                volume_.write("/directory/fragmented", 2 * i * kBlock, test_content(2 + i, kBlock))
                    .ok());
        }
        ASSERT_TRUE(volume_.unmount().ok());
        directory_ = tree_.node_of(vfs::kRootNode, "directory");
        other_ = tree_.node_of(vfs::kRootNode, "other");
        ASSERT_GE(tree_.height(), 3U);
    }

    // The same tree in each run: without that the rare case, such as a name that comes first in its leaf, would come
    // now and then.
    void fix_hash_key() {
        tiffinfs::Superblock superblock = tree_.superblock();
        std::memset(superblock.hash_key, 0x5a, sizeof superblock.hash_key);
        ASSERT_TRUE(tiffinfs::write_superblock(device_, superblock).ok());
    }

    Key entry(const std::string& name) const { return tree_.entry(directory_, name); }
    uint64_t node_of(const std::string& name) const { return tree_.node_of(directory_, name); }
    static Key inode(uint64_t node) { return make_key(node, Kind::inode, 0); }
    // The next file that is created gets it: a mount goes on with a fresh run of ids.
    uint64_t next_node() const { return tree_.superblock().next_node; }
    // An inode and the map behind it, up to what covers `block`.
    static KeyRange map(uint64_t node, uint64_t block) {
        return {inode(node), make_key(node, Kind::extent, block)};
    }

    // Nodes that have to be read for `keys`. A mount has read the way to the root's inode.
    uint64_t cold_nodes(const std::vector<KeyRange>& keys) const {
        std::set<uint64_t> nodes;
        for (const KeyRange& range : keys) {
            tree_.add_nodes(range, nodes);
        }
        tree_.add_nodes(tree_.entry(vfs::kRootNode, "directory"), nodes);
        tree_.add_nodes(inode(directory_), nodes);
        std::set<uint64_t> mounted;
        tree_.add_nodes(inode(vfs::kRootNode), mounted);
        for (const uint64_t block : mounted) {
            nodes.erase(block);
        }
        return nodes.size();
    }

    static uint64_t frame_bytes(const Needs& needs) {
        uint64_t bytes = sizeof(tiffinfs::FrameHeader) +
                         needs.transactions * sizeof(tiffinfs::TransactionHeader);
        for (const uint32_t record_bytes : needs.records) {
            bytes += record_bytes;
        }
        return (bytes + kWriteUnitBytes - 1) / kWriteUnitBytes * kWriteUnitBytes;
    }

    // Mounts, runs the operation, commits and unmounts.
    void expect_cost(const std::string& name, const Needs& needs,
                     const std::function<bool()>& operation) {
        SCOPED_TRACE(name);
        const uint64_t nodes = cold_nodes(needs.keys);
        ASSERT_TRUE(volume_.mount().ok());
        device_.reset_counts();
        EXPECT_TRUE(operation());
        const IoCounts cost = device_.counts();
        RecordProperty(name + ": reads", std::to_string(cost.reads));
        EXPECT_EQ(cost.reads, nodes + needs.bitmaps + needs.data_reads) << nodes << " nodes";
        EXPECT_EQ(cost.bytes_read, (nodes + 2 * needs.bitmaps + needs.data_reads) * kBlock);
        EXPECT_EQ(cost.writes, needs.data_blocks > 0 ? 1U : 0U);
        EXPECT_EQ(cost.bytes_written, needs.data_blocks * kBlock);
        EXPECT_EQ(cost.flushes, 0U);

        device_.reset_counts();
        EXPECT_TRUE(volume_.sync().ok());
        const IoCounts commit = device_.counts();
        RecordProperty(name + ": journal bytes", std::to_string(commit.bytes_written));
        EXPECT_EQ(commit.reads, 0U);
        const uint64_t frames = needs.records.empty() ? 0 : 1;
        EXPECT_EQ(commit.writes, frames);
        EXPECT_EQ(commit.bytes_written, frames * frame_bytes(needs));
        // The data before the record that names it, and the record.
        EXPECT_EQ(commit.flushes, frames + (needs.data_blocks > 0 ? 1 : 0));
        ASSERT_TRUE(volume_.unmount().ok());
    }

    // As a kernel does before it removes what a name stands for; and as long as it remembers that, nothing is deleted
    // in the background.
    bool remember(const std::string& name) {
        return volume_.file_system().lookup(directory_, vfs::Name(name.data(), name.size())).ok();
    }

    bool write_large(uint64_t offset_bytes, size_t size_bytes) {
        return volume_.write("/directory/large", offset_bytes, test_content(9, size_bytes)).ok();
    }

    CrashDevice device_;
    TestVolume volume_;
    TreeOnDevice tree_;
    uint64_t directory_ = 0;
    uint64_t other_ = 0;
};

TEST_F(ColdCost, LookingReadsEachNodeOnce) {
    unsigned char memory[kBlock];
    const MutableByteSpan buffer(memory, sizeof memory);
    const std::string file = name_of(2500);
    const auto find = [&](const char* name) {
        return volume_.find("/directory/" + std::string(name)).value();
    };
    expect_cost("stat", to_look({entry(file), inode(node_of(file))}),
                [&] { return volume_.attributes("/directory/" + file).ok(); });
    expect_cost("stat of what is missing", to_look({entry("missing")}),
                [&] { return volume_.attributes("/directory/missing").error() == Error::enoent; });
    const uint64_t symlink = node_of("symlink");
    expect_cost("readlink",
                to_look({entry("symlink"), inode(symlink), make_key(symlink, Kind::symlink, 0)}),
                [&] { return volume_.file_system().read_link(find("symlink"), buffer).ok(); });
    const uint64_t small = node_of("small");
    expect_cost("read of a small file",
                to_look({entry("small"), inode(small), make_key(small, Kind::inline_data, 0)}),
                [&] { return volume_.read("/directory/small").ok(); });
    const uint64_t large = node_of("large");
    expect_cost(
        "getxattr", to_look({entry("large"), inode(large), tree_.xattr(large, "user.name")}),
        [&] { return volume_.file_system().get_xattr(find("large"), "user.name", buffer).ok(); });
    // The inode says that there is none.
    expect_cost("getxattr of a file without", to_look({entry(file), inode(node_of(file))}), [&] {
        return volume_.file_system().get_xattr(find(file.c_str()), "user.name", buffer).error() ==
               Error::enodata;
    });
}

class EntryCounter final : public vfs::DirectorySink {
  public:
    bool add(const vfs::DirectoryEntry& entry) override {
        if (room == 0) {
            return false;
        }
        --room;
        ++count;
        cookie = entry.next_cookie;
        return true;
    }
    uint64_t room = 0;
    uint64_t count = 0;
    uint64_t cookie = 0;
};

TEST_F(ColdCost, ReaddirReadsEachLeafOfTheDirectoryOnce) {
    const auto list = [&](bool with_attributes) {
        EntryCounter counter;
        const vfs::NodeId node = volume_.find("/directory").value();
        while (counter.room == 0) {
            counter.room = 100;  // at a time, as in the small buffers of a kernel
            if (!volume_.file_system()
                     .read_directory(node, 0, counter.cookie, with_attributes, counter)
                     .ok()) {
                return false;
            }
        }
        return counter.count >= kFiles;
    };
    std::vector<KeyRange> keys{
        KeyRange(make_key(directory_, Kind::entry, 0),
                 make_key(directory_, Kind::entry, tiffinfs::kKeyOffsetMask))};
    expect_cost("readdir", to_look(keys), [&] { return list(false); });
    for (uint32_t i = 0; i < kFiles; ++i) {
        keys.emplace_back(inode(node_of(name_of(i))));
    }
    for (const char* name : {"small", "large", "symlink", "empty", "fragmented"}) {
        keys.emplace_back(inode(node_of(name)));
    }
    // In the order of names, which is not that of inodes.
    expect_cost("readdir with attributes", to_look(keys), [&] { return list(true); });
}

TEST_F(ColdCost, NewNames) {
    expect_cost(
        "create",
        to_change({entry("new"), inode(next_node())}, {entry_record("new"), kInode, kInode}),
        [&] { return volume_.create("/directory/new").ok(); });
    expect_cost(
        "mkdir",
        to_change({entry("dir"), inode(next_node())}, {entry_record("dir"), kInode, kInode}),
        [&] { return volume_.make_directory("/directory/dir").ok(); });
    expect_cost("symlink",
                to_change({entry("to"), inode(next_node())},
                          {entry_record("to"), kInode, kInode, record(std::strlen("target"))}),
                [&] { return volume_.make_symlink("/directory/to", "target").ok(); });
    const std::string file = name_of(1500);
    expect_cost("link",
                to_change({entry(file), inode(node_of(file)), entry("link")},
                          {entry_record("link"), kInode, kInode}),
                [&] { return volume_.link("/directory/" + file, "/directory/link").ok(); });
}

TEST_F(ColdCost, RemovedNames) {
    const auto needs = [&](const std::string& name) {
        return to_change({tree_.erased(entry(name)), inode(node_of(name)),
                          make_key(tiffinfs::kVolumeNode, Kind::orphan, node_of(name))},
                         {kErase, kInode, kInode, kOrphan});
    };
    const std::string file = name_of(2501);
    expect_cost("unlink", needs(file),
                [&] { return remember(file) && volume_.unlink("/directory/" + file).ok(); });
    expect_cost("rmdir", needs("empty"), [&] {
        return remember("empty") && volume_.remove_directory("/directory/empty").ok();
    });
}

TEST_F(ColdCost, Renames) {
    std::string file = name_of(1000);
    expect_cost("rename in a directory",
                to_change({tree_.erased(entry(file)), inode(node_of(file)), entry("renamed")},
                          {entry_record("renamed"), kErase, kInode, kInode}),
                [&] { return volume_.rename("/directory/" + file, "/directory/renamed").ok(); });
    file = name_of(1001);
    expect_cost("rename to another directory",
                to_change({tree_.erased(entry(file)), inode(node_of(file)), inode(other_),
                           tree_.entry(other_, "moved")},
                          {entry_record("moved"), kErase, kInode, kInode, kInode}),
                [&] { return volume_.rename("/directory/" + file, "/other/moved").ok(); });
}

TEST_F(ColdCost, Xattrs) {
    const std::string file = name_of(700);
    const std::string path = "/directory/" + file;
    const uint64_t node = node_of(file);
    const Key key = tree_.xattr(node, "user.name");
    expect_cost(
        "setxattr",
        to_change({entry(file), inode(node), key},
                  {record(sizeof(tiffinfs::XattrValue) + std::strlen("user.namevalue")), kInode}),
        [&] { return volume_.set_xattr(path, "user.name", "value").ok(); });
    expect_cost("removexattr",
                to_change({entry(file), inode(node), tree_.erased(key)}, {kErase, kInode}),
                [&] { return volume_.remove_xattr(path, "user.name").ok(); });
}

// Putting a key never takes one out of its leaf: so the leaf before it, which would take the range over, does not
// matter, even when the key is the first one.
TEST_F(ColdCost, PuttingTheFirstKeyOfALeafReadsNoOtherLeaf) {
    uint32_t number = 0;
    while (!tree_.is_first_in_leaf(inode(node_of(name_of(number))))) {
        ASSERT_LT(++number, kFiles);
    }
    const std::string file = name_of(number);
    expect_cost("write to a small file",
                to_change({entry(file), inode(node_of(file))}, {record(1), kInode}),
                [&] { return volume_.write("/directory/" + file, 0, "x").ok(); });
}

TEST_F(ColdCost, Overwrites) {
    const uint64_t large = node_of("large");
    expect_cost("of a block",
                to_write({entry("large"), map(large, 65)}, 0, 1, {extent_record(1), kInode}),
                [&] { return write_large(64 * kBlock, kBlock); });
    expect_cost("of a part of a block",
                to_write({entry("large"), map(large, 129)}, 1, 1, {extent_record(1), kInode}),
                [&] { return write_large(128 * kBlock + 100, 1000); });
    // The first and the last one keep a part of what they held.
    expect_cost("of parts of two blocks",
                to_write({entry("large"), map(large, 162)}, 2, 2, {extent_record(2), kInode}),
                [&] { return write_large(160 * kBlock + 100, kBlock); });
}

TEST_F(ColdCost, Appends) {
    const uint64_t large = node_of("large");
    const auto needs = [&](uint64_t data_reads) {
        return to_write({entry("large"), map(large, kLargeBlocks + 2)}, data_reads, 1,
                        {extent_record(1), kInode});
    };
    expect_cost("of a block", needs(0), [&] { return write_large(kLargeBlocks * kBlock, kBlock); });
    expect_cost("of a byte behind whole blocks", needs(0),
                [&] { return write_large((kLargeBlocks + 1) * kBlock, 1); });
    expect_cost("of a byte to a block", needs(1),
                [&] { return write_large((kLargeBlocks + 1) * kBlock + 1, 1); });
    const uint64_t small = node_of("small");
    expect_cost("to a small file",
                to_change({entry("small"), inode(small), make_key(small, Kind::inline_data, 0)},
                          {record(std::strlen("contents")), kInode}),
                [&] { return volume_.write("/directory/small", 7, "s").ok(); });
}

// In bounded steps, which read each leaf of the map once and of the file's data nothing.
TEST_F(ColdCost, TruncationOfManyExtentsReadsEachLeafOfTheMapOnce) {
    const uint64_t node = node_of("fragmented");
    // The first step leaves the rest to an intent, which goes with a transaction of its own.
    const uint64_t steps = (kExtents + tiffinfs::kStepExtents - 1) / tiffinfs::kStepExtents;
    std::vector<uint32_t> records{kIntent, kErase, kInode};
    for (uint64_t i = 0; i < steps; ++i) {
        records.insert(records.end(), {kUnmap, kInode});
    }
    Needs needs = to_change({entry("fragmented"), map(node, tiffinfs::kKeyOffsetMask),
                             make_key(tiffinfs::kVolumeNode, Kind::intent, node)},
                            records);
    needs.transactions = static_cast<uint32_t>(steps + 1);
    expect_cost("truncate", needs,
                [&] { return volume_.truncate("/directory/fragmented", 0).ok(); });
}

}  // namespace
}  // namespace tiffin::test
