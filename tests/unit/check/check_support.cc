// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/unit/check/check_support.h"

#include <gtest/gtest.h>

#include "fs/tiffinfs/journal/journal.h"

namespace tiffin::check {

std::string text_of(const Report& report) {
    std::string text;
    for (const Finding& finding : report.findings) {
        text += finding.line() + "\n";
    }
    return text;
}

CheckOptions only_what_is_safe() {
    CheckOptions options;
    options.repair = true;
    options.may_repair = [](const Finding& finding) {
        return code_is_safe_to_repair(finding.code);
    };
    return options;
}

Report run_check(vfs::BlockDevice& device, const CheckOptions& options) {
    return check_file_system(device, options);
}

void make_populated(test::CrashDevice& device, uint32_t files) {
    test::TestVolume volume(device);
    ASSERT_TRUE(volume.make().ok());
    ASSERT_TRUE(volume.mount().ok());
    ASSERT_TRUE(populate(volume, files).ok());
    ASSERT_TRUE(volume.unmount().ok());
}

void make_settled(test::CrashDevice& device, uint32_t files) {
    make_populated(device, files);
    (void)see(device);
}

void forget_older_generation(ImageEditor& editor) {
    const uint64_t older = (editor.superblock().generation + 1) % 2;
    editor.destroy_superblock(older, 0);
    editor.destroy_superblock(older, 1);
}

void make_room_in_leaf_of(ImageEditor& editor, uint64_t node) {
    const tiffinfs::Key content = tiffinfs::make_key(node, tiffinfs::Kind::inline_data, 0);
    if (editor.has(content)) {
        editor.erase(content);
        editor.change_inode(node, [](auto& inode) {
            inode.size_bytes = 0;
            inode.inode_flags &= ~tiffinfs::inode_flag::inline_data;
        });
    }
}

void make_pending(test::CrashDevice& device) {
    test::TestVolume volume(device);
    ASSERT_TRUE(volume.make().ok());
    ASSERT_TRUE(volume.mount().ok());
    ASSERT_TRUE(volume.write("/first", 0, test::test_content(1, 9000)).ok());
    ASSERT_TRUE(volume.sync().ok());
    ASSERT_TRUE(volume.write("/second", 0, test::test_content(2, 9000)).ok());
    ASSERT_TRUE(volume.sync().ok());
    ASSERT_TRUE(volume.write("/third", 0, test::test_content(3, 9000)).ok());
    ASSERT_TRUE(volume.sync().ok());
    volume.abandon();
}

void damage_second_frame(test::CrashDevice& device) {
    const uint64_t first_byte = tiffinfs::kJournalFirstBlock * tiffinfs::kBlockBytes;
    uint32_t frames = 0;
    for (uint64_t offset = 0; offset < (64U << 10); offset += 512) {
        tiffinfs::FrameHeader header;
        alignas(512) unsigned char sector[512];
        ASSERT_TRUE(device.read(first_byte + offset, sector, sizeof sector).ok());
        __builtin_memcpy(&header, sector, sizeof header);
        if (header.magic == tiffinfs::kFrameMagic && ++frames == 2) {
            device.flip_bit(first_byte + offset + sizeof header + 8, 1);
        }
    }
    ASSERT_EQ(frames, 3U);
}

Bytes image_of(test::CrashDevice& device) {
    Bytes image;
    Block page;
    const uint64_t blocks = device.geometry().size_bytes / tiffinfs::kBlockBytes;
    for (uint64_t block = 0; block < blocks; ++block) {
        EXPECT_TRUE(read_block(device, block, page)) << block;
        image.insert(image.end(), page.bytes, page.bytes + sizeof page.bytes);
    }
    return image;
}

test::SeenTree see(vfs::BlockDevice& device) {
    test::TestVolume volume(device);
    test::SeenTree tree;
    const Result<void> mounted = volume.mount();
    EXPECT_TRUE(mounted.ok()) << errno_value(mounted.error());
    if (!mounted.ok()) {
        return tree;
    }
    Result<test::SeenTree> seen = volume.see(test::TestVolume::Unreadable::shown);
    EXPECT_TRUE(seen.ok()) << errno_value(seen.error());
    if (seen.ok()) {
        tree = seen.release_value();
    }
    EXPECT_TRUE(volume.unmount().ok());
    return tree;
}

bool only_lost_content(const Report& report) {
    return report.is_volume && !report.cancelled &&
           report.findings.size() == report.count(Code::content_lost);
}

Report repair_completely(test::CrashDevice& device) {
    Report first = run_check(device, {.repair = true});
    EXPECT_EQ(first.not_repaired, first.count(Code::content_lost)) << text_of(first);
    const Report second = run_check(device, {.verify_data = true});
    EXPECT_TRUE(only_lost_content(second)) << "after the repair of\n"
                                           << text_of(first) << "there is\n"
                                           << text_of(second);
    (void)see(device);
    const Report third = run_check(device, {.verify_data = true});
    EXPECT_TRUE(only_lost_content(third)) << "after a mount\n" << text_of(third);
    return first;
}

}  // namespace tiffin::check
