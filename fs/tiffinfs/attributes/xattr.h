// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Extended attributes as keys in the tree.
//
// The attribute of a name is at offset (hash << 16 | slot << 8 | chunk): a keyed 44-bit hash, the lowest
// slot that was free when the name came, and the parts of its value. Chunk 0 begins with XattrValue and
// the name. A value of 64 KiB has 65 chunks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/tree/tree.h"
#include "fs/tiffinfs/volume/transaction.h"
#include "fs/vfs/result.h"
#include "fs/vfs/types.h"

namespace tiffin::tiffinfs {

class Volume;

inline constexpr vfs::Name kAccessAclName{"system.posix_acl_access"};
inline constexpr vfs::Name kDefaultAclName{"system.posix_acl_default"};
inline constexpr vfs::Name kCapabilityName{"security.capability"};
// One chunk: so that a write can remove it together with the set-user-id bit.
inline constexpr size_t kCapabilityMaxBytes = 512;

enum class XattrKind : uint8_t { user, trusted, security, access_acl, default_acl };
// Errors: eopnotsupp (unknown prefix), einval (nothing behind it), erange (too long).
Result<XattrKind> xattr_kind(vfs::Name name);
// "user." is for files and directories: the permissions of others say nothing about content.
constexpr bool may_have_user_xattrs(uint32_t mode) {
    return vfs::mode::is_regular(mode) || vfs::mode::is_directory(mode);
}
constexpr bool is_acl(XattrKind kind) {
    return kind == XattrKind::access_acl || kind == XattrKind::default_acl;
}

// Bytes on the heap, for values whose size is not known before.
class HeapBytes {
  public:
    HeapBytes() = default;
    ~HeapBytes() { clear(); }
    HeapBytes(const HeapBytes&) = delete;
    HeapBytes& operator=(const HeapBytes&) = delete;

    // The contents are lost. Errors: enomem; then it is empty.
    Result<void> resize(size_t size_bytes);
    Result<void> assign(ByteSpan bytes);
    void clear();
    bool empty() const { return size_ == 0; }
    MutableByteSpan bytes() { return MutableByteSpan(data_, size_); }
    ByteSpan bytes() const { return ByteSpan(data_, size_); }

  private:
    unsigned char* data_ = nullptr;
    size_t size_ = 0;
};

// Where an attribute is, or may go.
struct XattrPlace {
    bool found = false;
    uint64_t offset = 0;       // of its chunk 0, or where to put that
    uint32_t value_bytes = 0;  // when found
    uint32_t chunks = 0;       // when found: how many the value has
};

// All functions below are called with the state lock of the object held.

// Finds the attribute `name` of `node`, and copies its value to `buffer` when it fits there. Errors:
// enospc (not there, and all slots of its hash are taken, and `for_insertion`); eio, euclean, enomem.
Result<XattrPlace> find_xattr(Volume& volume, uint64_t node, vfs::Name name, bool for_insertion,
                              MutableByteSpan buffer = {});

// The whole value of an attribute. Errors: enodata; eio, euclean, enomem.
Result<void> read_xattr(Volume& volume, uint64_t node, vfs::Name name, HeapBytes& value);

// Writes the names of all attributes to `buffer`, each ended by NUL; returns their size. An empty
// buffer only asks for the size. Errors: erange.
Result<size_t> list_xattrs(Volume& volume, uint64_t node, MutableByteSpan buffer);

// What staging a change may take: for TransactionSize::contiguous_bytes.
uint32_t xattr_change_bytes(vfs::Name name, size_t value_bytes, const XattrPlace& place);

// Stages name := value at `place`; what is left of a longer value before is erased.
Result<void> stage_xattr(Transaction& transaction, uint64_t node, const XattrPlace& place,
                         vfs::Name name, ByteSpan value);
Result<void> stage_xattr_removal(Transaction& transaction, uint64_t node, const XattrPlace& place);

}  // namespace tiffin::tiffinfs
