// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: what a host was promised room for can be written back on a volume that has no room for anybody else, and the
// count of free blocks is exact whatever becomes of a promise.
// Method: a host that fills its cache until nothing more is promised, and then writes back in the order that costs most
// metadata; promises that are used, returned, not needed or met by errors; threads.
#include <algorithm>
#include <random>
#include <thread>

#include "tests/support/test_volume.h"
#include "tests/unit/tiffinfs/data_fixture.h"
#include "tests/unit/tiffinfs/names_fixture.h"

namespace tiffin::tiffinfs {
namespace {

constexpr uint32_t kWriteBack =
    vfs::write_flag::write_back | vfs::write_flag::keep_times | vfs::write_flag::promised;

class Promise : public ::testing::Test {
  protected:
    void SetUp() override {
        ASSERT_TRUE(volume_.make().ok());
        ASSERT_TRUE(volume_.mount().ok());
    }
    TiffinFileSystem& fs() { return static_cast<TiffinFileSystem&>(volume_.file_system()); }
    Allocator& allocator() { return fs().volume().allocator(); }
    uint64_t free_blocks() { return allocator().free_blocks(); }
    int write(uint64_t node, uint64_t block, uint64_t blocks = 1, uint32_t flags = kWriteBack) {
        std::string content = test::test_content(node * 100003 + block, blocks * kBlockBytes);
        const vfs::IoVector buffer{content.data(), content.size()};
        return code(
            fs().write(node, 0, block * kBlockBytes, Span<const vfs::IoVector>(&buffer, 1), flags));
    }
    bool is_there(uint64_t node, uint64_t block) {
        const std::string wanted = test::test_content(node * 100003 + block, kBlockBytes);
        std::string found(kBlockBytes, '\0');
        const vfs::IoVector buffer{found.data(), found.size()};
        return fs().read(node, 0, block * kBlockBytes, Span<const vfs::IoVector>(&buffer, 1))
                       .value_or(0) == kBlockBytes &&
               found == wanted;
    }
    vfs::NodeId create(const std::string& name) {
        return fs().create({}, vfs::kRootNode, name_of(name), 0644, 0, 0, {}).value().node;
    }
    void expect_consistent() {
        ASSERT_TRUE(volume_.unmount().ok());
        EXPECT_TRUE(check::check_file_system(*device_, {}).findings.empty());
    }

