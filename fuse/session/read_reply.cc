// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/session/read_reply.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "fs/vfs/host.h"
#include "fuse/session/session.h"
#include "fuse/session/thread_buffer.h"
#include "fuse/session/thread_object.h"

namespace tiffin::fuse {
namespace {

constexpr uint64_t round_down(uint64_t value) { return value - value % vfs::kBlockBytes; }
constexpr uint64_t round_up(uint64_t value) { return round_down(value + vfs::kBlockBytes - 1); }

// Holes of any request. Never written, so the system maps all of it to one page of zeros.
unsigned char* zeros() {
    alignas(vfs::kBlockBytes) static unsigned char memory[kMaxRequestBytes];
    return memory;
}

// What one thread needs to answer a read; kept from request to request, so that reading allocates
// nothing.
class Reader {
  public:
    // Prepares the answer for [offset, offset + size), size at most kMaxRequestBytes. Errors:
    // eopnotsupp (the file system has no lower data path), e2big (too many pieces for this class),
    // enomem, and those of reading. Whatever the outcome, finish() follows.
    Result<void> prepare(vfs::FileSystem& file_system, vfs::BlockDevice& device, vfs::NodeId node,
                         uint64_t offset_bytes, size_t size_bytes);
    void answer(Request& request) { request.data(pieces_.data(), piece_count_, answer_bytes_); }
    // Lets the file system use the mapped blocks again.
    void finish(vfs::FileSystem& file_system);

  private:
    // A segment holds at least one block, so this many mappings hold the largest request.
    static constexpr size_t kMaxMappings =
        (kMaxRequestBytes / vfs::kBlockBytes + 1) / vfs::ReadMapping::kMaxSegments + 1;
    static constexpr size_t kMaxDeviceSegments = kMaxMappings * vfs::ReadMapping::kMaxSegments;
    static constexpr size_t kMaxPieces = 2 * kMaxDeviceSegments + 1;

    // A segment whose content is on the device and has to be verified.
    struct DeviceSegment {
        uint32_t mapping;
        uint32_t segment;
        vfs::IoVector content;  // data is nullptr until it is known
        vfs::IoRequest request;
    };

    Result<void> map(vfs::FileSystem& file_system, vfs::NodeId node);
    void find_device_segments(vfs::BlockDevice& device);
    Result<void> fetch(vfs::BlockDevice& device);
    Result<void> fetch_all(vfs::BlockDevice& device);
    Result<void> verify(vfs::FileSystem& file_system);
    void make_pieces();
    void add_piece(uint64_t file_offset, uint64_t length, const void* content);
    void add_zeros_until(uint64_t file_offset);
    static void completed(vfs::IoRequest& request, Result<void> result);

    uint64_t start_ = 0;  // of the request
    uint64_t end_ = 0;    // of the answer: not beyond the end of the file
    uint64_t reached_ = 0;

    size_t mapping_count_ = 0;
    std::array<vfs::ReadMapping, kMaxMappings> mappings_;
    size_t device_segment_count_ = 0;
    uint64_t fetch_bytes_ = 0;
    std::array<DeviceSegment, kMaxDeviceSegments> device_segments_;
    size_t piece_count_ = 0;
    uint64_t answer_bytes_ = 0;
    std::array<iovec, kMaxPieces> pieces_;

