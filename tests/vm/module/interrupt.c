/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Interrupts for a device that is none: a timer's. Also memory for it. */
#include "core_test.h"

#include <linux/hrtimer.h>
#include <linux/preempt.h>
#include <linux/sched/task_stack.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#define DELAY_NS (20 * NSEC_PER_USEC)

struct tiffin_interrupt {
    struct hrtimer timer;
    void (*handler)(void* argument);
    void* argument;
};

static enum hrtimer_restart fire(struct hrtimer* timer) {
    struct tiffin_interrupt* interrupt = container_of(timer, struct tiffin_interrupt, timer);

    interrupt->handler(interrupt->argument);
    return HRTIMER_NORESTART;
}

struct tiffin_interrupt* tiffin_interrupt_create(void (*handler)(void* argument), void* argument) {
    struct tiffin_interrupt* interrupt = kzalloc(sizeof(*interrupt), GFP_KERNEL);

    if (interrupt != NULL) {
        hrtimer_init(&interrupt->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
        interrupt->timer.function = fire;
        interrupt->handler = handler;
        interrupt->argument = argument;
    }
    return interrupt;
}

void tiffin_interrupt_raise(struct tiffin_interrupt* interrupt) {
    hrtimer_start(&interrupt->timer, ns_to_ktime(DELAY_NS), HRTIMER_MODE_REL_HARD);
}

void tiffin_interrupt_destroy(struct tiffin_interrupt* interrupt) {
    if (interrupt != NULL) {
        hrtimer_cancel(&interrupt->timer);
        kfree(interrupt);
    }
}

bool tiffin_in_interrupt(void) { return in_hardirq() != 0; }

bool tiffin_is_on_stack(const void* address) { return object_is_on_stack(address) != 0; }

void* tiffin_device_memory_allocate(size_t size_bytes) { return vzalloc(size_bytes); }

void tiffin_device_memory_release(void* memory) { vfree(memory); }
