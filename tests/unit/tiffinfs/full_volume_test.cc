// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: a full volume goes on: whatever was done to fill it, deleting works, nobody waits for ever, and a
// crash can be recovered from with the space that there is. Small volumes, where every block counts.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "fs/tiffinfs/objects/file_system.h"
#include "fuse/host/log_sink.h"
#include "tests/support/crash_device.h"
#include "tests/support/findings.h"
#include "tests/support/test_volume.h"
#include "tests/support/units.h"

namespace tiffin::test {
namespace {

tiffinfs::Volume& volume_of(TestVolume& volume) {
    return static_cast<tiffinfs::TiffinFileSystem&>(volume.file_system()).volume();
}

// Creates /PREFIX0, /PREFIX1... with that much content until there is no room.
std::vector<std::string> fill(TestVolume& volume, const std::string& prefix, size_t size_bytes) {
    std::vector<std::string> paths;
    for (int i = 0;; ++i) {
        const std::string path = "/" + prefix + std::to_string(i);
        const Result<void> written = volume.write(path, 0, std::string(size_bytes, 'f'));
        if (!written.ok()) {
            EXPECT_EQ(written.error(), Error::enospc);
            return paths;
        }
        paths.push_back(path);
    }
}

// ---- Reserving ----------------------------------------------------------------------------------

// What fallocate() has reserved can be written, in small files, too, whose content is in the tree.
TEST(FullVolumeReserving, SmallFilesHaveRoomForWhatTheyReserved) {
    const auto device = std::make_unique<CrashDevice>(16 * kMiB);
    TestVolume volume(*device);
    MUST(volume.make());
    MUST(volume.mount());
    constexpr int kFiles = 600;
    for (int i = 0; i < kFiles; ++i) {
        MUST(volume.create("/small" + std::to_string(i)));
    }
    MUST(volume.create("/filler"));
    uint64_t end = 0;
    while (volume.write("/filler", end, std::string(4096, 'f')).ok()) {
        end += 4096;
    }
    std::vector<std::string> reserved;
    for (int i = 0; i < kFiles; ++i) {
        const std::string path = "/small" + std::to_string(i);
        // Every other one is to keep its size, which is 0.
        if (volume.allocate(path, i % 2 == 0 ? 0 : vfs::allocate_flag::keep_size, 0, 512).ok()) {
            reserved.push_back(path);
        }
    }
    EXPECT_LT(reserved.size(), size_t{kFiles}) << "what the test is about has happened";
    for (const std::string& path : reserved) {
        ASSERT_TRUE(volume.write(path, 0, std::string(512, 's')).ok()) << path;
    }
    EXPECT_EQ(findings_of(*device), "");
}

// ---- Deleting ----------------------------------------------------------------------------------

struct Filling {
    const char* name;
    size_t content_bytes;
    size_t xattr_bytes;
    uint64_t volume_bytes;
};

class FullVolume : public testing::TestWithParam<Filling> {
  protected:
    fuse::CapturedLog log_;
};

// One file more; false when there is no room for all of it.
bool add_file(TestVolume& volume, const Filling& filling, std::mt19937_64& random, int number,
              std::set<std::string>& files) {
    const std::string path = "/number-" + std::to_string(number) + std::string(random() % 100, 'n');
    if (!volume.create(path).ok()) {
        return false;
    }
    files.insert(path);
    if (filling.xattr_bytes != 0 &&
        !volume.set_xattr(path, "user.x", std::string(filling.xattr_bytes, 'x')).ok()) {
        return false;
    }
    return filling.content_bytes == 0 ||
           volume.write(path, 0, std::string(1 + random() % filling.content_bytes, 'c')).ok();
}

TEST_P(FullVolume, CanAlwaysBeEmptied) {
    CrashDevice device(GetParam().volume_bytes);
    TestVolume volume(device);
    MUST(volume.make());
    MUST(volume.mount());
    const uint64_t free_at_start = MUST(volume.file_system().statistics()).free_blocks;
    std::mt19937_64 random(1);
    std::set<std::string> files;
    int number = 0;
    while (add_file(volume, GetParam(), random, number++, files)) {
    }
    ASSERT_GT(files.size(), 50U);
    // Changes that may use the reserve, and leave a little more behind than they take away: files become
    // fragments, names and values longer.
    for (int i = 0; i < 600; ++i) {
        auto place = files.begin();
        std::advance(place, static_cast<long>(random() % std::min<size_t>(files.size(), 50)));
        const std::string path = *place;
        Result<void> result;
        switch (random() % 5) {
            case 0:
                result = volume.write(path, random() % 8 * kBlock, std::string(kBlock, 'o'));
                break;
            case 1:
                (void)add_file(volume, GetParam(), random, number++, files);
                break;
            case 2:
                result = volume.truncate(path, random() % 3000);
                break;
            case 3:
                result = volume.rename(path, path + "x");
                if (result.ok()) {
                    files.erase(path);
                    files.insert(path + "x");
                }
                break;
            default:
                if (random() % 8 == 0) {
                    result = volume.unlink(path);
                    ASSERT_TRUE(result.ok()) << errno_value(result.error());
                    files.erase(path);
                }
        }
        ASSERT_TRUE(result.ok() || result.error() == Error::enospc) << errno_value(result.error());
    }
    for (const std::string& path : files) {
        const Result<void> removed = volume.unlink(path);
        ASSERT_TRUE(removed.ok()) << path << ": " << errno_value(removed.error()) << ", "
                                  << volume_of(volume).allocator().free_blocks() << " free blocks";
    }
    // Unmounting finishes all deletions.
    MUST(volume.unmount());
    EXPECT_EQ(findings_of(device), "");
    MUST(volume.mount());
    EXPECT_GE(MUST(volume.file_system().statistics()).free_blocks + 4, free_at_start);
}

INSTANTIATE_TEST_SUITE_P(
    Fillings, FullVolume,
    testing::Values(Filling{"Names", 0, 0, 8 * kMiB}, Filling{"SmallFiles", 900, 0, 8 * kMiB},
                    Filling{"Files", 20000, 0, 8 * kMiB}, Filling{"Xattrs", 0, 65000, 8 * kMiB},
                    Filling{"SmallFiles16", 900, 0, 16 * kMiB},
                    Filling{"Xattrs16", 0, 65000, 16 * kMiB}),
    [](const testing::TestParamInfo<Filling>& filling) { return std::string(filling.param.name); });

TEST(FullVolumeThreads, DeleteAtTheSameTime) {
    fuse::CapturedLog log;
    CrashDevice device(16 * kMiB);
    TestVolume volume(device);
    MUST(volume.make());
    MUST(volume.mount());
    constexpr int kThreads = 8;
    std::vector<std::vector<std::string>> names(kThreads);
    size_t count = 0;
    for (const std::string& path : fill(volume, "f", 700)) {
        names[count++ % kThreads].push_back(path.substr(1));
    }
    std::atomic<int> failed{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, i] {
            for (const std::string& name : names[static_cast<size_t>(i)]) {
                failed += volume.file_system()
                                  .unlink({}, vfs::kRootNode, vfs::Name(name.data(), name.size()))
                                  .ok()
                              ? 0
                              : 1;
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(failed, 0);
    MUST(volume.unmount());
    EXPECT_EQ(findings_of(device), "");
}

// ---- Waiting -----------------------------------------------------------------------------------

// Who makes room waits until nobody reads what was freed, perhaps with a file locked; readers must not
// wait for that file then.
TEST(FullVolumeThreads, ReadersAndThoseWhoMakeRoomDoNotWaitForEachOther) {
    fuse::CapturedLog log;
    CrashDevice device(8 * kMiB);
    TestVolume volume(device);
    MUST(volume.make());
    MUST(volume.mount());
    MUST(volume.write("/read", 0, std::string(kMiB, 'r')));
    fill(volume, "f", 100000);
    fill(volume, "g", kBlock);
    const vfs::NodeId node = MUST(volume.find("/read"));
    vfs::FileSystem& fs = volume.file_system();
    std::atomic<bool> stopping{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < 4; ++i) {
        threads.emplace_back([&, i] {
            std::string text(65536, '\0');
            const vfs::IoVector buffer{text.data(), text.size()};
            while (!stopping.load()) {
                wrong +=
                    fs.read(node, 0, i * 65536, Span<const vfs::IoVector>(&buffer, 1)).ok() ? 0 : 1;
            }
        });
    }
    std::string text(65536, 'w');
    const vfs::IoVector buffer{text.data(), text.size()};
    for (uint64_t i = 0; i < 30; ++i) {
        const uint64_t offset = i % 16 * 65536;
        (void)fs.write(node, 0, offset, Span<const vfs::IoVector>(&buffer, 1), 0).ok();
        (void)fs.allocate(node, vfs::allocate_flag::zero_range, offset, 65536).ok();
        (void)fs.allocate(node, 0, kMiB, kMiB).ok();
    }
    stopping = true;
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(wrong, 0);
}

// ---- Recovery ----------------------------------------------------------------------------------

// What replay must not use for its nodes is every block that the journal maps; after enough overwriting
// that could be all that is free.
TEST(FullVolumeRecovery, AfterOverwritingMoreThanTheVolumeHolds) {
    fuse::CapturedLog log;
    for (const uint64_t volume_bytes : {8 * kMiB, 16 * kMiB}) {
        CrashDevice device(volume_bytes);
        TestVolume volume(device);
        MUST(volume.make());
        MUST(volume.mount());
        for (uint32_t i = 0; i < 3 * volume_bytes / kMiB; ++i) {
            MUST(volume.write("/f", 0, test_content(i, kMiB)));
            MUST(volume.fsync("/f"));
            if (i % 5 != 0) {
                continue;
            }
            auto after = device.after_crash(CrashOutcome::keep_completed, i);
            TestVolume recovered(*after);
            const Result<void> mounted = recovered.mount();
            ASSERT_TRUE(mounted.ok()) << errno_value(mounted.error());
            EXPECT_TRUE(MUST(recovered.read("/f")) == test_content(i, kMiB));
        }
    }
}

// Random changes of a full volume, cut off by power failures, again and again.
TEST(FullVolumeRecovery, FromRandomChanges) {
    fuse::CapturedLog log;
    for (uint64_t seed = 1; seed <= 3; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::mt19937_64 random(seed);
        auto device = std::make_unique<CrashDevice>(8 * kMiB);
        MUST(TestVolume(*device).make());
        for (int round = 0; round < 6; ++round) {
            SCOPED_TRACE("round " + std::to_string(round));
            TestVolume volume(*device);
            const Result<void> mounted = volume.mount();
            ASSERT_TRUE(mounted.ok()) << errno_value(mounted.error());
            if (round == 0) {
                fill(volume, "f", seed == 3 ? 900 : 40000);
            }
            const std::vector<std::string> names = MUST(volume.list("/"));
            ASSERT_GT(names.size(), 10U);
            for (int i = 0; i < 300; ++i) {
                const std::string path = "/" + names[random() % names.size()];
                Result<void> result;
                switch (random() % 8) {
                    case 0:
                    case 1:
                    case 2:
                        result = volume.write(path, random() % 10 * kBlock,
                                              std::string(1 + random() % 30000, 'o'));
                        break;
                    case 3:
                        result = volume.truncate(path, random() % 60000);
                        break;
                    case 4:
                        result = random() % 4 == 0 ? volume.unlink(path) : Result<void>();
                        ASSERT_TRUE(result.ok() || result.error() == Error::enoent);
                        break;
                    case 5:
                        result = volume.rename(path, "/" + names[random() % names.size()]);
                        break;
                    default:
                        result = volume.sync();
                }
                ASSERT_TRUE(result.ok() || result.error() == Error::enospc ||
                            result.error() == Error::enoent)
                    << errno_value(result.error());
            }
            auto next = device->after_crash(CrashOutcome::keep_random_units, seed * 100 + round);
            volume.abandon();
            device = std::move(next);
            ASSERT_EQ(findings_of(*device), "");
        }
    }
}

// ---- The journal -------------------------------------------------------------------------------

// Many at once ask for more of the smallest journal than it has: they wait for checkpoints and come to
// their turn.
TEST(SmallJournal, IsNoReasonToFail) {
    fuse::CapturedLog log;
    CrashDevice device(64 * kMiB);
    TestVolume volume(device);
    MUST(volume.make(kMiB));
    MUST(volume.mount());
    constexpr int kThreads = 24;
    std::vector<vfs::NodeId> nodes;
    for (int i = 0; i < kThreads; ++i) {
        const std::string path = "/" + std::to_string(i);
        MUST(volume.create(path));
        nodes.push_back(MUST(volume.find(path)));
    }
    std::atomic<int> failed{0};
    std::vector<std::thread> threads;
    for (const vfs::NodeId node : nodes) {
        threads.emplace_back([&, node] {
            const std::string value(vfs::kXattrValueMaxBytes, 'v');
            for (int i = 0; i < 20; ++i) {
                failed += volume.file_system()
                                  .set_xattr(
                                      {}, node, vfs::Name("user.v"),
                                      ByteSpan(reinterpret_cast<const unsigned char*>(value.data()),
                                               value.size()),
                                      0)
                                  .ok()
                              ? 0
                              : 1;
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(failed, 0);
    MUST(volume.unmount());
    EXPECT_EQ(findings_of(device), "");
}

// A new volume without a file system's operations, and without commits by time.
tiffinfs::Volume* make_volume(vfs::BlockDevice& device) {
    MUST(TestVolume(device).make(kMiB));
    tiffinfs::VolumeOptions options;
    options.commit_interval_ms = 0;
    return MUST(tiffinfs::Volume::open(device, options));
}

// Where all that is left is just enough, it must not matter that there is none for spare nodes besides.
TEST(SpareNodes, CanBeReservedToTheLast) {
    using tiffinfs::SpacePriority;
    CrashDevice device(16 * kMiB);
    tiffinfs::Volume* volume = make_volume(device);
    tiffinfs::NodePool& pool = volume->pool();
    for (const SpacePriority priority :
         {SpacePriority::normal, SpacePriority::overwriting, SpacePriority::privileged}) {
        const uint64_t left =
            volume->allocator().free_blocks() + pool.spare_blocks() - pool.reserved_nodes();
        const uint64_t usable = left - volume->allocator().kept_blocks(priority);
        ASSERT_GT(usable, 0U);
        tiffinfs::NodeReservation reservation;
        EXPECT_TRUE(pool.reserve(static_cast<uint32_t>(usable), priority, reservation).ok());
        EXPECT_EQ(reservation.nodes, usable);
        tiffinfs::NodeReservation one_more;
        EXPECT_EQ(pool.reserve(1, priority, one_more).error(), Error::enospc);
        pool.unreserve(reservation);
        pool.drain();
    }
    tiffinfs::Volume::destroy(volume);
}

// What was freed between an allocation that failed and the search for room is room, too: the file system said ENOSPC
// then, with nothing left to free and the volume nearly empty.
TEST(MakeRoom, CountsWhatHasComeFreeMeanwhile) {
    using tiffinfs::SpacePriority;
    CrashDevice device(16 * kMiB);
    tiffinfs::Volume* volume = make_volume(device);
    tiffinfs::Allocator& allocator = volume->allocator();
    for (const SpacePriority priority :
         {SpacePriority::normal, SpacePriority::overwriting, SpacePriority::privileged}) {
        EXPECT_TRUE(volume->make_room(0, priority, tiffinfs::RoomWait::others));
        EXPECT_FALSE(volume->make_room(3, priority,
                                       tiffinfs::RoomWait::others));  // it does not go on for ever
        std::vector<tiffinfs::BlockRange> ranges;
        while (true) {
            const Result<tiffinfs::BlockRange> range = allocator.allocate(0, kMiB, priority);
            if (!range.ok()) {
                break;
            }
            ranges.push_back(range.value());
        }
        volume->pool().drain();
        EXPECT_FALSE(volume->make_room(0, priority, tiffinfs::RoomWait::others));
        for (const tiffinfs::BlockRange& range : ranges) {
            allocator.cancel(range);
        }
        EXPECT_TRUE(volume->make_room(2, priority, tiffinfs::RoomWait::others));
    }
    tiffinfs::Volume::destroy(volume);
}

// Deletes in the very moment in which it is asked to, in place of the file system's own.
class DeletesNow final : public tiffinfs::SpaceReclaimer {
  public:
    DeletesNow(TestVolume& volume, std::string path) : volume_(volume), path_(std::move(path)) {}

    void reclaim_now() override {
        std::thread([this] { delete_it(); }).join();  // the caller holds locks
        ++calls;
    }
    int calls = 0;

  private:
    void delete_it() {
        tiffinfs::Allocator& allocator = volume_of(volume_).allocator();
        const uint64_t used_blocks = MUST(volume_.attributes(path_)).allocated_bytes / kBlock;
        const uint64_t free_before = allocator.free_blocks();
        MUST(volume_.unlink(path_));
        // The file system's own thread takes it apart.
        while (allocator.deferred_blocks() + allocator.free_blocks() <
               free_before + used_blocks / 2) {
            std::this_thread::yield();
        }
    }

    TestVolume& volume_;
    std::string path_;
};

// Whoever had waited for deletions gave up when the last one ended between its own checkpoint and its asking: what it
// had freed was free only after another one. (Seen under load, suite, full.can_be_emptied_and_filled_again.)
TEST(MakeRoom, MakesFreeWhatWasDeletedMeanwhile) {
    fuse::CapturedLog log;
    CrashDevice device(16 * kMiB);
    TestVolume volume(device);
    MUST(volume.make());
    MUST(volume.mount());
    for (uint64_t size = 0; volume.write("/large", size, std::string(kMiB, 'l')).ok();
         size += kMiB) {
    }
    DeletesNow reclaimer(volume, "/large");
    volume_of(volume).set_reclaimer(&reclaimer);
    EXPECT_TRUE(volume.write("/new", 0, std::string(kMiB, 'n')).ok());
    EXPECT_EQ(reclaimer.calls, 1);
    MUST(volume.unmount());
    EXPECT_EQ(findings_of(device), "");
}

// A kernel forgets an unlinked file by a message that may come after the next request.
TEST(MakeRoom, WaitsForTheHostToForgetWhatWasUnlinked) {
    fuse::CapturedLog log;
    CrashDevice device(16 * kMiB);
    TestVolume volume(device);
    MUST(volume.make());
    MUST(volume.mount());
    constexpr int kWriters = 4;  // at the same time
    int made = 0;
    // Where the machine is so busy that the message comes too late, once more.
    for (int attempt = 0; attempt < 10 && made < kWriters; ++attempt) {
        uint64_t size = 0;
        for (const uint64_t piece : {kMiB, uint64_t{kBlock}}) {
            for (; volume.write("/large", size, std::string(piece, 'l')).ok(); size += piece) {
            }
        }
        // A reference.
        const vfs::NodeId node =
            volume.file_system().lookup(vfs::kRootNode, vfs::Name("large")).value().node;
        MUST(volume.unlink("/large"));
        std::thread host([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(60));
            volume.file_system().forget(node, 1);
        });
        std::atomic<int> succeeded{0};
        std::vector<std::thread> writers;
        for (int i = 0; i < kWriters; ++i) {
            writers.emplace_back([&, i] {
                succeeded +=
                    volume.write("/new" + std::to_string(i), 0, std::string(kMiB, 'n')).ok() ? 1
                                                                                             : 0;
            });
        }
        for (std::thread& writer : writers) {
            writer.join();
        }
        made = succeeded;
        host.join();
        for (int i = 0; i < kWriters; ++i) {
            (void)volume.unlink("/new" + std::to_string(i));
        }
    }
    EXPECT_EQ(made, kWriters);
    MUST(volume.unmount());
    EXPECT_EQ(findings_of(device), "");
}

TEST(SmallJournal, RefusesATransactionThatNeverFits) {
    CrashDevice device(16 * kMiB);
    tiffinfs::Volume* volume = make_volume(device);
    const uint64_t checkpoints = volume->counters().checkpoints;
    {
        tiffinfs::Transaction transaction(*volume);
        const uint32_t too_large = volume->journal().maximum_transaction_bytes();
        const Result<void> begun = transaction.begin(
            tiffinfs::SpacePriority::privileged, {.scattered = 0, .contiguous_bytes = too_large});
        EXPECT_EQ(begun.error(), Error::enospc);
    }
    EXPECT_EQ(volume->counters().checkpoints, checkpoints);
    tiffinfs::Volume::destroy(volume);
}

}  // namespace
}  // namespace tiffin::test
