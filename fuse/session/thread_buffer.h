// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Page-aligned memory that a thread of the session uses again and again.
#pragma once

#include <cstddef>

namespace tiffin::fuse {

// At least `size_bytes` of memory of the calling thread, page-aligned, contents undefined, valid
// until the thread's next call. nullptr when there is no memory.
unsigned char* thread_buffer(size_t size_bytes);

}  // namespace tiffin::fuse
