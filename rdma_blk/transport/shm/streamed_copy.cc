// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/shm/streamed_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tiffin::rdma_blk {

#if defined(__x86_64__)

// Sixteen bytes each, which every x86-64 has: the processor collects those of a line.
void copy_streamed(unsigned char* destination, ByteSpan source) {
    constexpr size_t kLineBytes = 64;
    const unsigned char* from = source.data();
    size_t left = source.size();
    const size_t beyond = reinterpret_cast<uintptr_t>(destination) % kLineBytes;
    const size_t head = beyond == 0 ? 0 : std::min(left, kLineBytes - beyond);
    std::memcpy(destination, from, head);
    destination += head;
    from += head;
    left -= head;
    for (; left >= kLineBytes; left -= kLineBytes) {
        const auto* in = reinterpret_cast<const __m128i*>(from);
        auto* out = reinterpret_cast<__m128i*>(destination);
        const __m128i first = _mm_loadu_si128(in);
        const __m128i second = _mm_loadu_si128(in + 1);
        const __m128i third = _mm_loadu_si128(in + 2);
        const __m128i fourth = _mm_loadu_si128(in + 3);
        _mm_stream_si128(out, first);
        _mm_stream_si128(out + 1, second);
        _mm_stream_si128(out + 2, third);
        _mm_stream_si128(out + 3, fourth);
        from += kLineBytes;
        destination += kLineBytes;
    }
    std::memcpy(destination, from, left);
    _mm_sfence();  // such stores are in no order with others, such as those that say that this is done
}

#else

void copy_streamed(unsigned char* destination, ByteSpan source) {
    std::memcpy(destination, source.data(), source.size());
}

#endif

}  // namespace tiffin::rdma_blk
