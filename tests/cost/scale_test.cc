// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: what an operation costs does not grow with what is there already: in the last tenth of many at most
// half as much again as in the first. Method: counts, no clock: nodes of the tree visited (a tree that has grown
// by a level is granted that), requests to the device and allocations. bench/scale measures the same with a million
// files on a mount, in seconds.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "fs/tiffinfs/objects/file_system.h"
#include "fuse/host/allocation_hooks.h"
#include "tests/support/crash_device.h"
#include "tests/support/test_size.h"
#include "tests/support/test_volume.h"
#include "tests/support/units.h"

namespace tiffin::test {
namespace {

constexpr uint64_t kTenths = 10;
constexpr size_t kFileBytes = 1024;
constexpr uint64_t kFilesInADirectory = 100;

struct Counts {
    double visits = 0;
    double requests = 0;
    double device_bytes = 0;
    double allocations = 0;
    double height = 0;  // of the tree
};

vfs::DeviceGeometry geometry() {
    vfs::DeviceGeometry geometry;
    geometry.size_bytes = 1024U << 20;
    geometry.write_unit_bytes = 512;
    return geometry;
}

class Scale : public testing::Test {
  protected:
    Scale() : device_(geometry()), volume_(device_) {
        EXPECT_TRUE(volume_.make(32U << 20).ok());
        mount();
    }

    // The cache has the same share of the tree as that of a mount with a million files.
    void mount() {
        tiffinfs::MountOptions options = TestVolume::quiet_options();
        options.volume.cache_bytes = 12U << 20;
        ASSERT_TRUE(volume_.mount(options).ok());
    }
    void remount() {
        ASSERT_TRUE(volume_.unmount().ok());
        mount();
    }

    vfs::FileSystem& fs() { return volume_.file_system(); }

    tiffinfs::Volume& volume() { return static_cast<tiffinfs::TiffinFileSystem&>(fs()).volume(); }

    Counts now() {
        const tiffinfs::NodeCache::Counters cache = volume().cache().counters();
        const IoCounts io = device_.counts();
        Counts counts;
        counts.visits = static_cast<double>(cache.hits + cache.misses);
        counts.requests = static_cast<double>(io.reads + io.writes + io.flushes);
        counts.device_bytes = static_cast<double>(io.bytes_read + io.bytes_written);
        counts.allocations = static_cast<double>(watch_.allocations());
        counts.height = volume().tree().root().level + 1.0;
        return counts;
    }

    // Runs operation(0), operation(1)..., and compares what the last tenth costs with the first one. A
    // checkpoint ends each tenth, so that none pays for what others have left to write.
    void expect_level(
        const std::string& name, uint64_t count, const std::function<void(uint64_t)>& operation,
        const std::function<void()>& after_a_tenth = [] {}) {
        std::array<Counts, kTenths> costs;
        const auto per_tenth = static_cast<double>(count / kTenths);
        for (uint64_t tenth = 0; tenth < kTenths; ++tenth) {
            const Counts before = now();
            for (uint64_t i = 0; i < count / kTenths; ++i) {
                operation(tenth * (count / kTenths) + i);
            }
            after_a_tenth();
            ASSERT_TRUE(volume().checkpoint().ok());
            const Counts after = now();
            costs[tenth] = {(after.visits - before.visits) / per_tenth,
                            (after.requests - before.requests) / per_tenth,
                            (after.device_bytes - before.device_bytes) / per_tenth,
                            (after.allocations - before.allocations) / per_tenth, after.height};
        }
        const Counts& first = costs.front();
        const Counts& last = costs.back();
        const double growth = std::max(1.0, last.height / first.height);
        compare(name + ": nodes visited", first.visits, last.visits / growth, 1);
        // A leaf of names may be in memory or not: which is no growth.
        compare(name + ": device requests", first.requests, last.requests, 0.5);
        compare(name + ": device bytes", first.device_bytes, last.device_bytes, 0.5 * kBlock);
        compare(name + ": allocations", first.allocations, last.allocations, 0.5);
    }

    // `least`: what is less than this is nothing.
    void compare(const std::string& what, double first, double last, double least) {
        RecordProperty(what, std::to_string(first) + " " + std::to_string(last));
        EXPECT_LE(last, 1.5 * std::max(first, least)) << what << ", first tenth " << first;
    }

    void create(vfs::NodeId directory, const std::string& name) {
        Result<vfs::Attributes> made =
            fs().create({}, directory, vfs::Name(name.data(), name.size()), 0644, 0, 0, {});
        ASSERT_TRUE(made.ok());
        std::string content(kFileBytes, 'c');
        const vfs::IoVector buffer{content.data(), content.size()};
        ASSERT_TRUE(fs().write(made->node, 0, 0, Span<const vfs::IoVector>(&buffer, 1), 0).ok());
        fs().forget(made->node, 1);
    }
    void lookup(vfs::NodeId directory, const std::string& name) {
        Result<vfs::Attributes> found = fs().lookup(directory, vfs::Name(name.data(), name.size()));
        ASSERT_TRUE(found.ok());
        fs().forget(found->node, 1);
    }
    void unlink(vfs::NodeId directory, const std::string& name) {
        ASSERT_TRUE(fs().unlink({}, directory, vfs::Name(name.data(), name.size())).ok());
        ++unlinked_;
    }
    // Deleting goes on in the background.
    void wait_until_deleted(uint64_t nodes_at_the_beginning) {
        while (volume().node_count() > nodes_at_the_beginning - unlinked_) {
            std::this_thread::yield();
        }
    }

