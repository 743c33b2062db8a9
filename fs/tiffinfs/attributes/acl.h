// SPDX-License-Identifier: MIT OR GPL-2.0-only
// POSIX access control lists, in the layout of Linux's system.posix_acl_* attributes, version 2: a
// header and entries of tag, permissions and id. The rules are those of acl(5) and of Linux.
//
// An access ACL whose entries say no more than owner, group and others is not stored: the mode says the
// same. Otherwise the mode's group bits show the ACL's mask, and both change together.
#pragma once

#include <cstdint>

#include "fs/vfs/result.h"
#include "fs/vfs/span.h"

namespace tiffin::tiffinfs {

inline constexpr uint32_t kAclVersion = 2;

struct AclHeader {
    uint32_t version;
};

struct AclEntry {
    uint16_t tag;          // acl_tag
    uint16_t permissions;  // as the lowest three bits of a mode
    uint32_t id;           // of a user or a group; kAclNoId for other tags
};
static_assert(sizeof(AclHeader) == 4 && sizeof(AclEntry) == 8);
inline constexpr uint32_t kAclNoId = 0xffffffff;

namespace acl_tag {
inline constexpr uint16_t owner = 0x01;
inline constexpr uint16_t user = 0x02;
inline constexpr uint16_t owning_group = 0x04;
inline constexpr uint16_t group = 0x08;
inline constexpr uint16_t mask = 0x10;
inline constexpr uint16_t others = 0x20;
}  // namespace acl_tag

// The number of entries of a well-formed ACL; 0: an empty one, which stands for none. Errors:
// eopnotsupp (another version), einval (size, order, missing entries, bad permissions or ids).
Result<uint32_t> check_acl(ByteSpan acl);

// The functions below take ACLs that passed check_acl() with at least one entry.

// Writes kAclNoId where an id has no meaning, so that equal ACLs have equal bytes.
void normalize_acl(MutableByteSpan acl);

// Puts the permissions that `acl` gives to owner, group (or mask) and others into the lowest nine bits
// of `mode`. Returns true when the mode says all there is in the ACL.
bool acl_to_mode(ByteSpan acl, uint32_t& mode);

// chmod: changes owner, others, and mask (or, without one, group) to what `mode` says.
void apply_mode_to_acl(MutableByteSpan acl, uint32_t mode);

// Makes the default ACL of a directory the access ACL of a node that is created in it with `mode`:
// neither of the two may give more than the other. Returns true when the mode says it all.
bool inherit_acl(MutableByteSpan acl, uint32_t& mode);

}  // namespace tiffin::tiffinfs
