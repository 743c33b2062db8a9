// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffinfs behind the contract. The operations are implemented in operations_*.cc, by group.
#pragma once

#include <atomic>
#include <cstdint>

#include "fs/tiffinfs/objects/data_scratch_pool.h"
#include "fs/tiffinfs/objects/object.h"
#include "fs/tiffinfs/tiffinfs.h"
#include "fs/tiffinfs/volume/volume.h"
#include "fs/vfs/file_system.h"

namespace tiffin::tiffinfs {

class TiffinFileSystem final : public vfs::FileSystem, private SpaceReclaimer {
  public:
    // Takes over `volume`.
    TiffinFileSystem(Volume* volume, const MountOptions& options);
    ~TiffinFileSystem() override;
    // After construction: loads the root and starts the reclaim thread, which goes on with the intents
    // and orphans that it finds.
    Result<void> start();

    // operations_life.cc
    Result<void> unmount() override;
    Result<vfs::FileSystemStatistics> statistics() override;
    Result<void> sync(bool wait) override;
    Result<void> remount(bool read_only) override;
    Result<void> freeze() override;
    Result<void> thaw() override;
    uint64_t reclaimable_bytes() override;
    uint64_t shrink(uint64_t wanted_bytes) override;
    Result<void> shutdown(vfs::ShutdownMode mode) override;
    Result<void> describe(vfs::ByteSink& sink) override;

    // operations_lookup.cc
    Result<vfs::Attributes> lookup(vfs::NodeId parent, vfs::Name name) override;
    void forget(vfs::NodeId node, uint64_t count) override;
    Result<void> list_references(vfs::NodeSink& sink) override;
    Result<vfs::Attributes> find_node(vfs::NodeId node, uint64_t generation) override;
    Result<void> read_directory(vfs::NodeId node, vfs::Handle handle, uint64_t cookie,
                                bool with_attributes, vfs::DirectorySink& sink) override;

    // operations_attributes.cc
    Result<vfs::Attributes> get_attributes(vfs::NodeId node) override;
    Result<vfs::Attributes> set_attributes(const vfs::Caller& caller, vfs::NodeId node,
                                           const vfs::AttributeChange& change) override;
    Result<void> set_flags(const vfs::Caller& caller, vfs::NodeId node, uint32_t flags) override;

    // operations_create.cc, operations_link.cc, operations_symlink.cc (read_link)
    Result<vfs::Attributes> create(const vfs::Caller& caller, vfs::NodeId parent, vfs::Name name,
                                   uint32_t mode, uint32_t device_major, uint32_t device_minor,
                                   Span<const vfs::InitialXattr> xattrs) override;
    Result<vfs::Attributes> make_directory(const vfs::Caller& caller, vfs::NodeId parent,
                                           vfs::Name name, uint32_t mode,
                                           Span<const vfs::InitialXattr> xattrs) override;
    Result<vfs::Attributes> make_symlink(const vfs::Caller& caller, vfs::NodeId parent,
                                         vfs::Name name, vfs::Name target,
                                         Span<const vfs::InitialXattr> xattrs) override;
    Result<vfs::Attributes> make_temporary(const vfs::Caller& caller, vfs::NodeId parent,
                                           uint32_t mode,
                                           Span<const vfs::InitialXattr> xattrs) override;
    Result<vfs::Attributes> link(const vfs::Caller& caller, vfs::NodeId node,
                                 vfs::NodeId new_parent, vfs::Name new_name) override;
    Result<size_t> read_link(vfs::NodeId node, MutableByteSpan buffer) override;

    // operations_remove.cc, operations_rename.cc
    Result<void> unlink(const vfs::Caller& caller, vfs::NodeId parent, vfs::Name name) override;
    Result<void> remove_directory(const vfs::Caller& caller, vfs::NodeId parent,
                                  vfs::Name name) override;
    Result<void> rename(const vfs::Caller& caller, vfs::NodeId parent, vfs::Name name,
                        vfs::NodeId new_parent, vfs::Name new_name, uint32_t flags) override;