    fuse::AllocationWatch watch_;
    CrashDevice device_;
    TestVolume volume_;
    uint64_t unlinked_ = 0;
};

class EntryCounter final : public vfs::DirectorySink {
  public:
    bool add(const vfs::DirectoryEntry& entry) override {
        if (taken == 100) {
            return false;
        }
        ++taken;
        cookie = entry.next_cookie;
        return true;
    }
    uint64_t taken = 0;
    uint64_t cookie = 0;
};

TEST_F(Scale, OneLargeDirectory) {
    const uint64_t files = test_size(40'000, 20'000);
    const auto name = [](uint64_t i) { return "file-" + std::to_string(i); };
    ASSERT_TRUE(volume_.make_directory("/d").ok());
    const vfs::NodeId directory = volume_.find("/d").value();
    expect_level("create", files, [&](uint64_t i) { create(directory, name(i)); });
    remount();
    EntryCounter entries;
    uint64_t seen = 0;
    expect_level("list 100", files / 100, [&](uint64_t) {
        entries.taken = 0;
        ASSERT_TRUE(fs().read_directory(directory, 0, entries.cookie, false, entries).ok());
        seen += entries.taken;
    });
    EXPECT_EQ(seen, files / 100 * 100);
    remount();
    // In no order that the tree knows.
    expect_level("cold lookup", files,
                 [&](uint64_t i) { lookup(directory, name(i * 7919 % files)); });
    remount();
    const uint64_t nodes = volume().node_count();
    expect_level(
        "unlink", files, [&](uint64_t i) { unlink(directory, name(i)); },
        [&] { wait_until_deleted(nodes); });
    EXPECT_TRUE(volume_.remove_directory("/d").ok());
}

TEST_F(Scale, ManyDirectories) {
    const uint64_t files = test_size(40'000, 20'000);
    std::vector<vfs::NodeId> directories;
    const auto name = [](uint64_t i) { return "file-" + std::to_string(i % kFilesInADirectory); };
    const auto directory_name = [](uint64_t i) {
        return "/directory-" + std::to_string(i / kFilesInADirectory);
    };
    expect_level("create", files, [&](uint64_t i) {
        if (i % kFilesInADirectory == 0) {
            ASSERT_TRUE(volume_.make_directory(directory_name(i)).ok());
            directories.push_back(volume_.find(directory_name(i)).value());
        }
        create(directories.back(), name(i));
    });
    remount();
    expect_level("cold lookup", files, [&](uint64_t i) {
        const uint64_t number = i * 7919 % files;
        lookup(directories[number / kFilesInADirectory], name(number));
    });
    remount();
    const uint64_t nodes = volume().node_count();
    expect_level(
        "unlink", files,
        [&](uint64_t i) {
            unlink(directories[i / kFilesInADirectory], name(i));
            if (i % kFilesInADirectory == kFilesInADirectory - 1) {
                ASSERT_TRUE(volume_.remove_directory(directory_name(i)).ok());
                ++unlinked_;
            }
        },
        [&] { wait_until_deleted(nodes); });
}

// A file of many extents, with a hole behind each.
TEST_F(Scale, OneFragmentedFile) {
    const uint64_t extents = test_size(40'000, 10'000);
    constexpr uint64_t kStrideBytes = 1U << 20;
    ASSERT_TRUE(volume_.create("/f").ok());
    const vfs::NodeId node = volume_.find("/f").value();
    std::string content(kBlock, 'c');
    const vfs::IoVector buffer{content.data(), content.size()};
    const Span<const vfs::IoVector> buffers(&buffer, 1);
    expect_level("write", extents, [&](uint64_t i) {
        ASSERT_TRUE(fs().write(node, 0, i * kStrideBytes, buffers, 0).ok());
    });
    EXPECT_EQ(volume_.attributes("/f")->allocated_bytes, extents * kBlock);
    remount();
    expect_level("read", extents, [&](uint64_t i) {
        ASSERT_EQ(fs().read(node, 0, i * 7919 % extents * kStrideBytes, buffers).value_or(0),
                  kBlock);
    });
    remount();
    expect_level("seek", extents, [&](uint64_t i) {
        ASSERT_EQ(
            fs().seek(node, i * kStrideBytes + kBlock, vfs::SeekTarget::data).value_or(0) >> 20,
            i + 1 == extents ? 0 : i + 1);
    });
    expect_level("truncate by 100 extents", extents / 100, [&](uint64_t i) {
        ASSERT_TRUE(volume_.truncate("/f", (extents - 100 * (i + 1)) * kStrideBytes).ok());
    });
    EXPECT_EQ(volume_.attributes("/f")->allocated_bytes, 0U);
}

}  // namespace
}  // namespace tiffin::test
