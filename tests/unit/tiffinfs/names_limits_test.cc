// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How many names a file and how many sub-directories a directory can have, and what happens there.
#include "fs/tiffinfs/objects/operations.h"
#include "tests/unit/tiffinfs/names_fixture.h"

namespace tiffin::tiffinfs {
namespace {

constexpr uint64_t kRoot = vfs::kRootNode;
const int kTooMany = code(Error::emlink);

// Gives a node a link count that would take long to reach.
void set_links(NamesVolume& volume, uint64_t node, uint32_t links) {
    InodeValue inode = volume.inode(node);
    inode.link_count = links;
    volume.put_inode(node, inode);
    volume.crash();  // what is cached of it goes
}

TEST(NamesLimits, AFileHasAsManyNamesAsItMay) {
    NamesVolume volume;
    const uint64_t file = volume.create(kRoot, "file");
    const uint64_t directory = volume.make_directory(kRoot, "names");
    for (uint32_t links = 1; links < kMaximumFileLinks; ++links) {
        ASSERT_EQ(code(volume.fs().link({}, file, directory, name_of(std::to_string(links)))), 0);
    }
    EXPECT_EQ(volume.attributes(file).link_count, kMaximumFileLinks);
    EXPECT_EQ(code(volume.fs().link({}, file, directory, "more")), kTooMany);
    EXPECT_EQ(volume.lookup_error(directory, "more"), code(Error::enoent));
    EXPECT_EQ(volume.attributes(file).link_count, kMaximumFileLinks);
    // What is wrong with the new name comes first.
    EXPECT_EQ(code(volume.fs().link({}, file, directory, "1")), code(Error::eexist));
    // Moving a name is no new one, and one that goes makes room.
    EXPECT_EQ(code(volume.fs().rename({}, directory, "1", kRoot, "moved", 0)), 0);
    EXPECT_EQ(code(volume.fs().unlink({}, directory, "2")), 0);
    EXPECT_EQ(code(volume.fs().link({}, file, directory, "more")), 0);
    EXPECT_EQ(volume.check(), "");
}

TEST(NamesLimits, ADirectoryHasAsManySubDirectoriesAsItsLinkCountCanTell) {
    NamesVolume volume;
    const uint64_t full = volume.make_directory(kRoot, "full");
    const uint64_t other = volume.make_directory(kRoot, "other");
    volume.make_directory(full, "sub");
    volume.make_directory(other, "moved");
    volume.create(other, "file");
    set_links(volume, full, kMaximumDirectoryLinks);
    EXPECT_EQ(code(volume.fs().make_directory({}, full, "more", 0755, {})), kTooMany);
    EXPECT_EQ(volume.lookup_error(full, "more"), code(Error::enoent));
    EXPECT_EQ(code(volume.fs().rename({}, other, "moved", full, "moved", 0)), kTooMany);
    EXPECT_NE(volume.lookup(other, "moved"), 0U);
    // Only sub-directories count, and one that takes another's place is none more.
    EXPECT_EQ(code(volume.fs().create({}, full, "file", 0644, 0, 0, {})), 0);
    EXPECT_EQ(code(volume.fs().rename({}, other, "moved", full, "sub", 0)), 0);
    EXPECT_EQ(volume.attributes(full).link_count, kMaximumDirectoryLinks);
    EXPECT_EQ(code(volume.fs().remove_directory({}, full, "sub")), 0);
    EXPECT_EQ(code(volume.fs().make_directory({}, full, "more", 0755, {})), 0);
}

}  // namespace
}  // namespace tiffin::tiffinfs
