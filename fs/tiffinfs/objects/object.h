// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Objects: the inodes in use, of files, directories and others.
//
// The tree holds the truth at all times (every transaction puts the inode it changed), so an object is a
// cache entry: it is loaded when needed, and dropped when it is not pinned and memory is needed. The number of
// references that a host holds is kept separately, in a compact table (ReferenceTable), so that a kernel that
// remembers a million nodes does not keep a million objects in memory.
#pragma once

#include <atomic>
#include <cstdint>

#include "fs/base/biased_shared_mutex.h"
#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/objects/range_claims.h"
#include "fs/tiffinfs/objects/reference_table.h"
#include "fs/vfs/host.h"
#include "fs/vfs/result.h"
#include "fs/vfs/types.h"

namespace tiffin::tiffinfs {

class Volume;
class ObjectTable;

// Ids for what is made in a directory: `next` and those behind it, `left` in all.
struct IdRun {
    uint64_t next = 0;
    uint32_t left = 0;
    uint32_t taken = 0;  // at once, the last time
};

// Members are ordered by their writers: first those that every user of a directory or file reads, and that at most
// one owner changes; then those that creators of files in one directory change; then those that each use changes.
struct alignas(64) Object {
    // Guards the inode and everything the tree holds under this node id. Exclusive for changes, from
    // before the first look until after Transaction::commit. Several objects: by ascending node id
    // (pass the id as the level). Threads that create files in a directory hold it shared, with a lock of the
    // name (ObjectTable::name_lock) and, for what they change in the directory's inode, `count`.
    BiasedSharedMutex state{host::LockClass::object_state};
    uint64_t node = 0;
    Object* hash_next = nullptr;
    // Shared with other objects. A directory's size, modification and change time are changed with this and
    // `state`, which may be shared; so a thread that holds `state` shared only reads them with this: see inode_of().
    host::Mutex* count = nullptr;
    bool deleted GUARDED_BY(state) = false;  // its keys are gone: estale
    // Made without a name (O_TMPFILE) and not linked yet: it may get its first one.
    bool linkable GUARDED_BY(state) = false;
    uint64_t name_lost_ns GUARDED_BY(state) =
        0;  // when, by host::monotonic_ns(), and others were left; 0: never
    InodeValue inode GUARDED_BY(state){};
    // A directory: ids for what is made in it, so that it lies together in the tree, and what is made in two
    // directories at the same time does not meet in one leaf. What is left of them when the object goes is lost,
    // which does no harm.
    alignas(64) IdRun ids GUARDED_BY(*count);
    std::atomic<uint64_t> last_ticket{0};  // of its last transaction, for fsync
    std::atomic<uint64_t> goal_block{0};   // where its next data should go
    // Of all that changes file data or its map (write, truncate, allocate), device I/O included. Waited for before `state`.
    RangeClaims claims;

    // The table's own members, guarded by the lock of the object's shard or of the queue.
    std::atomic<uint32_t> pins{0};
    std::atomic<bool> referenced{false};
    bool loading = false;      // being read from the tree: no other thread reads it
    bool load_failed = false;  // and out of the hash again
    bool orphan = false;       // has no links: the table holds a pin of its own
    bool queued_for_reclaim = false;
    Error load_error = Error::eio;
    Object* clock_next = nullptr;
    Object* clock_previous = nullptr;
    Object* reclaim_next = nullptr;

    bool is_directory() const REQUIRES_SHARED(state) { return vfs::mode::is_directory(inode.mode); }
    bool is_regular() const REQUIRES_SHARED(state) { return vfs::mode::is_regular(inode.mode); }
};

// An object that a processor keeps pinned for repeated use; see ObjectTable::get().
struct PinAtHand {
    // Whether one ObjectPin has the pin now.
    std::atomic<bool> in_use{false};
    std::atomic<uint64_t> node{0};         // of `object`; 0: none
    std::atomic<uint64_t> last_missed{0};  // the last node requested that was not here
    Object* object = nullptr;              // pinned; belongs to the thread that has set in_use
};

// A pin on an object, given back at the end of the scope.
class ObjectPin {
  public:
    ObjectPin() = default;
    ObjectPin(ObjectTable& table, Object* object) : table_(&table), object_(object) {}
    ObjectPin(ObjectPin&& other) noexcept
        : table_(other.table_), object_(other.object_), at_hand_(other.at_hand_) {
        other.object_ = nullptr;
        other.at_hand_ = nullptr;
    }
    ObjectPin& operator=(ObjectPin&& other) noexcept;
    ~ObjectPin() { reset(); }
    void reset();

