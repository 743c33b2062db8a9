// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Content and names that cannot be brought back. Content must not read as zeros: a repair marks it as lost
// (tiffinfs::extent_flag::lost), so that reading fails, and every check names the file.
#pragma once

#include <cstdint>
#include <vector>

#include "fuse/check/context.h"
#include "fuse/check/key_space.h"
#include "fuse/check/objects.h"
#include "fuse/check/repairs.h"

namespace tiffin::check {

// Stages lost extents for `ranges` of the file.
void mark_lost(Repairs& repairs, uint64_t node, const std::vector<FileBlocks>& ranges);

// Reports, by path, what the scan has found to be gone, and stages the marks. After check_links().
void report_lost_content(Context& context, KeySpace& keys, Objects& objects, Repairs& repairs);

}  // namespace tiffin::check
