// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The little that compiled C++ expects of a run-time library.
#include <cstddef>

#include "fs/vfs/host.h"

// What the table of an abstract class holds in place of a function.
extern "C" [[noreturn]] void __cxa_pure_virtual() {
    tiffin::host::panic(__FILE__, __LINE__, "a pure virtual function was called");
}

// A virtual destructor refers to operator delete even where nobody deletes. The core never does: it has
// host::release(), which takes the size.
void operator delete(void* /*memory*/) noexcept {
    tiffin::host::panic(__FILE__, __LINE__, "operator delete was called");
}
void operator delete(void* /*memory*/, size_t /*size_bytes*/) noexcept {
    tiffin::host::panic(__FILE__, __LINE__, "operator delete was called");
}
