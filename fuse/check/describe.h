// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Structures on a device as JSON, decoded field by field. Nothing here trusts what it reads: what makes
// no sense is shown as it is, with the reason beside it.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "fs/tiffinfs/format.h"
#include "fs/vfs/block_device.h"
#include "fs/vfs/span.h"
#include "fuse/host/problem.h"

namespace tiffin::check {

// Fields keep the order in which they were added. All strings are printable ASCII.
using Json = nlohmann::ordered_json;

// The volume in a few words: identity, sizes, features, generations, journal. The problem is that there
// is no volume.
fuse::OrProblem<Json> describe_volume(vfs::BlockDevice& device);

// All copies of the superblock, damaged ones too.
Json describe_superblocks(vfs::BlockDevice& device);
Json describe_superblock(const tiffinfs::Superblock& superblock);

// The functions below look at the volume of the newest valid superblock; without one they have a problem.
// They show what is on the device: the journal has not been applied.

// The nodes of the tree, from the root, each parent before its children.
fuse::OrProblem<Json> describe_tree(vfs::BlockDevice& device);
// One block as a tree node, with all keys and values.
fuse::OrProblem<Json> describe_node(vfs::BlockDevice& device, uint64_t block);
// All keys of an object.
fuse::OrProblem<Json> describe_object(vfs::BlockDevice& device, uint64_t node);
// The entries of a directory.
fuse::OrProblem<Json> describe_directory(vfs::BlockDevice& device, uint64_t node);
// The frames that wait to be replayed, with their records.
fuse::OrProblem<Json> describe_journal(vfs::BlockDevice& device);
// Both bitmap slots of a group, and which blocks the one that counts calls used.
fuse::OrProblem<Json> describe_bitmap(vfs::BlockDevice& device, uint64_t group);

// A key, and the value that belongs to it.
Json describe_key(tiffinfs::Key key);
Json describe_value(tiffinfs::Key key, ByteSpan value);

// For people: "name: value" lines, indented; lists of simple things one in a line.
std::string to_text(const Json& json);

}  // namespace tiffin::check
