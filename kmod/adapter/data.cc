// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Content: the reader and the writer of the core, for the page cache.
#include <new>

#include "fs/vfs/content_writer.h"
#include "kmod/adapter/mount.h"

namespace tiffin::kmod {

namespace {

constexpr size_t kReaderBytes =
    (sizeof(PageReader) + vfs::kBlockBytes - 1) / vfs::kBlockBytes * vfs::kBlockBytes;

void destroy(PageReader* reader) {
    reader->~PageReader();
    host::release_pages(reader, kReaderBytes);
}

Span<const vfs::IoVector> list_of(const tiffin_vector* buffers, size_t count) {
    return {reinterpret_cast<const vfs::IoVector*>(buffers), count};
}

}  // namespace

// ---- Reading -------------------------------------------------------------------------------------

ReaderPool::~ReaderPool() {
    while (PageReader* reader = kept_.take()) {
        destroy(reader);
    }
}

PageReader* ReaderPool::take() {
    if (PageReader* reader = kept_.take(); reader != nullptr) {
        return reader;
    }
    void* memory = host::allocate_pages(kReaderBytes);
    return memory == nullptr ? nullptr : new (memory) PageReader;
}

void ReaderPool::give_back(PageReader* reader) {
    if (!kept_.give_back(reader)) {
        destroy(reader);
    }
}

// Without note_read(): the kernel keeps access times.
void PageReader::begin(tiffin_file_system& fs, uint64_t node, uint64_t offset_bytes,
                       Span<const vfs::IoVector> buffers, vfs::Transfer::Completed transferred,
                       void* owner) {
    fs_ = &fs;
    node_ = node;
    offset_bytes_ = offset_bytes;
    cursor_ = BufferCursor(buffers);
    done_bytes_ = 0;
    failure_ = {};
    transferred_ = transferred;
    owner_ = owner;
    step_ = cursor_.remaining() > 0 ? Step::map : Step::done;
}

// Once I/O is under way another thread may be in here, so nothing of the reader is touched after that.
bool PageReader::advance() {
    while (step_ != Step::done) {
        if (step_ == Step::verify) {
            finish_part();
        } else if (begin_part()) {
            return false;
        }
    }
    return true;
}

Result<size_t> PageReader::result() const {
    if (!failure_.ok()) {
        return failure_.error();
    }
    return done_bytes_;
}

bool PageReader::begin_part() {
    part_bytes_ = cursor_.remaining() < vfs::ContentReader::kMaximumBytes
                      ? cursor_.remaining()
                      : vfs::ContentReader::kMaximumBytes;
    const Result<void> mapped =
        content_.map(*fs_->core, fs_->device, node_, offset_bytes_, part_bytes_);
    if (!mapped.ok()) {
        fail(mapped.error());
        return false;
    }
    if (!content_.place(cursor_)) {
        fail(Error::enomem);
        return false;
    }
    step_ = Step::verify;
    return content_.begin_fetch(transferred_, owner_);
}

void PageReader::finish_part() {
    const Result<void> fetched = content_.finish_fetch();
    if (!fetched.ok()) {
        fail(fetched.error());
        return;
    }
    content_.copy_to(cursor_);
    const size_t length_bytes = content_.length_bytes();
    content_.release();
    cursor_.skip(length_bytes);
    offset_bytes_ += length_bytes;
    done_bytes_ += length_bytes;
    step_ = length_bytes < part_bytes_ || cursor_.remaining() == 0 ? Step::done : Step::map;
}

void PageReader::fail(Error error) {
    content_.release();
    failure_ = error;
    step_ = Step::done;
}

void* read_begin(tiffin_file_system* fs, uint64_t node, uint64_t offset_bytes,
                 const tiffin_vector* buffers, size_t buffer_count,
                 void (*transferred)(void* owner), void* owner) {
    PageReader* reader = fs->readers.take();
    if (reader != nullptr) {
        reader->begin(*fs, node, offset_bytes, list_of(buffers, buffer_count), transferred, owner);
    }
    return reader;
}

bool read_advance(void* reader) { return static_cast<PageReader*>(reader)->advance(); }

long read_result(tiffin_file_system* fs, void* reader) {
    auto* done = static_cast<PageReader*>(reader);
    const Result<size_t> length = done->result();
    fs->readers.give_back(done);
    return number_of(length);
}

long read_data(tiffin_file_system* fs, uint64_t node, uint64_t offset_bytes,
               const tiffin_vector* buffers, size_t buffer_count) {
    if (fs->core->device() == nullptr) {
        return number_of(fs->core->read(node, 0, offset_bytes, list_of(buffers, buffer_count)));
    }
    host::Semaphore transferred;
    void* reader = read_begin(
        fs, node, offset_bytes, buffers, buffer_count,
        [](void* owner) { static_cast<host::Semaphore*>(owner)->post(); }, &transferred);
    if (reader == nullptr) {
        return negative(Error::enomem);
    }
    while (!read_advance(reader)) {
        transferred.wait();
    }
    return read_result(fs, reader);
}

// ---- Writing -------------------------------------------------------------------------------------

long write_data(tiffin_file_system* fs, uint64_t node, uint64_t offset_bytes,
                const tiffin_vector* buffers, size_t buffer_count, uint32_t flags) {
    return number_of(fs->core->write(node, 0, offset_bytes, list_of(buffers, buffer_count), flags));
}

uint32_t writer_bytes() {
    static_assert(sizeof(vfs::ContentWriter) % vfs::kBlockBytes == 0);
    return sizeof(vfs::ContentWriter);
}

void writer_make(void* memory) { new (memory) vfs::ContentWriter; }

void write_begin(tiffin_file_system* fs, void* writer, uint64_t node, uint64_t offset_bytes,
                 const tiffin_vector* buffers, size_t buffer_count, uint32_t flags,
                 void (*transferred)(void* owner), void* owner) {
    static_cast<vfs::ContentWriter*>(writer)->begin(
        *fs->core, node, offset_bytes, list_of(buffers, buffer_count), flags, transferred, owner);
}

bool write_advance(void* writer) { return static_cast<vfs::ContentWriter*>(writer)->advance(); }

long write_result(void* writer) {
    return number_of(static_cast<vfs::ContentWriter*>(writer)->result());
}

}  // namespace tiffin::kmod
