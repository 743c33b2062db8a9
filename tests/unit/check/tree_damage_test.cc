// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Damage to the tree itself, the journal and the superblocks: what is lost, what is saved, and that a
// repair never makes things worse.
#include <gtest/gtest.h>

#include <string>

#include "fs/tiffinfs/tree/node.h"
#include "fuse/check/check.h"
#include "fuse/check/names.h"
#include "tests/unit/check/check_support.h"
#include "tests/unit/check/image_editor.h"

namespace tiffin::check {
namespace {

using test::CrashDevice;
using test::CrashOutcome;
using test::TestVolume;
using tiffinfs::Key;
using tiffinfs::Kind;
using tiffinfs::make_key;

TEST(TreeDamage, OlderGenerationSavesEverything) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 500);
    auto sound = device.after_crash(CrashOutcome::drop_unflushed, 0);
    ImageEditor editor(device);
    ASSERT_GE(editor.superblock().root_level, 1U);
    editor.flip_bit(editor.leaf_block(make_key(editor.node_of("/tiny"), Kind::inode, 0)), 3000, 2);

    const Report found = run_check(device);
    EXPECT_TRUE(found.has(Code::superblock_older)) << text_of(found);
    EXPECT_EQ(found.damage, 1U) << "it shows what the repair would leave\n" << text_of(found);
    const Report repaired = repair_completely(device);
    EXPECT_TRUE(repaired.has(Code::superblock_older)) << text_of(repaired);
    EXPECT_EQ(repaired.damage, 1U) << text_of(repaired);
    EXPECT_EQ(difference(see(device), see(*sound)), "");
}

TEST(TreeDamage, OlderGenerationIsNotTakenWhereThatIsDeclined) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 500);
    ImageEditor editor(device);
    editor.flip_bit(editor.leaf_block(make_key(editor.node_of("/tiny"), Kind::inode, 0)), 3000, 2);
    device.reset_counts();
    CheckOptions options;
    options.repair = true;
    options.may_repair = [](const Finding&) { return false; };
    const Report declined = run_check(device, options);
    EXPECT_TRUE(declined.has(Code::superblock_older)) << text_of(declined);
    EXPECT_TRUE(declined.has(Code::node_invalid)) << text_of(declined);
    EXPECT_EQ(device.counts().writes, 0U);
}

TEST(TreeDamage, LeafIsCutOut) {
    CrashDevice device(kDeviceBytes);
    make_settled(device, 500);
    auto sound = device.after_crash(CrashOutcome::drop_unflushed, 0);
    ImageEditor editor(device);
    forget_older_generation(editor);
    const uint64_t victim = editor.node_of("/many/file-250");
    editor.flip_bit(editor.leaf_block(make_key(victim, Kind::inode, 0)), 3000, 2);

    const Report found = run_check(device);
    EXPECT_TRUE(found.has(Code::node_invalid)) << text_of(found);
    EXPECT_FALSE(found.has(Code::superblock_older)) << text_of(found);
    (void)repair_completely(device);
    // One leaf holds a few dozen small files at most; all others are as they were.
    const test::SeenTree before = see(*sound);
    const test::SeenTree after = see(device);
    size_t lost = 0;
    for (const auto& [path, object] : before) {
        const auto now = after.find(path);
        lost += now == after.end() || now->second.content != object.content ? 1 : 0;
    }
    EXPECT_GT(lost, 0U);
    EXPECT_LT(lost, 60U);
}

// To change one of them would move or write bytes outside of the leaf.
TEST(TreeDamage, ValuesAtOnePlace) {
    CrashDevice device(kDeviceBytes);
    make_settled(device, 500);
    ImageEditor editor(device);
    forget_older_generation(editor);
    const uint64_t block =
        editor.leaf_block(make_key(editor.node_of("/many/file-250"), Kind::inode, 0));
    Block leaf;
    editor.read(block, leaf);
    tiffinfs::NodeHeader header;
    __builtin_memcpy(&header, leaf.bytes, sizeof header);
    auto* const slots = reinterpret_cast<tiffinfs::LeafSlot*>(leaf.bytes + sizeof header);
    uint32_t other = 1;
    while (other < header.count && slots[other].value_bytes != slots[0].value_bytes) {
        ++other;
    }
    ASSERT_LT(other, header.count);
    slots[other].value_offset = slots[0].value_offset;
    editor.write_node(block, leaf);

    const Report found = run_check(device);
    EXPECT_TRUE(found.has(Code::node_invalid)) << text_of(found);
    (void)repair_completely(device);
}

