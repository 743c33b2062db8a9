// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A mounted volume: the tree, free space and journal of one device, checkpoints, recovery, and what
// happens when something fails. It knows keys and values, not files.
#pragma once

#include <atomic>
#include <cstdint>

#include "fs/base/reader_epochs.h"
#include "fs/base/slot_pool.h"
#include "fs/base/striped_counter.h"
#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/journal/journal.h"
#include "fs/tiffinfs/space/allocator.h"
#include "fs/tiffinfs/space/damage_listener.h"
#include "fs/tiffinfs/tree/node_cache.h"
#include "fs/tiffinfs/tree/tree.h"
#include "fs/tiffinfs/volume/transaction.h"
#include "fs/tiffinfs/volume/transaction_gate.h"
#include "fs/vfs/block_device.h"
#include "fs/vfs/host.h"
#include "fs/vfs/result.h"
#include "fs/vfs/types.h"

namespace tiffin::tiffinfs {

// States an invariant where a transaction has changed nothing yet, in a function that returns a Result. If it is broken,
// the volume is shut down and the function returns eio, so that locks and references are given back, and it can be
// unmounted. TIFFIN_ASSERT, for the places where something has been changed, stops the thread or the program.
#define TIFFIN_EXPECT(volume, condition)                                           \
    do {                                                                           \
        if (!(condition) || ::tiffin::host::finds_broken_invariant()) [[unlikely]] \
            return (volume).invariant_broken(__FILE__, __LINE__, #condition);      \
    } while (false)

// What to do when damaged metadata is met.
enum class ErrorsPolicy : uint8_t { remount_read_only, continue_running };

struct VolumeOptions {
    bool read_only = false;
    // With read_only: shows what the last checkpoint wrote, without replaying the journal; for volumes
    // whose journal is damaged. Such a volume cannot become writable.
    bool no_recovery = false;
    uint64_t cache_bytes = 256U << 20;   // bounds tree nodes in memory
    uint64_t commit_interval_ms = 5000;  // what is not fsynced is durable after this; 0: a minute
    ErrorsPolicy errors = ErrorsPolicy::remount_read_only;
};

// Whether making room may wait for others: for readers that have freed blocks mapped, and for the thread
// that deletes. Both may need the state of any object, readers while they have other blocks mapped
// (vfs::FileSystem::map_read). So a thread that holds one does not wait for others.
enum class RoomWait : uint8_t { others, none };

// Work that a volume calls for but files know how to do.
class SpaceReclaimer {
  public:
    // Has everything deleted that waits to be deleted, by another thread, and waits for it while it moves on. Called
    // without a transaction open or an object's state locked, before enospc is final. What it has freed counts
    // among Allocator::deferred_blocks().
    virtual void reclaim_now() = 0;

  protected:
    ~SpaceReclaimer() = default;
};

class Volume final : private DamageListener {
  public:
    // Opens the volume on `device` (which must outlive it): finds the newest valid superblock, replays
    // the journal, raises the incarnation, and starts the maintenance thread. Errors: einval (no
    // tiffinfs here), euclean (damaged: the log says where), eopnotsupp (made by a newer version),
    // erofs (a read-only device, or `no_recovery`, while `read_only` is false), eio, enomem.
    static Result<Volume*> open(vfs::BlockDevice& device, const VolumeOptions& options);
    // Without close() before, everything not durable is lost, as in a crash.
    static void destroy(Volume* volume);
    // For open() only.
    Volume(vfs::BlockDevice& device, const VolumeOptions& options);
    ~Volume();
    Volume(const Volume&) = delete;
    Volume& operator=(const Volume&) = delete;

    // Makes everything durable, writes a clean superblock. Errors: eio, when something acknowledged
    // could not be kept.
    Result<void> close();

    vfs::BlockDevice& device() { return device_; }
    Tree& tree() { return tree_; }
    Allocator& allocator() { return allocator_; }
    Journal& journal() { return journal_; }
    NodeCache& cache() { return cache_; }
    NodePool& pool() { return pool_; }
    ReaderEpochs& readers() { return readers_; }
    // Layout and identity; the changing part is as of the mount, the size too: see total_blocks().
    const Superblock& superblock() const { return superblock_; }
    uint64_t total_blocks() const { return allocator_.total_blocks(); }
    const VolumeOptions& options() const { return options_; }

    // `count` inode numbers that have never been used; returns the first. They need not be used.
    uint64_t allocate_node_ids(uint32_t count) {
        return next_node_.fetch_add(count, std::memory_order_relaxed);
    }
    // How many inodes there are; changed by the transactions that put or erase them.
    uint64_t node_count() const { return static_cast<uint64_t>(node_count_.sum()); }

    // Makes every transaction up to `ticket` durable. Errors: eio (the journal is dead).
    Result<void> commit(uint64_t ticket);
    // Everything committed to memory so far.
    Result<void> sync() { return commit(journal_.last_ticket()); }

    // Writes the tree and starts a new generation, so that the journal can be reused. The caller is
    // not inside a transaction. Errors: eio, enomem; then the old generation stays valid.
    Result<void> checkpoint();
    // The same, unless one has been completed since counters().checkpoints was `seen`: so that threads
    // that need one at the same time do not make one each.
    Result<void> checkpoint_after(uint64_t seen);
    // Takes into use what the device has gained since the volume was made, if it is kMinimumGrowthBlocks or more. No
    // power failure leaves anything but the old or the new size. Errors: erofs; eio; euclean (damage at the old end);
    // enomem: asked again, it goes on where it stopped.
    Result<vfs::Growth> grow();
    // Frees what can be freed without deleting anything: commits, lets readers leave, checkpoints.
    // Returns true when a retry of a failed allocation is worth while; the caller gives `attempt`
    // 0, 1, 2... and stops when it returns false. Privileged callers do not wait for deletions, since they
    // delete themselves. Not inside a transaction or read epoch. With RoomWait::others the caller
    // may hold claims of files, but no lock of an object.
    bool make_room(uint32_t attempt, SpacePriority priority, RoomWait wait);

    // Runs `operation`, which returns a Result, again as long as it fails for want of space and making
    // room helps. `operation` changes nothing when it fails, or goes on where it stopped; before it
    // returns it has let go of all locks, so that others can be waited for.
    template <typename Operation>
    auto with_room(SpacePriority priority, Operation operation) -> decltype(operation()) {
        for (uint32_t attempt = 0;; ++attempt) {
            const uint64_t seen = space_refusals_.load(std::memory_order_relaxed);
            auto result = operation();
            // enospc also says that a directory or a file is full.
            if (result.ok() || result.error() != Error::enospc ||
                space_refusals_.load(std::memory_order_relaxed) == seen ||
                !make_room(attempt, priority, RoomWait::others)) [[likely]] {
                return result;
            }
        }
    }
    // Blocks have been granted to a part of a write that is under way; and they are mapped, or given back.
    void part_granted() { parts_granted_.add(1); }
    void part_ended() {
        parts_ended_.add(1);
        if (part_waiters_.load(std::memory_order_relaxed) != 0) [[unlikely]] {
            MutexLock lock(part_lock_);
            part_ended_.notify_all();
        }
    }
    int64_t parts_ended() const { return parts_ended_.sum(); }
    // Waits until a part has ended since that was `seen`, which may leave room: what it replaces, or could not use. The
    // caller has none itself, nor any lock that one could need. False: there is none, or none has ended for some seconds.
    bool wait_for_part(int64_t seen);

    // Some space was refused without a call of make_room(): see with_room().
    void note_space_refusal() { space_refusals_.fetch_add(1, std::memory_order_relaxed); }
    void set_reclaimer(SpaceReclaimer* reclaimer) { reclaimer_ = reclaimer; }

    bool read_only() const { return read_only_.load(std::memory_order_relaxed); }
    // Errors: erofs, or eio after shutdown.
    Result<void> check_writable() const;
    Result<void> check_running() const;
    Result<void> remount(bool read_only);
    // What remount(true) has made read-only becomes writable, whatever errors were seen before that, `errors_before`; with
    // errors=remount-ro those that were met since keep it read-only. Errors: enomem (may be called again); erofs, eio.
    Result<void> thaw(uint64_t errors_before);
    // How often errors were met that the errors policy applies to, or found noted on the device.
    uint64_t errors_seen() const { return errors_seen_.load(std::memory_order_relaxed); }
    // Those, or damage that can be worked around.
    bool has_errors() const {
        return errors_seen() != 0 || has_avoided_damage_.load(std::memory_order_relaxed);
    }

    // Logs "what" (and where) and applies the errors policy; returns euclean to pass on.
    Error report_damage(const char* what, uint64_t node, uint64_t detail);
    // Of TIFFIN_EXPECT: logs the invariant that is broken, shuts the volume down, and returns eio to pass on.
    Error invariant_broken(const char* file, int line, const char* condition);
    // Stops everything: operations give eio from now on, nothing more is written.
    void shut_down();
    bool is_shut_down() const { return shut_down_.load(std::memory_order_acquire); }

    // The time as files see it.
    static vfs::Timestamp now();

    struct Counters {
        StripedCounter transactions;
        std::atomic<uint64_t> checkpoints{0};
    };
    Counters& counters() { return counters_; }

  private:
    friend class Transaction;

    // DamageListener: applies the errors policy.
    void damage_met() override;
    void damage_avoided() override;

    // recovery.cc: from a superblock to a running volume.
    Result<void> start();
    Result<void> start_from(const Superblock& superblock, uint64_t generation);
    Result<void> begin_timeline();
    Result<void> become_writer();
    // `errors_before`: what errors_seen() was when it was decided; others keep the volume read-only, by the errors policy.
    Result<void> start_writing(uint64_t errors_before);
    // After an error was counted. Whether it has made the volume read-only.
    bool apply_errors_policy();
    void note_incarnation(uint64_t incarnation) {
        newest_incarnation_ = incarnation > newest_incarnation_ ? incarnation : newest_incarnation_;
    }
    Result<void> replay(const Superblock& superblock);
    Result<void> protect_journal_blocks(const Superblock& superblock, uint64_t& frames);
    Result<void> replay_frame(ByteSpan payload, TransactionWorkspace& workspace);
    Result<void> reserve_for_replay(uint32_t nodes, TransactionWorkspace& workspace);

    // checkpoint.cc
    struct Seal {
        uint64_t generation = 0;
        uint64_t ticket = 0;  // of the journal, for the last transaction inside
        TreeRoot root;
        Node* dirty = nullptr;
        uint64_t next_node = 0;
        uint64_t node_count = 0;
        void* page = nullptr;  // for the superblock
    };
    // What comes after the checkpoint.
    enum class Ending : uint8_t {
        none,       // further transactions
        read_only,  // none, from the moment of the seal on
        unmount,    // none, as no operation runs any more
    };
    Result<void> checkpoint_locked(Ending ending) REQUIRES(checkpoint_lock_);
    Result<void> seal(Seal& sealed, Ending ending) REQUIRES(checkpoint_lock_);
    // What the volume's size could be on the device as it is.
    Result<uint64_t> blocks_on_device();
    void offer_growth();
    Result<void> try_new_end(uint64_t total_blocks);
    // Makes what was sealed durable; when that fails, the volume fails.
    Result<void> write_generation(Seal& sealed, Ending ending) REQUIRES(checkpoint_lock_);
    // Writes what was sealed and then the superblock that makes it valid; `position` is where the
    // journal of the next generation begins.
    Result<void> write_sealed(const Seal& sealed, const JournalPosition& position, bool clean)
        REQUIRES(checkpoint_lock_);
    // Before the first write of a mount: makes what it started from durable and findable, and what may be newer not.
    Result<void> secure_start(void* page) REQUIRES(checkpoint_lock_);
    Result<void> write_nodes(Node* list);
    Result<void> flush_device();
    Result<void> check_still_owner() REQUIRES(checkpoint_lock_);
    void record_errors();

    // Wakes the maintenance thread when there is work for it; so much of the journal waited to be written.
    void after_commit(uint64_t pending_bytes);
    bool needs_checkpoint() const;
    // The journal or the dirty nodes are so full that a transaction must not begin, or a replay would
    // find too little space.
    bool must_checkpoint() const;
    bool memory_is_full() const;
    bool try_to_make_room(uint32_t attempt, SpacePriority priority, RoomWait wait);
    void wake_maintenance();
    // Starts its thread unless it runs.
    Result<void> start_maintenance();
    void stop_maintenance();
    static void maintenance_main(void* volume);
    void maintenance();
    // Something on the device failed: read-only from now on; acknowledged data is safe.
    void fail(const char* why);

    TransactionWorkspace* take_workspace();
    void give_back_workspace(TransactionWorkspace* workspace);

    vfs::BlockDevice& device_;
    VolumeOptions options_;
    Superblock superblock_{};
    ReaderEpochs readers_;
    Allocator allocator_;
    NodeCache cache_;
    NodePool pool_;
    Tree tree_;
    Journal journal_;

    // Every open transaction is inside; the seal closes it.
    TransactionGate gate_;
    // One checkpoint at a time; also guards the superblock on the device.
    host::Mutex checkpoint_lock_{host::LockClass::maintenance};
    // The newest durable superblock. Its journal position is kept until the next generation is
    // durable: the one before could still be needed.
    Superblock durable_ GUARDED_BY(checkpoint_lock_){};
    // The next seal is to extend the volume; it has been extended, and nothing new is in use yet.
    bool extend_at_seal_ GUARDED_BY(checkpoint_lock_) = false;
    bool is_extended_ GUARDED_BY(checkpoint_lock_) = false;
    // What was to become durable_: superblocks of it may be on the device, also where writing it has failed.
    Superblock attempted_ GUARDED_BY(checkpoint_lock_){};
    // The greatest that any superblock or frame on the device had when it was opened, or was written since: those of
    // a generation whose tree is damaged may be greater than those of the one that was chosen.
    uint64_t newest_generation_ = 0;
    uint64_t newest_incarnation_ = 0;
    // What the mount found, until secure_start() has been through: SuperblockSet::copy_generations, and where one in the
    // other slot that is newer ends; 0: there can be none.
    uint64_t found_generations_[4] GUARDED_BY(checkpoint_lock_) = {};
    uint64_t newer_end_blocks_ GUARDED_BY(checkpoint_lock_) = 0;
    bool is_secured_ GUARDED_BY(checkpoint_lock_) = false;
    // During replay there is no journal to write to yet.
    bool replaying_ = false;
    JournalPosition replay_position_;  // of the frame that is being replayed; then of its end
    uint32_t replay_rounds_ = 0;       // how often reserve_for_replay() looked for space
    uint64_t incarnation_ = 0;
    bool is_writer_ = false;  // become_writer() has succeeded

    // What changes with every operation has cache lines of its own, apart from what all of them read.
    StripedCounter node_count_;
    alignas(64) std::atomic<uint64_t> next_node_{0};
    alignas(64) std::atomic<bool> read_only_{false};
    std::atomic<bool> shut_down_{false};
    std::atomic<uint64_t> errors_seen_{0};
    std::atomic<bool> has_avoided_damage_{false};
    // It was an error that made it read-only.
    std::atomic<bool> stopped_by_error_{false};
    std::atomic<bool> taken_away_{false};  // by another mount
    std::atomic<bool> failed_{false};      // fail() has told people why
    SpaceReclaimer* reclaimer_ = nullptr;
    std::atomic<uint64_t> space_refusals_{0};
    Counters counters_;

    StripedCounter parts_granted_;
    StripedCounter parts_ended_;
    std::atomic<uint32_t> part_waiters_{0};
    host::Mutex part_lock_{host::LockClass::leaf};
    host::Condition part_ended_;

    SlotPool<TransactionWorkspace> workspaces_;

    host::Mutex maintenance_lock_{host::LockClass::leaf};
    host::Condition maintenance_wake_;
    bool stopping_ GUARDED_BY(maintenance_lock_) = false;
    std::atomic<bool> maintenance_requested_{false};
    host::Thread maintenance_thread_;
};

}  // namespace tiffin::tiffinfs
