/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* How deep kernel stacks become. */
#include "kernel_services.h"

#include <linux/atomic.h>
#include <linux/compiler.h>
#include <linux/sched.h>
#include <linux/sched/task_stack.h>

#define PAINT 0x5a5aa5a55a5aa5a5UL
/* What the painting function's own frame may take. */
#define MARGIN_BYTES 256

static atomic_long_t deepest_bytes = ATOMIC_LONG_INIT(0);

/* The lowest word of a stack holds a magic number that the kernel checks. */
static unsigned long* lowest_word(void) { return end_of_stack(current) + 1; }

noinline void tiffin_stack_depth_begin(void) {
    unsigned long* word = lowest_word();
    unsigned long* const end = __builtin_frame_address(0) - MARGIN_BYTES;

    for (; word < end; ++word) {
        WRITE_ONCE(*word, PAINT);
    }
}

noinline void tiffin_stack_depth_end(void) {
    const unsigned long* word = lowest_word();
    const unsigned long top = (unsigned long)task_stack_page(current) + THREAD_SIZE;
    long used_bytes;
    long deepest;

    while (READ_ONCE_NOCHECK(*word) == PAINT) {
        ++word;
    }
    used_bytes = top - (unsigned long)word;
    deepest = atomic_long_read(&deepest_bytes);
    while (used_bytes > deepest && !atomic_long_try_cmpxchg(&deepest_bytes, &deepest, used_bytes)) {
    }
}

size_t tiffin_deepest_stack_bytes(void) { return atomic_long_read(&deepest_bytes); }
