// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Walking through a scatter-gather list: copying, cutting it into pieces, checksumming its blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/vfs/host.h"
#include "fs/vfs/span.h"

namespace tiffin {

// A list of buffers that is being built in the caller's array.
class VectorList {
  public:
    VectorList(vfs::IoVector* vectors, size_t capacity) : vectors_(vectors), capacity_(capacity) {}

    // Joins with the last buffer when they touch. False when there is no room.
    [[nodiscard]] bool add(void* data, size_t size_bytes) {
        if (size_bytes == 0) {
            return true;
        }
        if (count_ > 0) {
            vfs::IoVector& last = vectors_[count_ - 1];
            if (static_cast<unsigned char*>(last.data) + last.size_bytes == data) {
                last.size_bytes += size_bytes;
                return true;
            }
        }
        if (count_ == capacity_) {
            return false;
        }
        vectors_[count_++] = {data, size_bytes};
        return true;
    }
    void clear() { count_ = 0; }

    const vfs::IoVector* data() const { return vectors_; }
    size_t size() const { return count_; }
    Span<const vfs::IoVector> span() const { return Span<const vfs::IoVector>(vectors_, count_); }

  private:
    vfs::IoVector* vectors_;
    size_t capacity_;
    size_t count_ = 0;
};

// A place in a scatter-gather list, and how much of it is left. Small enough to be copied, which is how
// a place is remembered.
class BufferCursor {
  public:
    explicit BufferCursor(Span<const vfs::IoVector> buffers) : buffers_(buffers) {
        for (const vfs::IoVector& buffer : buffers) {
            remaining_ += buffer.size_bytes;
        }
    }

    size_t remaining() const { return remaining_; }
    // Forgets what lies more than `size_bytes` ahead.
    void limit(size_t size_bytes) {
        remaining_ = size_bytes < remaining_ ? size_bytes : remaining_;
    }

    // Each of these moves on by `size_bytes`, at most what remains.

    // Copies from the buffers to `destination`.
    void copy_to(void* destination, size_t size_bytes) {
        auto* to = static_cast<unsigned char*>(destination);
        for_pieces(size_bytes, [&](unsigned char* piece, size_t piece_bytes) {
            __builtin_memcpy(to, piece, piece_bytes);
            to += piece_bytes;
            return true;
        });
    }
    // Copies from `source` into the buffers.
    void copy_from(const void* source, size_t size_bytes) {
        const auto* from = static_cast<const unsigned char*>(source);
        for_pieces(size_bytes, [&](unsigned char* piece, size_t piece_bytes) {
            __builtin_memcpy(piece, from, piece_bytes);
            from += piece_bytes;
            return true;
        });
    }
    void fill_with_zeros(size_t size_bytes) {
        for_pieces(size_bytes, [](unsigned char* piece, size_t piece_bytes) {
            __builtin_memset(piece, 0, piece_bytes);
            return true;
        });
    }
    void skip(size_t size_bytes) {
        for_pieces(size_bytes, [](unsigned char*, size_t) { return true; });
    }
    // Adds the pieces that make up the next bytes to `list`. False when it has no room for them all;
    // then some of them are in it.
    [[nodiscard]] bool slice(size_t size_bytes, VectorList& list) {
        return for_pieces(size_bytes, [&](unsigned char* piece, size_t piece_bytes) {
            return list.add(piece, piece_bytes);
        });
    }
    // The CRC32C of the next bytes.
    uint32_t checksum(size_t size_bytes) {
        uint32_t result = 0;
        for_pieces(size_bytes, [&](unsigned char* piece, size_t piece_bytes) {
            result = host::crc32c(result, piece, piece_bytes);
            return true;
        });
        return result;
    }

  private:
    // Calls function(piece, size) for the pieces of the next bytes until it returns false.
    template <typename Function>
    bool for_pieces(size_t size_bytes, Function function) {
        TIFFIN_ASSERT(size_bytes <= remaining_);
        remaining_ -= size_bytes;
        while (size_bytes > 0) {
            const vfs::IoVector& buffer = buffers_[index_];
            size_t available = buffer.size_bytes - offset_;
            size_t piece_bytes = available < size_bytes ? available : size_bytes;
            if (piece_bytes > 0 &&
                !function(static_cast<unsigned char*>(buffer.data) + offset_, piece_bytes)) {
                return false;
            }
            size_bytes -= piece_bytes;
            offset_ += piece_bytes;
            if (offset_ == buffer.size_bytes) {
                ++index_;
                offset_ = 0;
            }
        }
        return true;
    }

    Span<const vfs::IoVector> buffers_;
    size_t index_ = 0;
    size_t offset_ = 0;
    size_t remaining_ = 0;
};

}  // namespace tiffin
