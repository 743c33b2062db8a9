// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: 1, 2 and 4 threads that create, write, read, list and delete, each in a directory of its own or all in
// one, with checkpoints and evictions under way, get what one thread would get. It is the load of
// bench/concurrency_load.cc; under the thread sanitizer, and wherever the order of locks is checked, that is
// checked here too.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "fs/tiffinfs/objects/file_system.h"
#include "fuse/check/check.h"
#include "fuse/host/log_sink.h"
#include "fuse/host/memory_device.h"
#include "tests/support/race_pauses.h"
#include "tests/support/test_size.h"
#include "tests/support/test_volume.h"
#include "tests/support/units.h"

namespace tiffin::test {
namespace {

constexpr uint64_t kSharedBlocks = 64;

struct Load {
    unsigned threads;
    bool shared;
};

class NameCounter final : public vfs::DirectorySink {
  public:
    explicit NameCounter(std::string prefix) : prefix_(std::move(prefix)) {}
    bool add(const vfs::DirectoryEntry& entry) override {
        const std::string name(entry.name.data, entry.name.size_bytes);
        own += name.compare(0, prefix_.size(), prefix_) == 0 ? 1 : 0;
        cookie = entry.next_cookie;
        ++all;
        return true;
    }
    uint64_t own = 0;
    uint64_t all = 0;
    uint64_t cookie = 0;

  private:
    std::string prefix_;
};

// One thread's share. Failures are counted: assertions belong to the main thread.
class Worker {
  public:
    Worker(vfs::FileSystem& fs, unsigned number, vfs::NodeId directory, vfs::NodeId shared_file)
        : fs_(fs),
          prefix_("t" + std::to_string(number) + "-"),
          number_(number),
          directory_(directory),
          shared_file_(shared_file) {}

    uint64_t run() {
        const uint64_t files = test_size(600, 120);
        for (uint64_t i = 0; i < files; ++i) {
            create_and_write(i);
            touch_shared_file(i);
            if (i >= 10 && i % 2 == 0) {
                expect(fs_.unlink({}, directory_, name_of(name(i - 10))).ok());
            }
            if (i % 50 == 49) {
                expect_listed(i);
            }
            if (i % 100 == 99) {
                expect(fs_.sync(true).ok());
            }
        }
        return failures_;
    }

  private:
    static vfs::Name name_of(const std::string& text) { return {text.data(), text.size()}; }
    std::string name(uint64_t i) const { return prefix_ + std::to_string(i); }
    void expect(bool holds) { failures_ += holds ? 0 : 1; }
    bool read_back(vfs::NodeId node, uint64_t offset, const std::string& content) {
        std::string found(content.size(), '\0');
        const vfs::IoVector buffer{found.data(), found.size()};
        return fs_.read(node, 0, offset, Span<const vfs::IoVector>(&buffer, 1)).value_or(0) ==
                   found.size() &&
               found == content;
    }
    bool write(vfs::NodeId node, uint64_t offset, std::string content) {
        const vfs::IoVector buffer{content.data(), content.size()};
        return fs_.write(node, 0, offset, Span<const vfs::IoVector>(&buffer, 1), 0).value_or(0) ==
               content.size();
    }

    void create_and_write(uint64_t i) {
        Result<vfs::Attributes> made = fs_.create({}, directory_, name_of(name(i)), 0644, 0, 0, {});
        expect(made.ok());
        if (!made.ok()) {
            return;
        }
        const std::string content = test_content(i * 8 + number_, i % 5 == 0 ? 3 * kBlock : 500);
        expect(write(made->node, 0, content));
        fs_.forget(made->node, 1);
        Result<vfs::Attributes> found = fs_.lookup(directory_, name_of(name(i)));
        expect(found.ok() && read_back(found->node, 0, content));
        if (found.ok()) {
            fs_.forget(found->node, 1);
        }
    }
    // Blocks that are this thread's, among those of the others.
    void touch_shared_file(uint64_t i) {
        const uint64_t offset = (i % kSharedBlocks * 8 + number_) * kBlock;
        const std::string content = test_content(i * 8 + number_, kBlock);
        expect(write(shared_file_, offset, content));
        expect(read_back(shared_file_, offset, content));
    }
    // What this thread has made and not removed is there exactly once, whatever others do.
    void expect_listed(uint64_t last) {
        NameCounter names(prefix_);
        uint64_t before = 0;
        do {
            before = names.all;
            expect(fs_.read_directory(directory_, 0, names.cookie, false, names).ok());
        } while (names.all != before);
        const uint64_t removed = last < 10 ? 0 : (last - 10) / 2 + 1;
        expect(names.own == last + 1 - removed);
    }

    vfs::FileSystem& fs_;
    const std::string prefix_;
    const unsigned number_;
    const vfs::NodeId directory_;
    const vfs::NodeId shared_file_;
    uint64_t failures_ = 0;
};

class ParallelLoad : public testing::TestWithParam<Load> {};

TEST_P(ParallelLoad, GivesEachThreadWhatItDid) {
    const RacePauses pauses;
    fuse::CapturedLog log;
    const auto device = std::move(fuse::MemoryDevice::create(256U << 20).value());
    TestVolume volume(*device);
    ASSERT_TRUE(volume.make().ok());
    tiffinfs::MountOptions options = TestVolume::quiet_options();
    options.volume.cache_bytes = 1U << 20;  // less than the tree takes
    options.maximum_objects = 64;
    ASSERT_TRUE(volume.mount(options).ok());
    ASSERT_TRUE(volume.create("/shared").ok());
    const vfs::NodeId shared_file = volume.find("/shared").value();
    std::vector<Worker> workers;
    for (unsigned i = 0; i < GetParam().threads; ++i) {
        const std::string path = "/d" + std::to_string(GetParam().shared ? 0 : i);
        if (!GetParam().shared || i == 0) {
            ASSERT_TRUE(volume.make_directory(path).ok());
        }
        workers.emplace_back(volume.file_system(), i, volume.find(path).value(), shared_file);
    }
    std::atomic<uint64_t> failures{0};
    std::atomic<bool> stopping{false};
    std::thread checkpoints([&] {
        auto& fs = static_cast<tiffinfs::TiffinFileSystem&>(volume.file_system());
        while (!stopping.load()) {
            failures += fs.volume().checkpoint().ok() ? 0 : 1;
            std::this_thread::yield();
        }
    });
    std::vector<std::thread> threads;
    for (Worker& worker : workers) {
        threads.emplace_back([&] { failures += worker.run(); });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    stopping = true;
    checkpoints.join();
    EXPECT_EQ(failures, 0U);
    EXPECT_TRUE(volume.unmount().ok());
    for (const check::Finding& finding :
         check::check_file_system(*device, {.verify_data = true}).findings) {
        EXPECT_EQ(finding.severity, check::Severity::note) << finding.line();
    }
}

INSTANTIATE_TEST_SUITE_P(Threads, ParallelLoad,
                         testing::Values(Load{1, false}, Load{2, false}, Load{4, false},
                                         Load{2, true}, Load{4, true}),
                         [](const testing::TestParamInfo<Load>& load) {
                             return std::to_string(load.param.threads) +
                                    (load.param.shared ? "InOneDirectory" : "InTheirOwn");
                         });

}  // namespace
}  // namespace tiffin::test