    std::unique_ptr<vfs::BlockDevice> device_ = make_memory_device(64U << 20);
    test::TestVolume volume_{*device_};
};

TEST_F(Promise, IsUsedSpaceUntilItIsReturned) {
    const uint64_t before = free_blocks();
    ASSERT_TRUE(fs().promise(320).ok());
    EXPECT_EQ(free_blocks(), before - 330) << "one for metadata with each 32";
    ASSERT_TRUE(fs().promise(31).ok());
    EXPECT_EQ(free_blocks(), before - 361);
    ASSERT_TRUE(fs().promise(1).ok());
    EXPECT_EQ(free_blocks(), before - 363);
    fs().return_promise(1);
    fs().return_promise(351);
    EXPECT_EQ(free_blocks(), before);
    ASSERT_TRUE(fs().promise(0).ok());
    EXPECT_EQ(fs().promise(1U << 30).error(), Error::enospc);
    EXPECT_EQ(free_blocks(), before) << "a refusal takes nothing";
    EXPECT_EQ(allocator().promised_blocks(), 0U);
}

// Single blocks with holes between them, of many files, in random order.
TEST_F(Promise, IsKeptOnAVolumeThatIsFullForOthers) {
    constexpr uint64_t kFiles = 16;
    std::vector<vfs::NodeId> files;
    for (uint64_t i = 0; i < kFiles; ++i) {
        files.push_back(create("file" + std::to_string(i)));
    }
    const vfs::NodeId other = create("other");
    std::vector<std::pair<vfs::NodeId, uint64_t>> dirty;
    while (fs().promise(1).ok()) {
        const uint64_t number = dirty.size();
        dirty.emplace_back(files[number % kFiles], number / kFiles * 1000 + 7);
    }
    ASSERT_GT(dirty.size(), 10000U);
    EXPECT_EQ(write(other, 0, 1, 0), ENOSPC) << "what is promised is not there for others";
    std::mt19937 random(17);
    std::shuffle(dirty.begin(), dirty.end(), random);
    for (const auto& [node, block] : dirty) {
        ASSERT_EQ(write(node, block), 0) << node << " " << block;
    }
    EXPECT_EQ(allocator().promised_blocks(), 0U);
    for (const auto& [node, block] : dirty) {
        ASSERT_TRUE(is_there(node, block));
    }
    expect_consistent();
}

// Where the reserves are small, too: a transaction that copies and splits the nodes of two levels needs more than the
// write-back reserve has.
TEST_F(Promise, IsKeptOnASmallVolume) {
    auto device = make_memory_device(8U << 20);
    test::TestVolume small(*device);
    ASSERT_TRUE(small.make().ok());
    ASSERT_TRUE(small.mount().ok());
    std::vector<vfs::NodeId> files;
    vfs::FileSystem& file_system = small.file_system();
    for (uint64_t i = 0; i < 100; ++i) {
        files.push_back(
            file_system
                .create({}, vfs::kRootNode, name_of("file" + std::to_string(i)), 0644, 0, 0, {})
                .value()
                .node);
    }
    std::vector<std::pair<vfs::NodeId, uint64_t>> dirty;
    while (file_system.promise(1).ok()) {
        const uint64_t number = dirty.size();
        dirty.emplace_back(files[number % 16], number / 16 * 1000 + 7);
    }
    ASSERT_GT(dirty.size(), 100U);
    const std::string content = test::test_content(3, kBlockBytes);
    std::string copy = content;
    const vfs::IoVector buffer{copy.data(), copy.size()};
    for (const auto& [node, block] : dirty) {
        ASSERT_EQ(code(file_system.write(node, 0, block * kBlockBytes,
                                         Span<const vfs::IoVector>(&buffer, 1), kWriteBack)),
                  0)
            << node << " " << block;
    }
    ASSERT_TRUE(small.unmount().ok());
    EXPECT_TRUE(check::check_file_system(*device, {}).findings.empty());
}

// Changes of what exists may use more of the reserves than new data, but not what is promised.
TEST_F(Promise, IsKeptBesideOverwritesThatUseTheReserve) {
    const vfs::NodeId reserved = create("reserved");
    const vfs::NodeId file = create("file");
    std::vector<vfs::NodeId> small_files;
    for (uint64_t i = 0; i < 20; ++i) {
        small_files.push_back(create("small" + std::to_string(i)));
    }
    constexpr uint64_t kReserved = 13500;
    ASSERT_TRUE(volume_.allocate("/reserved", 0, 0, kReserved * kBlockBytes).ok());
    std::vector<uint64_t> dirty;
    while (fs().promise(1).ok()) {
        dirty.push_back(dirty.size() * 1000 + 7);
    }
    ASSERT_GT(dirty.size(), 100U);
    std::vector<uint64_t> blocks;
    for (uint64_t block = 0; block < kReserved; block += 2) {
        blocks.push_back(block);
    }
    std::mt19937 random(5);
    std::shuffle(blocks.begin(), blocks.end(), random);
    for (const uint64_t block : blocks) {
        if (write(reserved, block, 1, 0) != 0) {
            break;
        }
    }
    for (size_t i = 0; i + 20 < dirty.size(); ++i) {
        ASSERT_EQ(write(file, dirty[i]), 0) << dirty[i];
    }
    // Content that stays in the inode, too.
    for (const vfs::NodeId small : small_files) {
        std::string content = "small";
        const vfs::IoVector buffer{content.data(), content.size()};
        ASSERT_EQ(code(fs().write(small, 0, 0, Span<const vfs::IoVector>(&buffer, 1), kWriteBack)),
                  0);
    }
    expect_consistent();
}

TEST_F(Promise, IsUsedUpByTheEndOfTheWrite) {
    const vfs::NodeId file = create("f");
    ASSERT_EQ(write(file, 0, 64, 0), 0);
    ASSERT_TRUE(
        volume_.allocate("/f", vfs::allocate_flag::keep_size, 64 * kBlockBytes, 64 * kBlockBytes)
            .ok());
    // New blocks, mapped ones, blocks that fallocate has reserved; and content in the inode.
    for (const uint64_t block : {200U, 10U, 70U, 60U}) {
        ASSERT_TRUE(fs().promise(16).ok());
        ASSERT_EQ(write(file, block, 16), 0);
        EXPECT_EQ(allocator().promised_blocks(), 0U);
    }
    const vfs::NodeId small = create("small");
    ASSERT_TRUE(fs().promise(1).ok());
    std::string content = "small";
    const vfs::IoVector buffer{content.data(), content.size()};
    ASSERT_EQ(code(fs().write(small, 0, 0, Span<const vfs::IoVector>(&buffer, 1), kWriteBack)), 0);
    EXPECT_EQ(allocator().promised_blocks(), 0U);
    // One that was begun and given up.
    ASSERT_TRUE(fs().promise(8).ok());
    const uint64_t promised_free = free_blocks();
    vfs::WriteGrant grant;
    ASSERT_TRUE(fs().begin_write(file, 400 * kBlockBytes, 8 * kBlockBytes, kWriteBack, grant).ok());
    ASSERT_TRUE(fs().grant_write(grant, 400 * kBlockBytes).ok());
    EXPECT_EQ(free_blocks(), promised_free) << "no others were taken";
    ASSERT_TRUE(fs().grant_write(grant, 400 * kBlockBytes).ok());
    EXPECT_EQ(free_blocks(), promised_free) << "nor when it is granted again";
    ASSERT_TRUE(fs().end_write(grant).ok());
    EXPECT_EQ(free_blocks(), promised_free + 8);
    expect_consistent();
}

// All blocks are accounted for: used, free, on their way to be free, and the pool's.
TEST_F(Promise, CountsStayExact) {
    const auto total = [&] {
        fs().volume().pool().drain();
        EXPECT_TRUE(fs().sync(true).ok());
        EXPECT_TRUE(fs().volume().checkpoint().ok());
        EXPECT_TRUE(fs().volume().checkpoint().ok());
        allocator().release_data_frees(fs().volume().journal().last_ticket(), true);
        fs().volume().pool().drain();
        return allocator().free_blocks() + allocator().used_blocks() +
               allocator().deferred_blocks();
    };
    const uint64_t before = total();
    EXPECT_EQ(before, allocator().total_blocks());
    const vfs::NodeId file = create("f");
    std::mt19937 random(4);
    uint64_t promised = 0;
    for (int i = 0; i < 2000; ++i) {
        const uint64_t blocks = 1 + random() % 40;
        switch (random() % 3) {
            case 0:
                promised += fs().promise(blocks).ok() ? blocks : 0;
                break;
            case 1:
                if (promised >= blocks) {
                    fs().return_promise(blocks);
                    promised -= blocks;
                }
                break;
            default:
                if (promised >= blocks) {
                    ASSERT_EQ(write(file, random() % 3000, blocks), 0);
                    promised -= blocks;
                }
        }
        ASSERT_EQ(allocator().promised_blocks(), promised);
    }
    fs().return_promise(promised);
    EXPECT_EQ(total(), before);
    expect_consistent();
}

TEST_F(Promise, ThreadsLeaveNothingBehind) {
    const uint64_t before = free_blocks();
    std::vector<std::thread> threads;
    for (unsigned seed = 0; seed < 4; ++seed) {
        threads.emplace_back([&, seed] {
            std::mt19937 random(seed);
            for (int i = 0; i < 20000; ++i) {
                const uint64_t blocks = random() % 6000;  // so that some are refused
                if (fs().promise(blocks).ok()) {
                    fs().return_promise(blocks);
                }
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(free_blocks(), before);
    EXPECT_EQ(allocator().promised_blocks(), 0U);
}

}  // namespace
}  // namespace tiffin::tiffinfs
