// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The contract between a file system and the host that mounts it: what a file system implements.
//
// A host (FUSE daemon, kernel module, test) owns the objects, translates its own requests to these
// calls and back, and provides the services of host.h. A file system derives from FileSystem, takes
// a BlockDevice (or nothing), and never calls back up. Everything a file system author needs is in
// this header and in types.h; fs/hello is the smallest example and docs/tutorial.md walks through
// it.
//
// What to implement. Pure virtual is what every file system has: mounting, lookup, attributes,
// directories. To show content, read(), or device(), map_read() and verify_read(). To change
// content, also write(), set_attributes() (hosts truncate with it) and fsync(). All else as it is
// wanted: the defaults say "not supported" (eopnotsupp, or what is said at the operation), never
// success. What is implemented is implemented whole: an attribute or flag that is not kept is
// refused.
//
// Threading. Every operation may be called by many threads at once; the file system synchronises
// itself. Operations may sleep, and are never called from interrupt context. Host objects that are
// handed in (sinks) may wait for the host's memory, so they are called without any lock.
//
// Permissions. The host has checked them (mode bits, ACLs, sticky directories, capabilities) before
// it calls. What only the file system knows it checks itself: immutable and append-only flags,
// read-only state, limits.
//
// Names. The host passes names of at least one byte, without '/' and NUL and of any length; the
// file system answers enametoolong beyond its limit. "." and ".." reach lookup() only.
//
// Memory. Spans and names are valid during the call only. Buffers are pinned: the file system may
// hand them to the device. The same code runs on kernel stacks: a frame stays below 1 KiB, and what
// is larger (KiB of scratch space, a ReadMapping) lives on the heap or in the object.
//
// Failure. An operation that fails changes nothing: all memory and space it can need is reserved
// before its first change. Any operation may fail with eio (the device), euclean (damaged
// metadata), enomem, and every changing operation with erofs (mounted so, or turned so by errors);
// they are not listed again. A NodeId that does not exist gives estale. forget(), release() and
// release_read() cannot fail.
//
// What hosts cache. A host takes every change to come through itself, so it may keep names,
// attributes and content for as long as it likes. Content that changes by itself is not for it.
//
// Operations are grouped in the order of a mount's life.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/vfs/block_device.h"
#include "fs/vfs/host.h"
#include "fs/vfs/result.h"
#include "fs/vfs/span.h"
#include "fs/vfs/types.h"

namespace tiffin::vfs {

class FileSystem {
  public:
    virtual ~FileSystem() = default;

    // ---- 1. Mounting and unmounting ----------------------------------------------------------
    // A file system is mounted by its own factory (for example tiffinfs::mount), which returns it
    // ready for use; the host that called it also calls unmount() once, and then the factory's
    // counterpart (tiffinfs::destroy).

    // Completes all work, makes everything durable and releases the device. No operation runs or
    // follows; references that the host still holds count as given back. Errors: eio, when
    // something acknowledged could not be kept; the object must still be destroyed.
    virtual Result<void> unmount() = 0;

    virtual Result<FileSystemStatistics> statistics() = 0;

    // Makes every change that was completed before the call durable (syncfs). With `wait` false it
    // only starts the work.
    virtual Result<void> sync(bool wait) = 0;

    // Changes mount options while mounted: only the switch between read-only and read-write. One call
    // at a time. Errors: erofs (it cannot be written, or damage was met), ebusy (others read it).
    virtual Result<void> remount(bool read_only);

    // Makes everything durable and leaves the device as if unmounted, so that a copy of it (a snapshot of the block
    // layer) can be mounted anywhere; nothing is written until thaw(). The host keeps changing operations back meanwhile;
    // one that comes all the same gives erofs. forget() may come. Nothing happens to what is mounted read-only. Errors:
    // eopnotsupp (the default), ebusy (frozen already); after an error it is not frozen.
    virtual Result<void> freeze();
    // Errors: einval (not frozen); enomem: it is still frozen; others: it is not, and stays read-only.
    virtual Result<void> thaw();

    // Unused content of caches, in bytes, as far as it can be counted without waiting for locks.
    virtual uint64_t reclaimable_bytes();
    // Gives about `wanted_bytes` of that back to the host, and returns how many. Waits for nothing and allocates nothing:
    // a kernel calls it when memory is short, from any thread that allocates.
    virtual uint64_t shrink(uint64_t wanted_bytes);

