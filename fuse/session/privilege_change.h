// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What gives rights to whoever runs a file, and goes when its content or its owner changes.
#pragma once

#include <cstdint>

#include "fs/vfs/file_system.h"

namespace tiffin::fuse {

class Request;

// Content that is changed by somebody without privileges, and owners that are set by anybody, take
// set-user-id and set-group-id bits with them. With HANDLE_KILLPRIV_V2 the kernel leaves that to us. What the
// file system cannot know is whether the caller is in the file's group: without group execution the
// set-group-id bit stays for members. Root stands for those who may keep it (CAP_FSETID).
class PrivilegeChange {
  public:
    // For a change of content. Looks at the file: before the change.
    PrivilegeChange(Request& request, vfs::NodeId node);

    // Takes the bits away after the change, and makes the kernel ask for the mode again, since it goes on
    // believing the one that it knows. Errors: those of set_attributes.
    Result<void> clear();

  private:
    Request& request_;
    const vfs::NodeId node_;
    vfs::AttributeChange change_;  // valid == 0: nothing is to be done
};

// Completes a change of attributes that the kernel asks for, by what it means for privileges. Looks at the
// file only where that may matter. Errors: eperm (privileges would go, and neither the owner nor root asks).
Result<void> complete_change(const Request& request, vfs::NodeId node,
                             vfs::AttributeChange& change);

}  // namespace tiffin::fuse
