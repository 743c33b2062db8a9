// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: a volume that has been nearly full for long is as good as a new one: no space is said to be missing
// that is there, none gets lost, operations cost what they did, and what is written in one piece lies in one
// piece where there is such a piece. Method: seeded changes at 95 % used, compared with a model and with the
// checker's count of the blocks that are in use.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fs/tiffinfs/objects/file_system.h"
#include "fuse/check/check.h"
#include "fuse/host/log_sink.h"
#include "tests/support/crash_device.h"
#include "tests/support/test_size.h"
#include "tests/support/test_volume.h"
#include "tests/support/units.h"

namespace tiffin::test {
namespace {

constexpr uint64_t kUsedPercent = 95;
// What an operation may need beside the blocks of its content: nodes of the tree, at worst, and what other
// transactions have set aside.
constexpr uint64_t kMetadataBlocks = 192;

class AgedVolume : public testing::Test {
  protected:
    AgedVolume()
        : rounds_(static_cast<int>(test_size(30, 8))),
          steps_(static_cast<int>(test_size(150, 80))),
          device_(volume_bytes()),
          volume_(device_) {
        EXPECT_TRUE(volume_.make().ok());
        EXPECT_TRUE(volume_.mount().ok());
    }

    static uint64_t volume_bytes() { return test_size(128 * kMiB, 32 * kMiB); }

    vfs::FileSystemStatistics space() { return MUST(volume_.file_system().statistics()); }
    bool is_crowded() {
        const vfs::FileSystemStatistics now = space();
        return (now.total_blocks - now.free_blocks) * 100 > now.total_blocks * kUsedPercent;
    }

    // ---- Changes, of the volume and of the model ----

    std::string any_path() {
        auto place = files_.lower_bound("/" + std::to_string(random_() % 1000));
        return place == files_.end() ? files_.begin()->first : place->first;
    }
    size_t any_size() {
        const uint64_t kind = random_() % 10;
        return 1 + random_() % (kind < 5 ? 1024 : kind < 8 ? 64 * 1024 : kMiB);
    }
    std::string any_content(size_t size_bytes) { return test_content(random_(), size_bytes); }

    // An operation that needs room for `size_bytes` was refused: there must have been too little.
    void expect_full(const Result<void>& result, size_t size_bytes, uint64_t available_blocks) {
        ASSERT_EQ(result.error(), Error::enospc) << errno_value(result.error());
        ++refused_;
        EXPECT_LT(available_blocks, size_bytes / kBlock + 2 + kMetadataBlocks)
            << "no space for " << size_bytes << " bytes";
    }

    void write(const std::string& path, uint64_t offset, size_t size_bytes) {
        const std::string data = any_content(size_bytes);
        const uint64_t available_blocks = space().available_blocks;
        const Result<void> written = volume_.write(path, offset, data);
        if (!written.ok()) {
            expect_full(written, size_bytes, available_blocks);
            reload(path);
            return;
        }
        std::string& content = files_[path];
        content.resize(std::max<size_t>(content.size(), offset + size_bytes));
        content.replace(offset, size_bytes, data);
    }
    // A write that was refused may have written its beginning.
    void reload(const std::string& path) {
        Result<std::string> now = volume_.read(path);
        if (now.ok()) {
            files_[path] = now.release_value();
        } else {
            EXPECT_EQ(now.error(), Error::enoent);
            files_.erase(path);
        }
    }

    void unlink() {
        const std::string path = any_path();
        ASSERT_TRUE(volume_.unlink(path).ok());
        files_.erase(path);
    }
    void truncate() {
        const std::string path = any_path();
        std::string& content = files_[path];
        const size_t size_bytes = random_() % (content.size() + 1);
        ASSERT_TRUE(volume_.truncate(path, size_bytes).ok());
        content.resize(size_bytes);
    }
    void punch() {
        const std::string path = any_path();
        std::string& content = files_[path];
        if (content.empty()) {
            return;
        }
        const size_t offset = random_() % content.size();
        const size_t length = 1 + random_() % (content.size() - offset);
        const Result<void> punched = volume_.allocate(
            path, vfs::allocate_flag::punch_hole | vfs::allocate_flag::keep_size, offset, length);
        // A hole splits an extent and replaces the blocks at its edges: it may use half of the reserve.
        ASSERT_TRUE(punched.ok()) << errno_value(punched.error());
        content.replace(offset, length, length, '\0');
    }
    void rename() {
        const std::string path = any_path();
        const std::string target =
            random_() % 3 == 0 ? any_path() : "/" + std::to_string(random_() % 1000) + "-renamed";
        if (path == target) {
            return;
        }
        const Result<void> renamed = volume_.rename(path, target);
        if (!renamed.ok()) {
            expect_full(renamed, 0, space().available_blocks);
            return;
        }
        files_[target] = std::move(files_[path]);
        files_.erase(path);
    }

    void grow() {
        if (random_() % 3 != 0 || files_.empty()) {
            write("/" + std::to_string(random_() % 1000) + "-" + std::to_string(next_++), 0,
                  any_size());
            return;
        }
        const std::string path = any_path();
        const size_t end = files_[path].size();
        write(path, end > 3 * kMiB ? random_() % end : end, any_size());
    }
    void step() {
        if (is_crowded()) {
            switch (random_() % 6) {
                case 0:
                    return truncate();
                case 1:
                    return punch();
                default:
                    return unlink();
            }
        }
        switch (random_() % 8) {
            case 0: {
                const std::string path = any_path();
                return write(path, random_() % (files_[path].size() + 1), 1 + random_() % 30000);
            }
            case 1:
                return rename();
            case 2:
                return punch();
            default:
                return grow();
        }
    }
    void fill() {
        while (!is_crowded()) {
            grow();
        }
    }