    // ---- 2. Nodes: finding them and letting go -----------------------------------------------
    // Every successful lookup(), find_node() and operation of group 4 that returns a node adds one
    // reference to it, and so does every entry that a read_directory() with attributes hands over;
    // forget() takes `count` of them back. The host names only nodes that it has a reference to (or
    // whose number it has guessed: then the result is unspecified but must be safe). References are all
    // that keeps an open file: an object whose last link is gone lives on until its references are.
    // The root needs no reference.

    // Finds `name` in directory `parent`; also "." and ".." (of the root: the root). Errors:
    // enoent, enotdir, enametoolong.
    virtual Result<Attributes> lookup(NodeId parent, Name name) = 0;

    // Drops references. Never fails, does no I/O (a kernel calls it under memory pressure): what
    // is left to do is queued.
    virtual void forget(NodeId node, uint64_t count) = 0;

    // Hands over all nodes but the root that the host has references to: for a host whose caches must not be used any
    // more. What is found or forgotten meanwhile may be missing. Errors: enomem (some are missing), eopnotsupp.
    virtual Result<void> list_references(NodeSink& sink);

    // Finds a node by identity, for exported file handles. Any generation matches when
    // `generation` is 0. Errors: estale (the default: no handles).
    virtual Result<Attributes> find_node(NodeId node, uint64_t generation);

    // ---- 3. Attributes -----------------------------------------------------------------------

    virtual Result<Attributes> get_attributes(NodeId node) = 0;

    // Applies all of `change` and returns the attributes after it. A size beyond the end makes a
    // hole; a smaller one frees what is behind it, and what is read there later is zeros. Ownership
    // changes clear set-user-id and set-group-id (of executables) and file capabilities. Sets the
    // change time to now unless `change` has one; setting the size also sets the modification time.
    // Errors: eperm (immutable, or append-only and truncating), efbig, enospc, eisdir (size of a
    // directory), einval (size of anything else), eopnotsupp (an attribute that is not kept).
    virtual Result<Attributes> set_attributes(const Caller& caller, NodeId node,
                                              const AttributeChange& change);

    // The flags that chattr shows (file_flag). Errors: eopnotsupp for unknown flags.
    virtual Result<void> set_flags(const Caller& caller, NodeId node, uint32_t flags);

    // ---- 4. Creating -------------------------------------------------------------------------
    // The type comes from the operation or from `mode`, the permissions from `mode` without the
    // caller's umask (which a default ACL of the parent replaces), the owner from the caller, the
    // group from a set-group-id parent or else from the caller. They change the parent's
    // modification and change time. All, link() too, return the node with one more reference.
    // Errors: eexist, enoent (the parent was removed), enotdir, enospc, enametoolong, emlink (too
    // many sub-directories), eperm (the parent is immutable).

    // `xattrs` are there from the beginning, or the node is not (a security module's label). Errors also: e2big (more than
    // kInitialXattrsMaximum, or kInitialXattrsMaxBytes), einval (ACLs; one name twice), and those of set_xattr().

    // A regular file, fifo, socket or device, by the type bits of `mode` (none: regular).
    virtual Result<Attributes> create(const Caller& caller, NodeId parent, Name name, uint32_t mode,
                                      uint32_t device_major, uint32_t device_minor,
                                      Span<const InitialXattr> xattrs);
    virtual Result<Attributes> make_directory(const Caller& caller, NodeId parent, Name name,
                                              uint32_t mode, Span<const InitialXattr> xattrs);
    // Errors also: enametoolong when `target` is longer than kSymlinkMaxBytes.
    virtual Result<Attributes> make_symlink(const Caller& caller, NodeId parent, Name name,
                                            Name target, Span<const InitialXattr> xattrs);
    // A regular file without a name (O_TMPFILE), link count 0; `parent` gives its defaults. It is
    // gone with its last reference unless link() has named it.
    virtual Result<Attributes> make_temporary(const Caller& caller, NodeId parent, uint32_t mode,
                                              Span<const InitialXattr> xattrs);

    // Another name for `node`. Also gives a temporary file its first name. Errors also: eperm
    // (directories, immutable or append-only files), emlink, enoent (its last link is gone).
    virtual Result<Attributes> link(const Caller& caller, NodeId node, NodeId new_parent,
                                    Name new_name);

    // Writes the target of a symlink to `buffer` and returns its length. Errors: einval (not a
    // symlink).
    virtual Result<size_t> read_link(NodeId node, MutableByteSpan buffer);

    // ---- 5. Removing and renaming ------------------------------------------------------------
    // They add and drop no references: the host forgets when it wants to.

