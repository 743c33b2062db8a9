// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The tutorial's exercise: files that come and go, and what references are for.
#include "tests/unit/hello/shelf.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tiffin::shelf {
namespace {

using vfs::NodeId;

class ShelfTest : public testing::Test {
  protected:
    void SetUp() override { file_system_ = MUST(create()); }
    void TearDown() override {
        EXPECT_TRUE(file_system_->unmount().ok());
        destroy(file_system_);
    }

    Result<vfs::Attributes> make(const std::string& name) {
        return file_system_->create({}, vfs::kRootNode, vfs::Name(name.data(), name.size()), 0644,
                                    0, 0, {});
    }
    std::string content(NodeId node) {
        std::string text(100, '?');
        vfs::IoVector buffer{text.data(), text.size()};
        text.resize(MUST(file_system_->read(node, 0, 0, Span<const vfs::IoVector>(&buffer, 1))));
        return text;
    }
    void write(NodeId node, std::string text) {
        vfs::IoVector buffer{text.data(), text.size()};
        EXPECT_EQ(MUST(file_system_->write(node, 0, 0, Span<const vfs::IoVector>(&buffer, 1), 0)),
                  text.size());
    }

    vfs::FileSystem* file_system_ = nullptr;
};

// Takes `room` entries.
class Names final : public vfs::DirectorySink {
  public:
    explicit Names(size_t room) : room_(room) {}
    bool add(const vfs::DirectoryEntry& entry) override {
        if (taken.size() == room_) {
            return false;
        }
        taken.emplace_back(entry.name.data, entry.name.size_bytes);
        cookie = entry.next_cookie;
        return true;
    }
    std::vector<std::string> taken;
    uint64_t cookie = 0;

  private:
    size_t room_;
};

TEST_F(ShelfTest, AFileOutlivesItsNameWhileItIsReferenced) {
    NodeId node = MUST(make("cup")).node;
    write(node, "tea");
    ASSERT_TRUE(file_system_->unlink({}, vfs::kRootNode, "cup").ok());
    EXPECT_EQ(file_system_->lookup(vfs::kRootNode, "cup").error(), Error::enoent);
    EXPECT_EQ(content(node), "tea");
    EXPECT_EQ(file_system_->get_attributes(node)->link_count, 0U);
    // The name may be used again: that is another file.
    NodeId other = MUST(make("cup")).node;
    EXPECT_NE(other, node);
    EXPECT_EQ(content(other), "");
    file_system_->forget(node, 1);
    EXPECT_EQ(file_system_->get_attributes(node).error(), Error::estale);
    EXPECT_TRUE(file_system_->get_attributes(other).ok());
}

TEST_F(ShelfTest, AFileOutlivesItsReferencesWhileItHasAName) {
    NodeId node = MUST(make("cup")).node;
    file_system_->forget(node, 1);
    EXPECT_EQ(MUST(file_system_->lookup(vfs::kRootNode, "cup")).node, node);
    ASSERT_TRUE(file_system_->lookup(vfs::kRootNode, "cup").ok());
    ASSERT_TRUE(file_system_->unlink({}, vfs::kRootNode, "cup").ok());
    file_system_->forget(node, 1);
    EXPECT_TRUE(file_system_->get_attributes(node).ok());
    file_system_->forget(node, 1);
    EXPECT_EQ(file_system_->get_attributes(node).error(), Error::estale);
}

TEST_F(ShelfTest, EntriesWithAttributesAreReferences) {
    NodeId node = MUST(make("cup")).node;
    Names without(10);
    ASSERT_TRUE(file_system_->read_directory(vfs::kRootNode, 0, 0, false, without).ok());
    Names with(10);
    ASSERT_TRUE(file_system_->read_directory(vfs::kRootNode, 0, 0, true, with).ok());
    Names too_small(2);
    ASSERT_TRUE(file_system_->read_directory(vfs::kRootNode, 0, 0, true, too_small).ok());
    ASSERT_TRUE(file_system_->unlink({}, vfs::kRootNode, "cup").ok());
    // Two are held: by create() and by the one reading that had room and asked for attributes.
    file_system_->forget(node, 1);
    EXPECT_TRUE(file_system_->get_attributes(node).ok());
    file_system_->forget(node, 1);
    EXPECT_EQ(file_system_->get_attributes(node).error(), Error::estale);
}

TEST_F(ShelfTest, ReadingGoesOnWhereItStoppedWhateverCameAndWent) {
    for (const char* name : {"a", "b", "c", "d"}) {
        ASSERT_TRUE(make(name).ok());
    }
    Names first(4);  // ".", "..", "a", "b"
    ASSERT_TRUE(file_system_->read_directory(vfs::kRootNode, 0, 0, false, first).ok());
    ASSERT_TRUE(file_system_->unlink({}, vfs::kRootNode, "b").ok());
    ASSERT_TRUE(file_system_->unlink({}, vfs::kRootNode, "c").ok());
    ASSERT_TRUE(make("e").ok());
    Names second(10);
    ASSERT_TRUE(file_system_->read_directory(vfs::kRootNode, 0, first.cookie, false, second).ok());
    EXPECT_EQ(first.taken, (std::vector<std::string>{".", "..", "a", "b"}));
    EXPECT_EQ(second.taken, (std::vector<std::string>{"d", "e"}));
}

TEST_F(ShelfTest, IsFullWithSixteenFiles) {
    for (int i = 0; i < 16; ++i) {
        ASSERT_TRUE(make("file" + std::to_string(i)).ok());
    }
    EXPECT_EQ(make("one more").error(), Error::enospc);
    EXPECT_EQ(make("file3").error(), Error::eexist);
    EXPECT_EQ(file_system_->statistics()->free_blocks, 0U);
    NodeId node = MUST(file_system_->lookup(vfs::kRootNode, "file3")).node;
    file_system_->forget(node, 2);
    ASSERT_TRUE(file_system_->unlink({}, vfs::kRootNode, "file3").ok());
    EXPECT_TRUE(make("one more").ok());
}

}  // namespace
}  // namespace tiffin::shelf
