// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What connects objects: names and link counts, directories and their parents, the way to the root,
// and the list of objects that wait to be deleted.
#pragma once

#include <cstdint>
#include <string>

#include "fuse/check/context.h"
#include "fuse/check/key_space.h"
#include "fuse/check/objects.h"
#include "fuse/check/repairs.h"

namespace tiffin::check {

inline constexpr std::string_view kLostAndFound = "lost+found";

// Sorts the links of `objects`, checks them, and stages repairs. Unreachable objects are moved to
// /lost+found, which is made with an id from `next_node` on when it is needed.
void check_links(Context& context, KeySpace& keys, Objects& objects, uint64_t next_node,
                 Repairs& repairs);

// A path of the object, or "node 17" when it has none. After check_links().
std::string path_text(KeySpace& keys, Objects& objects, uint64_t node);

}  // namespace tiffin::check
