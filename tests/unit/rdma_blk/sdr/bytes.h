// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Content that is different at every place and for every seed.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace tiffin::rdma_blk::sdr {

inline std::vector<unsigned char> some_bytes(size_t size_bytes, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<unsigned char> bytes(size_bytes);
    uint64_t word = 0;
    for (size_t index = 0; index < size_bytes; index++) {
        word = index % 8 == 0 ? random() : word >> 8;
        bytes[index] = static_cast<unsigned char>(word);
    }
    return bytes;
}

}  // namespace tiffin::rdma_blk::sdr
