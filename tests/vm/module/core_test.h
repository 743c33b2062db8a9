/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Between the C and the C++ side of the test module. */
#ifndef TIFFIN_TESTS_VM_CORE_TEST_H
#define TIFFIN_TESTS_VM_CORE_TEST_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <cstddef>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Runs all steps and reports each to the log (core_test.cc). Returns true when all passed. */
bool tiffin_core_test(void);

/* Calls `handler` in an interrupt, a moment after each tiffin_interrupt_raise() (interrupt.c). */
struct tiffin_interrupt;
struct tiffin_interrupt* tiffin_interrupt_create(void (*handler)(void* argument), void* argument);
void tiffin_interrupt_raise(struct tiffin_interrupt* interrupt);
void tiffin_interrupt_destroy(struct tiffin_interrupt* interrupt);

bool tiffin_in_interrupt(void);
bool tiffin_is_on_stack(const void* address);

/* For a device: zeroed memory in whole pages, not counted as the core's. */
void* tiffin_device_memory_allocate(size_t size_bytes);
void tiffin_device_memory_release(void* memory);

#ifdef __cplusplus
}
#endif

#endif
