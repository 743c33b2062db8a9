// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Names: which are legal, where their keys are, and finding and adding them among keys in memory. Worked
// out from the description of the format, not from the code of the file system.
#pragma once

#include <cstdint>
#include <string_view>

#include "fs/tiffinfs/format.h"
#include "fuse/check/key_space.h"

namespace tiffin::check {

// 1 to 255 bytes without '/' and NUL, not "." or "..".
bool is_legal_name(std::string_view name);
// The type bits of a mode name a type that exists.
bool is_type_mode(uint32_t type_mode);

// Of directory entries: 1 to 2^52 - 1.
uint64_t name_hash(const tiffinfs::Superblock& superblock, std::string_view name);
// Of extended attributes: below 2^44.
uint64_t xattr_hash(const tiffinfs::Superblock& superblock, std::string_view name);

struct EntryPlace {
    bool exists = false;
    bool has_free_slot = false;
    uint64_t offset = 0;  // of the entry, or of the first free slot
    uint64_t node = 0;    // when it exists
};
// Looks for `name` in the directory, among the entries with `hash`.
Result<EntryPlace> find_entry(KeySpace& keys, uint64_t directory, uint64_t hash,
                              std::string_view name);
// Adds an entry; false when the name exists or its hash has no free slot.
Result<bool> add_entry(KeySpace& keys, const tiffinfs::Superblock& superblock, uint64_t directory,
                       std::string_view name, uint64_t node, uint32_t mode);

}  // namespace tiffin::check
