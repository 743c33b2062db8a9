// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Which bits of a mode go when privileges do, decided with the mode that there is then.
#include <gtest/gtest.h>

#include "tests/unit/tiffinfs/names_fixture.h"

namespace tiffin::tiffinfs {
namespace {

using Change = vfs::AttributeChange;

uint32_t mode_after(NamesVolume& volume, uint64_t node, uint32_t mode, uint32_t valid) {
    Change change;
    change.valid = Change::mode_bit;
    change.mode = mode;
    EXPECT_EQ(code(volume.fs().set_attributes({}, node, change)), 0);
    Change kill;
    kill.valid = valid;
    EXPECT_EQ(code(volume.fs().set_attributes({}, node, kill)), 0);
    return volume.attributes(node).mode & vfs::mode::permission_mask;
}

TEST(Privileges, OfFilesAndDirectories) {
    NamesVolume volume;
    const uint64_t file = volume.create(vfs::kRootNode, "file");
    const uint64_t directory = volume.make_directory(vfs::kRootNode, "directory");
    constexpr uint32_t kGroupToo = Change::kill_privileges_bit | Change::kill_set_group_id_bit;
    EXPECT_EQ(mode_after(volume, file, 06755, Change::kill_privileges_bit), 0755U);
    EXPECT_EQ(mode_after(volume, file, 06745, Change::kill_privileges_bit), 02745U);
    EXPECT_EQ(mode_after(volume, file, 06745, kGroupToo), 0745U);
    EXPECT_EQ(mode_after(volume, file, 0641, kGroupToo), 0641U);
    EXPECT_EQ(mode_after(volume, directory, 06745, kGroupToo), 06745U);
    EXPECT_EQ(volume.check(), "");
}

}  // namespace
}  // namespace tiffin::tiffinfs