// When the entries are lost, the files are still there.
TEST(TreeDamage, FilesWithoutNamesGoToLostAndFound) {
    CrashDevice device(kDeviceBytes);
    make_settled(device, 500);
    ImageEditor editor(device);
    forget_older_generation(editor);
    const uint64_t many = editor.node_of("/many");
    editor.flip_bit(editor.leaf_block(make_key(many, Kind::entry, uint64_t{1} << 59)), 100, 0);

    const Report repaired = repair_completely(device);
    EXPECT_TRUE(repaired.has(Code::unreachable)) << text_of(repaired);
    const test::SeenTree after = see(device);
    EXPECT_EQ(after.count("/lost+found"), 1U);
    size_t files = 0;
    for (const auto& [path, object] : after) {
        files += path.starts_with("/many/file-") || path.starts_with("/lost+found/#") ? 1 : 0;
    }
    EXPECT_EQ(files, 500U);
}

TEST(TreeDamage, RootIsGone) {
    CrashDevice device(kDeviceBytes);
    make_settled(device, 500);
    ImageEditor editor(device);
    forget_older_generation(editor);
    editor.flip_bit(editor.superblock().root_block, 200, 0);
    const Report repaired = repair_completely(device);
    EXPECT_TRUE(repaired.has(Code::node_invalid)) << text_of(repaired);
    EXPECT_TRUE(repaired.has(Code::root_missing)) << text_of(repaired);
    EXPECT_EQ(see(device).count("/"), 1U);
}

TEST(TreeDamage, NodeInTheTreeTwice) {
    CrashDevice device(kDeviceBytes);
    make_settled(device, 500);
    ImageEditor editor(device);
    forget_older_generation(editor);
    Block root;
    editor.read(editor.superblock().root_block, root);
    tiffinfs::InnerEntry* entries = tiffinfs::inner_entries(root.bytes);
    entries[2].child_block = entries[1].child_block;
    entries[2].child_generation = entries[1].child_generation;
    editor.write_node(editor.superblock().root_block, root);
    EXPECT_TRUE(run_check(device).has(Code::node_shared));
    (void)repair_completely(device);
}

TEST(TreeDamage, NodeThatContainsItself) {
    CrashDevice device(kDeviceBytes);
    make_settled(device, 500);
    ImageEditor editor(device);
    forget_older_generation(editor);
    Block root;
    editor.read(editor.superblock().root_block, root);
    tiffinfs::InnerEntry* entries = tiffinfs::inner_entries(root.bytes);
    entries[1].child_block = editor.superblock().root_block;
    entries[1].child_generation = editor.superblock().root_generation;
    editor.write_node(editor.superblock().root_block, root);
    EXPECT_FALSE(run_check(device).clean());
    (void)repair_completely(device);
}

// Keys that a search cannot find are put where it looks.
TEST(TreeDamage, MisplacedKeysComeBack) {
    CrashDevice device(kDeviceBytes);
    make_settled(device, 500);
    auto sound = device.after_crash(CrashOutcome::drop_unflushed, 0);
    ImageEditor editor(device);
    forget_older_generation(editor);
    const Key key = make_key(editor.node_of("/many/file-1"), Kind::inode, 0);
    const Bytes inode = editor.get(key);
    const Key far = make_key(editor.node_of("/many/file-499"), Kind::inode, 0);
    ASSERT_NE(editor.leaf_block(key), editor.leaf_block(far));
    editor.erase(key);
    make_room_in_leaf_of(editor, far.node);
    editor.put_into_leaf_of(far, key, inode);
    const Report repaired = repair_completely(device);
    EXPECT_TRUE(repaired.has(Code::node_bounds)) << text_of(repaired);
    EXPECT_EQ(see(device).at("/many/file-1"), see(*sound).at("/many/file-1"));
}

