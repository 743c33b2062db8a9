/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What people are told: lines in the kernel's log. */
#define pr_fmt(format) "tiffin: " format

#include "kernel_services.h"

#include <linux/bug.h>
#include <linux/irqflags.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/printk.h>
#include <linux/sched.h>

void tiffin_log(unsigned int level, const char* message) {
    switch (level) {
        case 0:
            pr_debug("%s\n", message);
            break;
        case 1:
            pr_info("%s\n", message);
            break;
        case 2:
            pr_warn("%s\n", message);
            break;
        default:
            pr_err("%s\n", message);
            break;
    }
}

void (*tiffin_close_mount)(void);

/*
 * The thread sleeps without end: it would be no better to end it, since its locks stay taken, and the end of a program
 * comes back into the file system, the end of a worker stops a queue of the kernel. Its stack needs this module.
 */
void tiffin_panic(const char* file, int line, const char* message) {
    pr_emerg("%s:%d: %s\n", file, line, message);
    if (tiffin_close_mount == NULL || !in_task() || irqs_disabled() || in_atomic()) {
        return;
    }
    tiffin_close_mount();
    __module_get(THIS_MODULE);
    WARN(1, "tiffin: a broken invariant");
    for (;;) {
        set_current_state(TASK_IDLE);
        schedule();
    }
}

#ifdef TIFFIN_PLANTED_FAULTS
/* The n-th question from now on is answered with yes. */
static int break_after;
static int break_before_change_after;
module_param(break_after, int, 0600);
module_param(break_before_change_after, int, 0600);

bool tiffin_breaks_for_test(enum tiffin_breaking_place place) {
    int* after = place == TIFFIN_BREAKS_ANYWHERE ? &break_after : &break_before_change_after;

    return unlikely(READ_ONCE(*after) > 0) && --*after == 0;
}
#endif
