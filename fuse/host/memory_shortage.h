// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What becomes of a thread for which the C++ library finds no memory. The core and libfuse refuse the request with
// ENOMEM. But the host has strings and containers as well, whose exception would pass through libfuse's C and so
// end the daemon, and with it the mount. A shortage passes; so the thread waits for it.
#pragma once

#include <cstdint>

namespace tiffin::fuse {

// For how long one allocation waits; after that it fails as it would have at once.
inline constexpr uint32_t kMemoryPatienceMs = 5000;

// From now on, in the whole process (std::set_new_handler). Threading: any; with other threads only if nothing else
// sets a handler.
void wait_when_out_of_memory();

// One look by such a thread: sleeps some milliseconds, or throws std::bad_alloc when it has waited for `patience_ms`.
// A call that does not follow the end of the last one at once is about another allocation.
void wait_for_memory(uint32_t patience_ms);

}  // namespace tiffin::fuse
