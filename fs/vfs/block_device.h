// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Where a file system's blocks live: a disk, an image file, memory of this process, or the memory of
// other machines. The contract is asynchronous below and synchronous above (read, write).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "fs/vfs/result.h"
#include "fs/vfs/span.h"

namespace tiffin::vfs {

// What a device is; fixed while it is open, except that it may turn read-only and become larger.
struct DeviceGeometry {
    uint64_t size_bytes = 0;
    // Offsets and lengths of reads and writes are multiples of this (a power of two, at most 4096).
    // A write of one aligned unit is applied whole or not at all when power fails; larger writes may
    // be torn between units. Disks say 512 or 4096, memory 64.
    uint32_t write_unit_bytes = 512;
    // Completed writes may still be lost by a power failure until flush() has completed.
    bool volatile_cache = true;
    bool supports_discard = false;
    bool read_only = false;
};

enum class IoOperation : uint8_t { read, write, flush, discard };

// One asynchronous request. The submitter owns it and its buffers until `complete` is called, which
// happens exactly once, from any context (a kernel calls it from an interrupt handler) or from within
// submit() itself; a completion is the only way a buffer comes back. The completion must not block, so
// it takes no lock, and it must not submit: it changes atomic variables and calls
// host::Semaphore::post().
struct IoRequest {
    IoOperation operation = IoOperation::read;
    uint64_t offset_bytes = 0;
    uint64_t length_bytes = 0;  // discard only; reads and writes take it from the buffers
    // Pinned memory: never an address that can fault, and never on a stack, which in a kernel is no
    // memory that a device can reach. A file system's own buffers begin on a page (allocate_pages);
    // those of its callers pass through with the alignment they have, so a device that needs one
    // copies them.
    const IoVector* buffers = nullptr;
    size_t buffer_count = 0;
    void (*complete)(IoRequest& request, Result<void> result) = nullptr;
    void* owner = nullptr;  // for the submitter
    // The submitter submits another one at once, so a device may wait for it for a moment and start both together. It
    // starts this one in any case, at the latest with the next request that does not say so.
    bool more_follows = false;
    IoRequest* next =
        nullptr;  // for the device, from submit() to the completion: queues need no memory
};

// One of several writes that belong together; see BlockDevice::write_ordered().
struct OrderedWrite {
    uint64_t offset_bytes = 0;
    const IoVector* buffers = nullptr;
    size_t buffer_count = 0;
};

class BlockDevice {
  public:
    virtual ~BlockDevice() = default;

    // What the device is. Cheap, any thread; the reference stays valid, and need not see that the device has grown.
    virtual const DeviceGeometry& geometry() const = 0;

    // Asks how large the device is now, so that geometry() says it from now on; never less than before. For one
    // thread at a time. Errors: eio (also: it has become shorter).
    virtual Result<uint64_t> update_size() { return geometry().size_bytes; }

    // Starts a request; see IoRequest. Offsets and lengths that are no multiples of the write unit are
    // einval. Requests are not ordered among themselves: a submitter that
    // needs an order waits for the first completion. Reading what is being written gives any mix
    // of old and new units. Errors arrive in the completion: eio (also beyond the end), einval (not
    // in whole write units), erofs, eopnotsupp (discard), etimedout (the outcome of a write is unknown until the
    // connection is fenced; the device itself sees to it that the write never takes effect after that).
    virtual void submit(IoRequest& request) = 0;

    // For a thread that has requests under way and waits for one of them: where answers have to be fetched, it fetches
    // them itself, and completes those of all threads, so that no thread has to be woken for it. `count` is changed by
    // the completions of the thread's requests, `seen` what it was before the thread looked for completed ones. True:
    // it has changed. False: it may not have, as another thread does the work, or there is none; then the caller sleeps
    // until its completion wakes it, and before it does, looks once more. It may always be false.
    //
    // It sleeps, and cannot be interrupted; not to be called from a completion, or with locks that completions take.
    // As it may return while the completion that has changed `count` still runs, what the completion touches after that
    // must outlive it. A helper must call again soon while it has requests under way: other threads' requests, too,
    // may wait for it, but not for long.
    virtual bool help(const std::atomic<uint32_t>& count, uint32_t seen) {
        (void)count;
        (void)seen;
        return false;
    }

    // For a device that was opened to be read, and perhaps to be written later (a read-only mount
    // that becomes writable): takes it for this user alone. Called before the first write; a device
    // that was opened for writing answers success. Errors: erofs; ebusy (others are reading it).
    virtual Result<void> start_writing();

    // The address of [offset, offset + size) when the device's content is memory that this process
    // can read at any time (mem:, shared memory), else nullptr. It stays valid while the device is
    // open. Only for reading: all changes go through submit().
    virtual const void* direct_address(uint64_t offset_bytes, uint64_t size_bytes) {
        (void)offset_bytes;
        (void)size_bytes;
        return nullptr;
    }

    // The synchronous forms. The defaults submit and wait; devices that complete without waiting
    // override them. `offset_bytes` and the total size are multiples of the write unit.
    virtual Result<void> read(uint64_t offset_bytes, const IoVector* buffers, size_t buffer_count);
    virtual Result<void> write(uint64_t offset_bytes, const IoVector* buffers, size_t buffer_count);
    // All writes completed before this call survive a power failure once it has returned. After one that has failed,
    // what it was for may be lost even if the system below says so once only: every later flush() and write_ordered()
    // fails too, also one that runs at the same time and ends later, unless the device still has what was written.
    virtual Result<void> flush();
    // Writes `data`, in any order, and then `record`, which takes effect only if all of `data` has: a journal's
    // record, and what it names. With a volatile cache, `data` and all that was written by calls which had
    // returned are durable before the record takes effect, and the record when this returns. (A disk
    // that is asked for it with REQ_PREFLUSH and REQ_FUA does the same.) The ranges do not overlap; there is no
    // other write to them meanwhile. Errors: those of write() and flush(); after one of the record's own it may have
    // taken effect, after others it has not.
    virtual Result<void> write_ordered(Span<const OrderedWrite> data, const OrderedWrite& record);
    // Whether that takes less than its parts: the device sends all of it at once.
    virtual bool combines_ordered_writes() const { return false; }
    // Tells the device that the content of a range is no longer needed; it reads as anything after.
    virtual Result<void> discard(uint64_t offset_bytes, uint64_t length_bytes);

    // One buffer at a time, for callers with contiguous memory.
    Result<void> read(uint64_t offset_bytes, void* buffer, size_t size_bytes);
    Result<void> write(uint64_t offset_bytes, const void* buffer, size_t size_bytes);

  protected:
    // Submits `request` and sleeps until it completes.
    Result<void> submit_and_wait(IoRequest& request);
};

}  // namespace tiffin::vfs
