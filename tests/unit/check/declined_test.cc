// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What nobody has allowed is not done: neither by itself, nor together with repairs that are allowed.
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "fs/tiffinfs/tree/node.h"
#include "fuse/check/check.h"
#include "tests/unit/check/check_support.h"
#include "tests/unit/check/image_editor.h"

namespace tiffin::check {
namespace {

using test::CrashDevice;
using tiffinfs::Key;
using tiffinfs::Kind;
using tiffinfs::make_key;

// A finding that can only be repaired by leaving something out, on a volume that can be repaired
// otherwise.
struct Loss {
    std::string name;
    Code code;
    std::function<void(CrashDevice&)> make;

    friend void PrintTo(const Loss& loss, std::ostream* out) { *out << loss.name; }
};

std::string test_name(const testing::TestParamInfo<Loss>& info) { return info.param.name; }

class DeclinedTest : public testing::TestWithParam<Loss> {};

// Not unmounted, and with a mark that may be cleared: two reasons to write.
void give_reasons_to_write(CrashDevice& device) {
    ImageEditor editor(device);
    tiffinfs::Superblock superblock = editor.superblock();
    superblock.state = tiffinfs::superblock_state::errors;
    editor.write_superblock(superblock);
}

TEST_P(DeclinedTest, NothingIsWritten) {
    CrashDevice device(kDeviceBytes);
    GetParam().make(device);
    give_reasons_to_write(device);
    const Bytes before = image_of(device);
    if (GetParam().code == Code::node_unreadable) {
        device.fail_read(5);  // superblocks take four reads; the one after them is the root
    }
    device.reset_counts();
    const Report report = run_check(device, only_what_is_safe());
    EXPECT_TRUE(report.has(GetParam().code)) << text_of(report);
    EXPECT_TRUE(report.has(Code::errors_flag)) << text_of(report);
    EXPECT_TRUE(report.has(Code::repair_withheld)) << text_of(report);
    EXPECT_FALSE(report.changed);
    EXPECT_EQ(report.not_repaired, report.damage + report.harmless);
    for (const Finding& finding : report.findings) {
        EXPECT_FALSE(finding.repaired) << finding.line();
    }
    EXPECT_EQ(device.counts().writes, 0U);
    EXPECT_EQ(device.counts().discards, 0U);
    EXPECT_TRUE(image_of(device) == before);
}

TEST_P(DeclinedTest, AllowedItIsRepaired) {
    CrashDevice device(kDeviceBytes);
    GetParam().make(device);
    give_reasons_to_write(device);
    const Report report = repair_completely(device);
    EXPECT_FALSE(report.has(Code::repair_withheld)) << text_of(report);
}

void make_tree(CrashDevice& device, const std::function<void(ImageEditor&)>& damage) {
    make_settled(device, 500);
    ImageEditor editor(device);
    forget_older_generation(editor);
    damage(editor);
}

void change_root(ImageEditor& editor, const std::function<void(tiffinfs::InnerEntry*)>& change) {
    Block root;
    editor.read(editor.superblock().root_block, root);
    change(tiffinfs::inner_entries(root.bytes));
    editor.write_node(editor.superblock().root_block, root);
}

void make_with_frame(CrashDevice& device) {
    make_populated(device, 20);
    ImageEditor editor(device);
    const Key key = make_key(editor.node_of("/directory/large"), Kind::extent, 0);
    editor.append_frame(
        ImageEditor::record(tiffinfs::RecordType::unmap, key, bytes_of(~uint64_t{0})), 1);
}

void misplace_key(ImageEditor& editor) {
    const Key key = make_key(editor.node_of("/many/file-1"), Kind::inode, 0);
    const Key far = make_key(editor.node_of("/many/file-499"), Kind::inode, 0);
    const Bytes inode = editor.get(key);
    editor.erase(key);
    editor.erase(make_key(far.node, Kind::inline_data, 0));
    editor.put_into_leaf_of(far, key, inode);
}

const std::vector<Loss> kLosses = {
    {"NodeUnreadable", Code::node_unreadable,
     [](CrashDevice& device) { make_tree(device, [](ImageEditor&) {}); }},
    {"NodeInvalid", Code::node_invalid,
     [](CrashDevice& device) {
         make_tree(device, [](ImageEditor& editor) {
             const Key key = make_key(editor.node_of("/many/file-250"), Kind::inode, 0);
             editor.flip_bit(editor.leaf_block(key), 3000, 2);
         });
     }},
    {"NodeShared", Code::node_shared,
     [](CrashDevice& device) {
         make_tree(device, [](ImageEditor& editor) {
             change_root(editor, [](tiffinfs::InnerEntry* entries) {
                 entries[2].child_block = entries[1].child_block;
                 entries[2].child_generation = entries[1].child_generation;
             });
         });
     }},
    {"NodeBounds", Code::node_bounds, [](CrashDevice& device) { make_tree(device, misplace_key); }},
    {"JournalDamaged", Code::journal_damaged,
     [](CrashDevice& device) {
         make_pending(device);
         damage_second_frame(device);
     }},
    {"JournalRecord", Code::journal_record, make_with_frame},
};
INSTANTIATE_TEST_SUITE_P(Losses, DeclinedTest, testing::ValuesIn(kLosses), test_name);

// ---- Problems that are left ----------------------------------------------------------------------

bool is_believed(CrashDevice& device) {
    tiffinfs::Superblock superblock{};
    return is_marked_clean(device, superblock);
}

// A harmless problem that may be repaired, and one that may not.
void make_two_problems(CrashDevice& device) {
    make_populated(device, 20);
    ImageEditor editor(device);
    editor.change_inode(editor.node_of("/tiny"), [](auto& inode) { inode.mode |= 1U << 20; });
    editor.set_used(editor.superblock().total_blocks - 5, true);
}

TEST(Declined, AVolumeWithProblemsLeftIsNotCalledClean) {
    CrashDevice device(kDeviceBytes);
    make_two_problems(device);
    const Report first = run_check(device, only_what_is_safe());
    EXPECT_TRUE(first.changed);
    EXPECT_EQ(first.not_repaired, 1U) << text_of(first);
    EXPECT_FALSE(is_believed(device));

    // The mark goes with the last problem, not before.
    const Report second = run_check(device, only_what_is_safe());
    EXPECT_TRUE(second.has(Code::errors_flag)) << text_of(second);
    EXPECT_TRUE(second.has(Code::inode_invalid)) << text_of(second);
    EXPECT_FALSE(second.has(Code::bitmap_leak)) << text_of(second);
    EXPECT_EQ(second.not_repaired, 2U) << text_of(second);
    EXPECT_FALSE(is_believed(device));
    (void)repair_completely(device);
    EXPECT_TRUE(is_believed(device));
}

TEST(Declined, TheMarkOfErrorsStays) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 20);
    give_reasons_to_write(device);
    CheckOptions options;
    options.repair = true;
    options.may_repair = [](const Finding& finding) { return finding.code != Code::errors_flag; };
    const Report declined = run_check(device, options);
    EXPECT_EQ(declined.not_repaired, 1U) << text_of(declined);
    EXPECT_FALSE(is_believed(device));
    EXPECT_TRUE(run_check(device).has(Code::errors_flag));
    (void)repair_completely(device);
    EXPECT_TRUE(is_believed(device));
}