    // operations_xattr.cc
    Result<size_t> get_xattr(vfs::NodeId node, vfs::Name name, MutableByteSpan buffer) override;
    Result<void> set_xattr(const vfs::Caller& caller, vfs::NodeId node, vfs::Name name,
                           ByteSpan value, uint32_t flags) override;
    Result<size_t> list_xattr(vfs::NodeId node, MutableByteSpan buffer) override;
    Result<void> remove_xattr(const vfs::Caller& caller, vfs::NodeId node, vfs::Name name) override;

    // operations_read.cc
    vfs::BlockDevice* device() override;
    Result<void> map_read(vfs::NodeId node, uint64_t offset_bytes, uint64_t length_bytes,
                          vfs::ReadMapping& mapping) override;
    Result<void> verify_read(const vfs::ReadMapping& mapping, uint32_t segment_index,
                             Span<const vfs::IoVector> buffers, bool reports_damage) override;
    void release_read(vfs::ReadMapping& mapping) override;
    void note_read(vfs::NodeId node) override;
    Result<uint64_t> seek(vfs::NodeId node, uint64_t offset_bytes, vfs::SeekTarget target) override;

    // operations_write.cc
    Result<void> begin_write(vfs::NodeId node, uint64_t offset_bytes, uint64_t length_bytes,
                             uint32_t flags, vfs::WriteGrant& grant) override;
    Result<void> grant_write(vfs::WriteGrant& grant, uint64_t offset_bytes) override;
    Result<uint64_t> commit_write(vfs::WriteGrant& grant, Span<const uint32_t> checksums,
                                  ByteSpan content) override;
    Result<void> end_write(vfs::WriteGrant& grant) override;
    Result<void> fsync(vfs::NodeId node, bool data_only) override;

    // operations_copy.cc
    Result<uint64_t> copy_range(vfs::NodeId source, uint64_t source_offset_bytes,
                                vfs::NodeId destination, uint64_t destination_offset_bytes,
                                uint64_t length_bytes) override;

    // operations_allocate.cc
    Result<void> allocate(vfs::NodeId node, uint32_t mode, uint64_t offset_bytes,
                          uint64_t length_bytes) override;
    Result<void> promise(uint64_t block_count) override;
    void return_promise(uint64_t block_count) override;
    Result<void> reserve(vfs::NodeId node, uint64_t offset_bytes, uint64_t length_bytes) override;

    // operations_maintenance.cc
    Result<uint64_t> trim(uint64_t offset_bytes, uint64_t length_bytes,
                          uint64_t minimum_bytes) override;
    Result<void> scrub(vfs::ScrubProgress& progress) override;
    Result<vfs::Growth> grow() override;

    // ---- Between the groups -------------------------------------------------------------------
    // Claims blocks [first_block, end_block) of an object for a change of its data or map: all of them while the content
    // is in the inode, or where an intent has to be finished first, which this does. Errors: those of that; then nothing
    // is claimed.
    Result<void> claim_blocks(Object& object, uint64_t first_block, uint64_t end_block,
                              RangeClaim& claim);
    // Changes the size of a regular file; the blocks from the smaller of both sizes on are claimed, and `object.state` is
    // held exclusively. Stages what can be done in one transaction together with the inode `new_inode` (size,
    // times and mode already set by the caller; the allocated block count is set here), commits, and
    // leaves an intent for what is left, which it goes on with before it returns. Updates object.inode.
    // Durable in order, atomic to readers.
    Result<void> change_size(Object& object, const InodeValue& new_inode, uint64_t new_size_bytes)
        REQUIRES(object.claims, object.state);
    // Frees a bounded part of what a deleted object still maps: data blocks first,
    // then other keys except inode and orphan keys; returns true when nothing is left.
    Result<bool> free_some_data(Object& object) REQUIRES(object.state);
    // Erases a deleted object that has few keys and maps no blocks, as most have, in one transaction: all
    // its keys, inode and orphan key among them. False: it has more, or there is no space for that.
    Result<bool> erase_small_object(Object& object) REQUIRES(object.state);
    // Goes on with an intent found in the tree, to its end.
    Result<void> resume_intent(uint64_t node, const IntentValue& intent);
    // Clears set-user-id, set-group-id and, when the inode says that there are any,
    // file capabilities, in `inode` and staged in `transaction` (one scattered change at most).
    Result<void> stage_kill_privileges(Object& object, InodeValue& inode, Transaction& transaction)
        REQUIRES(object.state);
    // After a commit, without locks, so that threads share one: makes it durable under -o sync.
    Result<void> finish(uint64_t ticket);

