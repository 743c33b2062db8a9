// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/vfs/content_writer.h"

#include <new>

namespace tiffin::vfs {
namespace {

constexpr uint64_t block_of(uint64_t offset_bytes) { return offset_bytes / kBlockBytes; }
constexpr uint64_t blocks_to(uint64_t end_bytes) {
    return (end_bytes + kBlockBytes - 1) / kBlockBytes;
}

// Whether other blocks of a request may be written although one could not be.
constexpr bool may_go_on(Error error) {
    return error == Error::enospc || error == Error::eio || error == Error::enomem ||
           error == Error::euclean;
}

void return_promise(FileSystem& file_system, uint64_t offset_bytes, size_t size_bytes) {
    file_system.return_promise(blocks_to(offset_bytes % kBlockBytes + size_bytes));
}

}  // namespace

ContentWriter::~ContentWriter() { TIFFIN_ASSERT(step_ == Step::done); }

// ---- The request --------------------------------------------------------------------------------

void ContentWriter::begin(FileSystem& file_system, NodeId node, uint64_t offset_bytes,
                          Span<const IoVector> buffers, uint32_t flags,
                          Transfer::Completed transferred, void* owner) {
    TIFFIN_ASSERT(step_ == Step::done);
    file_system_ = &file_system;
    device_ = file_system.device();
    node_ = node;
    flags_ = flags;
    transferred_ = transferred;
    owner_ = owner;
    cursor_ = BufferCursor(buffers);
    position_ = offset_bytes;
    written_bytes_ = 0;
    single_until_bytes_ = 0;
    failure_ = {};
    ended_ = {};
    refusals_left_ = kRefusals;
    patience_ = MemoryPatience(is_write_back() ? MemoryPatience::kWaitsAtMost : 0);
    step_ = Step::begin;
}

bool ContentWriter::advance() {
    if (!is_write_back()) {
        return run();
    }
    const host::MemoryReserveScope scope;
    return run();
}

// Once a transfer is under way another thread may be in here, so nothing of the writer is touched after that.
bool ContentWriter::run() {
    if (step_ == Step::begin) {
        start();
    }
    while (step_ != Step::done) {
        if (step_ == Step::transfer) {
            commit();
        } else if (cursor_.remaining() == 0) {
            finish();
        } else if (transfer_next()) {
            return false;
        }
    }
    return true;
}

void ContentWriter::wait() { (void)transfer_.wait(*device_).ok(); }

Result<size_t> ContentWriter::result() const {
    TIFFIN_ASSERT(step_ == Step::done);
    if (!ended_.ok()) {
        return ended_.error();
    }
    if (!failure_.ok() && (is_write_back() || written_bytes_ == 0)) {
        return failure_.error();
    }
    return written_bytes_;
}

void ContentWriter::start() {
    const Result<void> begun = patience_.run([this] {
        return file_system_->begin_write(node_, position_, cursor_.remaining(), flags_, grant_);
    });
    if (!begun.ok() && (flags_ & write_flag::promised) != 0) {
        return_promise(*file_system_, position_, cursor_.remaining());
    }
    failure_ = begun;
    position_ = begun.ok() ? grant_.start_bytes : position_;
    end_bytes_ = grant_.end_bytes;
    step_ = begun.ok() ? Step::grant : Step::done;
}

void ContentWriter::finish() {
    grant_.end_bytes = end_bytes_;
    const Result<void> ended = file_system_->end_write(grant_);
    ended_ = written_bytes_ > 0 ? ended : Result<void>();
    step_ = Step::done;
}

// ---- A part of it -------------------------------------------------------------------------------

bool ContentWriter::transfer_next() {
    const uint64_t block_end = (block_of(position_) + 1) * kBlockBytes;
    grant_.end_bytes =
        position_ < single_until_bytes_ && block_end < end_bytes_ ? block_end : end_bytes_;
    const Result<void> granted = file_system_->grant_write(grant_, position_);
    if (!granted.ok()) {
        // Room for none of it is found; anything else is about some block of it.
        const uint64_t tried_bytes =
            granted.error() == Error::enospc ? 0 : WriteGrant::kMaxBlocks * kBlockBytes;
        part_failed(granted.error(), position_ + tried_bytes < grant_.end_bytes
                                         ? position_ + tried_bytes
                                         : grant_.end_bytes);
        return false;
    }
    step_ = Step::transfer;
    if (grant_.takes_content) {
        take_content();
        return false;
    }
    const Result<bool> under_way = write_segments();
    if (!under_way.ok()) {
        part_failed(under_way.error(), part_end());
        return false;
    }
    return under_way.value();
}

void ContentWriter::commit() {
    const Result<void> transferred = is_under_way_ ? transfer_.result() : Result<void>();
    is_under_way_ = false;
    release_copy();
    if (!transferred.ok()) {
        return part_failed(transferred.error(), part_end());
    }
    const size_t blocks =
        static_cast<size_t>(blocks_to(part_end()) - block_of(grant_.offset_bytes));
    const Result<uint64_t> committed =
        grant_.takes_content
            ? file_system_->commit_write(grant_, {},
                                         ByteSpan(edges_[0], size_t{grant_.length_bytes}))
            : file_system_->commit_write(grant_, Span<const uint32_t>(checksums_, blocks), {});
    if (!committed.ok() && committed.error() == Error::enospc && is_write_back() &&
        refusals_left_ > 0) {
        // The file system waits for room before it grants the part again.
        --refusals_left_;
        step_ = Step::grant;
        return;
    }
    if (!committed.ok()) {
        return part_failed(committed.error(), part_end());
    }
    const auto committed_bytes = static_cast<size_t>(committed.value());
    cursor_.skip(committed_bytes);
    position_ += committed_bytes;
    written_bytes_ += committed_bytes;
    step_ = Step::grant;
}

void ContentWriter::part_failed(Error error, uint64_t end_bytes) {
    release_copy();
    step_ = Step::grant;
    if (error == Error::enomem && patience_.wait()) {
        return;
    }
    const bool goes_on = is_write_back() && may_go_on(error);
    if (goes_on && end_bytes > (block_of(position_) + 1) * kBlockBytes) {
        single_until_bytes_ = end_bytes;
        return;
    }
    failure_ = failure_.ok() ? error : failure_;
    if (!goes_on) {
        return finish();
    }
    size_t skipped = kBlockBytes - static_cast<size_t>(position_ % kBlockBytes);
    skipped = skipped < cursor_.remaining() ? skipped : cursor_.remaining();
    cursor_.skip(skipped);
    position_ += skipped;
}

Result<bool> ContentWriter::write_segments() {
    const bool may_change = (flags_ & write_flag::unstable_buffers) != 0;
    if (may_change || !TRY(list_segments())) {
        TRY(copy_segments());
    }
    take_checksums();
    if (grant_.segment_count == 1 && transferred_ == nullptr) {
        TRY(device_->write(requests_[0].offset_bytes, requests_[0].buffers,
                           requests_[0].buffer_count));
        return false;
    }
    is_under_way_ = true;
    submit_all();
    return true;
}

void ContentWriter::submit_all() {
    const uint32_t count = grant_.segment_count;
    transfer_.begin(count, transferred_, owner_);
    for (uint32_t i = 0; i < count; ++i) {
        transfer_.submit(*device_, requests_[i]);
    }
}

// ---- Its bytes ----------------------------------------------------------------------------------

bool ContentWriter::is_partial(uint64_t block) const {
    const uint64_t first = block * kBlockBytes;
    return grant_.offset_bytes > first || part_end() < first + kBlockBytes;
}

Result<void> ContentWriter::read_block(uint64_t block, unsigned char* page) {
    mapping_.file_size_bytes = 0;
    Result<void> result = file_system_->map_read(node_, block * kBlockBytes, kBlockBytes, mapping_);
    const bool is_mapped = result.ok();
    if (mapping_.file_size_bytes != 0 && grant_.offset_bytes <= block * kBlockBytes &&
        part_end() >= mapping_.file_size_bytes) {
        // Nothing of it stays, and behind the end of file are zeros: it may be damaged, or marked as lost.
        result = {};
        mapping_.segment_count = 0;
    }
    TRY(result);
    uint64_t filled = 0;
    for (uint32_t i = 0; i < mapping_.segment_count && result.ok(); ++i) {
        const ReadSegment& segment = mapping_.segments[i];
        const auto length = static_cast<size_t>(segment.length_bytes);
        const IoVector into{page + filled, length};
        if (segment.kind == SegmentKind::device) {
            result = device_->read(segment.device_offset_bytes, &into, 1);
            if (result.ok()) {
                result =
                    file_system_->verify_read(mapping_, i, Span<const IoVector>(&into, 1), true);
            }
        } else if (segment.kind == SegmentKind::memory) {
            __builtin_memcpy(page + filled, segment.memory, length);
        } else {
            __builtin_memset(page + filled, 0, length);
        }
        filled += length;
    }
    if (is_mapped) {
        file_system_->release_read(mapping_);
    }
    __builtin_memset(page + filled, 0, kBlockBytes - filled);
    return result;
}

Result<void> ContentWriter::merge_block(uint64_t block, BufferCursor& cursor, unsigned char* page) {
    TRY(read_block(block, page));
    const uint64_t first = block * kBlockBytes;
    const uint64_t end = first + kBlockBytes;
    const uint64_t begin = grant_.offset_bytes > first ? grant_.offset_bytes : first;
    cursor.copy_to(page + (begin - first),
                   static_cast<size_t>((part_end() < end ? part_end() : end) - begin));
    return {};
}

void ContentWriter::set_request(uint32_t index, const IoVector* vectors, size_t count) {
    IoRequest& request = requests_[index];
    request = {};
    request.operation = IoOperation::write;
    request.offset_bytes = grant_.segments[index].device_offset_bytes;
    request.buffers = vectors;
    request.buffer_count = count;
}

Result<bool> ContentWriter::list_segments() {
    BufferCursor cursor = cursor_;
    const uint64_t first_block = block_of(grant_.offset_bytes);
    uint64_t block = first_block;
    size_t used_vectors = 0;
    for (uint32_t i = 0; i < grant_.segment_count; ++i) {
        VectorList list(vectors_ + used_vectors, kMaximumVectors - used_vectors);
        const uint64_t end = block + block_of(grant_.segments[i].length_bytes);
        bool fits = true;
        while (block < end && fits) {
            if (is_partial(block)) {
                unsigned char* edge = edges_[block == first_block ? 0 : 1];
                TRY(merge_block(block, cursor, edge));
                fits = list.add(edge, kBlockBytes);
                ++block;
            } else {
                const uint64_t whole_end = block_of(part_end()) < end ? block_of(part_end()) : end;
                fits = cursor.slice(static_cast<size_t>((whole_end - block) * kBlockBytes), list);
                block = whole_end;
            }
        }
        if (!fits) {
            return false;
        }
        set_request(i, list.data(), list.size());
        used_vectors += list.size();
    }
    return true;
}

Result<void> ContentWriter::copy_segments() {
    const uint64_t first_block = block_of(grant_.offset_bytes);
    const uint64_t end_block = blocks_to(part_end());
    copy_bytes_ = static_cast<size_t>((end_block - first_block) * kBlockBytes);
    copy_ = host::allocate_pages(copy_bytes_);
    if (copy_ == nullptr) {
        return Error::enomem;
    }
    BufferCursor cursor = cursor_;
    auto* page = static_cast<unsigned char*>(copy_);
    for (uint64_t block = first_block; block < end_block; ++block, page += kBlockBytes) {
        if (is_partial(block)) {
            TRY(merge_block(block, cursor, page));
        } else {
            cursor.copy_to(page, kBlockBytes);
        }
    }
    page = static_cast<unsigned char*>(copy_);
    for (uint32_t i = 0; i < grant_.segment_count; ++i) {
        vectors_[i] = {page, static_cast<size_t>(grant_.segments[i].length_bytes)};
        set_request(i, &vectors_[i], 1);
        page += grant_.segments[i].length_bytes;
    }
    return {};
}

void ContentWriter::release_copy() {
    if (copy_ != nullptr) {
        host::release_pages(copy_, copy_bytes_);
        copy_ = nullptr;
    }
}

void ContentWriter::take_checksums() {
    uint32_t* checksum = checksums_;
    for (uint32_t i = 0; i < grant_.segment_count; ++i) {
        BufferCursor written(Span<const IoVector>(requests_[i].buffers, requests_[i].buffer_count));
        while (written.remaining() > 0) {
            *checksum++ = written.checksum(kBlockBytes);
        }
    }
}

void ContentWriter::take_content() {
    BufferCursor cursor = cursor_;
    TIFFIN_ASSERT(grant_.length_bytes <= WriteGrant::kMaxContentBytes);
    cursor.copy_to(edges_[0], static_cast<size_t>(grant_.length_bytes));
}

// ---- In the calling thread ----------------------------------------------------------------------

Result<size_t> write_content(ContentWriter& writer, FileSystem& file_system, NodeId node,
                             uint64_t offset_bytes, Span<const IoVector> buffers, uint32_t flags) {
    writer.begin(file_system, node, offset_bytes, buffers, flags);
    while (!writer.advance()) {
        writer.wait();
    }
    return writer.result();
}

Result<size_t> write_content(FileSystem& file_system, NodeId node, uint64_t offset_bytes,
                             Span<const IoVector> buffers, uint32_t flags) {
    static_assert(sizeof(ContentWriter) % kBlockBytes == 0);
    if (file_system.device() == nullptr) {
        return Error::eopnotsupp;
    }
    void* memory = nullptr;
    if ((flags & write_flag::write_back) != 0) {
        const host::MemoryReserveScope scope;
        memory = host::allocate_pages(sizeof(ContentWriter));
    } else {
        memory = host::allocate_pages(sizeof(ContentWriter));
    }
    if (memory == nullptr) {
        if ((flags & write_flag::promised) != 0) {
            return_promise(file_system, offset_bytes, BufferCursor(buffers).remaining());
        }
        return Error::enomem;
    }
    auto* writer = new (memory) ContentWriter;
    Result<size_t> written =
        write_content(*writer, file_system, node, offset_bytes, buffers, flags);
    writer->~ContentWriter();
    host::release_pages(memory, sizeof(ContentWriter));
    return written;
}

}  // namespace tiffin::vfs
