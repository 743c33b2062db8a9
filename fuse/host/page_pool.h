// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Single pages of 4096 bytes for host::allocate_pages: what most of a file system's cache consists of.
//
// malloc would take twice as much for them (the bookkeeping before an aligned page spoils the page before it)
// and one system call for each as long as a thread's heap grows, which all threads of the process wait for.
#pragma once

namespace tiffin::fuse {

// A page, contents undefined; nullptr when the system has no memory. Pages that were returned are used again
// and never given back to the system: the memory taken is that of the moment with the most pages in use.
// Both functions may be called by any thread.
[[nodiscard]] void* take_page();
// `page` came from take_page().
void return_page(void* page);

}  // namespace tiffin::fuse