// A leaf with nothing of a file but its attributes: without them the file looks whole, and what an ACL forbade is allowed.
TEST(TreeDamage, LostAttributesAreReportedByPath) {
    CrashDevice device(kDeviceBytes);
    constexpr int kNamed = 300;
    const auto path = [](int number) { return "/file-" + std::to_string(number); };
    {
        test::TestVolume volume(device);
        MUST(volume.make());
        MUST(volume.mount());
        for (int number = 0; number < kNamed; ++number) {
            MUST(volume.create(path(number)));
            MUST(volume.set_xattr(path(number), "user.some", std::string(100 + number % 50, 'x')));
        }
        MUST(volume.unmount());
    }
    (void)see(device);
    ImageEditor editor(device);
    forget_older_generation(editor);
    const uint64_t hash_key = xattr_hash(editor.superblock(), "user.some") << 16;
    int victim = 0;
    uint64_t leaf = 0;
    for (; victim < kNamed; ++victim) {
        const uint64_t node = editor.node_of(path(victim));
        leaf = editor.leaf_block(make_key(node, Kind::xattr, hash_key));
        if (leaf != editor.leaf_block(make_key(node, Kind::inode, 0))) {
            break;
        }
    }
    ASSERT_LT(victim, kNamed);
    editor.flip_bit(leaf, 1000, 1);
    const Report report = run_check(device, {.repair = true});
    bool is_named = false;
    for (const Finding& finding : report.findings) {
        is_named = is_named || (finding.code == Code::xattrs_missing &&
                                finding.where.find(path(victim)) != std::string::npos);
    }
    EXPECT_TRUE(is_named) << text_of(report);
}

// Deletion erases attributes before the inode.
TEST(TreeDamage, AttributesOfWhatIsBeingDeletedAreNotMissed) {
    CrashDevice device(kDeviceBytes);
    make_settled(device, 10);
    ImageEditor editor(device);
    const uint64_t node = editor.node_of("/directory/large");
    editor.erase(editor.entry_key("/directory/large"));
    editor.change_inode(editor.node_of("/directory"), [](auto& inode) { --inode.size_bytes; });
    editor.change_inode(node, [](auto& inode) {
        inode.link_count = 0;
        inode.inode_flags |= tiffinfs::inode_flag::orphan | tiffinfs::inode_flag::has_xattrs |
                             tiffinfs::inode_flag::has_access_acl;
    });
    editor.put(make_key(tiffinfs::kVolumeNode, Kind::orphan, node), {});
    const Report report = run_check(device);
    EXPECT_TRUE(report.clean()) << text_of(report);
}

TEST(TreeDamage, UnreadableBlockIsCutOut) {
    CrashDevice device(kDeviceBytes);
    make_settled(device, 500);
    ImageEditor editor(device);
    forget_older_generation(editor);
    // Superblocks take four reads; the one after them is the root.
    device.fail_read(5);
    const Report report = run_check(device);
    EXPECT_TRUE(report.has(Code::node_unreadable)) << text_of(report);
    EXPECT_FALSE(report.clean());
}

TEST(DataDamage, IsFoundAndNotRepaired) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 10);
    ImageEditor editor(device);
    const Key key = editor.extent_key(editor.node_of("/directory/large"));
    const auto extent = editor.value<tiffinfs::ExtentValue>(key);
    editor.flip_bit(extent.physical_block + 3, 77, 7);
    EXPECT_TRUE(run_check(device).clean());
    const Report report = run_check(device, {.repair = true, .verify_data = true});
    EXPECT_EQ(report.count(Code::data_checksum), 1U) << text_of(report);
    EXPECT_EQ(report.not_repaired, 1U);
    ASSERT_EQ(report.findings.size(), 1U);
    EXPECT_NE(report.findings[0].where.find("\"/directory/large\""), std::string::npos)
        << report.findings[0].where;
    EXPECT_NE(report.findings[0].where.find("block 3 "), std::string::npos);
}

// ---- Superblocks --------------------------------------------------------------------------------