    // Errors: enoent, enotdir, eisdir (`name` is a directory), eperm (immutable, append-only).
    virtual Result<void> unlink(const Caller& caller, NodeId parent, Name name);
    // Errors: enoent, enotdir, enotempty, einval ("."), enotempty (".."), eperm.
    virtual Result<void> remove_directory(const Caller& caller, NodeId parent, Name name);

    // Moves `name` of `parent` to `new_name` of `new_parent` in one atomic step; an existing
    // target is replaced. `flags`: rename_flag. Renaming one link of a file onto another link of
    // the same file does nothing. Errors: enoent, eexist (no_replace), enotdir, eisdir, enotempty,
    // einval (a directory into itself, unknown flags, exchange with another flag), emlink, enospc, eperm.
    virtual Result<void> rename(const Caller& caller, NodeId parent, Name name, NodeId new_parent,
                                Name new_name, uint32_t flags);

    // ---- 6. Opening --------------------------------------------------------------------------
    // Reading and writing need no open file: a node reference is enough. A file system that wants
    // state for each open file overrides these; what open() returns then comes back as `handle`.
    // The default enosys tells the host never to ask again, and every handle is 0. Hosts need not
    // open directories (FUSE does not), so read_directory() works with handle 0 in any case.

    virtual Result<Handle> open(NodeId node, uint32_t open_flags);
    virtual void release(NodeId node, Handle handle);

    // ---- 7. File data: whole requests --------------------------------------------------------

    // For file systems that make their content up. Where there is a device, the defaults go the lower path, with
    // ContentReader and ContentWriter; hosts that keep such an object themselves call those.

    // Reads into `buffers` from `offset_bytes`; returns the bytes read, fewer than they hold only
    // at end of file, 0 at and beyond it. Errors: eisdir, einval (not a regular file), eio (also a
    // wrong checksum: never wrong data).
    virtual Result<size_t> read(NodeId node, Handle handle, uint64_t offset_bytes,
                                Span<const IoVector> buffers);

    // Writes all of `buffers`; returns the bytes written, fewer only when an error came after some.
    // What lies between the old end and `offset_bytes` reads as zeros. `flags`: write_flag, all of
    // which count; unless `keep_times`, sets modification and change times. Errors: enospc, efbig,
    // eisdir, einval (not a regular file), eperm (immutable, or append-only and not at the end).
    //
    // With `write_back` the answer is never short: hosts' caches know only pages that were written and
    // pages that were not. An error says that at least one block was not written; every other block
    // that could be has been, those behind the failed one too. A cache that writes back holds a program's
    // only copy, so the file system first does what it can: makes room, uses space that it refuses
    // to other changes, and waits a bounded time for memory.
    virtual Result<size_t> write(NodeId node, Handle handle, uint64_t offset_bytes,
                                 Span<const IoVector> buffers, uint32_t flags);

    // Everything done to `node` (a directory too) before the call, and what is needed to find it,
    // is durable when it returns. With `data_only`, attributes that are not needed to read it back
    // may be left out.
    virtual Result<void> fsync(NodeId node, bool data_only);

    // fallocate; `mode` is a set of allocate_flag. Errors: enospc, efbig, einval (alignment of
    // collapse and insert, ranges at or beyond the end), eopnotsupp (unknown mode), eperm
    // (immutable; append-only for all but plain allocation), enodev (not a regular file), eio, enomem.
    //
    // After an error the size is as before, and so is every byte outside of the range. Inside of it,
    // blocks may have been allocated or, with punch_hole, freed; with punch_hole and zero_range some
    // bytes may read as zeros already, and modification and change times have moved if any do. With
    // plain allocation, collapse_range and insert_range content and times are as before. These two
    // happen at once or not at all: they succeed as soon as their outcome is certain, even if a failure
    // delays some of the work. A later access that needs that work repeats it, and answers its error.
    virtual Result<void> allocate(NodeId node, uint32_t mode, uint64_t offset_bytes,
                                  uint64_t length_bytes);

    // The first byte of data, or of a hole, at or after `offset_bytes`; the end of file counts as a
    // hole. Errors: enxio (at or beyond the end, or no data there).
    virtual Result<uint64_t> seek(NodeId node, uint64_t offset_bytes, SeekTarget target);

