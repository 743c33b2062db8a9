// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The mode bits that give rights to the user that runs a file. A change of its content or owner clears them.
#pragma once

#include <cstdint>

#include "fs/vfs/file_system.h"

namespace tiffin::fuse {

class Request;

// A change of content by an unprivileged caller clears the set-user-id and set-group-id bits, and so does a change of
// owner by any caller. With HANDLE_KILLPRIV_V2 the kernel leaves that to the file system. It cannot know whether the
// caller is in the file's group: without group execution the set-group-id bit stays for members. Root stands for
// the callers that may keep the bit (CAP_FSETID).
//
// Before the change, as local file systems do: one that fails may have changed a part. Makes the kernel fetch the mode
// again, since it would keep the cached one. Errors: those of set_attributes.
Result<void> clear_privileges(Request& request, vfs::NodeId node);

// Adds the clearing of these bits to a change of attributes that the kernel requests. Reads the file's attributes
// only if they may matter. Errors: eperm (the bits would be cleared, and the caller is neither the owner nor root).
Result<void> complete_change(const Request& request, vfs::NodeId node,
                             vfs::AttributeChange& change);

}  // namespace tiffin::fuse