    std::atomic<uint32_t> pending_{0};
    std::atomic<int> first_error_{0};
};

Result<void> Reader::prepare(vfs::FileSystem& file_system, vfs::BlockDevice& device,
                             vfs::NodeId node, uint64_t offset_bytes, size_t size_bytes) {
    start_ = offset_bytes;
    end_ = offset_bytes + size_bytes;
    device_segment_count_ = 0;
    fetch_bytes_ = 0;
    piece_count_ = 0;
    answer_bytes_ = 0;
    TRY(map(file_system, node));
    find_device_segments(device);
    TRY(fetch(device));
    TRY(verify(file_system));
    make_pieces();
    return {};
}

Result<void> Reader::map(vfs::FileSystem& file_system, vfs::NodeId node) {
    uint64_t position = round_down(start_);
    while (position < end_) {
        if (mapping_count_ == mappings_.size()) {
            return Error::e2big;
        }
        vfs::ReadMapping& mapping = mappings_[mapping_count_];
        TRY(file_system.map_read(node, position, round_up(end_) - position, mapping));
        ++mapping_count_;
        // The size of the first moment counts: later the file may grow or shrink.
        if (mapping_count_ == 1) {
            end_ = std::clamp(mapping.file_size_bytes, start_, end_);
        }
        if (mapping.length_bytes == 0) {
            end_ = std::clamp(position, start_, end_);
            break;
        }
        position = mapping.offset_bytes + mapping.length_bytes;
    }
    return {};
}

void Reader::find_device_segments(vfs::BlockDevice& device) {
    for (uint32_t m = 0; m < mapping_count_; ++m) {
        const vfs::ReadMapping& mapping = mappings_[m];
        for (uint32_t s = 0; s < mapping.segment_count; ++s) {
            const vfs::ReadSegment& segment = mapping.segments[s];
            if (segment.kind != vfs::SegmentKind::device || segment.file_offset_bytes >= end_) {
                continue;
            }
            DeviceSegment& found = device_segments_[device_segment_count_++];
            found.mapping = m;
            found.segment = s;
            // Readers do not write to the device's memory.
            found.content.data = const_cast<void*>(
                device.direct_address(segment.device_offset_bytes, segment.length_bytes));
            found.content.size_bytes = segment.length_bytes;
            if (found.content.data == nullptr) {
                fetch_bytes_ += segment.length_bytes;
            }
        }
    }
}

Result<void> Reader::fetch(vfs::BlockDevice& device) {
    if (fetch_bytes_ == 0) {
        return {};
    }
    unsigned char* memory = thread_buffer(fetch_bytes_);
    if (memory == nullptr) {
        return Error::enomem;
    }
    uint32_t count = 0;
    DeviceSegment* last = nullptr;
    for (size_t i = 0; i < device_segment_count_; ++i) {
        DeviceSegment& segment = device_segments_[i];
        segment.request = {};
        if (segment.content.data == nullptr) {
            segment.content.data = memory;
            memory += segment.content.size_bytes;
            segment.request.buffers = &segment.content;
            segment.request.buffer_count = 1;
            segment.request.offset_bytes =
                mappings_[segment.mapping].segments[segment.segment].device_offset_bytes;
            last = &segment;
            ++count;
        }
    }
    if (count == 1) {
        return device.read(last->request.offset_bytes, &last->content, 1);
    }
    pending_.store(count, std::memory_order_relaxed);
    return fetch_all(device);
}

// Several segments at once: they overlap on the device.
Result<void> Reader::fetch_all(vfs::BlockDevice& device) {
    first_error_.store(0, std::memory_order_relaxed);
    uint32_t left = pending_.load(std::memory_order_relaxed);
    for (size_t i = 0; i < device_segment_count_; ++i) {
        vfs::IoRequest& request = device_segments_[i].request;
        if (request.buffer_count != 0) {
            request.operation = vfs::IoOperation::read;
            request.owner = this;
            request.complete = completed;
            request.more_follows = --left > 0;
            device.submit(request);
        }
    }
    uint32_t pending = 0;
    while ((pending = pending_.load(std::memory_order_acquire)) != 0) {
        if (!device.help(pending_, pending)) {
            pending_.wait(pending, std::memory_order_acquire);
        }
    }
    int error = first_error_.load(std::memory_order_relaxed);
    return error == 0 ? Result<void>() : static_cast<Error>(error);
}

void Reader::completed(vfs::IoRequest& request, Result<void> result) {
    auto* reader = static_cast<Reader*>(request.owner);
    if (!result.ok()) {
        reader->first_error_.store(errno_value(result.error()), std::memory_order_relaxed);
    }
    // The reader outlives its thread's requests: it may be touched after the last count.
    if (reader->pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        reader->pending_.notify_one();
    }
}

Result<void> Reader::verify(vfs::FileSystem& file_system) {
    for (size_t i = 0; i < device_segment_count_; ++i) {
        const DeviceSegment& segment = device_segments_[i];
        TRY(file_system.verify_read(mappings_[segment.mapping], segment.segment,
                                    Span<const vfs::IoVector>(&segment.content, 1)));
    }
    return {};
}

void Reader::make_pieces() {
    reached_ = start_;
    size_t next_device_segment = 0;
    for (size_t m = 0; m < mapping_count_; ++m) {
        const vfs::ReadMapping& mapping = mappings_[m];
        for (uint32_t s = 0; s < mapping.segment_count; ++s) {
            const vfs::ReadSegment& segment = mapping.segments[s];
            if (segment.file_offset_bytes >= end_) {
                break;
            }
            if (segment.kind == vfs::SegmentKind::device) {
                const DeviceSegment& found = device_segments_[next_device_segment++];
                TIFFIN_ASSERT(found.mapping == m && found.segment == s);
                add_piece(segment.file_offset_bytes, segment.length_bytes, found.content.data);
            } else if (segment.kind == vfs::SegmentKind::memory) {
                add_piece(segment.file_offset_bytes, segment.length_bytes, segment.memory);
            }
            // Holes are what lies between.
        }
    }
    add_zeros_until(end_);
    answer_bytes_ = end_ - start_;
}

void Reader::add_piece(uint64_t file_offset, uint64_t length, const void* content) {
    uint64_t from = std::max(file_offset, reached_);
    uint64_t to = std::min(file_offset + length, end_);
    if (from >= to) {
        return;
    }
    add_zeros_until(from);
    TIFFIN_ASSERT(piece_count_ < pieces_.size());
    const unsigned char* bytes = static_cast<const unsigned char*>(content) + (from - file_offset);
    pieces_[piece_count_++] = {const_cast<unsigned char*>(bytes), to - from};
    reached_ = to;
}

void Reader::add_zeros_until(uint64_t file_offset) {
    if (file_offset > reached_) {
        TIFFIN_ASSERT(piece_count_ < pieces_.size());
        TIFFIN_ASSERT(file_offset - reached_ <= kMaxRequestBytes);
        pieces_[piece_count_++] = {zeros(), file_offset - reached_};
        reached_ = file_offset;
    }
}

void Reader::finish(vfs::FileSystem& file_system) {
    for (size_t i = 0; i < mapping_count_; ++i) {
        file_system.release_read(mappings_[i]);
    }
    mapping_count_ = 0;
}

// For file systems without a lower data path.
void reply_through_buffer(Request request, vfs::NodeId node, vfs::Handle handle,
                          uint64_t offset_bytes, size_t size_bytes) {
    unsigned char* memory = thread_buffer(size_bytes);
    if (memory == nullptr) {
        return request.fail(Error::enomem);
    }
    const vfs::IoVector piece{memory, size_bytes};
    Result<size_t> length = request.file_system().read(node, handle, offset_bytes,
                                                       Span<const vfs::IoVector>(&piece, 1));
    if (!length.ok()) {
        return request.fail(length.error());
    }
    TIFFIN_ASSERT(length.value() <= size_bytes);
    // A killed reader needs nothing to be taken back.
    (void)request.data(memory, length.value());
}

}  // namespace

void reply_with_data(Request request, vfs::NodeId node, vfs::Handle handle, uint64_t offset_bytes,
                     size_t size_bytes, bool notes_access) {
    vfs::FileSystem& file_system = request.file_system();
    vfs::BlockDevice* device = request.session().device();
    Reader* reader = ThreadObject<Reader>::get();
    if (device == nullptr || reader == nullptr || size_bytes > kMaxRequestBytes) {
        return reply_through_buffer(std::move(request), node, handle, offset_bytes, size_bytes);
    }
    // Before the blocks are mapped, since it may have to wait for a checkpoint, which waits for
    // mapped blocks; and before the answer, since the caller may ask for the time at once.
    if (notes_access) {
        file_system.note_read(node);
    }
    Result<void> prepared = reader->prepare(file_system, *device, node, offset_bytes, size_bytes);
    if (prepared.ok()) {
        reader->answer(request);
    }
    reader->finish(file_system);
    if (prepared.ok()) {
        return;
    }
    if (prepared.error() == Error::eopnotsupp || prepared.error() == Error::e2big) {
        return reply_through_buffer(std::move(request), node, handle, offset_bytes, size_bytes);
    }
    request.fail(prepared.error());
}

}  // namespace tiffin::fuse
