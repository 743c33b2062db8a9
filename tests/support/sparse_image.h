// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The content of a device, cheap to copy: tests take thousands of images of one device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tiffin::test {

// Bytes that are zero until they are written. Copies share their chunks until one of them writes.
// Not thread-safe, but copies may be used in different threads.
class SparseImage {
  public:
    explicit SparseImage(uint64_t size_bytes);
    SparseImage(SparseImage&&) = default;
    SparseImage& operator=(SparseImage&&) = default;

    uint64_t size_bytes() const { return size_bytes_; }
    // How much memory the written chunks take, shared or not.
    uint64_t allocated_bytes() const;

    // Ranges lie within the image.
    void read(uint64_t offset_bytes, void* destination, size_t size_bytes) const;
    void write(uint64_t offset_bytes, const void* source, size_t size_bytes);

    // Another image with the same content. Not const: from now on neither of the two owns the chunks.
    SparseImage copy();

  private:
    static constexpr size_t kChunkBytes = 16384;

    struct Chunk {
        uint64_t owner = 0;  // the identity of the image that may change it
        unsigned char bytes[kChunkBytes] = {};
    };

    SparseImage(const SparseImage&) = default;
    unsigned char* writable_chunk(size_t index);

    uint64_t size_bytes_;
    uint64_t identity_;
    std::vector<std::shared_ptr<Chunk>> chunks_;
};

}  // namespace tiffin::test
