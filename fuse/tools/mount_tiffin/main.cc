// SPDX-License-Identifier: MIT OR GPL-2.0-only
// mount.tiffin DEVICE MOUNTPOINT [-o OPTIONS] [-f]
#include "fuse/tools/common/mount_program.h"
#include "fuse/tools/mount_tiffin/file_systems.h"

int main(int argc, char** argv) {
    return tiffin::fuse::mount_program(argc, argv, tiffin::fuse::file_systems());
}
