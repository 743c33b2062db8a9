// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Arithmetic of unsigned numbers that user space has in <algorithm>, and rounding.
#pragma once

#include <cstdint>

namespace tiffin {

constexpr uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }
constexpr uint64_t greater(uint64_t a, uint64_t b) { return a > b ? a : b; }

// To multiples of `unit`, a power of two.
constexpr uint64_t round_down(uint64_t value, uint64_t unit) { return value & ~(unit - 1); }
constexpr uint64_t round_up(uint64_t value, uint64_t unit) {
    return round_down(value + unit - 1, unit);
}

}  // namespace tiffin