TEST(SuperblockDamage, NewestSlotGone) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 200);
    auto sound = device.after_crash(CrashOutcome::drop_unflushed, 0);
    ImageEditor editor(device);
    const uint64_t slot = editor.superblock().generation % 2;
    editor.destroy_superblock(slot, 0);
    editor.destroy_superblock(slot, 1);
    const Report report = run_check(device);
    EXPECT_EQ(report.damage, 0U) << text_of(report);
    EXPECT_TRUE(report.has(Code::superblock_copy)) << text_of(report);
    (void)repair_completely(device);
    EXPECT_EQ(difference(see(device), see(*sound)), "");
}

TEST(SuperblockDamage, AllGone) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 10);
    ImageEditor editor(device);
    for (uint32_t i = 0; i < 4; ++i) {
        editor.destroy_superblock(i % 2, i / 2);
    }
    device.reset_counts();
    const Report report = run_check(device, {.repair = true});
    EXPECT_FALSE(report.is_volume);
    EXPECT_TRUE(report.has(Code::superblock_missing)) << text_of(report);
    EXPECT_EQ(device.counts().writes, 0U);
}

TEST(SuperblockDamage, ImpossibleFields) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 10);
    ImageEditor editor(device);
    forget_older_generation(editor);
    tiffinfs::Superblock superblock = editor.superblock();
    superblock.total_blocks *= 2;
    // Both copies at their old places.
    const uint64_t block = superblock.generation % 2;
    editor.write_superblock(editor.superblock());
    for (const uint64_t place : {block, editor.superblock().total_blocks - 2 + block}) {
        Block page;
        editor.read(place, page);
        tiffinfs::Superblock changed = superblock;
        changed.checksum = 0;
        changed.checksum = host::crc32c(0, &changed, sizeof changed);
        __builtin_memcpy(page.bytes, &changed, sizeof changed);
        editor.write(place, page);
    }
    const Report report = run_check(device, {.repair = true});
    EXPECT_TRUE(report.has(Code::superblock_fields)) << text_of(report);
    EXPECT_FALSE(report.is_volume);
}

// ---- Journal ------------------------------------------------------------------------------------

void add_file(CrashDevice& device, const std::string& content) {
    TestVolume volume(device);
    ASSERT_TRUE(volume.mount().ok());
    ASSERT_TRUE(volume.create("/file").ok());
    ASSERT_TRUE(volume.write("/file", 0, content).ok());
    ASSERT_TRUE(volume.unmount().ok());
}

// The extent of /file goes where no search finds it: into the leaf of a file that makes room for it.
void misplace_content(ImageEditor& editor) {
    const Key key = make_key(editor.node_of("/file"), Kind::extent, 0);
    const Key far = make_key(editor.node_of("/many/file-5"), Kind::inode, 0);
    ASSERT_NE(editor.leaf_block(key), editor.leaf_block(far));
    const Bytes extent = editor.get(key);
    editor.erase(key);
    editor.erase(make_key(far.node, Kind::inline_data, 0));
    editor.change_inode(far.node, [](auto& inode) {
        inode.size_bytes = 0;
        inode.inode_flags &= ~tiffinfs::inode_flag::inline_data;
    });
    editor.put_into_leaf_of(far, key, extent);
}

// As a truncation that finds no content leaves /file.
void cut_unseen(ImageEditor& editor, uint64_t size_bytes) {
    editor.change_inode(editor.node_of("/file"), [&](auto& inode) {
        inode.size_bytes = size_bytes;
        inode.allocated_blocks = 0;
    });
}

TEST(TreeDamage, MisplacedKeysComeBackBeforeTheJournalIsReplayed) {
    constexpr size_t kBlock = tiffinfs::kBlockBytes;
    CrashDevice device(kDeviceBytes);
    make_settled(device, 500);
    std::string content = test::test_content(1, 20 * kBlock);
    const std::string later = test::test_content(2, 5 * kBlock);
    add_file(device, content);
    {
        TestVolume volume(device);
        ASSERT_TRUE(volume.mount().ok());
        ASSERT_TRUE(volume.write("/file", 5 * kBlock, later).ok());
        ASSERT_TRUE(volume.sync().ok());
        volume.abandon();
    }
    content.replace(5 * kBlock, later.size(), later);
    ImageEditor editor(device);
    forget_older_generation(editor);
    misplace_content(editor);
    const Report repaired = repair_completely(device);
    EXPECT_TRUE(repaired.has(Code::node_bounds)) << text_of(repaired);
    EXPECT_TRUE(see(device).at("/file").content == content);
}

