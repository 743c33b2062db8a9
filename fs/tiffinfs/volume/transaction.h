// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A transaction: a set of changes to keys that becomes visible, and later durable, as one.
//
//     Transaction transaction(volume);
//     TRY(transaction.begin(SpacePriority::normal, {.scattered = 4}));
//     TRY(transaction.put(key, value));          // staged: nothing has changed yet
//     TRY(transaction.erase(other_key));
//     TRY(transaction.prepare());                // loads, pins and reserves all that commit needs
//     uint64_t ticket = transaction.commit();    // applies to the tree and the journal; cannot fail
//
// Leaving the scope before commit() undoes nothing, because nothing was changed. Staged changes are not
// visible in the tree before commit. The caller holds the exclusive state locks of all objects whose
// keys it changes from before it read them until after commit(); so journal order equals the order in
// which dependent changes were made. begin() may run a checkpoint: the caller must not be inside another
// transaction, nor inside a read epoch.
//
// Threading: one thread uses a transaction; lock class transaction, shared.
#pragma once

#include <cstdint>

#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/tree/node_cache.h"
#include "fs/tiffinfs/volume/extents.h"
#include "fs/vfs/result.h"
#include "fs/vfs/span.h"

namespace tiffin::tiffinfs {

class Volume;
struct TransactionWorkspace;

// An upper bound of what will be staged.
struct TransactionSize {
    uint32_t scattered = 8;         // changes at unrelated keys
    uint32_t contiguous_bytes = 0;  // and changes of neighbouring keys: slots and values in all
};

// What begin() does when space is short.
enum class RoomPolicy : uint8_t {
    make,      // makes room, as far as that needs no other thread
    as_it_is,  // fails: the caller has made room before, and there is no more
};

class Transaction {
  public:
    explicit Transaction(Volume& volume) : volume_(volume) {}
    ~Transaction() { end(); }
    Transaction(const Transaction&) = delete;
    Transaction& operator=(const Transaction&) = delete;

    Volume& volume() const { return volume_; }

    // Opens it: reserves nodes and journal space, and keeps checkpoints from sealing until it ends.
    // When space is short it commits, drains and checkpoints before it gives up, but does not wait for
    // other threads, since the caller holds locks of objects: see Volume::with_room(). Errors: enospc,
    // erofs (read-only, or stopped by an error), eio, enomem.
    Result<void> begin(SpacePriority priority, TransactionSize size = {},
                       RoomPolicy room = RoomPolicy::make);

    // Staging. Errors: enomem; enospc when more is staged than begin() was told, and the journal has no room
    // for that.
    Result<void> put(Key key, ByteSpan value, ByteSpan more_value = {});
    template <typename T>
    Result<void> put_value(Key key, const T& value) {
        return put(key, ByteSpan(reinterpret_cast<const unsigned char*>(&value), sizeof(T)));
    }
    Result<void> erase(Key key);
    // Removes every key in [first, end): no extents among them; their number is bounded by `size`.
    Result<void> erase_range(Key first, Key end);
    // Maps `block_count` blocks of `node` from `file_block` on; checksums are empty for unwritten.
    Result<void> write_extent(uint64_t node, uint64_t file_block, uint64_t physical_block,
                              uint32_t block_count, uint32_t flags, Span<const uint32_t> checksums);
    Result<void> unmap(uint64_t node, uint64_t file_block, uint64_t block_count);

    // Errors: eio, euclean, enomem; enospc, when the changes lie in more nodes than begin() could
    // know (fewer of them may fit). After success commit() cannot fail.
    Result<void> prepare();
    // Returns the journal ticket; see Volume::commit.
    uint64_t commit();

    // Instead of commit(), when the value that was staged last is one that several transactions change at the same
    // time, each on top of the one before, as the number of a directory's entries. Under a lock that all of them take
    // for that moment the value is made and commit_last() called: so the journal has their transactions in the order
    // of these values. None of the three can fail.
    //
    //     transaction.apply_all_but_last();
    //     {
    //         MutexLock lock(...);
    //         ticket = transaction.commit_last(value);  // as large as what was staged
    //     }
    //     transaction.finish();
    //
    // The other records are visible before: the caller keeps others from building on them until the end.
    void apply_all_but_last();
    template <typename T>
    uint64_t commit_last(const T& value) {
        return commit_last(ByteSpan(reinterpret_cast<const unsigned char*>(&value), sizeof(T)));
    }
    uint64_t commit_last(ByteSpan value);
    void finish();

    // Gives up without changes; also done by the destructor.
    void end();

    bool open() const { return workspace_ != nullptr; }
    uint64_t generation() const;

  private:
    Result<void> reserve_copies();
    Result<unsigned char*> stage(RecordType type, Key key, uint32_t value_bytes);
    void apply(uint32_t begin, uint32_t end);
    uint64_t append();

    Volume& volume_;
    TransactionWorkspace* workspace_ = nullptr;
    // Between apply_all_but_last() and finish(): the tree has what the journal may not have yet, so there is no way back.
    bool is_applied_ = false;
};

}  // namespace tiffin::tiffinfs
