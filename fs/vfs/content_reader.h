// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Reads a file's content through mappings: how every host, tool and test reads a file system that has a device.
//
// A request goes through these steps, all of it at once:
//
//     ContentReader& reader = ...;                  // kept: it is large, and used again
//     TRY(reader.map(fs, device, node, offset, size));
//     TRY(reader.fetch(memory));                    // or fetch(cursor): what has no address is read, all is verified
//     reader.for_each_piece(...)                    // or reader.copy_to(cursor)
//     reader.release();                             // also after an error
//
// Between map() and release() nothing is waited for but the device's progress: no lock, no memory and no room, since
// others may wait for the mappings (FileSystem::map_read).
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/vfs/block_device.h"
#include "fs/vfs/buffer_cursor.h"
#include "fs/vfs/file_system.h"
#include "fs/vfs/host.h"
#include "fs/vfs/result.h"
#include "fs/vfs/transfer.h"
#include "fs/vfs/types.h"

namespace tiffin::vfs {

// About 80 KiB, so for the heap. One request at a time, by one thread.
class ContentReader {
  public:
    // The longest request.
    static constexpr size_t kMaximumBytes = 1U << 20;

    ContentReader() = default;
    ContentReader(const ContentReader&) = delete;
    ContentReader& operator=(const ContentReader&) = delete;

    // Finds [offset, offset + size) of the file, as far as it goes. Errors: those of FileSystem::map_read(); e2big, when
    // its mappings hold less than they could.
    Result<void> map(FileSystem& file_system, BlockDevice& device, NodeId node,
                     uint64_t offset_bytes, size_t size_bytes);
    // What there is of the request: less at the end of the file.
    size_t length_bytes() const { return static_cast<size_t>(end_ - start_); }
    // How much has to be read from the device, in whole blocks; the rest is in memory, or zeros.
    size_t fetch_bytes() const { return fetch_bytes_; }

    // Reads that into `memory`, of fetch_bytes(), everything at the same time, and verifies all content. Errors: eio
    // and others of the device; eio where content is damaged.
    Result<void> fetch(void* memory);
    // Reads it into the buffers at `cursor`, with room for length_bytes(); blocks of which only a part is wanted go
    // through memory of the reader's. The buffers may be a program's, which changes them meanwhile: that is no damage.
    // False: the buffers are too small and too many for that, and nothing was done.
    Result<bool> fetch(BufferCursor cursor);

    // The same in three steps, for hosts that do not wait for the device: says where it goes (false as above), and begins
    // to read. When that returns true, I/O is under way, and transferred(owner) is called when it has completed
    // (Transfer::Completed); then, or at once when there is nothing to read, finish_fetch() verifies the content.
    void place(void* memory);
    [[nodiscard]] bool place(BufferCursor cursor);
    [[nodiscard]] bool begin_fetch(Transfer::Completed transferred, void* owner);
    Result<void> finish_fetch();

    // Calls add(content, length) for the pieces of the request in their order; a `content` of nullptr is zeros. After
    // fetch(memory).
    template <typename Add>
    void for_each_piece(Add add) const;
    // Fills the buffers, or what fetch() has not filled of them.
    void copy_to(BufferCursor cursor) const;

    // Lets the file system use the mapped blocks again.
    void release();

  private:
    // As map(); eagain when the next attempt may succeed, after release().
    Result<void> try_to_map(FileSystem& file_system, BlockDevice& device, NodeId node,
                            uint64_t offset_bytes, size_t size_bytes);

    static constexpr size_t kMaximumBlocks = kMaximumBytes / kBlockBytes + 1;
    // A segment holds at least one block, so this many mappings hold the longest request.
    static constexpr size_t kMaximumMappings = kMaximumBlocks / ReadMapping::kMaxSegments + 1;
    static constexpr size_t kMaximumDeviceSegments = kMaximumMappings * ReadMapping::kMaxSegments;
    // Single pages, cut at each end of a segment.
    static constexpr size_t kMaximumVectors = kMaximumBlocks + kMaximumDeviceSegments + 2;