    Object* operator->() const { return object_; }
    Object& operator*() const { return *object_; }
    Object* get() const { return object_; }
    explicit operator bool() const { return object_ != nullptr; }

  private:
    friend class ObjectTable;
    explicit ObjectPin(PinAtHand& at_hand) : object_(at_hand.object), at_hand_(&at_hand) {}

    ObjectTable* table_ = nullptr;
    Object* object_ = nullptr;
    PinAtHand* at_hand_ = nullptr;  // lent, and to be given back instead of a pin
};

class ObjectTable {
  public:
    // `volume` must outlive the table; `maximum_objects` bounds those that are cached without pins.
    ObjectTable(Volume& volume, uint32_t maximum_objects);
    // Precondition: there are no pins.
    ~ObjectTable();
    Result<void> start();

    // The object of `node`, loaded from the tree when it is not in memory. A processor keeps an object pinned
    // that was requested twice in a row (among nodes of one hash), and from then on lends that pin. So frequent users
    // of one directory or file write to no memory that other processors write to. Errors: estale (no such
    // node), eio, euclean, enomem.
    Result<ObjectPin> get(uint64_t node);
    // The same, and adds a reference of the host.
    Result<ObjectPin> get_referenced(uint64_t node);
    // A new object that is not in the tree yet, with a reference of the host; no other thread can find its id. The
    // caller fills the inode under the state lock. On failure of its transaction: discard(). Errors: enomem; ebusy
    // when there is an object of this id: another thread is looking such a node up, or the
    // volume is damaged. Another id will do.
    Result<ObjectPin> create(uint64_t node);
    // The reference goes too.
    void discard(ObjectPin& pin);

    // References of the host (see vfs::FileSystem). The root's are not counted. add_reference may
    // allocate: enomem.
    Result<void> add_reference(uint64_t node);
    // Returns true when the last one is gone.
    bool drop_references(uint64_t node, uint64_t count);
    bool has_references(uint64_t node);
    // As if every host had let go (unmount). Objects without links are queued.
    void drop_all_references();

    // ---- Objects without links, which wait to be deleted ----
    // They stay pinned until cancel_reclaim(), and are queued as soon as there are no references to
    // them. Needs no memory, cannot fail. Called after the commit that took the last link away, by
    // the holder of the state lock. The queue has a limit, as its objects take memory: beyond it an
    // object is let go, and has to be found by its orphan key (take_queue_overflow).
    void queue_for_reclaim(Object& object);
    // The object was deleted, or has a link again.
    void cancel_reclaim(Object& object);
    // The object that has waited longest, taken from the queue; without one, an empty pin.
    ObjectPin next_for_reclaim();
    // True once after the queue has been too short.
    bool take_queue_overflow() {
        return queue_overflow_.exchange(false, std::memory_order_relaxed);
    }
    // How many are in the queue.
    uint64_t waiting_for_reclaim() const { return queued_count_.load(std::memory_order_seq_cst); }
    // Nodes without links: how many there have been, and how many there are, in the queue or in use.
    struct Orphans {
        uint64_t so_far = 0;
        uint64_t now = 0;
    };
    Orphans orphans();

    // The lock of a name that something is to be made for, by a hash that names of one EntryPlace have in common.
    // Taken before the directory's state.
    host::Mutex& name_lock(uint64_t directory, uint64_t hash) {
        return tables_->name_locks[(directory ^ hash) % kNameLocks].mutex;
    }

    void unpin(Object* object) { object->pins.fetch_sub(1, std::memory_order_release); }
    // Drops up to `wanted` unpinned objects, the least recently used first; returns the number.
    // Passes shards by whose lock is held.
    uint64_t shrink(uint64_t wanted);
    // Objects in memory, and nodes that hosts have references to.
    uint64_t object_count();
    uint64_t referenced_nodes();
    // Those nodes. Errors: enomem.
    Result<void> list_references(vfs::NodeSink& sink);

  private:
    static constexpr uint32_t kShards = 64;
    static constexpr uint64_t kMaximumQueued = 16384;
    // What every use changes lies together.
    struct alignas(64) Shard {
        host::Mutex lock{host::LockClass::object_table};
        Object** buckets GUARDED_BY(lock) = nullptr;
        Object* clock_hand GUARDED_BY(lock) = nullptr;  // ring of all objects of the shard
        uint32_t count GUARDED_BY(lock) = 0;
        ReferenceTable references GUARDED_BY(lock);
        Orphans orphans GUARDED_BY(lock);
        host::Condition loaded;
    };