// A file was cut where no search found its extent: what lay behind the new end stays away.
TEST(TreeDamage, MisplacedKeysBringBackNothingBehindTheEnd) {
    constexpr size_t kBlock = tiffinfs::kBlockBytes;
    for (const size_t size : {size_t{0}, 10 * kBlock, 10 * kBlock + 100, 20 * kBlock - 10}) {
        CrashDevice device(kDeviceBytes);
        make_settled(device, 500);
        const std::string content = test::test_content(1, 20 * kBlock);
        add_file(device, content);
        ImageEditor editor(device);
        forget_older_generation(editor);
        misplace_content(editor);
        cut_unseen(editor, size);
        const Report repaired = repair_completely(device);
        EXPECT_TRUE(repaired.has(Code::node_bounds)) << text_of(repaired);
        TestVolume volume(device);
        ASSERT_TRUE(volume.mount().ok());
        ASSERT_TRUE(volume.truncate("/file", 20 * kBlock).ok());
        const size_t whole = size / kBlock * kBlock;
        EXPECT_TRUE(MUST(volume.read("/file", 0, whole)) == content.substr(0, whole)) << size;
        // Of the block that was cut, part was found and part was not.
        const size_t behind = whole == size ? whole : whole + kBlock;
        EXPECT_EQ(volume.read("/file", whole, behind - whole).ok(), whole == size) << size;
        EXPECT_TRUE(MUST(volume.read("/file", behind, 20 * kBlock - behind)) ==
                    std::string(20 * kBlock - behind, '\0'))
            << size;
        ASSERT_TRUE(volume.unmount().ok());
        const Report checked = run_check(device);
        EXPECT_EQ(checked.damage, whole == size ? 0U : 1U) << size << text_of(checked);
        EXPECT_EQ(checked.has(Code::content_lost), whole != size) << text_of(checked);
    }
}

// ... but what has been written at the new end since.
TEST(TreeDamage, MisplacedKeysTakeNothingFromWhatIsThere) {
    constexpr size_t kBlock = tiffinfs::kBlockBytes;
    CrashDevice device(kDeviceBytes);
    make_settled(device, 500);
    add_file(device, test::test_content(1, 20 * kBlock));
    const std::string later(100, 'l');
    {
        ImageEditor editor(device);
        forget_older_generation(editor);
        misplace_content(editor);
        cut_unseen(editor, 10 * kBlock);
    }
    {
        TestVolume volume(device);
        ASSERT_TRUE(volume.mount().ok());
        ASSERT_TRUE(volume.write("/file", 10 * kBlock, later).ok());
        ASSERT_TRUE(volume.unmount().ok());
    }
    const Report repaired = repair_completely(device);
    EXPECT_FALSE(repaired.has(Code::content_lost)) << text_of(repaired);
    TestVolume volume(device);
    ASSERT_TRUE(volume.mount().ok());
    EXPECT_EQ(MUST(volume.read("/file", 10 * kBlock, 100)), later);
}

TEST(JournalDamage, ValidPrefixIsKept) {
    CrashDevice device(kDeviceBytes);
    make_pending(device);
    damage_second_frame(device);
    const Report found = run_check(device);
    EXPECT_TRUE(found.has(Code::journal_damaged)) << text_of(found);
    EXPECT_NE(text_of(found).find("frame 2 is damaged, and 1 whole frames"), std::string::npos)
        << text_of(found);
    const Report repaired = repair_completely(device);
    EXPECT_TRUE(repaired.has(Code::journal_damaged)) << text_of(repaired);
    const test::SeenTree after = see(device);
    EXPECT_EQ(after.count("/first"), 1U);
    EXPECT_EQ(after.count("/second"), 0U);
    EXPECT_EQ(after.count("/third"), 0U);
}

