// SPDX-License-Identifier: MIT OR GPL-2.0-only
// SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012): a keyed hash whose
// collisions cannot be found without the key. Names of directory entries are hashed with it, so
// that a hostile choice of names cannot make a directory slow.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tiffin {

// The hash of `size_bytes` at `data` under a key of 16 bytes. Any thread; no state.
[[nodiscard]] uint64_t siphash24(const uint8_t key[16], const void* data, size_t size_bytes);

}  // namespace tiffin
