// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/support/sparse_image.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "fs/vfs/host.h"

namespace tiffin::test {
namespace {

uint64_t new_identity() {
    static std::atomic<uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

SparseImage::SparseImage(uint64_t size_bytes)
    : size_bytes_(size_bytes),
      identity_(new_identity()),
      chunks_((size_bytes + kChunkBytes - 1) / kChunkBytes) {}

uint64_t SparseImage::allocated_bytes() const {
    const auto count = std::count_if(chunks_.begin(), chunks_.end(),
                                     [](const auto& chunk) { return chunk != nullptr; });
    return static_cast<uint64_t>(count) * kChunkBytes;
}

void SparseImage::read(uint64_t offset_bytes, void* destination, size_t size_bytes) const {
    TIFFIN_ASSERT(offset_bytes <= size_bytes_ && size_bytes <= size_bytes_ - offset_bytes);
    auto* bytes = static_cast<unsigned char*>(destination);
    while (size_bytes > 0) {
        const size_t start = offset_bytes % kChunkBytes;
        const size_t length = std::min(size_bytes, kChunkBytes - start);
        const Chunk* chunk = chunks_[offset_bytes / kChunkBytes].get();
        if (chunk != nullptr) {
            memcpy(bytes, chunk->bytes + start, length);
        } else {
            memset(bytes, 0, length);
        }
        bytes += length;
        offset_bytes += length;
        size_bytes -= length;
    }
}

void SparseImage::write(uint64_t offset_bytes, const void* source, size_t size_bytes) {
    TIFFIN_ASSERT(offset_bytes <= size_bytes_ && size_bytes <= size_bytes_ - offset_bytes);
    const auto* bytes = static_cast<const unsigned char*>(source);
    while (size_bytes > 0) {
        const size_t start = offset_bytes % kChunkBytes;
        const size_t length = std::min(size_bytes, kChunkBytes - start);
        memcpy(writable_chunk(offset_bytes / kChunkBytes) + start, bytes, length);
        bytes += length;
        offset_bytes += length;
        size_bytes -= length;
    }
}

SparseImage SparseImage::copy() {
    SparseImage other = *this;
    // Chunks of the old identity now belong to nobody: whoever writes first makes its own.
    identity_ = new_identity();
    other.identity_ = new_identity();
    return other;
}

unsigned char* SparseImage::writable_chunk(size_t index) {
    std::shared_ptr<Chunk>& chunk = chunks_[index];
    if (chunk == nullptr) {
        chunk = std::make_shared<Chunk>();
        chunk->owner = identity_;
    } else if (chunk->owner != identity_) {
        // Another image may be reading the old one.
        auto own = std::make_shared<Chunk>(*chunk);
        own->owner = identity_;
        chunk = std::move(own);
    }
    return chunk->bytes;
}

}  // namespace tiffin::test
