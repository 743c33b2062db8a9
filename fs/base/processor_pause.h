// SPDX-License-Identifier: MIT OR GPL-2.0-only
// For loops that wait some dozen nanoseconds for another processor.
#pragma once

namespace tiffin {

// Lets the processor know that it waits: it does not run ahead, and leaves room for its sibling. Some 10 to 50 ns.
inline void pause_processor() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");
#endif
}

}  // namespace tiffin
