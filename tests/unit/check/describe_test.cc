// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What `tiffin info` and `tiffin dump` show.
#include <gtest/gtest.h>

#include <string>

#include "fuse/check/describe.h"
#include "fuse/check/text.h"
#include "tests/unit/check/check_support.h"
#include "tests/unit/check/image_editor.h"

namespace tiffin::check {
namespace {

using test::CrashDevice;
using test::TestVolume;

TEST(Describe, Volume) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 10);
    const fuse::OrProblem<Json> info = describe_volume(device);
    ASSERT_TRUE(info.ok());
    EXPECT_EQ((*info)["label"], "test");
    EXPECT_EQ((*info)["state"], "clean");
    EXPECT_EQ((*info)["space"]["total_blocks"], kDeviceBytes / 4096);
    EXPECT_EQ((*info)["space"]["objects"], 6 + 9 + 10);
    EXPECT_EQ((*info)["journal"]["frames_to_replay"], 0);
    EXPECT_EQ((*info)["superblock_copies"].dump(), R"(["valid","valid","valid","valid"])");
    const std::string text = to_text(*info);
    EXPECT_NE(text.find("label: test\n"), std::string::npos) << text;
    EXPECT_NE(text.find("  total_blocks: 16384\n"), std::string::npos) << text;
}

TEST(Describe, NoVolume) {
    CrashDevice device(kDeviceBytes);
    EXPECT_FALSE(describe_volume(device).ok());
    EXPECT_FALSE(describe_tree(device).ok());
    EXPECT_FALSE(describe_journal(device).ok());
    EXPECT_EQ(describe_superblocks(device).size(), 4U);
    CrashDevice tiny(8192);
    EXPECT_FALSE(describe_volume(tiny).ok());
}

TEST(Describe, ObjectsAndDirectories) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 10);
    ImageEditor editor(device);
    EXPECT_FALSE(describe_directory(device, 1U << 20).ok()) << "there is none";
    const fuse::OrProblem<Json> directory = describe_directory(device, vfs::kRootNode);
    ASSERT_TRUE(directory.ok());
    bool found = false;
    for (const Json& entry : (*directory)["entries"]) {
        found = found || (entry["name"] == "tiny" && entry["node"] == editor.node_of("/tiny") &&
                          entry["type"] == "-");
    }
    EXPECT_TRUE(found) << directory->dump();

    const fuse::OrProblem<Json> tiny = describe_object(device, editor.node_of("/tiny"));
    ASSERT_TRUE(tiny.ok());
    const Json& keys = (*tiny)["keys"];
    EXPECT_EQ(keys[0]["key"]["kind"], "inode");
    EXPECT_EQ(keys[0]["value"]["link_count"], 2);
    EXPECT_EQ(keys[1]["value"]["name"], "user.small");
    EXPECT_EQ(keys[2]["value"]["text"], "inline content");
    EXPECT_FALSE(describe_object(device, 999999).ok());

    const fuse::OrProblem<Json> large = describe_object(device, editor.node_of("/directory/large"));
    ASSERT_TRUE(large.ok());
    EXPECT_EQ((*large)["keys"][1]["value"]["unwritten"], false);
}

TEST(Describe, TreeNodesAndBitmaps) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 300);
    ImageEditor editor(device);
    const fuse::OrProblem<Json> tree = describe_tree(device);
    ASSERT_TRUE(tree.ok());
    ASSERT_GT(tree->size(), 10U);
    EXPECT_EQ((*tree)[0]["block"], editor.superblock().root_block);
    EXPECT_EQ((*tree)[0]["count"], tree->size() - 1);
    const fuse::OrProblem<Json> root = describe_node(device, editor.superblock().root_block);
    ASSERT_TRUE(root.ok());
    EXPECT_EQ((*root)["children"].size(), tree->size() - 1);
    const fuse::OrProblem<Json> leaf = describe_node(device, (*tree)[1]["block"]);
    ASSERT_TRUE(leaf.ok());
    EXPECT_EQ((*leaf)["keys"].size(), (*tree)[1]["count"]);
    EXPECT_FALSE(describe_node(device, 0).ok());
    EXPECT_FALSE(describe_node(device, ~uint64_t{0}).ok());

    const fuse::OrProblem<Json> bitmap = describe_bitmap(device, 0);
    ASSERT_TRUE(bitmap.ok());
    EXPECT_EQ((*bitmap)["state"], "valid");
    EXPECT_EQ((*bitmap)["used"].get<std::string>().substr(0, 2), "0-");
    EXPECT_FALSE(describe_bitmap(device, 1).ok());
}

TEST(Describe, Journal) {
    CrashDevice device(kDeviceBytes);
    TestVolume volume(device);
    ASSERT_TRUE(volume.make().ok());
    ASSERT_TRUE(volume.mount().ok());
    ASSERT_TRUE(volume.write("/file", 0, test::test_content(1, 9000)).ok());
    ASSERT_TRUE(volume.sync().ok());
    volume.abandon();
    const fuse::OrProblem<Json> journal = describe_journal(device);
    ASSERT_TRUE(journal.ok());
    ASSERT_EQ((*journal)["frames"].size(), 1U);
    EXPECT_EQ((*journal)["end"], "clean");
    bool extent = false;
    for (const Json& record : (*journal)["frames"][0]["records"]) {
        extent =
            extent || (record["type"] == "write-extent" && record["value"]["block_count"] == 3);
    }
    EXPECT_TRUE(extent) << journal->dump(2);
    EXPECT_EQ((*describe_volume(device))["journal"]["frames_to_replay"], 1);
}

TEST(Describe, TextCannotForgeLines) {
    EXPECT_EQ(name_text("a\nb\x1b[31m\"\\\xff"), R"("a\x0ab\x1b[31m\x22\x5c\xff")");
    EXPECT_EQ(mode_text(0104755), "-rwsr-xr-x");
    EXPECT_EQ(mode_text(0041777), "drwxrwxrwt");
    EXPECT_EQ(mode_text(0), "?---------");
    EXPECT_EQ(time_text(tiffinfs::DiskTime{0, 1, 0}), "1970-01-01T00:00:00.000000001Z");
    EXPECT_EQ(time_text(int64_t{-1}), "1969-12-31T23:59:59.999999999Z");
    EXPECT_EQ(time_text(tiffinfs::DiskTime{INT64_MIN, 0, 0}), "-9223372036854775808 s + 0 ns");
    EXPECT_EQ(key_text(tiffinfs::make_key(7, static_cast<tiffinfs::Kind>(13), 255)),
              "(7, kind 13, 0xff)");
}

}  // namespace
}  // namespace tiffin::check