TEST(Declined, DamagedDataAloneSetsNoMark) {
    CrashDevice device(kDeviceBytes);
    make_two_problems(device);
    ImageEditor editor(device);
    const Key key = editor.extent_key(editor.node_of("/directory/large"));
    const auto extent = editor.value<tiffinfs::ExtentValue>(key);
    editor.flip_bit(extent.physical_block + 3, 77, 7);
    const Report report = run_check(device, {.repair = true, .verify_data = true});
    EXPECT_EQ(report.not_repaired, 1U) << text_of(report);
    EXPECT_TRUE(report.changed);
    EXPECT_TRUE(is_believed(device));
}

TEST(Declined, ARepairThatNeedsAnotherRunSaysSo) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 20);
    ImageEditor editor(device);
    // Only when the extent is gone it is seen what of the file is left.
    const Key key = editor.extent_key(editor.node_of("/directory/large"));
    Bytes value = editor.get(key);
    tiffinfs::ExtentValue extent;
    __builtin_memcpy(&extent, value.data(), sizeof extent);
    extent.flags = 8;
    __builtin_memcpy(value.data(), &extent, sizeof extent);
    editor.put(key, value);
    const Report first = run_check(device, {.repair = true, .maximum_passes = 1});
    EXPECT_TRUE(first.has(Code::repair_unfinished)) << text_of(first);
    EXPECT_NE(first.not_repaired, 0U) << text_of(first);
    EXPECT_FALSE(is_believed(device));
    (void)repair_completely(device);
    EXPECT_TRUE(is_believed(device));
}

// Where nothing would be written anyway, nothing is withheld.
// An extent that stays, for nobody has said which of two is right, keeps its blocks.
TEST(Declined, BlocksOfAnOverlappingExtentStayInUse) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 20);
    ImageEditor editor(device);
    const uint64_t node = editor.node_of("/reserved");
    const uint64_t block = editor.superblock().total_blocks - 100;  // nobody's so far
    const tiffinfs::ExtentValue extent{block, 1, 1, tiffinfs::extent_flag::unwritten};
    editor.put(make_key(node, Kind::extent, 100), bytes_of(extent));
    editor.set_used(block, true);
    give_reasons_to_write(device);
    const Report report = run_check(device, only_what_is_safe());
    EXPECT_TRUE(report.has(Code::extent_overlap)) << text_of(report);
    EXPECT_FALSE(report.has(Code::bitmap_leak)) << text_of(report);
    (void)repair_completely(device);
}

TEST(Declined, ACheckThatMayNotWriteWithholdsNothing) {
    CrashDevice device(kDeviceBytes);
    make_tree(device, misplace_key);
    const Report report = run_check(device);
    EXPECT_TRUE(report.has(Code::node_bounds)) << text_of(report);
    EXPECT_FALSE(report.has(Code::repair_withheld)) << text_of(report);
}

}  // namespace
}  // namespace tiffin::check
