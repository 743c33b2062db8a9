// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Which parts of one server's data were written since they were flushed last, in chunks of 64 KiB, and
// which are being flushed or written right now. Nothing may write to what a server takes to its disk,
// or the disk would get a unit that is half of each; one-sided writes are invisible to the server, so
// it is seen to here.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "fs/vfs/host.h"
#include "fs/vfs/result.h"
#include "rdma_blk/remote_memory.h"

namespace tiffin::rdma_blk {

// begin_write() and end_write() may be called from any threads at once; end_write() also where nothing
// may block or take a lock. The functions of the flush belong to one thread at a time.
class DirtyMap {
  public:
    static constexpr uint64_t kChunkBytes = 64 << 10;

    // It can grow to so many times its size. Address space is set aside for that, no memory.
    static constexpr uint64_t kMostGrowth = 16;
    // What one round of a flush takes. Its writers wait until the disk has it, and so does a client that resumes its session.
    static constexpr uint64_t kRoundBytes = uint64_t{64} << 20;

    DirtyMap() = default;
    ~DirtyMap();
    DirtyMap(const DirtyMap&) = delete;
    DirtyMap& operator=(const DirtyMap&) = delete;

    // Nothing is dirty at first. Called once, before all else. Errors: enomem.
    Result<void> create(uint64_t size_bytes);
    // What is behind the former size is clean. By one thread at a time; others may write and flush meanwhile. Errors: efbig.
    Result<void> grow(uint64_t size_bytes);

    // All is dirty: an earlier writer may not have flushed what it wrote. Not during writes or flushes.
    void set_all_dirty();

    // Announces a write, which makes its chunks dirty. False: one of them is being flushed, so the write
    // has to wait for the end of the flush; nothing has been announced then.
    [[nodiscard]] bool begin_write(uint64_t offset_bytes, uint64_t length_bytes);
    // The write has completed, in whatever way. Once for each begin_write() that said true.
    void end_write(uint64_t offset_bytes, uint64_t length_bytes);

    // A flush is start_flush(), then rounds of take(), the flush of these ranges, and put(), until take()
    // returns 0. It comes by every chunk once, so it ends whatever is written meanwhile.
    void start_flush() { cursor_ = 0; }
    // Puts the next dirty ranges into `ranges`, ascending, at most `capacity` of them and kRoundBytes, and returns how
    // many. They are held back from writers, and those that were at it have ended.
    size_t take(ByteRange* ranges, size_t capacity);
    // Whether take() has come to the end, and will return 0.
    bool is_at_end() const { return cursor_ >= chunk_count_; }
    // Lets go of what take() has returned. Unless it was `flushed` it is dirty again.
    void put(const ByteRange* ranges, size_t count, bool flushed);

    // How much is dirty, for people. Walks through all of it.
    uint64_t dirty_bytes() const;

  private:
    static constexpr uint32_t kFlushing = uint32_t{1} << 31;

    void set_dirty(uint64_t chunk);
    // Counts one more write, unless the chunk is being flushed.
    bool add_user(uint64_t chunk);
    uint64_t chunk_end_bytes(uint64_t chunk) const;
    // Takes a chunk for the flush; true: a thread is writing to it, and will post `drained_`.
    bool start_chunk(uint64_t chunk);

    std::atomic<uint64_t> size_bytes_{0};
    std::atomic<uint64_t> chunk_count_{0};
    uint64_t capacity_chunks_ = 0;
    // For each chunk kFlushing and the number of writes under way.
    std::atomic<uint32_t>* users_ = nullptr;
    // A bit for each chunk, and a bit for each word of those that may have some.
    std::atomic<uint64_t>* dirty_ = nullptr;
    std::atomic<uint64_t>* summary_ = nullptr;
    uint64_t cursor_ = 0;  // the flush's: the next chunk to look at
    host::Semaphore drained_;
};

}  // namespace tiffin::rdma_blk
