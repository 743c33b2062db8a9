// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Content: the reader and the writer of the core, for the page cache.
#include <new>

#include "fs/vfs/content_writer.h"
#include "kmod/adapter/mount.h"

namespace tiffin::kmod {

static_assert(sizeof(vfs::ContentReader) % vfs::kBlockBytes == 0);

ReaderPool::~ReaderPool() {
    for (size_t i = 0; i < count_; ++i) {
        kept_[i]->~ContentReader();
        host::release_pages(kept_[i], sizeof(vfs::ContentReader));
    }
}

vfs::ContentReader* ReaderPool::take() {
    {
        MutexLock lock(lock_);
        if (count_ > 0) {
            return kept_[--count_];
        }
    }
    void* memory = host::allocate_pages(sizeof(vfs::ContentReader));
    return memory == nullptr ? nullptr : new (memory) vfs::ContentReader;
}

void ReaderPool::give_back(vfs::ContentReader* reader) {
    {
        MutexLock lock(lock_);
        if (count_ < kKept) {
            kept_[count_++] = reader;
            return;
        }
    }
    reader->~ContentReader();
    host::release_pages(reader, sizeof(vfs::ContentReader));
}

namespace {

Span<const vfs::IoVector> list_of(const tiffin_vector* buffers, size_t count) {
    return {reinterpret_cast<const vfs::IoVector*>(buffers), count};
}

// read_content() without note_read(): the kernel keeps access times.
Result<size_t> read_pages(vfs::ContentReader& reader, tiffin_file_system& fs, uint64_t node,
                          uint64_t offset_bytes, BufferCursor cursor) {
    size_t done_bytes = 0;
    while (cursor.remaining() > 0) {
        const size_t size_bytes = cursor.remaining() < vfs::ContentReader::kMaximumBytes
                                      ? cursor.remaining()
                                      : vfs::ContentReader::kMaximumBytes;
        Result<void> mapped =
            reader.map(*fs.core, fs.device, node, offset_bytes + done_bytes, size_bytes);
        Result<bool> fetched = mapped.ok() ? reader.fetch(cursor) : Result<bool>(mapped.error());
        if (fetched.ok() && fetched.value()) {
            reader.copy_to(cursor);
        }
        const size_t length_bytes = reader.length_bytes();
        reader.release();
        if (!fetched.ok()) {
            return fetched.error();
        }
        if (!fetched.value()) {
            return Error::enomem;
        }
        cursor.skip(length_bytes);
        done_bytes += length_bytes;
        if (length_bytes < size_bytes) {
            break;
        }
    }
    return done_bytes;
}

}  // namespace

long read_data(tiffin_file_system* fs, uint64_t node, uint64_t offset_bytes,
               const tiffin_vector* buffers, size_t buffer_count) {
    const Span<const vfs::IoVector> list = list_of(buffers, buffer_count);
    if (fs->core->device() == nullptr) {
        return number_of(fs->core->read(node, 0, offset_bytes, list));
    }
    vfs::ContentReader* reader = fs->readers.take();
    if (reader == nullptr) {
        return negative(Error::enomem);
    }
    const Result<size_t> length = read_pages(*reader, *fs, node, offset_bytes, BufferCursor(list));
    fs->readers.give_back(reader);
    return number_of(length);
}

long write_data(tiffin_file_system* fs, uint64_t node, uint64_t offset_bytes,
                const tiffin_vector* buffers, size_t buffer_count, uint32_t flags) {
    return number_of(fs->core->write(node, 0, offset_bytes, list_of(buffers, buffer_count), flags));
}

uint32_t writer_bytes() {
    static_assert(sizeof(vfs::ContentWriter) % vfs::kBlockBytes == 0);
    return sizeof(vfs::ContentWriter);
}

void write_begin(tiffin_file_system* fs, void* writer, uint64_t node, uint64_t offset_bytes,
                 const tiffin_vector* buffers, size_t buffer_count, uint32_t flags,
                 void (*transferred)(void* owner), void* owner) {
    auto* begun = new (writer) vfs::ContentWriter;
    begun->begin(*fs->core, node, offset_bytes, list_of(buffers, buffer_count), flags, transferred,
                 owner);
}

bool write_advance(void* writer) { return static_cast<vfs::ContentWriter*>(writer)->advance(); }

int write_result(void* writer) {
    auto* done = static_cast<vfs::ContentWriter*>(writer);
    const Result<size_t> result = done->result();
    done->~ContentWriter();
    return result.ok() ? 0 : negative(result.error());
}

}  // namespace tiffin::kmod
