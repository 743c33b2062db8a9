// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/vfs/content_reader.h"

#include <new>

#include "fs/vfs/numbers.h"

namespace tiffin::vfs {
namespace {

// Beyond this no file ends, and no sum of an offset and a length overflows.
constexpr uint64_t kMaximumOffsetBytes = uint64_t{1} << 62;

// Each failure means that the file was in the middle of an operation that had failed, which the next attempt ends.
constexpr int kAttempts = 16;

// Memory for a scope; nullptr when there is none.
struct Pages {
    explicit Pages(size_t size) : memory(host::allocate_pages(size)), size_bytes(size) {}
    ~Pages() { host::release_pages(memory, size_bytes); }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;

    void* memory;
    size_t size_bytes;
};

}  // namespace

// ---- Mapping ------------------------------------------------------------------------------------

Result<void> ContentReader::map(FileSystem& file_system, BlockDevice& device, NodeId node,
                                uint64_t offset_bytes, size_t size_bytes) {
    for (int i = 0; i < kAttempts; ++i) {
        Result<void> mapped = try_to_map(file_system, device, node, offset_bytes, size_bytes);
        if (mapped.ok() || mapped.error() != Error::eagain) {
            return mapped;
        }
        release();
    }
    return Error::eio;
}

Result<void> ContentReader::try_to_map(FileSystem& file_system, BlockDevice& device, NodeId node,
                                       uint64_t offset_bytes, size_t size_bytes) {
    TIFFIN_ASSERT(mapping_count_ == 0 && size_bytes <= kMaximumBytes);
    file_system_ = &file_system;
    device_ = &device;
    start_ = offset_bytes;
    end_ = offset_bytes + size_bytes;
    uint64_t position = round_down(start_, kBlockBytes);
    while (position < end_) {
        if (mapping_count_ == kMaximumMappings) {
            return Error::e2big;
        }
        ReadMapping& mapping = mappings_[mapping_count_];
        mapping.follows_another = mapping_count_ != 0;
        TRY(file_system.map_read(node, position, round_up(end_, kBlockBytes) - position, mapping));
        ++mapping_count_;
        // The size of the first moment counts: later the file may grow or shrink.
        const uint64_t file_end = mapping_count_ == 1 ? mapping.file_size_bytes : end_;
        const uint64_t mapped_end = mapping.length_bytes == 0 ? position : end_;
        end_ = greater(start_, smaller(end_, smaller(file_end, mapped_end)));
        position = mapping.offset_bytes + mapping.length_bytes;
        if (mapping.length_bytes == 0) {
            break;
        }
    }
    find_device_segments();
    return {};
}

void ContentReader::release() {
    for (size_t i = 0; i < mapping_count_; ++i) {
        file_system_->release_read(mappings_[i]);
    }
    mapping_count_ = 0;
}

void ContentReader::find_device_segments() {
    device_segment_count_ = 0;
    fetch_bytes_ = 0;
    for_each_wanted([this](const Wanted& wanted) {
        if (wanted.place == kNoPlace) {
            return true;
        }
        const ReadSegment& segment = segment_of(wanted);
        DeviceSegment& found = device_segments_[device_segment_count_++];
        found.mapping = wanted.mapping;
        found.segment = wanted.segment;
        found.content = static_cast<const unsigned char*>(
            device_->direct_address(segment.device_offset_bytes, segment.length_bytes));
        found.vector_count = 0;
        fetch_bytes_ += found.content == nullptr ? segment.length_bytes : 0;
        return true;
    });
}

// ---- Fetching -----------------------------------------------------------------------------------

void ContentReader::place(void* memory) {
    auto* place = static_cast<unsigned char*>(memory);
    for (size_t i = 0; i < device_segment_count_; ++i) {
        DeviceSegment& found = device_segments_[i];
        if (found.content == nullptr) {
            const size_t length = segment_of(found).length_bytes;
            vectors_[i] = {place, length};
            found.content = place;
            found.vectors = &vectors_[i];
            found.vector_count = 1;
            place += length;
        }
    }
}

bool ContentReader::place(BufferCursor cursor) {
    size_t used_vectors = 0;
    return for_each_wanted([&](const Wanted& wanted) {
        if (wanted.place == kNoPlace || device_segments_[wanted.place].content != nullptr) {
            cursor.skip(wanted.size_bytes());
            return true;
        }
        VectorList list(vectors_ + used_vectors, kMaximumVectors - used_vectors);
        const bool placed = place(wanted, cursor, list);
        used_vectors += list.size();
        return placed;
    });
}

// Lists where the blocks of a segment go: whole wanted blocks into the buffers at `cursor`, which moves on, blocks of
// which only a part is wanted into the edges. Only the first segment of a request can begin with one, and only the last
// end with one.
bool ContentReader::place(const Wanted& wanted, BufferCursor& cursor, VectorList& list) {
    const uint64_t length = segment_of(wanted).length_bytes;
    const uint64_t first = round_up(wanted.first, kBlockBytes);
    const uint64_t end = round_down(wanted.end, kBlockBytes);
    bool fits = wanted.first < kBlockBytes && length - wanted.end < kBlockBytes;
    if (fits && first > end) {
        // Both ends lie inside one block.
        fits = list.add(edges_[0], kBlockBytes);
        cursor.skip(wanted.size_bytes());
    } else if (fits) {
        fits = first == wanted.first || list.add(edges_[0], kBlockBytes);
        cursor.skip(static_cast<size_t>(first - wanted.first));
        fits = fits && cursor.slice(static_cast<size_t>(end - first), list);
        fits = fits && (end == wanted.end || list.add(edges_[1], kBlockBytes));
        if (fits) {
            cursor.skip(static_cast<size_t>(wanted.end - end));
        }
    }
    device_segments_[wanted.place].vectors = list.data();
    device_segments_[wanted.place].vector_count = list.size();
    return fits;
}

Result<void> ContentReader::fetch(void* memory) {
    place(memory);
    return fetch_placed();
}

Result<bool> ContentReader::fetch(BufferCursor cursor) {
    if (!place(cursor)) {
        return false;
    }
    TRY(fetch_placed());
    return true;
}

Result<void> ContentReader::fetch_placed() {
    DeviceSegment* last = nullptr;
    const uint32_t count = count_placed(last);
    if (count == 1) {
        TRY(device_->read(segment_of(*last).device_offset_bytes, last->vectors,
                          last->vector_count));
    } else if (count > 1) {
        submit_all(count, nullptr, nullptr);
        TRY(transfer_.wait(*device_));
    }
    return verify();
}

bool ContentReader::begin_fetch(Transfer::Completed transferred, void* owner) {
    DeviceSegment* last = nullptr;
    const uint32_t count = count_placed(last);
    is_under_way_ = count > 0;
    if (count == 0) {
        return false;
    }
    // From here on another thread may go on.
    submit_all(count, transferred, owner);
    return true;
}

Result<void> ContentReader::finish_fetch() {
    if (is_under_way_) {
        is_under_way_ = false;
        TRY(transfer_.result());
    }
    return verify();
}

uint32_t ContentReader::count_placed(DeviceSegment*& last) {
    uint32_t count = 0;
    for (size_t i = 0; i < device_segment_count_; ++i) {
        if (device_segments_[i].vector_count != 0) {
            last = &device_segments_[i];
            ++count;
        }
    }
    return count;
}

// Several segments at once: they overlap on the device.
void ContentReader::submit_all(uint32_t count, Transfer::Completed transferred, void* owner) {
    transfer_.begin(count, transferred, owner);
    for (size_t i = 0; count > 0; ++i) {
        DeviceSegment& found = device_segments_[i];
        if (found.vector_count == 0) {
            continue;
        }
        found.request = {};
        found.request.operation = IoOperation::read;
        found.request.offset_bytes = segment_of(found).device_offset_bytes;
        found.request.buffers = found.vectors;
        found.request.buffer_count = found.vector_count;
        --count;
        transfer_.submit(*device_, found.request);
    }
}

Result<void> ContentReader::verify(const DeviceSegment& found, Span<const IoVector> content,
                                   bool reports_damage) const {
    return file_system_->verify_read(mappings_[found.mapping], found.segment, content,
                                     reports_damage);
}

Result<void> ContentReader::verify() {
    for (size_t i = 0; i < device_segment_count_; ++i) {
        const DeviceSegment& found = device_segments_[i];
        if (found.content != nullptr) {
            // Verifying only reads.
            const IoVector whole{const_cast<unsigned char*>(found.content),
                                 static_cast<size_t>(segment_of(found).length_bytes)};
            TRY(verify(found, Span<const IoVector>(&whole, 1), true));
        } else if (!verify(found, Span<const IoVector>(found.vectors, found.vector_count), false)
                        .ok()) [[unlikely]] {
            TRY(read_again(found));
        }
    }
    return {};
}

Result<void> ContentReader::read_again(const DeviceSegment& found) {
    const auto length = static_cast<size_t>(segment_of(found).length_bytes);
    const Pages pages(length);
    if (pages.memory == nullptr) {
        return Error::enomem;
    }
    const IoVector whole{pages.memory, length};
    TRY(device_->read(segment_of(found).device_offset_bytes, &whole, 1));
    TRY(verify(found, Span<const IoVector>(&whole, 1), true));
    BufferCursor(Span<const IoVector>(found.vectors, found.vector_count))
        .copy_from(pages.memory, length);
    return {};
}

// ---- What was read ------------------------------------------------------------------------------

void ContentReader::copy_to(BufferCursor cursor) const {
    for_each_wanted([&](const Wanted& wanted) {
        const bool on_device = wanted.place != kNoPlace;
        const unsigned char* content =
            on_device ? device_segments_[wanted.place].content : segment_of(wanted).memory;
        if (content != nullptr) {
            cursor.copy_from(content + wanted.first, wanted.size_bytes());
        } else if (on_device) {
            copy_edges(wanted, cursor);
        } else {
            cursor.fill_with_zeros(wanted.size_bytes());
        }
        return true;
    });
}

// Moves `cursor` over a segment that was read into the buffers.
void ContentReader::copy_edges(const Wanted& wanted, BufferCursor& cursor) const {
    const uint64_t first = round_up(wanted.first, kBlockBytes);
    const uint64_t end = round_down(wanted.end, kBlockBytes);
    const unsigned char* head = edges_[0] + wanted.first % kBlockBytes;
    if (first > end) {
        cursor.copy_from(head, wanted.size_bytes());
        return;
    }
    cursor.copy_from(head, static_cast<size_t>(first - wanted.first));
    cursor.skip(static_cast<size_t>(end - first));
    cursor.copy_from(edges_[1], static_cast<size_t>(wanted.end - end));
}

// ---- Any length ---------------------------------------------------------------------------------

namespace {

// One request, of which all has to go through memory of its own. It is there before anything is mapped.
Result<size_t> read_through_copy(ContentReader& reader, FileSystem& file_system, NodeId node,
                                 uint64_t offset_bytes, size_t size_bytes, BufferCursor cursor) {
    const Pages pages(round_up(size_bytes, kBlockBytes) + kBlockBytes);
    if (pages.memory == nullptr) {
        return Error::enomem;
    }
    TRY(reader.map(file_system, *file_system.device(), node, offset_bytes, size_bytes));
    TRY(reader.fetch(pages.memory));
    reader.copy_to(cursor);
    return reader.length_bytes();
}

Result<size_t> read_request(ContentReader& reader, FileSystem& file_system, NodeId node,
                            uint64_t offset_bytes, size_t size_bytes, BufferCursor cursor) {
    TRY(reader.map(file_system, *file_system.device(), node, offset_bytes, size_bytes));
    if (!TRY(reader.fetch(cursor))) {
        reader.release();
        return read_through_copy(reader, file_system, node, offset_bytes, size_bytes, cursor);
    }
    reader.copy_to(cursor);
    return reader.length_bytes();
}

}  // namespace

Result<size_t> read_content(ContentReader& reader, FileSystem& file_system, NodeId node,
                            uint64_t offset_bytes, Span<const IoVector> buffers) {
    if (file_system.device() == nullptr) {
        return Error::eopnotsupp;
    }
    if (offset_bytes >= kMaximumOffsetBytes) {
        return size_t{0};
    }
    file_system.note_read(node);
    BufferCursor cursor(buffers);
    size_t done_bytes = 0;
    size_t maximum_bytes = ContentReader::kMaximumBytes;
    while (cursor.remaining() > 0) {
        const auto size_bytes = static_cast<size_t>(smaller(cursor.remaining(), maximum_bytes));
        Result<size_t> length =
            read_request(reader, file_system, node, offset_bytes + done_bytes, size_bytes, cursor);
        reader.release();
        if (!length.ok() && length.error() == Error::e2big && size_bytes > kBlockBytes) {
            // A file system whose mappings are short. One of them holds a block at least, so that two are enough.
            maximum_bytes = kBlockBytes;
            continue;
        }
        if (!length.ok()) {
            return length.error();
        }
        cursor.skip(*length);
        done_bytes += *length;
        if (*length < size_bytes) {
            break;
        }
    }
    return done_bytes;
}

Result<size_t> read_content(FileSystem& file_system, NodeId node, uint64_t offset_bytes,
                            Span<const IoVector> buffers) {
    static_assert(sizeof(ContentReader) % kBlockBytes == 0);
    const Pages pages(sizeof(ContentReader));
    if (pages.memory == nullptr) {
        return Error::enomem;
    }
    auto* reader = new (pages.memory) ContentReader;
    Result<size_t> length = read_content(*reader, file_system, node, offset_bytes, buffers);
    reader->~ContentReader();
    return length;
}

}  // namespace tiffin::vfs
