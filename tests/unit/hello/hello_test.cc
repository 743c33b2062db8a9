// SPDX-License-Identifier: MIT OR GPL-2.0-only
// fs/hello keeps what the contract asks for, small as it is.
#include "fs/hello/hello.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fs/vfs/file_system.h"
#include "fuse/host/allocation_hooks.h"

namespace tiffin::hello {
namespace {

using vfs::AttributeChange;
using vfs::Attributes;
using vfs::NodeId;

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

class HelloTest : public testing::Test {
  protected:
    void SetUp() override {
        file_system_ = MUST(create());
        file_ = MUST(file_system_->lookup(vfs::kRootNode, "hello")).node;
    }
    void TearDown() override {
        EXPECT_TRUE(file_system_->unmount().ok());
        destroy(file_system_);
    }

    Result<size_t> write(uint64_t offset_bytes, std::string text, uint32_t flags = 0) {
        vfs::IoVector buffer{text.data(), text.size()};
        return file_system_->write(file_, 0, offset_bytes, Span<const vfs::IoVector>(&buffer, 1),
                                   flags);
    }
    std::string read(uint64_t offset_bytes, size_t size_bytes) {
        std::string text(size_bytes, '?');
        vfs::IoVector buffer{text.data(), text.size()};
        text.resize(MUST(
            file_system_->read(file_, 0, offset_bytes, Span<const vfs::IoVector>(&buffer, 1))));
        return text;
    }
    Result<Attributes> set_size(NodeId node, uint64_t size_bytes) {
        AttributeChange change;
        change.valid = AttributeChange::size_bit;
        change.size_bytes = size_bytes;
        return file_system_->set_attributes({}, node, change);
    }

    vfs::FileSystem* file_system_ = nullptr;
    NodeId file_ = 0;
};

TEST_F(HelloTest, ReadsWhatWasWritten) {
    ASSERT_TRUE(set_size(file_, 0).ok());
    EXPECT_EQ(write(0, "tea").value(), 3U);
    EXPECT_EQ(write(0, " time", vfs::write_flag::append).value(), 5U);
    EXPECT_EQ(read(0, 100), "tea time");
    EXPECT_EQ(read(4, 2), "ti");
    EXPECT_EQ(read(8, 100), "");
    EXPECT_EQ(read(uint64_t{1} << 60, 100), "");
}

TEST_F(HelloTest, WhatAFileGrowsByReadsAsZeros) {
    ASSERT_TRUE(set_size(file_, 2).ok());
    ASSERT_TRUE(set_size(file_, 4).ok());
    ASSERT_TRUE(write(6, "!").ok());
    EXPECT_EQ(read(0, 100), std::string("He\0\0\0\0!", 7));
}

TEST_F(HelloTest, RefusesWhatDoesNotFit) {
    EXPECT_EQ(write(4096, "x").error(), Error::efbig);
    EXPECT_EQ(write(~uint64_t{0}, "x").error(), Error::efbig);
    EXPECT_EQ(set_size(file_, 4097).error(), Error::efbig);
    EXPECT_TRUE(set_size(file_, 4096).ok());
    EXPECT_EQ(set_size(vfs::kRootNode, 0).error(), Error::eisdir);
}

TEST_F(HelloTest, RefusesWhatItDoesNotKeep) {
    AttributeChange change;
    change.valid = AttributeChange::mode_bit;
    change.mode = 0600;
    EXPECT_EQ(file_system_->set_attributes({}, file_, change).error(), Error::eopnotsupp);
    EXPECT_EQ(file_system_->get_attributes(file_)->mode, vfs::mode::regular | 0644U);
    EXPECT_EQ(file_system_->create({}, vfs::kRootNode, "x", 0644, 0, 0, {}).error(),
              Error::eopnotsupp);
}

TEST_F(HelloTest, KeepsTheTimesItIsGiven) {
    AttributeChange change;
    change.valid = AttributeChange::access_time_bit | AttributeChange::modification_time_bit |
                   AttributeChange::change_time_bit;
    change.access_time = {1, 2};
    change.modification_time = {3, 4};
    change.change_time = {5, 6};
    ASSERT_TRUE(file_system_->set_attributes({}, file_, change).ok());
    // Write-back changes no times: the host sends those it has shown.
    ASSERT_TRUE(write(0, "x", vfs::write_flag::write_back | vfs::write_flag::keep_times).ok());
    ASSERT_TRUE(write(1000, "x", vfs::write_flag::write_back | vfs::write_flag::keep_times).ok());
    Attributes attributes = MUST(file_system_->get_attributes(file_));
    EXPECT_EQ(attributes.access_time, change.access_time);
    EXPECT_EQ(attributes.modification_time, change.modification_time);
    EXPECT_EQ(attributes.change_time, change.change_time);
    ASSERT_TRUE(write(0, "x").ok());
    EXPECT_TRUE(change.modification_time < file_system_->get_attributes(file_)->modification_time);
}

TEST_F(HelloTest, FindsNamesAndNothingElse) {
    EXPECT_EQ(file_system_->lookup(vfs::kRootNode, "..")->node, vfs::kRootNode);
    EXPECT_EQ(file_system_->lookup(vfs::kRootNode, "Hello").error(), Error::enoent);
    EXPECT_EQ(file_system_->lookup(file_, "hello").error(), Error::enotdir);
    std::string long_name(256, 'x');
    vfs::Name name(long_name.data(), long_name.size());
    EXPECT_EQ(file_system_->lookup(vfs::kRootNode, name).error(), Error::enametoolong);
}

TEST_F(HelloTest, UnknownNodesAreStale) {
    vfs::IoVector nothing{nullptr, 0};
    Span<const vfs::IoVector> buffers(&nothing, 1);
    Names names(10);
    EXPECT_EQ(file_system_->get_attributes(3).error(), Error::estale);
    EXPECT_EQ(file_system_->lookup(3, "hello").error(), Error::estale);
    EXPECT_EQ(set_size(3, 0).error(), Error::estale);
    EXPECT_EQ(file_system_->read(3, 0, 0, buffers).error(), Error::estale);
    EXPECT_EQ(file_system_->write(3, 0, 0, buffers, 0).error(), Error::estale);
    EXPECT_EQ(file_system_->read_directory(3, 0, 0, false, names).error(), Error::estale);
    EXPECT_EQ(file_system_->read(vfs::kRootNode, 0, 0, buffers).error(), Error::eisdir);
}

TEST_F(HelloTest, ListsEachEntryOnceInAnyPieces) {
    for (size_t room = 1; room <= 4; ++room) {
        std::vector<std::string> all;
        uint64_t cookie = 0;
        while (true) {
            Names names(room);
            ASSERT_TRUE(file_system_->read_directory(vfs::kRootNode, 0, cookie, true, names).ok());
            if (names.taken.empty()) {
                break;
            }
            all.insert(all.end(), names.taken.begin(), names.taken.end());
            cookie = names.cookie;
        }
        EXPECT_EQ(all, (std::vector<std::string>{".", "..", "hello"}));
    }
}

TEST(Hello, SaysWhenThereIsNoMemory) {
    fuse::AllocationWatch watch;
    watch.fail_allocation(1);
    EXPECT_EQ(create().error(), Error::enomem);
    EXPECT_EQ(watch.live_bytes(), 0);
}

}  // namespace
}  // namespace tiffin::hello
