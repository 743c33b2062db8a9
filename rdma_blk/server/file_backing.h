// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Flushed content in a file or on a disk: libaio, past the page cache. A flush copies what it is about to aligned
// buffers, writes them in place, and syncs; nothing is written without one. docs/remote.md, "tiffind", says
// what a power failure leaves.
#pragma once

#include <libaio.h>

#include <atomic>
#include <deque>
#include <memory>
#include <string>

#include "rdma_blk/server/volume.h"

namespace tiffin::rdma_blk {

class FileBacking final : public BackingStore, public Flusher {
  public:
    // Opens the file or disk. For a new volume a file is made, except below /dev, or made larger, so that
    // size_bytes fit; one with other content than `content` says, or another user, is refused unchanged. That of an
    // earlier volume must be there with at least that size: what is missing is never replaced by zeros. It is
    // locked: no two volumes share one. `problem` says what was wrong. Errors: those of the system; ebusy,
    // eexist (other content), enoent, enospc.
    static Result<std::shared_ptr<FileBacking>> open(const std::string& path, uint64_t size_bytes,
                                                     BackingContent content, std::string& problem);
    ~FileBacking() override;

    // Removes a file that open() has made: there will be no volume after all.
    void discard_new_file();
    // For resizing. Errors: enospc, eio.
    Result<void> provide(uint64_t size_bytes);
    // All of the file or disk, of which the volume may have less. Errors: eio.
    Result<uint64_t> present_bytes() const;
    // The volume must live until stop(). Errors: those of the system.
    Result<void> start_thread(Volume& volume);
    // Flushes that are not done by then have no answer: neither done nor failed, they are done again by a later server.
    void stop();
    // After stop(): all of the memory, which nobody changes. Errors: eio.
    Result<void> flush_all(uint64_t size_bytes);

    uint32_t write_unit_bytes() const override { return write_unit_bytes_; }
    Result<void> read(unsigned char* memory, uint64_t begin, uint64_t end) override;
    void start(FlushJob job) override;

  private:
    static constexpr size_t kBufferBytes = size_t{256} * 1024;
    static constexpr size_t kBufferCount = 8;

    FileBacking() = default;
    // Of one that was there before its volume.
    Result<void> check_found(const std::string& path, BackingContent content,
                             std::string& problem) const;
    void run();
    Result<void> flush(const FlushJob& job);
    Result<void> finish_writing(Result<void> result);
    // `session`: nothing of it is applied while it is copied; nullptr: nobody changes the memory.
    Result<void> write_range(VolumeSession* session, uint64_t begin, uint64_t end);
    Result<void> reap(size_t least);

    UniqueDescriptor file_;
    std::string new_path_;  // of a file that open() has made
    bool is_disk_ = false;
    uint32_t write_unit_bytes_ = 512;
    Volume* volume_ = nullptr;
    io_context_t context_ = nullptr;
    unsigned char* buffers_ = nullptr;
    iocb requests_[kBufferCount] = {};
    size_t free_[kBufferCount] = {};  // the first free_count_ are the numbers of free buffers
    size_t free_count_ = 0;
    bool failed_ = false;

    host::Thread thread_;
    host::Mutex mutex_{host::LockClass::leaf};
    host::Condition changed_;
    std::deque<FlushJob> queue_ GUARDED_BY(mutex_);
    std::atomic<bool> stopping_{false};  // set with mutex_; flushes under way end
};

}  // namespace tiffin::rdma_blk
