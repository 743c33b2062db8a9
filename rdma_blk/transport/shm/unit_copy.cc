// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/shm/unit_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "fs/vfs/host.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tiffin::rdma_blk {

#if defined(__x86_64__)

namespace {

__attribute__((target("avx512f"))) void copy_whole_units(unsigned char* destination,
                                                         const unsigned char* source,
                                                         size_t unit_count) {
    while (unit_count >= 4) {
        const __m512i first = _mm512_loadu_si512(source);
        const __m512i second = _mm512_loadu_si512(source + kCopyUnitBytes);
        const __m512i third = _mm512_loadu_si512(source + 2 * kCopyUnitBytes);
        const __m512i fourth = _mm512_loadu_si512(source + 3 * kCopyUnitBytes);
        _mm512_store_si512(destination, first);
        _mm512_store_si512(destination + kCopyUnitBytes, second);
        _mm512_store_si512(destination + 2 * kCopyUnitBytes, third);
        _mm512_store_si512(destination + 3 * kCopyUnitBytes, fourth);
        source += 4 * kCopyUnitBytes;
        destination += 4 * kCopyUnitBytes;
        unit_count -= 4;
    }
    for (; unit_count > 0; unit_count--) {
        _mm512_store_si512(destination, _mm512_loadu_si512(source));
        source += kCopyUnitBytes;
        destination += kCopyUnitBytes;
    }
}

// The same with stores that go by the caches: a line that is written in whole need not be fetched first, nor displace
// what is used.
__attribute__((target("avx512f"))) void stream_whole_units(unsigned char* destination,
                                                           const unsigned char* source,
                                                           size_t unit_count) {
    for (; unit_count > 0; unit_count--) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(destination), _mm512_loadu_si512(source));
        source += kCopyUnitBytes;
        destination += kCopyUnitBytes;
    }
}

// The pieces as one row of bytes.
class Source {
  public:
    Source(const vfs::IoVector* pieces, size_t count) : pieces_(pieces), count_(count) { skip(); }

    bool empty() const { return count_ == 0; }
    const unsigned char* data() const {
        return static_cast<const unsigned char*>(pieces_->data) + offset_;
    }
    size_t total_bytes() const {
        size_t total = 0;
        for (size_t i = 0; i < count_; i++) {
            total += pieces_[i].size_bytes;
        }
        return total - offset_;
    }
    size_t contiguous_bytes() const { return empty() ? 0 : pieces_->size_bytes - offset_; }
    void advance(size_t bytes) {
        offset_ += bytes;
        skip();
    }
    // Copies up to `most` bytes; returns how many there were.
    size_t take(unsigned char* destination, size_t most) {
        size_t taken = 0;
        while (taken < most && !empty()) {
            const size_t part = std::min(most - taken, contiguous_bytes());
            std::memcpy(destination + taken, data(), part);
            taken += part;
            advance(part);
        }
        return taken;
    }

  private:
    void skip() {
        while (count_ > 0 && offset_ == pieces_->size_bytes) {
            pieces_++;
            count_--;
            offset_ = 0;
        }
    }

    const vfs::IoVector* pieces_;
    size_t count_;
    size_t offset_ = 0;
};

}  // namespace

bool can_copy_units() {
    static const bool can = __builtin_cpu_supports("avx512f") != 0;
    return can;
}

void copy_units(unsigned char* destination, const vfs::IoVector* pieces, size_t piece_count) {
    Source source(pieces, piece_count);
    const bool is_streamed = source.total_bytes() >= kStreamedBytes;
    const auto copy_whole = is_streamed ? stream_whole_units : copy_whole_units;
    const size_t beyond = reinterpret_cast<uintptr_t>(destination) % kCopyUnitBytes;
    if (beyond != 0) {
        destination += source.take(destination, kCopyUnitBytes - beyond);
    }
    while (!source.empty()) {
        const size_t units = source.contiguous_bytes() / kCopyUnitBytes;
        if (units > 0) {
            copy_whole(destination, source.data(), units);
            destination += units * kCopyUnitBytes;
            source.advance(units * kCopyUnitBytes);
            continue;
        }
        // A unit of several pieces, or what is left at the end.
        alignas(kCopyUnitBytes) unsigned char unit[kCopyUnitBytes];
        const size_t bytes = source.take(unit, kCopyUnitBytes);
        if (bytes == kCopyUnitBytes) {
            copy_whole(destination, unit, 1);
        } else {
            std::memcpy(destination, unit, bytes);
        }
        destination += bytes;
    }
    if (is_streamed) {
        _mm_sfence();  // such stores are in no order with others, such as those that say that this is done
    }
}

#else

bool can_copy_units() { return false; }

void copy_units(unsigned char* destination, const vfs::IoVector* pieces, size_t piece_count) {
    (void)destination, (void)pieces, (void)piece_count;
    TIFFIN_ASSERT(false);
}

#endif

}  // namespace tiffin::rdma_blk
