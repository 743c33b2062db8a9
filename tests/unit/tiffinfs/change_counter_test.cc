// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: the change counter grows with each change of a node, is durable with it, and stays where nothing changes.
// Method: single operations, of which each says whose counter it moves; and a crash after fsync.
#include <functional>

#include "tests/unit/tiffinfs/names_fixture.h"

namespace tiffin::tiffinfs {
namespace {

using vfs::kRootNode;

class ChangeCounter : public ::testing::Test {
  protected:
    void SetUp() override {
        directory_ = volume_.make_directory(kRootNode, "d");
        file_ = volume_.create(kRootNode, "f");
    }
    uint64_t counter(uint64_t node) { return volume_.attributes(node).change_counter; }
    // Counters of root, directory and file that `operation` moves, as "root file".
    std::string moved(const std::function<int()>& operation) {
        const uint64_t nodes[] = {kRootNode, directory_, file_};
        const char* const names[] = {"root ", "directory ", "file "};
        uint64_t before[3];
        for (int i = 0; i < 3; ++i) {
            before[i] = counter(nodes[i]);
        }
        EXPECT_EQ(operation(), 0);
        std::string text;
        for (int i = 0; i < 3; ++i) {
            EXPECT_GE(counter(nodes[i]), before[i]);
            text += counter(nodes[i]) > before[i] ? names[i] : "";
        }
        return text;
    }
    int write(const std::string& text, uint64_t offset_bytes, uint32_t flags = 0) {
        std::string copy = text;
        const vfs::IoVector buffer{copy.data(), copy.size()};
        return code(
            fs().write(file_, 0, offset_bytes, Span<const vfs::IoVector>(&buffer, 1), flags));
    }
    TiffinFileSystem& fs() { return volume_.fs(); }

    NamesVolume volume_;
    uint64_t directory_ = 0;
    uint64_t file_ = 0;
};

TEST_F(ChangeCounter, StaysWhenAHostGivesAnAccessTimeAlone) {
    using Change = vfs::AttributeChange;
    const auto set = [&](uint32_t valid) {
        return moved([&] {
            const vfs::Attributes now = volume_.attributes(file_);
            Change change;
            change.valid = valid;
            change.access_time = {now.access_time.seconds + 1, 5};
            change.modification_time = now.modification_time;
            change.change_time = now.change_time;
            return code(fs().set_attributes({}, file_, change));
        });
    };
    EXPECT_EQ(set(Change::access_time_bit | Change::change_time_bit), "");
    EXPECT_EQ(volume_.attributes(file_).access_time.nanoseconds, 5U);
    // By utimes(), which moves the change time.
    EXPECT_EQ(set(Change::access_time_bit), "file ");
    // Written again in the same tick of the clock.
    EXPECT_EQ(set(Change::modification_time_bit | Change::change_time_bit), "file ");
}

TEST_F(ChangeCounter, MovesWithEachChange) {
    EXPECT_EQ(moved([&] { return write("small", 0); }), "file ");
    EXPECT_EQ(moved([&] { return write(std::string(20000, 'x'), 3); }), "file ");
    EXPECT_EQ(moved([&] { return write(std::string(4096, 'y'), 4096); }), "file ");
    EXPECT_EQ(moved([&] {
                  vfs::AttributeChange change;
                  change.valid = vfs::AttributeChange::size_bit;
                  change.size_bytes = 100;
                  return code(fs().set_attributes({}, file_, change));
              }),
              "file ");
    EXPECT_EQ(moved([&] {
                  vfs::AttributeChange change;
                  change.valid = vfs::AttributeChange::mode_bit;
                  change.mode = 0600;
                  return code(fs().set_attributes({}, file_, change));
              }),
              "file ");
    EXPECT_EQ(moved([&] { return code(fs().set_flags({}, file_, vfs::file_flag::no_dump)); }),
              "file ");
    const unsigned char value[] = "value";
    EXPECT_EQ(
        moved([&] { return code(fs().set_xattr({}, file_, "user.a", ByteSpan(value, 5), 0)); }),
        "file ");
    EXPECT_EQ(moved([&] { return code(fs().remove_xattr({}, file_, "user.a")); }), "file ");
    EXPECT_EQ(moved([&] { return code(fs().link({}, file_, directory_, "second")); }),
              "directory file ");
    EXPECT_EQ(moved([&] { return code(fs().rename({}, kRootNode, "f", directory_, "third", 0)); }),
              "root directory file ");
    EXPECT_EQ(moved([&] { return code(fs().unlink({}, directory_, "second")); }),
              "directory file ");
    EXPECT_EQ(moved([&] { return code(fs().create({}, directory_, "new", 0644, 0, 0, {})); }),
              "directory ");
    EXPECT_EQ(moved([&] { return code(fs().make_directory({}, directory_, "sub", 0755, {})); }),
              "directory ");
    EXPECT_EQ(volume_.check(), "");
}

TEST_F(ChangeCounter, StaysWhereNothingChanges) {
    ASSERT_EQ(write("text", 0), 0);
    char text[16];
    const vfs::IoVector buffer{text, sizeof(text)};
    EXPECT_EQ(
        moved([&] { return code(fs().read(file_, 0, 0, Span<const vfs::IoVector>(&buffer, 1))); }),
        "");
    EXPECT_EQ(moved([&] { return code(fs().lookup(kRootNode, "f")); }), "");
    EXPECT_EQ(moved([&] { return code(fs().fsync(file_, false)); }), "");
    EXPECT_EQ(moved([&] { return write("TEXT", 0, vfs::write_flag::keep_times); }), "")
        << "the host's times will move it";
}

TEST_F(ChangeCounter, IsAsDurableAsTheChange) {
    uint64_t last = counter(file_);
    for (int i = 0; i < 300; ++i) {
        ASSERT_EQ(write(std::string(5, char('a' + i % 26)), 0), 0);
        EXPECT_GT(counter(file_), last);
        last = counter(file_);
    }
    ASSERT_EQ(code(fs().fsync(file_, true)), 0);
    volume_.lose();
    volume_.mount();
    file_ = volume_.lookup(kRootNode, "f");
    EXPECT_EQ(counter(file_), last);
    ASSERT_EQ(write("after", 0), 0);
    EXPECT_GT(counter(file_), last);
}

// Where the host's sync() asks for no commit, this is how a user makes everything durable.
TEST_F(ChangeCounter, FsyncOfTheRootMakesAllOfItDurable) {
    ASSERT_EQ(code(fs().fsync(kRootNode, false)), 0);
    volume_.create(directory_, "later");
    ASSERT_EQ(write("text", 0), 0);
    const uint64_t last = counter(file_);
    ASSERT_EQ(code(fs().fsync(kRootNode, false)), 0);
    volume_.lose();
    volume_.mount();
    EXPECT_NE(volume_.lookup(directory_, "later"), 0U);
    EXPECT_EQ(counter(volume_.lookup(kRootNode, "f")), last);
}

}  // namespace
}  // namespace tiffin::tiffinfs
