// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/shm/unit_copy.h"

#include <limits.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fs/vfs/host.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tiffin::rdma_blk {
namespace {

#if defined(__x86_64__)

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

void copy_by_processor(unsigned char* destination, const vfs::IoVector* pieces,
                       size_t piece_count) {
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

bool has_unit_stores() { return __builtin_cpu_supports("avx512f") != 0; }

#else

void copy_by_processor(unsigned char* destination, const vfs::IoVector* pieces,
                       size_t piece_count) {
    (void)destination, (void)pieces, (void)piece_count;
    TIFFIN_ASSERT(false);
}

bool has_unit_stores() { return false; }

#endif

static_assert(sizeof(vfs::IoVector) == sizeof(iovec) &&
              offsetof(vfs::IoVector, data) == offsetof(iovec, iov_base) &&
              offsetof(vfs::IoVector, size_bytes) == offsetof(iovec, iov_len));

// A page of the source that is not there would interrupt the kernel's copy, and a killed process does not get it any more.
size_t touch_pages(const vfs::IoVector* pieces, size_t piece_count) {
    constexpr size_t kPageBytes = 4096;
    size_t total_bytes = 0;
    for (size_t i = 0; i < piece_count; i++) {
        const auto* data = static_cast<const volatile unsigned char*>(pieces[i].data);
        const size_t size_bytes = pieces[i].size_bytes;
        for (size_t at = 0; at < size_bytes; at += kPageBytes) {
            [[maybe_unused]] const unsigned char seen = data[at];
        }
        if (size_bytes != 0) {
            [[maybe_unused]] const unsigned char last = data[size_bytes - 1];
        }
        total_bytes += size_bytes;
    }
    return total_bytes;
}

bool copy_by_kernel(unsigned char* destination, const vfs::IoVector* pieces, size_t piece_count) {
    TIFFIN_ASSERT(piece_count <= IOV_MAX);
    const size_t total_bytes = touch_pages(pieces, piece_count);
    const iovec place{destination, total_bytes};
    const ssize_t copied = process_vm_writev(gettid(), reinterpret_cast<const iovec*>(pieces),
                                             piece_count, &place, 1, 0);
    return copied >= 0 && static_cast<size_t>(copied) == total_bytes;
}

// Sandboxes forbid the system call.
bool kernel_copies() {
    unsigned char from = 1;
    unsigned char to = 0;
    const vfs::IoVector piece{&from, 1};
    return copy_by_kernel(&to, &piece, 1) && to == 1;
}

}  // namespace

UnitCopy unit_copy() {
    static const UnitCopy best = has_unit_stores() ? UnitCopy::by_processor
                                 : kernel_copies() ? UnitCopy::by_kernel
                                                   : UnitCopy::none;
    return best;
}

bool copy_units(UnitCopy way, unsigned char* destination, const vfs::IoVector* pieces,
                size_t piece_count) {
    TIFFIN_ASSERT(way != UnitCopy::none);
    if (way == UnitCopy::by_kernel) {
        return copy_by_kernel(destination, pieces, piece_count);
    }
    copy_by_processor(destination, pieces, piece_count);
    return true;
}

}  // namespace tiffin::rdma_blk
