// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: caches give memory back when the host asks, from any thread, and nothing else changes.
// Method: counts of what is in memory before and after; threads that ask all the time while others work.
#include <atomic>
#include <thread>

#include "tests/support/test_size.h"
#include "tests/support/test_volume.h"
#include "tests/unit/tiffinfs/data_fixture.h"
#include "tests/unit/tiffinfs/names_fixture.h"

namespace tiffin::tiffinfs {
namespace {

class Shrink : public ::testing::Test {
  protected:
    void SetUp() override {
        ASSERT_TRUE(volume_.make().ok());
        ASSERT_TRUE(volume_.mount().ok());
    }
    TiffinFileSystem& fs() { return static_cast<TiffinFileSystem&>(volume_.file_system()); }

    std::unique_ptr<vfs::BlockDevice> device_ = make_memory_device(256U << 20);
    test::TestVolume volume_{*device_};
};

TEST_F(Shrink, GivesBackWhatIsCleanAndUnused) {
    ASSERT_TRUE(test::populate(volume_, 5000).ok());
    ASSERT_TRUE(fs().volume().checkpoint().ok());
    const test::SeenTree before = volume_.see().release_value();
    const NodeCache& cache = fs().volume().cache();
    const uint64_t resident_bytes = cache.resident_bytes();
    const uint64_t objects = fs().objects().object_count();
    ASSERT_GT(resident_bytes, 64U * 4096);
    ASSERT_GT(objects, 1000U);
    EXPECT_GE(fs().reclaimable_bytes(), resident_bytes / 2);

    EXPECT_EQ(fs().shrink(0), 0U);
    const uint64_t given_bytes = fs().shrink(resident_bytes * 4);
    // What the tree's pool keeps for the next transactions stays, and what readers may still look at.
    EXPECT_GT(given_bytes, resident_bytes / 2);
    EXPECT_LT(cache.resident_bytes(), resident_bytes / 2);
    EXPECT_LT(fs().objects().object_count(), 64U);
    EXPECT_LT(fs().reclaimable_bytes(), resident_bytes / 2);
    EXPECT_EQ(test::difference(before, volume_.see().release_value()), "");
}

TEST_F(Shrink, LeavesWhatIsDirtyOrReferenced) {
    ASSERT_TRUE(test::populate(volume_, 2000).ok());
    const uint64_t dirty_bytes = fs().volume().cache().dirty_bytes();
    ASSERT_GT(dirty_bytes, 0U);
    (void)fs().shrink(1U << 30);
    EXPECT_EQ(fs().volume().cache().dirty_bytes(), dirty_bytes);
    ASSERT_TRUE(volume_.unmount().ok());
    EXPECT_TRUE(check::check_file_system(*device_, {}).findings.empty());
}

TEST_F(Shrink, WhileOthersWork) {
    ASSERT_TRUE(test::populate(volume_, 500).ok());
    std::atomic<bool> is_over{false};
    std::atomic<uint64_t> given_bytes{0};
    std::thread host([&] {
        while (!is_over) {
            given_bytes += fs().shrink(1U << 20);
        }
    });
    const auto rounds = static_cast<int>(test::test_size(20, 20, 8));
    for (int round = 0; round < rounds; ++round) {
        const std::string name = "/file" + std::to_string(round);
        const std::string content = test::test_content(static_cast<uint64_t>(round), 100000);
        ASSERT_TRUE(volume_.write(name, 0, content).ok());
        if (round % 4 == 0) {
            ASSERT_TRUE(fs().volume().checkpoint().ok());
        }
        ASSERT_TRUE(volume_.read(name).value_or("") == content);
        ASSERT_TRUE(volume_.see().ok());
    }
    is_over = true;
    host.join();
    EXPECT_GT(given_bytes.load(), 0U);
    ASSERT_TRUE(volume_.unmount().ok());
    EXPECT_TRUE(check::check_file_system(*device_, {}).findings.empty());
}

}  // namespace
}  // namespace tiffin::tiffinfs