    // Copies inside the file system; returns the bytes copied, fewer at the source's end of file.
    // Errors: einval (overlapping ranges of one file), enospc, eperm.
    virtual Result<uint64_t> copy_range(NodeId source, uint64_t source_offset_bytes,
                                        NodeId destination, uint64_t destination_offset_bytes,
                                        uint64_t length_bytes);

    // ---- 8. File data: the lower path --------------------------------------------------------
    // For hosts that start, overlap and complete I/O themselves (readahead, writepages, zero-copy
    // replies). A file system without a device leaves all of it out. Offsets and lengths are
    // multiples of kBlockBytes (map_read() rounds outwards); only segments of content that is in
    // memory end anywhere.
    //
    // Reading: map_read -> the host reads the device segments -> verify_read each -> release_read.
    // Writing: begin_write -> (grant_write -> the host writes the segments -> commit_write) for one part after the
    // other -> end_write.
    // ContentReader and ContentWriter do this, waiting or not, for all hosts. Several may be under way at once, of one
    // file too, and each may go on on another thread than it began on; a completion handler must not call any of these.
    // After map_read() or begin_write() has failed there is nothing to give back.

    // The device the segments refer to; nullptr when the file system has none.
    virtual BlockDevice* device();

    // Where [offset, offset + length) is, as far as `mapping` can hold it (the host goes on from
    // mapping.offset_bytes + mapping.length_bytes). The segments follow each other without a gap;
    // the last block may reach beyond mapping.file_size_bytes, where it reads as zeros. The blocks
    // are not reused before release_read(). At or beyond the end of file: length_bytes 0, still to
    // be released (mapping.includes_behind_end: only where a file can have no blocks). Errors: eisdir, einval (not a regular
    // file), eio (the first block is lost: mapping.file_size_bytes is set then, or the map cannot be read). A thread that has a mapping
    // must not wait for an operation that needs space: it may wait for all mappings. So where map_read() would have to, and
    // mapping.follows_another: eagain, and the caller releases what it has and begins anew.
    virtual Result<void> map_read(NodeId node, uint64_t offset_bytes, uint64_t length_bytes,
                                  ReadMapping& mapping);
    // Checks what was read from device segment `segment_index`. Errors: eio; when `reports_damage`, with a log line that
    // says what is wrong and where. Memory that a program can change meanwhile says nothing about the device: what fails
    // there is read again into memory of the host's, and reported only when it fails again.
    virtual Result<void> verify_read(const ReadMapping& mapping, uint32_t segment_index,
                                     Span<const IoVector> buffers, bool reports_damage);
    virtual void release_read(ReadMapping& mapping);
    // A program is about to read `node` through mappings, of which the calling thread holds none yet:
    // moves its access time as read() would. For hosts that keep no access times of their own. Failures
    // are ignored.
    virtual void note_read(NodeId node);

    // Claims [offset, offset + length) of the file, in whole blocks, for a write: waits until all writes, truncations and
    // allocations that were begun before and touch one of these blocks have ended, and keeps later ones out; readers are
    // not. Writes of disjoint ranges go on together. A small file is claimed as a whole.
    //
    // What a claim waits for is ended by the device's progress and by the thread that commits. So a thread whose own
    // writes of this file are under way, and are committed by no other, must not begin another one of it, not even of a
    // disjoint range: it would wait behind a truncation that waits for the first. A thread that has mappings must not
    // begin one either. `flags`: write_flag. Errors: those of write().
    virtual Result<void> begin_write(NodeId node, uint64_t offset_bytes, uint64_t length_bytes,
                                     uint32_t flags, WriteGrant& grant);
    // Room for a part of the claimed range, which begins at `offset_bytes` (any byte of it) and may end before the range
    // does; see WriteGrant. What an earlier call has granted and was not committed is given back. Nothing is visible
    // before commit_write(). Makes room where there is none. Errors: enospc, efbig, eio (a block of which only a part is
    // written is lost), enomem; after them the next part may be tried.
    virtual Result<void> grant_write(WriteGrant& grant, uint64_t offset_bytes);
    // Makes the written blocks the content of the file. `checksums`: the CRC32C of each block as it was written, taken
    // over memory that did not change meanwhile; where the grant takes content, `content` has its bytes instead. Returns
    // how many bytes were committed: on a full volume fewer than were granted. The file grows to their end, if that is
    // behind its own. The part is used up, also after an error. Errors: enospc: with write_flag::write_back, grant_write()
    // of the same part waits for what other writes hold, so that it is worth trying again.
    virtual Result<uint64_t> commit_write(WriteGrant& grant, Span<const uint32_t> checksums,
                                          ByteSpan content);
    // Gives up the claim, and what was granted and not committed; with write_flag::synchronous, makes durable what was
    // committed. Errors: eio (not durable); the write has ended all the same.
    virtual Result<void> end_write(WriteGrant& grant);

