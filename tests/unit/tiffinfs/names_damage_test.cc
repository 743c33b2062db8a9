// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Volumes on which names and inodes are not what any operation would have made of them: everything gets
// an answer, nothing crashes or goes on for ever.
#include <cstring>

#include "fs/tiffinfs/attributes/xattr.h"
#include "tests/unit/tiffinfs/names_fixture.h"

namespace tiffin::tiffinfs {
namespace {

constexpr uint64_t kRoot = vfs::kRootNode;
const int kDamaged = code(Error::euclean);

TEST(DamagedNames, AnEntryThatLeadsNowhere) {
    NamesVolume volume;
    volume.put_entry(kRoot, "nowhere", 9999, vfs::mode::regular);
    EXPECT_EQ(volume.lookup_error(kRoot, "nowhere"), kDamaged);
    EXPECT_EQ(code(volume.fs().unlink({}, kRoot, "nowhere")), kDamaged);
    EXPECT_EQ(code(volume.fs().rename({}, kRoot, "nowhere", kRoot, "there", 0)), kDamaged);
    // Its name can still be seen.
    EXPECT_EQ(volume.list(kRoot).back(), "nowhere");
    NameList sink;
    (void)volume.fs().read_directory(kRoot, 0, 0, true, sink);
}

TEST(DamagedNames, AnEntryThatLeadsBack) {
    NamesVolume volume;
    const uint64_t directory = volume.make_directory(kRoot, "directory");
    volume.put_entry(directory, "root", kRoot, vfs::mode::directory);
    volume.put_entry(directory, "self", directory, vfs::mode::directory);
    for (const std::string name : {"root", "self"}) {
        EXPECT_EQ(volume.lookup_error(directory, name), kDamaged);
        EXPECT_EQ(code(volume.fs().remove_directory({}, directory, name_of(name))), kDamaged);
        EXPECT_EQ(code(volume.fs().rename({}, directory, name_of(name), kRoot, "x", 0)), kDamaged);
    }
}

TEST(DamagedNames, AnEntryOfAnotherTypeThanItsInode) {
    NamesVolume volume;
    const uint64_t file = volume.create(kRoot, "file");
    volume.put_entry(kRoot, "wrong", file, vfs::mode::directory);
    EXPECT_EQ(volume.lookup_error(kRoot, "wrong"), kDamaged);
    EXPECT_EQ(code(volume.fs().remove_directory({}, kRoot, "wrong")), kDamaged);
    EXPECT_EQ(code(volume.fs().rename({}, kRoot, "wrong", kRoot, "moved", 0)), kDamaged);
    EXPECT_EQ(code(volume.fs().rename({}, kRoot, "file", kRoot, "wrong", 0)), 0)
        << "two names of one node: nothing to do";
}

TEST(DamagedNames, AMalformedEntry) {
    NamesVolume volume;
    volume.create(kRoot, "good");
    const uint64_t hash = entry_hash(volume.volume().superblock().hash_key, "bad");
    const unsigned char garbage[5] = {1, 2, 3, 4, 5};
    volume.put(make_key(kRoot, Kind::entry, hash << kEntrySlotBits), ByteSpan(garbage, 5));
    EXPECT_EQ(volume.lookup_error(kRoot, "bad"), kDamaged);
    EXPECT_EQ(code(volume.fs().create({}, kRoot, "bad", 0644, 0, 0, {})), kDamaged);
    NameList sink;
    (void)volume.fs().read_directory(kRoot, 0, 0, false, sink);
    EXPECT_NE(volume.lookup(kRoot, "good"), 0U);
}

TEST(DamagedNames, CountsThatAreTooSmall) {
    NamesVolume volume;
    const uint64_t directory = volume.make_directory(kRoot, "directory");
    volume.create(directory, "file");
    volume.make_directory(directory, "sub");
    InodeValue inode = volume.inode(directory);
    inode.size_bytes = 0;
    inode.link_count = 2;
    volume.put_inode(directory, inode);
    volume.crash();
    EXPECT_EQ(code(volume.fs().unlink({}, directory, "file")), 0);
    EXPECT_EQ(code(volume.fs().remove_directory({}, directory, "sub")), kDamaged);
    // It counts as empty, but the tree has an entry, which is not to be lost.
    EXPECT_EQ(code(volume.fs().remove_directory({}, kRoot, "directory")), kDamaged);
    volume.make_directory(kRoot, "other");
    EXPECT_EQ(code(volume.fs().rename({}, kRoot, "other", kRoot, "directory", 0)), kDamaged);
    EXPECT_NE(volume.lookup(directory, "sub"), 0U);
}

TEST(DamagedNames, AFileWithoutLinksThatHasAName) {
    NamesVolume volume;
    const uint64_t file = volume.create(kRoot, "file");
    InodeValue inode = volume.inode(file);
    inode.link_count = 0;
    volume.put_inode(file, inode);
    volume.crash();
    EXPECT_EQ(code(volume.fs().unlink({}, kRoot, "file")), kDamaged);
    EXPECT_EQ(code(volume.fs().rename({}, kRoot, "file", kRoot, "moved", 0)), kDamaged);
}

TEST(DamagedNames, ParentsThatFormALoop) {
    NamesVolume volume;
    const uint64_t first = volume.make_directory(kRoot, "first");
    const uint64_t second = volume.make_directory(first, "second");
    const uint64_t third = volume.make_directory(second, "third");
    const uint64_t other = volume.make_directory(kRoot, "other");
    volume.make_directory(other, "moved");
    InodeValue inode = volume.inode(first);
    inode.parent = third;
    volume.put_inode(first, inode);
    volume.crash();
    EXPECT_EQ(code(volume.fs().rename({}, other, "moved", third, "moved", 0)), kDamaged);
    // A way up that ends at a missing node.
    inode.parent = 9999;
    volume.put_inode(first, inode);
    volume.crash();
    EXPECT_EQ(code(volume.fs().rename({}, other, "moved", third, "moved", 0)), code(Error::enoent));
    EXPECT_EQ(volume.lookup_error(first, ".."), kDamaged);
    NameList sink;
    EXPECT_NE(code(volume.fs().read_directory(first, 0, 0, true, sink)), 0);
}

TEST(DamagedInodes, AreRefused) {
    NamesVolume volume;
    const uint64_t file = volume.create(kRoot, "file");
    const InodeValue good = volume.inode(file);
    std::vector<InodeValue> bad(6, good);
    bad[0].mode = 0;
    bad[1].mode = 0170000;
    bad[2].size_bytes = kMaximumFileBytes + 1;
    bad[3].access_time.nanoseconds = 1'000'000'000;
    bad[4].allocated_blocks = ~uint64_t{0};
    bad[5].mode = vfs::mode::directory;  // without a parent
    for (const InodeValue& inode : bad) {
        volume.put_inode(file, inode);
        volume.crash();
        EXPECT_EQ(volume.lookup_error(kRoot, "file"), kDamaged);
        EXPECT_EQ(code(volume.fs().get_attributes(file)), kDamaged);
    }
    volume.put(make_key(file, Kind::inode, 0),
               ByteSpan(reinterpret_cast<const unsigned char*>(&good), sizeof(good) - 1));
    volume.crash();
    EXPECT_EQ(volume.lookup_error(kRoot, "file"), kDamaged);
}

TEST(DamagedOrphans, KeysWithoutInodesAreDropped) {
    NamesVolume volume;
    const uint64_t file = volume.create(kRoot, "file");
    volume.put(make_key(kVolumeNode, Kind::orphan, 4321), {});
    volume.put(make_key(kVolumeNode, Kind::orphan, file), {});
    volume.remount();
    volume.remount();
    EXPECT_FALSE(volume.exists(make_key(kVolumeNode, Kind::orphan, 4321)));
    // A file with a name is not deleted, whatever is said about it.
    EXPECT_EQ(volume.lookup(kRoot, "file"), file);
}

TEST(DamagedSymlinks, AreRefused) {
    NamesVolume volume;
    const std::string target(3000, 't');
    Result<vfs::Attributes> made = volume.fs().make_symlink({}, kRoot, "link", name_of(target), {});
    ASSERT_TRUE(made.ok());
    unsigned char buffer[4096];
    ASSERT_EQ(volume.fs().read_link(made->node, MutableByteSpan(buffer, 4096)).value_or(0), 3000U);
    volume.erase(make_key(made->node, Kind::symlink, 1));
    EXPECT_EQ(code(volume.fs().read_link(made->node, MutableByteSpan(buffer, 4096))), kDamaged);
    volume.put(make_key(made->node, Kind::symlink, 1), ByteSpan(buffer, 7));
    EXPECT_EQ(code(volume.fs().read_link(made->node, MutableByteSpan(buffer, 4096))), kDamaged);
}

TEST(DamagedXattrs, AreRefused) {
    NamesVolume volume;
    const uint64_t file = volume.create(kRoot, "file");
    const std::vector<unsigned char> value(5000, 'v');
    const ByteSpan bytes(value.data(), value.size());
    ASSERT_TRUE(volume.fs().set_xattr({}, file, "user.large", bytes, 0).ok());
    Result<XattrPlace> place = find_xattr(volume.volume(), file, "user.large", false);
    ASSERT_TRUE(place.ok() && place->found);
    ASSERT_EQ(place->chunks, 5U);
    const Key third = make_key(file, Kind::xattr, place->offset | 3);
    unsigned char buffer[8192];
    const MutableByteSpan room(buffer, sizeof(buffer));

    volume.put(third, bytes.first(10));
    EXPECT_EQ(code(volume.fs().get_xattr(file, "user.large", room)), kDamaged);
    EXPECT_EQ(code(volume.fs().set_xattr({}, file, "user.large", bytes, 0)), kDamaged);
    volume.erase(third);
    EXPECT_EQ(code(volume.fs().get_xattr(file, "user.large", room)), kDamaged);
    EXPECT_EQ(code(volume.fs().remove_xattr({}, file, "user.large")), kDamaged);
    volume.put(make_key(file, Kind::xattr, place->offset), bytes.first(3));
    EXPECT_EQ(code(volume.fs().list_xattr(file, room)), kDamaged);
    // Chunks without their first one are nobody's.
    volume.erase(make_key(file, Kind::xattr, place->offset));
    EXPECT_EQ(code(volume.fs().get_xattr(file, "user.large", room)), code(Error::enodata));
    EXPECT_EQ(code(volume.fs().set_xattr({}, file, "user.large", bytes.first(10), 0)), 0);
    EXPECT_EQ(volume.fs().get_xattr(file, "user.large", room).value_or(0), 10U);
}

TEST(DamagedXattrs, ADefaultAclThatIsNotThereIsNotInherited) {
    NamesVolume volume;
    const uint64_t directory = volume.make_directory(kRoot, "directory");
    InodeValue inode = volume.inode(directory);
    inode.inode_flags |= inode_flag::has_xattrs | inode_flag::has_default_acl;
    volume.put_inode(directory, inode);
    volume.crash();
    EXPECT_EQ(code(volume.fs().create({}, directory, "file", 0644, 0, 0, {})), kDamaged);
}

}  // namespace
}  // namespace tiffin::tiffinfs