TEST(JournalDamage, AnIncarnationThatOnlyCutOffFramesTellIsNotUsedAgain) {
    CrashDevice device(kDeviceBytes);
    make_pending(device);
    ImageEditor editor(device);
    const tiffinfs::Superblock newest = editor.superblock();
    const uint64_t byte = newest.journal_position + sizeof(tiffinfs::FrameHeader) + 8;
    editor.flip_bit(newest.journal_first_block + byte / tiffinfs::kBlockBytes,
                    static_cast<uint32_t>(byte % tiffinfs::kBlockBytes), 1);
    editor.destroy_superblock(newest.generation % 2, 0);
    editor.destroy_superblock(newest.generation % 2, 1);
    const Report repaired = repair_completely(device);
    EXPECT_TRUE(repaired.has(Code::journal_damaged)) << text_of(repaired);
    EXPECT_GT(ImageEditor(device).superblock().incarnation, newest.incarnation);
}

TEST(JournalDamage, ABadSectorTakesNoFramesAlongAndIsWrittenAnew) {
    for (const uint64_t block : {10, 200}) {  // in the first window, and far behind the frames
        CrashDevice device(kDeviceBytes);
        make_pending(device);
        device.fail_reads_at((tiffinfs::kJournalFirstBlock + block) * tiffinfs::kBlockBytes);
        const Report repaired = run_check(device, {.repair = true});
        EXPECT_TRUE(repaired.has(Code::journal_damaged)) << text_of(repaired);
        const Report second = run_check(device);
        EXPECT_TRUE(second.clean()) << text_of(second);
        EXPECT_EQ(see(device).count("/third"), 1U) << block;
    }
}

// The volume is repaired without the block, and what is behind it is erased as the rest.
TEST(JournalDamage, ASectorThatCannotBeWrittenEitherStopsNoRepair) {
    CrashDevice device(kDeviceBytes);
    make_pending(device);
    const uint64_t bad = (tiffinfs::kJournalFirstBlock + 200) * tiffinfs::kBlockBytes;
    const std::string old(tiffinfs::kBlockBytes, 'x');
    device.overwrite(bad + tiffinfs::kBlockBytes, old.data(), old.size());
    device.fail_reads_at(bad);
    device.fail_writes_at(bad);
    const Report repaired = run_check(device, {.repair = true});
    EXPECT_TRUE(repaired.has(Code::journal_damaged)) << text_of(repaired);
    EXPECT_FALSE(repaired.has(Code::repair_failed)) << text_of(repaired);
    EXPECT_NE(repaired.not_repaired, 0U) << "a commit fails when it comes there";
    EXPECT_NE(text_of(repaired).find("1 block of it cannot be written"), std::string::npos)
        << text_of(repaired);
    std::string behind(tiffinfs::kBlockBytes, 'y');
    MUST(device.read(bad + tiffinfs::kBlockBytes, behind.data(), behind.size()));
    EXPECT_TRUE(behind == std::string(tiffinfs::kBlockBytes, '\0'));
    EXPECT_EQ(see(device).count("/third"), 1U);
}

TEST(JournalDamage, ImpossibleRecordsAreNotApplied) {
    for (const bool wrong_extent : {false, true}) {
        CrashDevice device(kDeviceBytes);
        make_populated(device, 20);
        auto sound = device.after_crash(CrashOutcome::drop_unflushed, 0);
        ImageEditor editor(device);
        const uint64_t node = editor.node_of("/directory/large");
        if (wrong_extent) {
            const tiffinfs::ExtentValue extent{1, 1, 100, tiffinfs::extent_flag::unwritten};
            editor.append_frame(
                ImageEditor::record(tiffinfs::RecordType::write_extent,
                                    make_key(node, Kind::extent, 0), bytes_of(extent)),
                1);
        } else {
            editor.append_frame(
                ImageEditor::record(tiffinfs::RecordType::unmap, make_key(node, Kind::extent, 0),
                                    bytes_of(~uint64_t{0})),
                1);
        }
        const Report found = run_check(device);
        EXPECT_TRUE(found.has(Code::journal_record)) << text_of(found);
        (void)repair_completely(device);
        EXPECT_EQ(difference(see(device), see(*sound)), "");
    }
}