    // Promises room for `block_count` blocks that a host is about to hold in its cache, and for the metadata that writing
    // them back may take (delayed allocation): that write-back, with write_flag::promised, does not fail for want of
    // space. It costs a count in memory, so a host asks for each block that becomes dirty, before it locks the page, and
    // need not know what the file has there. The promise of all blocks of a write is used up by end_write(), also after
    // an error. Counts as used space in statistics(). Errors: enospc: the host writes back, which often makes room, and
    // asks again; then it asks for the range with reserve().
    virtual Result<void> promise(uint64_t block_count);
    // Takes the promise of blocks back that will not be written: the file was truncated, or nothing came of the write.
    virtual void return_promise(uint64_t block_count);
    // The same, on the device: allocates what the file has not got in the range, as allocate() does without changing the
    // size. On a full volume it still answers success for blocks that the file has: they can always be overwritten.
    virtual Result<void> reserve(NodeId node, uint64_t offset_bytes, uint64_t length_bytes);

    // ---- 9. Directories ----------------------------------------------------------------------

    // Hands entries from `cookie` on (0: the start) to `sink`, "." and ".." first, until it is full
    // or the directory ends, which is when it returns without having been refused. Each entry says
    // at which cookie reading goes on behind it. A cookie stays valid whatever is created or
    // removed; an entry that exists the whole time is seen exactly once. With `with_attributes`
    // each entry carries attributes and each entry that the sink takes, but "." and "..", adds a
    // reference to its node: no other thread must be able to delete it between. A removed directory
    // that is still referenced has no entries. Errors: enotdir; only when nothing was handed over.
    virtual Result<void> read_directory(NodeId node, Handle handle, uint64_t cookie,
                                        bool with_attributes, DirectorySink& sink) = 0;

    // ---- 10. Extended attributes -------------------------------------------------------------
    // Names carry their prefix ("user.", "trusted.", "security.", and "system.posix_acl_access" and
    // "system.posix_acl_default" for ACLs in the Linux layout, which the file system keeps in step
    // with the mode).

    // Copies the value to `buffer` and returns its size; an empty buffer only asks for the size.
    // Errors: enodata (no such attribute), erange (buffer too small), eopnotsupp (prefix).
    virtual Result<size_t> get_xattr(NodeId node, Name name, MutableByteSpan buffer);
    // Errors: eexist, enodata (flags), enospc, e2big, erange (name), eopnotsupp, einval (ACL).
    virtual Result<void> set_xattr(const Caller& caller, NodeId node, Name name, ByteSpan value,
                                   uint32_t flags);
    // The names, each ended by NUL; returns the size. Errors: erange.
    virtual Result<size_t> list_xattr(NodeId node, MutableByteSpan buffer);
    // Errors: enodata.
    virtual Result<void> remove_xattr(const Caller& caller, NodeId node, Name name);

    // ---- 11. Control and maintenance ---------------------------------------------------------

    // Tells the device which ranges of at least `minimum_bytes` are free (fstrim); returns the
    // bytes discarded. The range is one of the device. Errors: einval (beyond it, or
    // less than a block), eopnotsupp.
    virtual Result<uint64_t> trim(uint64_t offset_bytes, uint64_t length_bytes,
                                  uint64_t minimum_bytes);
    // Stops the file system at once (FS_IOC_SHUTDOWN): afterwards every operation gives eio.
    virtual Result<void> shutdown(ShutdownMode mode);
    // Reads and verifies a bounded part of everything stored, and moves `progress` on; the host
    // calls until it is finished. Damage is logged and counted there, and is no error of the call.
    virtual Result<void> scrub(ScrubProgress& progress);
    // Takes into use what the device has gained since the volume was made. It is no error when that is nothing.
    // Errors: erofs, eio, euclean (damage stands in the way), enomem, eopnotsupp.
    virtual Result<Growth> grow();
    // What the file system says of itself, as lines "key: value" for people and tools.
    virtual Result<void> describe(ByteSink& sink);
    // Anything else. `input` and `output` sizes come from the command's number. Errors: enotty.
    virtual Result<size_t> control(NodeId node, uint32_t command, ByteSpan input,
                                   MutableByteSpan output);
};

}  // namespace tiffin::vfs
