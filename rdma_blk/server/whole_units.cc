// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/server/whole_units.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "rdma_blk/transport/shm/unit_copy.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tiffin::rdma_blk {
namespace {

// What counts is which instructions the process had carried out when it ended.
void in_order() { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

void set_state(wire::UnitMark& mark, uint32_t state) {
    in_order();
    __atomic_store_n(&mark.state, state, __ATOMIC_RELAXED);
    in_order();
}

void store_unit(unsigned char* place, const unsigned char* from, bool is_streamed) {
#if defined(__x86_64__)
    if (is_streamed) {
        for (size_t at = 0; at < kCopyUnitBytes; at += sizeof(__m128i)) {
            _mm_stream_si128(reinterpret_cast<__m128i*>(place + at),
                             _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
        }
        return;
    }
#else
    (void)is_streamed;
#endif
    std::memcpy(place, from, kCopyUnitBytes);
}

}  // namespace

void write_marked_units(wire::UnitMark& mark, AddressSpace space, uint64_t offset_bytes,
                        unsigned char* place, ByteSpan payload) {
    const unsigned char* from = payload.data();
    size_t left = payload.size();
    const bool is_streamed = left >= kStreamedBytes;
    const size_t beyond = reinterpret_cast<uintptr_t>(place) % kCopyUnitBytes;
    const size_t head = beyond == 0 ? 0 : std::min(left, kCopyUnitBytes - beyond);
    const auto advance = [&](size_t bytes) {
        from += bytes;
        place += bytes;
        offset_bytes += bytes;
        left -= bytes;
    };
    if (head > 0) {
        std::memcpy(place, from, head);
        advance(head);
    }
    while (left >= kCopyUnitBytes) {
        std::memcpy(mark.bytes, from, kCopyUnitBytes);
        mark.offset_bytes = offset_bytes;
        set_state(mark, static_cast<uint32_t>(space) + 1);
        store_unit(place, from, is_streamed);
        set_state(mark, 0);
        advance(kCopyUnitBytes);
    }
    if (left > 0) {
        std::memcpy(place, from, left);
    }
#if defined(__x86_64__)
    if (is_streamed) {
        _mm_sfence();  // such stores are in no order with others, such as those that say that this is done
    }
#endif
}

void write_whole_units(wire::UnitMark& mark, AddressSpace space, uint64_t offset_bytes,
                       unsigned char* place, ByteSpan payload) {
    if (unit_copy() != UnitCopy::by_processor) {
        write_marked_units(mark, space, offset_bytes, place, payload);
        return;
    }
    const vfs::IoVector piece{const_cast<unsigned char*>(payload.data()), payload.size()};
    (void)copy_units(UnitCopy::by_processor, place, &piece, 1);
}

void finish_unit(wire::UnitMark& mark, MutableByteSpan data, MutableByteSpan control) {
    const bool is_data = mark.state == static_cast<uint32_t>(AddressSpace::data) + 1;
    const bool is_control = mark.state == static_cast<uint32_t>(AddressSpace::control) + 1;
    const MutableByteSpan memory = is_data ? data : control;
    if ((is_data || is_control) && memory.size() >= kCopyUnitBytes &&
        mark.offset_bytes <= memory.size() - kCopyUnitBytes) {
        std::memcpy(memory.data() + mark.offset_bytes, mark.bytes, kCopyUnitBytes);
    }
    set_state(mark, 0);
}

}  // namespace tiffin::rdma_blk
