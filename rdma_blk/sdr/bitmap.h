// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Bitmaps of packets and chunks, as functions on words that somebody owns: bit i is bit i % 64 of word i / 64.
// Ranges cost a step per word, searches too. No bounds are checked; not for several threads at once.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace tiffin::rdma_blk::sdr {

constexpr size_t bitmap_words(uint64_t bits) { return static_cast<size_t>((bits + 63) / 64); }

inline bool bitmap_has(const uint64_t* words, uint32_t bit) {
    return (words[bit / 64] >> (bit % 64) & 1) != 0;
}

// The bits of word `index` that lie in [begin, end).
inline uint64_t bitmap_mask(uint32_t index, uint32_t begin, uint32_t end) {
    uint64_t mask = ~uint64_t{0};
    if (begin / 64 == index) {
        mask &= ~uint64_t{0} << (begin % 64);
    }
    if (end / 64 == index) {
        mask &= (uint64_t{1} << (end % 64)) - 1;
    }
    return mask;
}

// Sets [begin, end); returns how many were clear before.
inline uint32_t bitmap_set(uint64_t* words, uint32_t begin, uint32_t end) {
    uint32_t changed = 0;
    for (uint32_t index = begin / 64; begin < end && index <= (end - 1) / 64; index++) {
        const uint64_t mask = bitmap_mask(index, begin, end);
        changed += static_cast<uint32_t>(std::popcount(mask & ~words[index]));
        words[index] |= mask;
    }
    return changed;
}

// Clears [begin, end); returns how many were set before.
inline uint32_t bitmap_clear(uint64_t* words, uint32_t begin, uint32_t end) {
    uint32_t changed = 0;
    for (uint32_t index = begin / 64; begin < end && index <= (end - 1) / 64; index++) {
        const uint64_t mask = bitmap_mask(index, begin, end);
        changed += static_cast<uint32_t>(std::popcount(mask & words[index]));
        words[index] &= ~mask;
    }
    return changed;
}

// How many of [begin, end) are set.
inline uint32_t bitmap_count(const uint64_t* words, uint32_t begin, uint32_t end) {
    uint32_t count = 0;
    for (uint32_t index = begin / 64; begin < end && index <= (end - 1) / 64; index++) {
        count +=
            static_cast<uint32_t>(std::popcount(words[index] & bitmap_mask(index, begin, end)));
    }
    return count;
}

// The first bit of [begin, end) that is set (or clear); `end` when there is none.
inline uint32_t bitmap_find(const uint64_t* words, uint32_t begin, uint32_t end, bool set) {
    for (uint32_t index = begin / 64; begin < end && index <= (end - 1) / 64; index++) {
        const uint64_t word = (set ? words[index] : ~words[index]) & bitmap_mask(index, begin, end);
        if (word != 0) {
            return index * 64 + static_cast<uint32_t>(std::countr_zero(word));
        }
    }
    return end;
}
inline uint32_t bitmap_next_set(const uint64_t* words, uint32_t begin, uint32_t end) {
    return bitmap_find(words, begin, end, true);
}
inline uint32_t bitmap_next_clear(const uint64_t* words, uint32_t begin, uint32_t end) {
    return bitmap_find(words, begin, end, false);
}

}  // namespace tiffin::rdma_blk::sdr
