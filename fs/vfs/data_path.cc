// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Reading through mappings, and the default of FileSystem::read.
#include "fs/vfs/data_path.h"

#include <new>
#include <type_traits>

#include "fs/vfs/host.h"

namespace tiffin::vfs {
namespace {

// Beyond this no file ends, and no sum of an offset and a length overflows.
constexpr uint64_t kMaximumOffsetBytes = uint64_t{1} << 62;

uint64_t round_down(uint64_t bytes) { return bytes / kBlockBytes * kBlockBytes; }
uint64_t round_up(uint64_t bytes) { return round_down(bytes + kBlockBytes - 1); }

// A device segment and the part [first, end) of it, in bytes of the segment, that is wanted.
struct WantedPart {
    FileSystem& file_system;
    const ReadMapping& mapping;
    uint32_t segment_index;
    uint64_t first;
    uint64_t end;

    const ReadSegment& segment() const { return mapping.segments[segment_index]; }
    Result<void> verify(Span<const IoVector> buffers) const {
        return file_system.verify_read(mapping, segment_index, buffers);
    }
};

// The device's content is memory: verified in place and copied once.
Result<void> copy_direct(const WantedPart& part, const void* address, BufferCursor& cursor) {
    // Verifying only reads.
    IoVector whole{const_cast<void*>(address), static_cast<size_t>(part.segment().length_bytes)};
    TRY(part.verify(Span<const IoVector>(&whole, 1)));
    cursor.copy_from(static_cast<const unsigned char*>(address) + part.first,
                     static_cast<size_t>(part.end - part.first));
    return {};
}

// Lists where the blocks of the segment go: whole wanted blocks into the buffers at `cursor`, blocks
// of which only a part is wanted into the scratch's edges. False when the list has no room.
bool list_buffers(const WantedPart& part, BufferCursor cursor, ReadScratch& scratch,
                  VectorList& list) {
    uint64_t middle_first = round_up(part.first);
    uint64_t middle_end = round_down(part.end);
    if (middle_first > middle_end) {
        // Both ends lie inside one block.
        return list.add(scratch.edges[0], kBlockBytes);
    }
    if (middle_first > part.first) {
        if (!list.add(scratch.edges[0], kBlockBytes)) {
            return false;
        }
        cursor.skip(static_cast<size_t>(middle_first - part.first));
    }
    if (!cursor.slice(static_cast<size_t>(middle_end - middle_first), list)) {
        return false;
    }
    return middle_end == part.end || list.add(scratch.edges[1], kBlockBytes);
}

// Moves `cursor` over the wanted part, copying what was read into the edges.
void copy_edges(const WantedPart& part, BufferCursor& cursor, const ReadScratch& scratch) {
    uint64_t middle_first = round_up(part.first);
    uint64_t middle_end = round_down(part.end);
    if (middle_first > middle_end) {
        cursor.copy_from(scratch.edges[0] + part.first % kBlockBytes,
                         static_cast<size_t>(part.end - part.first));
        return;
    }
    if (middle_first > part.first) {
        cursor.copy_from(scratch.edges[0] + part.first % kBlockBytes,
                         static_cast<size_t>(middle_first - part.first));
    }
    cursor.skip(static_cast<size_t>(middle_end - middle_first));
    cursor.copy_from(scratch.edges[1], static_cast<size_t>(part.end - middle_end));
}

// For buffers so small that their list does not fit: through memory of its own.
Result<void> read_through_copy(const WantedPart& part, BlockDevice& device, BufferCursor& cursor) {
    auto size_bytes = static_cast<size_t>(part.segment().length_bytes);
    void* memory = host::allocate_pages(size_bytes);
    if (memory == nullptr) {
        return Error::enomem;
    }
    IoVector whole{memory, size_bytes};
    Result<void> result = device.read(part.segment().device_offset_bytes, &whole, 1);
    if (result.ok()) {
        result = part.verify(Span<const IoVector>(&whole, 1));
    }
    if (result.ok()) {
        cursor.copy_from(static_cast<unsigned char*>(memory) + part.first,
                         static_cast<size_t>(part.end - part.first));
    }
    host::release_pages(memory, size_bytes);
    return result;
}

Result<void> read_device_part(const WantedPart& part, BufferCursor& cursor, ReadScratch& scratch) {
    BlockDevice* device = part.file_system.device();
    const ReadSegment& segment = part.segment();
    if (device == nullptr) {
        return Error::eio;
    }
    const void* address = device->direct_address(segment.device_offset_bytes, segment.length_bytes);
    if (address != nullptr) {
        return copy_direct(part, address, cursor);
    }
    VectorList list(scratch.vectors, ReadScratch::kMaximumVectors);
    // A mapping covers the blocks that were asked for: beyond the wanted part less than a block.
    bool covered = part.first < kBlockBytes && segment.length_bytes - part.end < kBlockBytes;
    if (!covered || !list_buffers(part, cursor, scratch, list)) {
        return read_through_copy(part, *device, cursor);
    }
    TRY(device->read(segment.device_offset_bytes, list.data(), list.size()));
    TRY(part.verify(list.span()));
    copy_edges(part, cursor, scratch);
    return {};
}

}  // namespace

Result<size_t> read_mapped(FileSystem& file_system, const ReadMapping& mapping,
                           uint64_t position_bytes, BufferCursor& cursor, ReadScratch& scratch) {
    uint64_t end = mapping.offset_bytes + mapping.length_bytes;
    end = end < mapping.file_size_bytes ? end : mapping.file_size_bytes;
    if (position_bytes < mapping.offset_bytes || position_bytes >= end) {
        return size_t{0};
    }
    end = end - position_bytes < cursor.remaining() ? end : position_bytes + cursor.remaining();
    uint64_t position = position_bytes;
    for (uint32_t i = 0; i < mapping.segment_count && position < end; ++i) {
        const ReadSegment& segment = mapping.segments[i];
        uint64_t segment_end = segment.file_offset_bytes + segment.length_bytes;
        uint64_t part_end = segment_end < end ? segment_end : end;
        if (position >= part_end) {
            continue;
        }
        auto size_bytes = static_cast<size_t>(part_end - position);
        switch (segment.kind) {
            case SegmentKind::zeros:
                cursor.fill_with_zeros(size_bytes);
                break;
            case SegmentKind::memory:
                cursor.copy_from(segment.memory + (position - segment.file_offset_bytes),
                                 size_bytes);
                break;
            case SegmentKind::device: {
                WantedPart part{file_system, mapping, i, position - segment.file_offset_bytes,
                                part_end - segment.file_offset_bytes};
                TRY(read_device_part(part, cursor, scratch));
                break;
            }
        }
        position = part_end;
    }
    return static_cast<size_t>(position - position_bytes);
}

Result<size_t> FileSystem::read(NodeId node, Handle /*handle*/, uint64_t offset_bytes,
                                Span<const IoVector> buffers) {
    if (device() == nullptr) {
        return Error::eopnotsupp;
    }
    if (offset_bytes >= kMaximumOffsetBytes) {
        return size_t{0};
    }
    static_assert(std::is_trivially_destructible_v<ReadScratch>);
    void* memory = host::allocate_pages(sizeof(ReadScratch));
    if (memory == nullptr) {
        return Error::enomem;
    }
    auto* scratch = new (memory) ReadScratch;
    note_read(node);
    BufferCursor cursor(buffers);
    uint64_t position = offset_bytes;
    Result<void> result;
    while (cursor.remaining() > 0) {
        uint64_t first = round_down(position);
        uint64_t length = round_up(position + cursor.remaining()) - first;
        result = map_read(node, first, length, scratch->mapping);
        if (!result.ok()) {
            break;
        }
        Result<size_t> bytes = read_mapped(*this, scratch->mapping, position, cursor, *scratch);
        release_read(scratch->mapping);
        if (!bytes.ok()) {
            result = bytes.error();
            break;
        }
        if (bytes.value() == 0) {
            break;
        }
        position += bytes.value();
    }
    host::release_pages(memory, sizeof(ReadScratch));
    if (!result.ok()) {
        return result.error();
    }
    return static_cast<size_t>(position - offset_bytes);
}

}  // namespace tiffin::vfs