    // ---- Checks ----

    // Content, and the number of blocks in use, as the checker counts them; ends in a fresh mount.
    void check_everything() {
        ASSERT_TRUE(volume_.unmount().ok());
        const check::Report report = check::check_file_system(device_, {.verify_data = true});
        for (const check::Finding& finding : report.findings) {
            EXPECT_EQ(finding.severity, check::Severity::note) << finding.line();
        }
        ASSERT_TRUE(volume_.mount().ok());
        EXPECT_EQ(space().free_blocks,
                  report.statistics.total_blocks - report.statistics.used_blocks);
        const std::vector<std::string> names = MUST(volume_.list("/"));
        ASSERT_EQ(names.size(), files_.size());
        for (const auto& [path, content] : files_) {
            ASSERT_TRUE(MUST(volume_.read(path)) == content) << path;
        }
    }

    uint64_t visits() {
        const tiffinfs::NodeCache::Counters counters =
            static_cast<tiffinfs::TiffinFileSystem&>(volume_.file_system())
                .volume()
                .cache()
                .counters();
        return counters.hits + counters.misses;
    }
    // Extents of a file of at most 1 MiB.
    uint32_t extents_of(const std::string& path) {
        vfs::FileSystem& fs = volume_.file_system();
        auto mapping = std::make_unique<vfs::ReadMapping>();
        const vfs::NodeId node = MUST(volume_.find(path));
        MUST(fs.map_read(node, 0, kMiB, *mapping));
        EXPECT_EQ(mapping->length_bytes, kMiB);
        const uint32_t count = mapping->segment_count;
        fs.release_read(*mapping);
        return count;
    }

    const int rounds_;
    const int steps_;
    fuse::CapturedLog log_;
    CrashDevice device_;
    TestVolume volume_;
    std::mt19937_64 random_{1};
    std::map<std::string, std::string> files_;  // by path, with content
    uint64_t next_ = 0;
    uint64_t refused_ = 0;
};

struct RoundCost {
    uint64_t visits = 0;
    uint64_t requests = 0;
};

RoundCost sum(std::vector<RoundCost>::const_iterator begin,
              std::vector<RoundCost>::const_iterator end) {
    RoundCost total;
    for (; begin != end; ++begin) {
        total.visits += begin->visits;
        total.requests += begin->requests;
    }
    return total;
}

TEST_F(AgedVolume, IsAsGoodAsNew) {
    fill();
    std::vector<RoundCost> costs;
    for (int round = 0; round < rounds_ && !HasFatalFailure(); ++round) {
        SCOPED_TRACE("round " + std::to_string(round));
        const uint64_t visits_before = visits();
        device_.reset_counts();
        for (int i = 0; i < steps_ && !HasFatalFailure(); ++i) {
            step();
        }
        ASSERT_TRUE(volume_.sync().ok());
        const IoCounts io = device_.counts();
        costs.push_back({visits() - visits_before, io.reads + io.writes + io.flushes});
        if (round % 10 == 9) {
            check_everything();
        }
    }
    check_everything();
    // There was room for nearly everything: 95 % is not full.
    EXPECT_LE(refused_, static_cast<uint64_t>(rounds_ * steps_) / 20);

    const auto share = static_cast<long>(costs.size() / 4);
    const RoundCost first = sum(costs.begin(), costs.begin() + share);
    const RoundCost last = sum(costs.end() - share, costs.end());
    // Free space becomes fragments, and what is written with it: that has an end, which is about here.
    EXPECT_LE(last.visits, first.visits * 2);
    EXPECT_LE(last.requests, first.requests * 2);
    RecordProperty("refused", std::to_string(refused_));
    RecordProperty("visits", std::to_string(first.visits) + " " + std::to_string(last.visits));
    RecordProperty("requests",
                   std::to_string(first.requests) + " " + std::to_string(last.requests));
}

TEST_F(AgedVolume, GivesPiecesAsLongAsThereAre) {
    fill();
    for (int i = 0; i < rounds_ * steps_ / 4 && !HasFatalFailure(); ++i) {
        step();
    }
    // Room in many places of all sizes.
    const size_t count = files_.size();
    for (size_t i = 0; i < count * 3 / 4; ++i) {
        unlink();
    }
    ASSERT_TRUE(volume_.unmount().ok());
    ASSERT_TRUE(volume_.mount().ok());
    uint32_t written = 0;
    uint32_t most = 0;
    // As long as there is a free range of 1 MiB and some more.
    while (MUST(volume_.file_system().trim(0, device_.geometry().size_bytes, kMiB + 64 * kBlock)) !=
           0) {
        const std::string path = "/whole-" + std::to_string(written++);
        ASSERT_TRUE(volume_.write(path, 0, any_content(kMiB)).ok());
        most = std::max(most, extents_of(path));
        ASSERT_TRUE(volume_.sync().ok());
    }
    EXPECT_GT(written, 3U);
    // Two groups, of which one may be in use by a checkpoint: it is passed over then.
    EXPECT_LE(most, 4U);
}

}  // namespace
}  // namespace tiffin::test
