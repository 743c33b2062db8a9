// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Reads all file data and compares it with its checksums.
#pragma once

#include "fuse/check/context.h"
#include "fuse/check/key_space.h"
#include "fuse/check/objects.h"

namespace tiffin::check {

// Reports every range of a file that cannot be read or is not what was written, of those that lie on the device from
// `from_bytes` on. Errors: eio (a part of the tree has become unreadable).
Result<void> check_data(Context& context, KeySpace& keys, Objects& objects, uint64_t from_bytes);

}  // namespace tiffin::check