    // A segment whose content is on the device and has to be verified.
    struct DeviceSegment {
        uint32_t mapping;
        uint32_t segment;
        // Where the content is in one piece; nullptr: in the caller's buffers.
        const unsigned char* content;
        const IoVector* vectors;  // where it is read to, or is
        size_t vector_count;
        IoRequest request;
    };
    // The part of a segment that is wanted, in bytes of the segment.
    struct Wanted {
        uint32_t mapping;
        uint32_t segment;
        uint64_t first;
        uint64_t end;
        // Its number among those on the device, which have an entry each in device_segments_; or kNoPlace.
        size_t place;

        size_t size_bytes() const { return static_cast<size_t>(end - first); }
    };
    static constexpr size_t kNoPlace = ~size_t{0};

    // Where a Wanted or a DeviceSegment is.
    template <typename Part>
    const ReadSegment& segment_of(const Part& part) const {
        return mappings_[part.mapping].segments[part.segment];
    }
    // Calls visit(wanted) for all that is wanted, in its order, until it returns false, which is returned.
    template <typename Visit>
    bool for_each_wanted(Visit visit) const;
    void find_device_segments();
    bool place(const Wanted& wanted, BufferCursor& cursor, VectorList& list);
    Result<void> fetch_placed();
    // How many segments have to be read; `last` is one of them.
    uint32_t count_placed(DeviceSegment*& last);
    void submit_all(uint32_t count, Transfer::Completed transferred, void* owner);
    Result<void> verify();
    Result<void> verify(const DeviceSegment& found, Span<const IoVector> content,
                        bool reports_damage) const;
    // Into memory that only the reader can change, and from there to where it belongs.
    Result<void> read_again(const DeviceSegment& found);
    void copy_edges(const Wanted& wanted, BufferCursor& cursor) const;

    FileSystem* file_system_ = nullptr;
    BlockDevice* device_ = nullptr;
    uint64_t start_ = 0;  // of the request
    uint64_t end_ = 0;    // of what there is of it
    bool is_under_way_ = false;
    size_t fetch_bytes_ = 0;
    size_t mapping_count_ = 0;
    size_t device_segment_count_ = 0;
    ReadMapping mappings_[kMaximumMappings];
    DeviceSegment device_segments_[kMaximumDeviceSegments];
    IoVector vectors_[kMaximumVectors];
    alignas(kBlockBytes) unsigned char edges_[2][kBlockBytes];
    Transfer transfer_;
};

template <typename Visit>
bool ContentReader::for_each_wanted(Visit visit) const {
    size_t next_place = 0;
    for (uint32_t m = 0; m < mapping_count_; ++m) {
        for (uint32_t s = 0; s < mappings_[m].segment_count; ++s) {
            const ReadSegment& segment = mappings_[m].segments[s];
            const uint64_t begin = segment.file_offset_bytes;
            const uint64_t first = begin > start_ ? begin : start_;
            const uint64_t segment_end = begin + segment.length_bytes;
            const uint64_t end = segment_end < end_ ? segment_end : end_;
            if (first >= end) {
                continue;
            }
            const size_t place = segment.kind == SegmentKind::device ? next_place++ : kNoPlace;
            if (!visit(Wanted{m, s, first - begin, end - begin, place})) {
                return false;
            }
        }
    }
    return true;
}

template <typename Add>
void ContentReader::for_each_piece(Add add) const {
    for_each_wanted([&](const Wanted& wanted) {
        const unsigned char* content = wanted.place == kNoPlace
                                           ? segment_of(wanted).memory
                                           : device_segments_[wanted.place].content;
        add(content == nullptr ? nullptr : content + wanted.first, wanted.size_bytes());
        return true;
    });
}

// Reads into `buffers` what there is of the file from `offset_bytes` on, any length, and returns how much. Errors:
// those above; enomem, when buffers are too small and too many for the reader.
Result<size_t> read_content(ContentReader& reader, FileSystem& file_system, NodeId node,
                            uint64_t offset_bytes, Span<const IoVector> buffers);
// The same for callers without a reader of their own; what FileSystem::read() does by default. Errors also: enomem.
Result<size_t> read_content(FileSystem& file_system, NodeId node, uint64_t offset_bytes,
                            Span<const IoVector> buffers);

}  // namespace tiffin::vfs
