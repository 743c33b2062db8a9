/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The test module: runs the core on memory of the kernel when it is loaded. The log says PASSED or
 * FAILED; what was allocated and not released is told, and judged, when it is unloaded.
 */
#define pr_fmt(format) "tiffin: " format

#include "core_test.h"

#include <linux/completion.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched/task.h>

#include "kmod/host/kernel_services.h"

/* The whole depth of the core, with what the kernel needs around and below it: half of a stack. */
#define MAXIMUM_STACK_BYTES 8192

static bool run_in_this_thread(void) {
    bool passed;

    tiffin_stack_depth_begin();
    passed = tiffin_core_test();
    tiffin_stack_depth_end();
    return passed;
}

static int run(void* finished) {
    const bool passed = run_in_this_thread();
    const size_t stack_bytes = tiffin_deepest_stack_bytes();

    pr_info("deepest stack: %zu of %lu bytes, at most %d wanted\n", stack_bytes, THREAD_SIZE,
            MAXIMUM_STACK_BYTES);
    pr_info("core steps: %s\n", passed ? "PASSED" : "FAILED");
    pr_info("core test: %s\n", passed && stack_bytes <= MAXIMUM_STACK_BYTES ? "PASSED" : "FAILED");
    complete(finished);
    return 0;
}

static int __init load(void) {
    DECLARE_COMPLETION_ONSTACK(finished);
    struct task_struct* task = kthread_create(run, &finished, "tiffin-test");

    if (IS_ERR(task)) {
        return PTR_ERR(task);
    }
    get_task_struct(task);
    wake_up_process(task);
    /* Idle: the test may take longer than the kernel lets a task hang. */
    wait_for_completion_state(&finished, TASK_IDLE);
    kthread_stop(task);
    put_task_struct(task);
    return 0;
}

static void __exit unload(void) {
    const struct tiffin_memory_use left = tiffin_memory_in_use();

    pr_info("not released: %lld allocations, %lld bytes\n", left.allocations, left.bytes);
    pr_info("unload: %s\n", left.allocations == 0 && left.bytes == 0 ? "PASSED" : "FAILED");
}

module_init(load);
module_exit(unload);
MODULE_DESCRIPTION("Tiffin's core on kernel memory");
MODULE_LICENSE("Dual MIT/GPL");