    Volume& volume() { return *volume_; }
    ObjectTable& objects() { return objects_; }
    const MountOptions& options() const { return options_; }
    DataScratchPool& data_scratch() { return data_scratch_; }

  private:
    // ---- Deleting what has no links (reclaim.cc) ----
    // SpaceReclaimer: lets the reclaim thread run through its queue and waits for it (bounded). The
    // caller may hold locks of objects.
    void reclaim_now() override;
    void look_for_leftovers() EXCLUDES(reclaim_lock_);
    static void reclaim_main(void* file_system);
    void reclaim_loop();
    // Wakes the reclaim thread when something waits for it.
    void wake_reclaim();
    void stop_reclaim();
    bool reclaim_stopping();
    bool reclaim_is_idle() REQUIRES(reclaim_lock_);
    void wait_for_forget(const ObjectTable::Orphans& orphans) REQUIRES(reclaim_lock_);

    enum class PassResult : uint8_t {
        done,     // nothing waits any more
        later,    // something could not be deleted now: in use, or no memory
        refused,  // read-only, stopped or shut down
    };
    // Deletes everything that waits. With `to_the_end` also while the thread is being stopped.
    PassResult reclaim_pass(bool to_the_end);
    PassResult reclaim_queue(bool to_the_end);
    PassResult reclaim_leftovers(bool to_the_end);
    // Goes on with the intents and deletes the orphans that an earlier mount has left, or that the
    // queue had no room for.
    Result<void> resume_intents();
    Result<PassResult> reclaim_orphans(bool to_the_end);
    Result<void> queue_orphan(uint64_t node);
    Result<void> reclaim_object(Object& object, bool to_the_end);
    Result<bool> reclaim_step(Object& object) REQUIRES(object.state);

    Volume* volume_;
    MountOptions options_;
    enum class Frozen : uint8_t { no, yes, was_read_only };
    Frozen frozen_ = Frozen::no;  // hosts freeze and thaw one at a time
    uint64_t errors_before_freeze_ = 0;
    ObjectTable objects_;
    DataScratchPool data_scratch_;
    // Cross-directory renames of directories: keeps two of them from making a loop.
    host::Mutex rename_lock_{host::LockClass::rename};

    host::Mutex reclaim_lock_{host::LockClass::leaf};
    host::Condition reclaim_wake_;
    bool reclaim_stopping_ GUARDED_BY(reclaim_lock_) = false;
    bool reclaim_pending_ GUARDED_BY(reclaim_lock_) =
        false;  // the thread is awake, or will be soon
    bool reclaim_lingers_ GUARDED_BY(reclaim_lock_) =
        false;                                 // it has nothing to do, and looks again soon
    std::atomic<uint64_t> reclaim_steps_{0};   // done so far
    std::atomic<bool> leftovers_done_{false};  // nothing is known to be left in the tree
    // ObjectTable::Orphans::so_far when that was waited for, and until when.
    uint64_t orphans_waited_for_ GUARDED_BY(reclaim_lock_) = 0;
    uint64_t forget_wait_end_ns_ GUARDED_BY(reclaim_lock_) = 0;
    host::Thread reclaim_thread_;
};

}  // namespace tiffin::tiffinfs
