// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Many threads on few names: every operation gets an answer that some order explains, nothing hangs, and
// the volume is sound afterwards.
#include <random>
#include <set>
#include <thread>

#include "tests/support/race_pauses.h"
#include "tests/unit/tiffinfs/names_fixture.h"

namespace tiffin::tiffinfs {
namespace {

constexpr int kThreads = 4;
constexpr int kSteps = 1500;
constexpr uint64_t kDirectories = 3;

// One thread's share. What it finds is its own business; what it may get as errors is not.
class Worker {
  public:
    Worker(TiffinFileSystem& fs, uint64_t seed) : fs_(fs), random_(seed) {}

    void run() {
        for (int step = 0; step < kSteps; ++step) {
            one_step();
        }
        EXPECT_TRUE(unexpected_.empty()) << "errno " << *unexpected_.begin();
    }

  private:
    // One of the directories at this moment, with a reference; 0 when it is gone.
    uint64_t directory() {
        uint64_t node = vfs::kRootNode;
        for (uint64_t depth = random_() % 4; depth > 0; --depth) {
            Result<vfs::Attributes> next = fs_.lookup(node, name_of("d" + pick(kDirectories)));
            if (!next.ok() || !vfs::mode::is_directory(next->mode)) {
                if (next.ok()) {
                    fs_.forget(next->node, 1);
                }
                break;
            }
            fs_.forget(node, 1);
            node = next->node;
        }
        return node;
    }
    std::string pick(uint64_t count) { return std::to_string(random_() % count); }
    std::string any_name() { return (random_() % 2 == 0 ? "d" : "f") + pick(kDirectories); }

    template <typename T>
    void note(const Result<T>& result, std::initializer_list<Error> expected) {
        if (result.ok()) {
            return;
        }
        for (Error error : expected) {
            if (result.error() == error) {
                return;
            }
        }
        unexpected_.insert(code(result));
    }
    void keep_nothing(const Result<vfs::Attributes>& result) {
        if (result.ok()) {
            fs_.forget(result.value().node, 1);
        }
    }

    void one_step() {
        const uint64_t here = directory();
        const uint64_t there = directory();
        const std::string name = any_name();
        const std::string other = any_name();
        using enum Error;
        switch (random_() % 10) {
            case 0: {
                Result<vfs::Attributes> made =
                    fs_.make_directory({}, here, name_of(name), 0755, {});
                note(made, {eexist, enoent});
                keep_nothing(made);
                break;
            }
            case 1: {
                Result<vfs::Attributes> made = fs_.create({}, here, name_of(name), 0644, 0, 0, {});
                note(made, {eexist, enoent});
                keep_nothing(made);
                break;
            }
            case 2:
                note(fs_.unlink({}, here, name_of(name)), {enoent, eisdir});
                break;
            case 3:
                note(fs_.remove_directory({}, here, name_of(name)), {enoent, enotdir, enotempty});
                break;
            case 4:
            case 5:
                note(fs_.rename({}, here, name_of(name), there, name_of(other), 0),
                     {enoent, enotdir, eisdir, enotempty, einval});
                break;
            case 6:
                note(fs_.rename({}, here, name_of(name), there, name_of(other),
                                vfs::rename_flag::exchange),
                     {enoent, einval});
                break;
            case 7: {
                Result<vfs::Attributes> found = fs_.lookup(here, name_of(name));
                note(found, {enoent});
                if (found.ok()) {
                    Result<vfs::Attributes> linked =
                        fs_.link({}, found->node, there, name_of(other));
                    note(linked, {eexist, enoent, eperm});
                    keep_nothing(linked);
                    keep_nothing(found);
                }
                break;
            }
            case 8: {
                NameList sink;
                note(fs_.read_directory(here, 0, 0, true, sink), {});
                for (size_t i = 0; i < sink.nodes.size(); ++i) {
                    if (sink.names[i] != "." && sink.names[i] != "..") {
                        fs_.forget(sink.nodes[i], 1);
                    }
                }
                break;
            }
            default: {
                vfs::AttributeChange change;
                change.valid = vfs::AttributeChange::mode_bit;
                change.mode = 0700;
                note(fs_.set_attributes({}, here, change), {});
                note(fs_.set_xattr({}, here, "user.x", {}, 0), {});
                break;
            }
        }
        fs_.forget(here, 1);
        fs_.forget(there, 1);
    }

    TiffinFileSystem& fs_;
    std::mt19937_64 random_;
    std::set<int> unexpected_;
};

TEST(NamesThreads, AgreeOnFewNames) {
    const test::RacePauses pauses;
    MountOptions options = NamesVolume::quiet_options();
    options.maximum_objects = 64;  // so that objects come and go all the time
    NamesVolume volume(options);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back(
            [&volume, i] { Worker(volume.fs(), static_cast<uint64_t>(i) + 1).run(); });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(volume.check(), "");
}

// Two threads that each try to put a directory into the other's: at most one may succeed.
TEST(NamesThreads, NoLoopIsMade) {
    NamesVolume volume;
    TiffinFileSystem& fs = volume.fs();
    for (int round = 0; round < 200; ++round) {
        const uint64_t a = volume.make_directory(vfs::kRootNode, "a");
        const uint64_t b = volume.make_directory(vfs::kRootNode, "b");
        const uint64_t a_sub = volume.make_directory(a, "sub");
        const uint64_t b_sub = volume.make_directory(b, "sub");
        int a_into_b = -1;
        int b_into_a = -1;
        std::thread first(
            [&] { a_into_b = code(fs.rename({}, vfs::kRootNode, "a", b_sub, "a", 0)); });
        std::thread second(
            [&] { b_into_a = code(fs.rename({}, vfs::kRootNode, "b", a_sub, "b", 0)); });
        first.join();
        second.join();
        // Whoever comes second is refused, since the other one lies inside what he moves.
        ASSERT_TRUE((a_into_b == 0) != (b_into_a == 0)) << a_into_b << " and " << b_into_a;
        if (a_into_b == 0) {
            ASSERT_EQ(code(fs.rename({}, b_sub, "a", vfs::kRootNode, "a", 0)), 0);
        } else {
            ASSERT_EQ(code(fs.rename({}, a_sub, "b", vfs::kRootNode, "b", 0)), 0);
        }
        for (const auto& [node, name] : {std::pair(a, "a"), std::pair(b, "b")}) {
            ASSERT_EQ(code(fs.remove_directory({}, node, "sub")), 0);
            ASSERT_EQ(code(fs.remove_directory({}, vfs::kRootNode, vfs::Name(name, 1))), 0);
        }
        for (uint64_t node : {a, b, a_sub, b_sub}) {
            fs.forget(node, 1);
        }
    }
    EXPECT_EQ(volume.check(), "");
}

}  // namespace
}  // namespace tiffin::tiffinfs
