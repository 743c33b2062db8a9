// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Writes a file's content through grants: how every host, tool and test writes a file system that has a device.
//
// Waiting in the calling thread:
//
//     ContentWriter& writer = ...;                  // kept: it is large, and used again
//     size_t written = TRY(write_content(writer, fs, node, offset, buffers, flags));
//
// Without waiting for the device, for hosts that have other things to do meanwhile (a kernel's write-back):
//
//     writer.begin(fs, node, offset, buffers, flags, transferred, owner);
//     bool done = writer.advance();                 // false: I/O is under way; when it has completed, transferred(owner)
//                                                   // is called, has another thread call advance() again, and so on
//     Result<size_t> written = writer.result();     // when it is done
//
// Each part of a request goes through the steps of FileSystem, group 8: granted, its edges completed by what the blocks
// hold already, checksummed, all its segments written at the same time, committed.
//
// Of a request with write_flag::write_back every block is written that can be, and ENOMEM is waited out for a bounded
// time, since an error loses what a program believes to be written; see FileSystem::write().
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/vfs/block_device.h"
#include "fs/vfs/buffer_cursor.h"
#include "fs/vfs/file_system.h"
#include "fs/vfs/memory_patience.h"
#include "fs/vfs/result.h"
#include "fs/vfs/transfer.h"
#include "fs/vfs/types.h"

namespace tiffin::vfs {

// About 24 KiB, so for the heap. One request at a time, by one thread at a time.
class ContentWriter {
  public:
    ContentWriter() = default;
    ~ContentWriter();
    ContentWriter(const ContentWriter&) = delete;
    ContentWriter& operator=(const ContentWriter&) = delete;

    // The list and the buffers stay as they are until the request is done (with write_flag::unstable_buffers the bytes may
    // change). The file system has a device. Without `transferred`, wait() is to be called after each advance() that
    // returns false.
    void begin(FileSystem& file_system, NodeId node, uint64_t offset_bytes,
               Span<const IoVector> buffers, uint32_t flags,
               Transfer::Completed transferred = nullptr, void* owner = nullptr);
    // Goes on until I/O is under way (false), or to the end of the request (true). May sleep: for locks, claims and room.
    [[nodiscard]] bool advance();
    // Sleeps until that I/O has completed.
    void wait();
    // How much was written; see FileSystem::write(). What was promised to its blocks is used up, whatever happened. When advance() has returned true.
    Result<size_t> result() const;

  private:
    enum class Step : uint8_t { begin, grant, transfer, done };
    // A block of a part at either of its ends, and a spare buffer in each list.
    static constexpr size_t kMaximumVectors = WriteGrant::kMaxBlocks + WriteGrant::kMaxSegments + 4;

    bool run();
    void start();
    // Grants the next part and starts its transfer. True: it is under way; false: it is over, or there is none.
    bool transfer_next();
    void commit();
    void finish();
    // A part has failed: tries it again, block by block if it had several, goes on behind the one it had, or ends the
    // request. `end_bytes`: of what was tried.
    void part_failed(Error error, uint64_t end_bytes);
    bool is_write_back() const { return (flags_ & write_flag::write_back) != 0; }

    uint64_t part_end() const { return grant_.offset_bytes + grant_.length_bytes; }
    bool is_partial(uint64_t block) const;
    // Fills `page` with block `block` as it is to be: what it holds, and over it the bytes at `cursor`, which moves on.
    Result<void> merge_block(uint64_t block, BufferCursor& cursor, unsigned char* page);
    Result<void> read_block(uint64_t block, unsigned char* page);
    // Lists the buffers of all segments in vectors_. False: there are too many.
    Result<bool> list_segments();
    Result<void> copy_segments();
    void set_request(uint32_t index, const IoVector* vectors, size_t count);
    void take_content();
    void take_checksums();
    // True: it is under way.
    Result<bool> write_segments();
    void submit_all();
    void release_copy();

    FileSystem* file_system_ = nullptr;
    BlockDevice* device_ = nullptr;
    NodeId node_ = 0;
    uint32_t flags_ = 0;
    Step step_ = Step::done;
    bool is_under_way_ = false;
    Transfer::Completed transferred_ = nullptr;
    void* owner_ = nullptr;
    BufferCursor cursor_{Span<const IoVector>()};  // what is left of the request
    uint64_t position_ = 0;                        // and where that goes
    size_t written_bytes_ = 0;
    // Parts before it have one block: one of them cannot be written, and takes no other one along.
    uint64_t single_until_bytes_ = 0;
    uint64_t end_bytes_ = 0;  // of the request
    Result<void> failure_;    // the first that could not be helped
    Result<void> ended_;      // of end_write()
    MemoryPatience patience_{0};
    // How often commit_write() may refuse a part of write-back for want of space before that counts.
    static constexpr uint32_t kRefusals = 32;
    uint32_t refusals_left_ = 0;

    WriteGrant grant_;
    Transfer transfer_;
    IoRequest requests_[WriteGrant::kMaxSegments];
    IoVector vectors_[kMaximumVectors];
    uint32_t checksums_[WriteGrant::kMaxBlocks];
    // A copy of a part, where its buffers cannot be written as they are.
    void* copy_ = nullptr;
    size_t copy_bytes_ = 0;
    ReadMapping mapping_;  // of a block at an edge
    alignas(kBlockBytes) unsigned char edges_[2][kBlockBytes];
};

// Writes all of `buffers`, as FileSystem::write().
Result<size_t> write_content(ContentWriter& writer, FileSystem& file_system, NodeId node,
                             uint64_t offset_bytes, Span<const IoVector> buffers, uint32_t flags);
// The same for callers without a writer of their own; what FileSystem::write() does by default. Errors also: enomem;
// eopnotsupp, without a device.
Result<size_t> write_content(FileSystem& file_system, NodeId node, uint64_t offset_bytes,
                             Span<const IoVector> buffers, uint32_t flags);

}  // namespace tiffin::vfs
