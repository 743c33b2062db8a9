/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * How deep the stack of the running thread becomes: its free part is filled with a pattern at the beginning; at the end the bytes
 * are counted that have been overwritten, with all that lies above them. For tests; it takes microseconds.
 */
#ifndef TIFFIN_KMOD_STACK_DEPTH_H
#define TIFFIN_KMOD_STACK_DEPTH_H

#include <linux/atomic.h>
#include <linux/compiler.h>
#include <linux/sched.h>
#include <linux/sched/task_stack.h>

#define TIFFIN_STACK_PAINT 0x5a5aa5a55a5aa5a5UL
/* What the painting function's own frame may take. */
#define TIFFIN_STACK_MARGIN_BYTES 256

/* The lowest word of a stack holds a magic number that the kernel checks. */
static inline unsigned long* tiffin_lowest_stack_word(void) { return end_of_stack(current) + 1; }

static noinline void tiffin_paint_stack(void) {
    unsigned long* word = tiffin_lowest_stack_word();
    unsigned long* const end = __builtin_frame_address(0) - TIFFIN_STACK_MARGIN_BYTES;

    for (; word < end; ++word) {
        WRITE_ONCE(*word, TIFFIN_STACK_PAINT);
    }
}

/* `deepest_bytes` becomes no less than what has been used. */
static noinline void tiffin_measure_stack(atomic_t* deepest_bytes) {
    const unsigned long* word = tiffin_lowest_stack_word();
    const unsigned long top = (unsigned long)task_stack_page(current) + THREAD_SIZE;
    int used_bytes;
    int deepest;

    while (READ_ONCE_NOCHECK(*word) == TIFFIN_STACK_PAINT) {
        ++word;
    }
    used_bytes = (int)(top - (unsigned long)word);
    deepest = atomic_read(deepest_bytes);
    while (used_bytes > deepest && !atomic_try_cmpxchg(deepest_bytes, &deepest, used_bytes)) {
    }
}

#endif
