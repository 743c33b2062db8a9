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
    for (unsigned char& byte : bytes) {
        byte = static_cast<unsigned char>(random());
    }
    return bytes;
}

}  // namespace tiffin::rdma_blk::sdr
