// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: several threads make files in one directory at the same time, which they do side by side: each name is made
// once, the directory's count, links and times are right all the time, and what is left after a crash is sound.
#include <atomic>
#include <set>
#include <thread>

#include "tests/support/race_pauses.h"
#include "tests/support/test_size.h"
#include "tests/unit/tiffinfs/names_fixture.h"

namespace tiffin::tiffinfs {
namespace {

constexpr int kThreads = 4;

// What all threads together have done.
struct Done {
    std::atomic<uint64_t> entries{0};
    std::atomic<uint64_t> directories{0};
    std::atomic<uint64_t> failures{0};
};

// Makes what all threads try to make, and something of its own, of all kinds; some of that is removed again.
void make_many(TiffinFileSystem& fs, uint64_t directory, int number, uint64_t rounds, Done& done) {
    const auto count = [&](Result<vfs::Attributes> made, bool must) {
        if (made.ok()) {
            fs.forget(made->node, 1);
            ++done.entries;
        } else if (must || made.error() != Error::eexist) {
            ++done.failures;
        }
        return made.ok();
    };
    for (uint64_t i = 0; i < rounds; ++i) {
        const std::string text = std::to_string(i);
        const std::string own = "own" + std::to_string(number) + "-" + text;
        count(fs.create({}, directory, name_of("all" + text), 0644, 0, 0, {}), false);
        switch (i % 4) {
            case 0:
                done.directories +=
                    count(fs.make_directory({}, directory, name_of(own), 0755, {}), true) ? 1 : 0;
                break;
            case 1:
                count(fs.make_symlink({}, directory, name_of(own), name_of("target"), {}), true);
                break;
            case 2: {
                Result<vfs::Attributes> made = fs.make_temporary({}, directory, 0600, {});
                if (made.ok()) {
                    fs.forget(made->node, 1);
                }
                done.failures += made.ok() ? 0 : 1;
                break;
            }
            default:
                count(fs.create({}, directory, name_of(own), 0644, 0, 0, {}), true);
                if (fs.unlink({}, directory, name_of(own)).ok()) {
                    --done.entries;
                } else {
                    ++done.failures;
                }
                break;
        }
    }
}

// A directory and threads that make files in it, while others look at it.
class Creators : public testing::Test {
  protected:
    void run(uint64_t rounds) {
        directory_ = volume_.make_directory(vfs::kRootNode, "d");
        std::atomic<bool> stopping{false};
        std::thread observer([&] {
            do {
                observe();
            } while (!stopping.load());
        });
        std::vector<std::thread> threads;
        for (int number = 0; number < kThreads; ++number) {
            threads.emplace_back([this, number, rounds] {
                make_many(volume_.fs(), directory_, number, rounds, done_);
            });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
        stopping = true;
        observer.join();
        EXPECT_EQ(done_.failures, 0U);
    }

    const test::RacePauses pauses_{128};
    NamesVolume volume_;
    uint64_t directory_ = 0;
    Done done_;

  private:
    // Times do not go back, no name is listed twice; and now and then something becomes durable.
    void observe() {
        TiffinFileSystem& fs = volume_.fs();
        Result<vfs::Attributes> now = fs.get_attributes(directory_);
        done_.failures += now.ok() && !(now->change_time < seen_.change_time) &&
                                  !(now->modification_time < seen_.modification_time)
                              ? 0
                              : 1;
        seen_ = now.ok() ? now.value() : seen_;
        NameList sink;
        done_.failures += fs.read_directory(directory_, 0, 0, false, sink).ok() ? 0 : 1;
        const std::set<std::string> names(sink.names.begin(), sink.names.end());
        done_.failures += names.size() == sink.names.size() ? 0 : 1;
        done_.failures += fs.sync(true).ok() ? 0 : 1;
    }

    vfs::Attributes seen_;
};

TEST_F(Creators, AreCountedWhoeverComesFirst) {
    const uint64_t rounds = test::test_size(400, 100);
    run(rounds);
    EXPECT_EQ(done_.entries, rounds + kThreads * rounds / 4 * 2);
    const vfs::Attributes attributes = volume_.attributes(directory_);
    EXPECT_EQ(attributes.size_bytes, (done_.entries + 2) * 32);
    EXPECT_EQ(attributes.link_count, done_.directories + 2);
    EXPECT_EQ(volume_.list(directory_).size(), done_.entries + 2);
    EXPECT_EQ(volume_.inode(directory_).size_bytes, done_.entries);
    volume_.fs().forget(directory_, 1);
    EXPECT_EQ(volume_.check(), "");
}

TEST_F(Creators, LeaveAWholeDirectoryBehindACrash) {
    run(test::test_size(200, 50));
    volume_.lose();
    volume_.mount();
    const uint64_t directory = volume_.lookup(vfs::kRootNode, "d");
    const uint64_t entries = volume_.inode(directory).size_bytes;
    EXPECT_EQ(volume_.list(directory).size(), entries + 2);
    volume_.fs().forget(directory, 1);
    EXPECT_EQ(volume_.check(), "");
}

// Whoever has found a new name can make it durable by the directory or by the file, before the one who makes it knows.
TEST(NewNames, AreDurableForWhoHasFoundThem) {
    const test::RacePauses pauses(32);
    NamesVolume volume;
    TiffinFileSystem& fs = volume.fs();
    const uint64_t directory = volume.make_directory(vfs::kRootNode, "d");
    const uint64_t names = test::test_size(200, 60);
    const uint64_t first_ticket = volume.volume().journal().last_ticket() + 1;
    std::atomic<uint64_t> failures{0};
    std::thread maker([&] {
        for (uint64_t i = 0; i < names; ++i) {
            // One transaction each.
            const std::string name = std::to_string(i);
            failures += fs.create({}, directory, name_of(name), 0644, 0, 0, {}).ok() ? 0 : 1;
        }
    });
    for (uint64_t i = 0; i < names; ++i) {
        const std::string name = std::to_string(i);
        uint64_t node = 0;
        while (node == 0 && failures == 0) {
            Result<vfs::Attributes> found = fs.lookup(directory, name_of(name));
            if (found.ok()) {
                node = found->node;
            } else {
                failures += found.error() == Error::enoent ? 0 : 1;
                std::this_thread::yield();
            }
        }
        if (node == 0) {
            break;
        }
        EXPECT_TRUE(fs.fsync(i % 2 == 0 ? directory : node, false).ok());
        EXPECT_GE(volume.volume().journal().durable_ticket(), first_ticket + i);
    }
    maker.join();
    EXPECT_EQ(failures, 0U);
}

// Nothing is made in a directory that is gone, and none goes that something is made in.
TEST(NewNames, AreMadeInNoDirectoryThatIsGone) {
    const test::RacePauses pauses;
    NamesVolume volume;
    TiffinFileSystem& fs = volume.fs();
    std::atomic<uint64_t> failures{0};
    std::atomic<int> working{kThreads};
    std::vector<std::thread> threads;
    const uint64_t rounds = test::test_size(300, 80);
    for (int number = 0; number < kThreads; ++number) {
        threads.emplace_back([&, number] {
            const std::string name = "own" + std::to_string(number);
            for (uint64_t i = 0; i < rounds; ++i) {
                Result<vfs::Attributes> directory = fs.lookup(vfs::kRootNode, name_of("d"));
                if (!directory.ok()) {
                    failures += directory.error() == Error::enoent ? 0 : 1;
                    std::this_thread::yield();
                    continue;
                }
                Result<vfs::Attributes> file =
                    fs.create({}, directory->node, name_of(name), 0644, 0, 0, {});
                if (file.ok()) {
                    // It is there until its maker takes it away.
                    failures += fs.unlink({}, directory->node, name_of(name)).ok() ? 0 : 1;
                    fs.forget(file->node, 1);
                } else {
                    failures += file.error() == Error::enoent ? 0 : 1;
                }
                fs.forget(directory->node, 1);
            }
            --working;
        });
    }
    do {
        Result<vfs::Attributes> directory =
            fs.make_directory({}, vfs::kRootNode, name_of("d"), 0755, {});
        if (directory.ok()) {
            fs.forget(directory->node, 1);
        }
        std::this_thread::yield();
        const Result<void> gone = fs.remove_directory({}, vfs::kRootNode, name_of("d"));
        failures += gone.ok() || gone.error() == Error::enotempty ? 0 : 1;
    } while (working > 0);
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(failures, 0U);
    Result<vfs::Attributes> left = fs.lookup(vfs::kRootNode, name_of("d"));
    if (left.ok()) {
        fs.forget(left->node, 1);
        EXPECT_TRUE(fs.remove_directory({}, vfs::kRootNode, name_of("d")).ok());
    }
    EXPECT_EQ(volume.check(), "");
}

}  // namespace
}  // namespace tiffin::tiffinfs