// A record that is well-formed and does harm: what it does is found in the state after replay.
TEST(JournalDamage, HarmfulRecordsAreFoundAfterReplay) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 20);
    ImageEditor editor(device);
    editor.append_frame(
        ImageEditor::record(tiffinfs::RecordType::erase,
                            make_key(editor.node_of("/directory"), Kind::inode, 0), {}),
        1);
    const Report found = run_check(device);
    EXPECT_TRUE(found.has(Code::journal_pending)) << text_of(found);
    EXPECT_TRUE(found.has(Code::inode_missing)) << text_of(found);
    (void)repair_completely(device);
    EXPECT_EQ(see(device).count("/directory/inner/deep"), 1U);
}

// ---- Repair -------------------------------------------------------------------------------------

TEST(Repair, DeclinedFindingsAreLeft) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 20);
    ImageEditor editor(device);
    editor.change_inode(editor.node_of("/tiny"), [](auto& inode) { inode.link_count = 9; });
    editor.set_used(editor.superblock().total_blocks - 5, true);
    CheckOptions options;
    options.repair = true;
    int asked = 0;
    options.may_repair = [&](const Finding& finding) {
        ++asked;
        EXPECT_NE(finding.where, "");
        EXPECT_NE(finding.what, "");
        return finding.code != Code::link_count;
    };
    const Report report = check_file_system(device, options);
    EXPECT_EQ(report.not_repaired, 1U) << text_of(report);
    EXPECT_GE(asked, 2);
    const Report again = run_check(device);
    EXPECT_EQ(again.count(Code::link_count), 1U) << text_of(again);
    EXPECT_FALSE(again.has(Code::bitmap_leak)) << text_of(again);
}

// At every write of a repair the power may fail: what is left is the old state or the new one.
TEST(Repair, SurvivesPowerFailure) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 300);
    {
        ImageEditor editor(device);
        editor.change_inode(editor.node_of("/many/file-9"),
                            [](auto& inode) { inode.link_count = 9; });
        editor.set_used(editor.superblock().total_blocks - 5, true);
    }
    const size_t writes = interrupt_repair(device, [](CrashDevice& after, size_t position) {
        const Report report = run_check(after);
        EXPECT_EQ(report.damage, 0U) << position << "\n" << text_of(report);
        const bool old_state = report.has(Code::link_count);
        EXPECT_EQ(old_state, report.has(Code::bitmap_leak)) << position << "\n" << text_of(report);
    });
    EXPECT_GT(writes, 5U);
}

TEST(Repair, WorksOnAFullVolume) {
    CrashDevice device(16U << 20);
    TestVolume volume(device);
    ASSERT_TRUE(volume.make().ok());
    ASSERT_TRUE(volume.mount().ok());
    ASSERT_TRUE(populate(volume, 300).ok());
    Result<void> written;
    for (uint32_t i = 0; written.ok(); ++i) {
        written = volume.write("/filler", i * uint64_t{65536}, test::test_content(i, 65536));
    }
    ASSERT_EQ(written.error(), Error::enospc);
    ASSERT_TRUE(volume.unmount().ok());
    ImageEditor editor(device);
    editor.change_inode(editor.node_of("/tiny"), [](auto& inode) { inode.link_count = 9; });
    editor.change_inode(editor.node_of("/many/file-200"),
                        [](auto& inode) { inode.link_count = 9; });
    const Report repaired = repair_completely(device);
    EXPECT_EQ(repaired.count(Code::link_count), 2U) << text_of(repaired);
}

TEST(Repair, FailedWriteIsSaid) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 20);
    ImageEditor editor(device);
    editor.change_inode(editor.node_of("/tiny"), [](auto& inode) { inode.link_count = 9; });
    device.fail_write(1);
    const Report report = run_check(device, {.repair = true});
    EXPECT_TRUE(report.has(Code::repair_failed)) << text_of(report);
    EXPECT_GE(report.not_repaired, 2U);
    EXPECT_TRUE(run_check(device).has(Code::link_count));
    (void)repair_completely(device);
}

}  // namespace
}  // namespace tiffin::check