    static constexpr uint32_t kNameLocks = 512;
    static constexpr uint32_t kCountLocks = 256;
    struct alignas(64) NameLock {
        host::Mutex mutex{host::LockClass::entry_name};
    };
    struct alignas(64) CountLock {
        host::Mutex mutex{host::LockClass::directory_count};
    };

    static constexpr uint32_t kProcessors = 16;  // more of them share
    static constexpr uint32_t kPinsAtHand = 32;  // of each
    struct alignas(64) PinsAtHand {
        PinAtHand pins[kPinsAtHand];
    };
    // Apart from the table itself: the file system that has the table as a member has a virtual destructor, and so
    // cannot have members whose alignment is that of a cache line.
    struct Tables {
        Shard shards[kShards];
        PinsAtHand pins_at_hand[kProcessors];
        NameLock name_locks[kNameLocks];
        CountLock count_locks[kCountLocks];
    };

    Result<void> list_references(Shard& shard, vfs::NodeSink& sink);
    Result<ObjectPin> get_counted(uint64_t node);
    PinAtHand& pin_at_hand(uint32_t processor, uint64_t node);
    PinAtHand& my_pin_at_hand(uint64_t node) {
        return pin_at_hand(host::concurrency_hint() % kProcessors, node);
    }
    // After a miss: keeps the object at hand when it was missed the last time, too.
    ObjectPin keep_at_hand(PinAtHand& place, ObjectPin pin);
    // Takes the pins on `object` away from processors that do not use them now, or all of all objects.
    void recall_pins(Object* object);
    void recall_all_pins();

    // Pinned once, and not in the table yet; nullptr when there is no memory.
    Object* make(uint64_t node);
    Shard& shard_of(uint64_t node);
    Object** find(Shard& shard, uint64_t node) REQUIRES(shard.lock);
    void link(Shard& shard, Object* object) REQUIRES(shard.lock);
    void unlink(Shard& shard, Object* object) REQUIRES(shard.lock);
    void evict(Shard& shard) REQUIRES(shard.lock);
    // Looks at the next object; true when it has been dropped.
    bool evict_next(Shard& shard) REQUIRES(shard.lock);
    void destroy(Object* object);
    Result<ObjectPin> wait_until_loaded(Shard& shard, Object* object) REQUIRES(shard.lock);
    Result<void> load(Object& object);
    void enqueue(Shard& shard, Object* object) REQUIRES(shard.lock);

    Volume& volume_;
    uint32_t maximum_per_shard_;
    uint32_t bucket_bits_ = 0;
    Tables* tables_ = nullptr;  // from start() on

    host::Mutex queue_lock_{host::LockClass::leaf};
    Object* queue_head_ GUARDED_BY(queue_lock_) = nullptr;
    Object* queue_tail_ GUARDED_BY(queue_lock_) = nullptr;
    std::atomic<uint64_t> queued_count_{0};
    std::atomic<bool> queue_overflow_{false};
};

// Timestamps between memory and disk.
inline void set_time(DiskTime& time, vfs::Timestamp value) {
    time.seconds = value.seconds;
    time.nanoseconds = value.nanoseconds;
}
inline vfs::Timestamp from_disk(const DiskTime& time) { return {time.seconds, time.nanoseconds}; }

inline void count_change(InodeValue& inode) {
    const uint64_t next = change_counter(inode) + 1;
    inode.modification_time.extra = static_cast<uint32_t>(next);
    inode.change_time.extra = static_cast<uint32_t>(next >> 32);
}
inline void set_change_time(InodeValue& inode, vfs::Timestamp time) {
    set_time(inode.change_time, time);
    count_change(inode);
}

// True when an inode read from the device can be used: nothing in it leads to an overflow, an endless
// loop or an object without a type.
bool check_inode(uint64_t node, const InodeValue& inode);

// The inode of an object as it is now.
InodeValue inode_of(const Object& object) REQUIRES_SHARED(object.state);

// What hosts see of an inode.
//   - A directory's size is 32 bytes for each entry, "." and ".." included: never zero, which some
//     programs take for "empty", and people see how full it is.
//   - Inline data counts as allocated, in units of 512 bytes: programs that archive sparse files
//     take a file without blocks for one big hole.
vfs::Attributes attributes_of(const Object& object) REQUIRES_SHARED(object.state);

}  // namespace tiffin::tiffinfs
