// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Entries of directories as keys in the tree.
//
// The entry of a name is at offset (hash << 8 | slot): a keyed 52-bit hash, and for names with the same
// hash the lowest slot that was free when the name came. An entry never moves while it exists, so its
// offset serves as a position for readers, whatever is created or removed around it.
//
// Cookies: 0 is the start, 1 follows ".", 2 follows "..", offset + 1 follows an entry. No hash is 0, so
// that offsets begin at 256; the greatest cookie is 2^60.
#pragma once

#include <cstdint>

#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/tree/tree.h"
#include "fs/tiffinfs/volume/transaction.h"
#include "fs/vfs/result.h"
#include "fs/vfs/types.h"

namespace tiffin::tiffinfs {

class Volume;

inline constexpr uint64_t kCookieAfterDot = 1;
inline constexpr uint64_t kCookieAfterDotDot = 2;
constexpr uint64_t cookie_after(uint64_t entry_offset) { return entry_offset + 1; }

// The 52-bit hash of a name under the volume's key: 1 to 2^52 - 1.
uint64_t entry_hash(const uint8_t hash_key[16], vfs::Name name);

// The name is "." or "..".
bool is_dot(vfs::Name name);
bool is_dot_dot(vfs::Name name);

// An entry as it stands in a leaf, checked.
struct EntryView {
    uint64_t offset = 0;
    uint64_t node = 0;
    uint32_t type_mode = 0;  // the type bits of the mode
    vfs::Name name;
};
// False when `value` is no entry that could have been written.
bool parse_entry(Key key, ByteSpan value, EntryView& entry);

// Looks for a name among the entries with its hash. Feed it with Tree::scan over [first(), end()).
class EntrySearch final : public TreeVisitor {
  public:
    EntrySearch(uint64_t directory, uint64_t hash, vfs::Name name)
        : directory_(directory), hash_(hash), name_(name) {}

    Key first() const { return make_key(directory_, Kind::entry, hash_ << kEntrySlotBits); }
    Key end() const {
        return next_key(
            make_key(directory_, Kind::entry, hash_ << kEntrySlotBits | (kEntrySlots - 1)));
    }
    bool visit(Key key, ByteSpan value) override;

    bool damaged() const { return damaged_; }
    bool found() const { return found_; }
    // Of the entry that was found.
    uint64_t offset() const { return offset_; }
    uint64_t node() const { return node_; }
    uint32_t type_mode() const { return type_mode_; }
    // When it was not found: the lowest slot is free. False: all 256 are taken.
    bool has_free_slot() const { return free_slot_ < kEntrySlots; }
    uint64_t free_offset() const { return hash_ << kEntrySlotBits | free_slot_; }

  private:
    uint64_t directory_;
    uint64_t hash_;
    vfs::Name name_;
    uint64_t offset_ = 0;
    uint64_t node_ = 0;
    uint32_t type_mode_ = 0;
    uint32_t free_slot_ = 0;  // no slot below it is free
    bool found_ = false;
    bool damaged_ = false;
};

// Where a name is in a directory, or may go.
struct EntryPlace {
    bool found = false;
    uint64_t offset = 0;     // of the entry, or where to put it
    uint64_t node = 0;       // when found
    uint32_t type_mode = 0;  // when found
};

// Finds `name`, which has at most kNameMaxBytes, in `directory`. The caller holds the directory's
// state lock. Errors: `for_insertion` enospc when the name is not there and all slots of its hash are
// taken, and einval when it is none that a host may give; eio, euclean, enomem.
Result<EntryPlace> find_entry(Volume& volume, uint64_t directory, vfs::Name name,
                              bool for_insertion);
// The same for callers that know the name's hash already.
Result<EntryPlace> find_entry(Volume& volume, uint64_t directory, vfs::Name name, uint64_t hash,
                              bool for_insertion);

// That a directory, whose inode says `size_bytes`, has no entries: removing it deletes all of its keys. So
// the tree is asked as well. The caller holds the directory's state lock. Errors: enotempty; euclean when
// the two disagree; eio, enomem.
Result<void> check_empty(Volume& volume, uint64_t directory, uint64_t size_bytes);

// Stages the entry `name` -> `node` at `offset`.
Result<void> stage_entry(Transaction& transaction, uint64_t directory, uint64_t offset,
                         uint64_t node, uint32_t type_mode, vfs::Name name);
Result<void> stage_entry_removal(Transaction& transaction, uint64_t directory, uint64_t offset);

// Copies entries out of the tree, so that they can be handed on without its locks.
class EntryBatch final : public TreeVisitor {
  public:
    // Uses `size_bytes` at `memory`, which is aligned to 8 bytes and stays the caller's; takes at
    // most `maximum_entries`.
    EntryBatch(unsigned char* memory, size_t size_bytes, uint32_t maximum_entries)
        : memory_(memory), capacity_(size_bytes), maximum_entries_(maximum_entries) {}

    // Fills the batch with entries of `directory` at or behind `offset`. The caller holds the
    // directory's state lock. Errors: eio, euclean, enomem.
    Result<void> fill(Volume& volume, uint64_t directory, uint64_t offset);
    bool visit(Key key, ByteSpan value) override;

    uint32_t count() const { return count_; }
    // True when nothing is left behind the last entry of the batch.
    bool at_end() const { return at_end_; }
    // Goes through the batch; `position` is 0 at first. The name lies in the batch's memory.
    EntryView next(size_t& position) const;

  private:
    struct Header {
        uint64_t offset;
        uint64_t node;
        uint32_t type_mode;
        uint32_t name_bytes;
    };

    unsigned char* memory_;
    size_t capacity_;
    uint32_t maximum_entries_;
    size_t used_ = 0;
    uint32_t count_ = 0;
    bool at_end_ = false;
    bool damaged_ = false;
};

}  // namespace tiffin::tiffinfs
