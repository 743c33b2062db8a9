// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Memory that is set aside for threads inside a host::MemoryReserveScope: part of the program's own image, so that it
// is there from the start, and handed out in whole pages when the system has none.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tiffin::fuse {

// Enough for a hundred requests of 1 MiB, with what they leave in caches.
inline constexpr size_t kReserveBytes = 4U << 20;

// Pages for `size_bytes`, aligned to 4096 bytes; nullptr when the calling thread is in no scope, or not enough
// neighbouring ones are left. Any thread.
[[nodiscard]] void* take_from_reserve(size_t size_bytes);
// Returns what came from there; false: `memory` did not.
bool return_to_reserve(void* memory, size_t size_bytes);

// How many bytes are handed out now; for tests.
size_t reserve_used_bytes();

}  // namespace tiffin::fuse
