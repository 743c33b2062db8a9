// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The handlers of the kernel's requests, in groups. Each translates one request into one call of the
// file system and answers it.
#pragma once

#include "fuse/session/libfuse.h"

namespace tiffin::fuse {

// All handlers; the session is the user data of the libfuse session.
fuse_lowlevel_ops make_operations();

void add_node_operations(fuse_lowlevel_ops& operations);       // finding, attributes
void add_name_operations(fuse_lowlevel_ops& operations);       // creating, removing, renaming
void add_data_operations(fuse_lowlevel_ops& operations);       // open files
void add_directory_operations(fuse_lowlevel_ops& operations);  // reading directories
void add_xattr_operations(fuse_lowlevel_ops& operations);      // extended attributes
void add_control_operations(fuse_lowlevel_ops& operations);    // ioctl, statfs

}  // namespace tiffin::fuse
