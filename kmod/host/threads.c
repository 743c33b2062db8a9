/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Kernel threads for the core. */
#include "kernel_services.h"

#include <linux/completion.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/sched/task.h>
#include <linux/smp.h>

struct tiffin_thread {
    struct task_struct* task;
    struct completion finished;
    void (*function)(void* argument);
    void* argument;
    void* journal_info; /* the mount that it is for, as tiffin_close_mount() knows it */
};

static int run_thread(void* pointer) {
    struct tiffin_thread* thread = pointer;

    current->journal_info = thread->journal_info;
    tiffin_stack_depth_begin();
    thread->function(thread->argument);
    tiffin_stack_depth_end();
    current->journal_info = NULL;
    complete(&thread->finished);
    return 0;
}

int tiffin_thread_start(struct tiffin_thread** thread, const char* name,
                        void (*function)(void* argument), void* argument) {
    struct tiffin_thread* created = tiffin_allocate(sizeof(*created));

    if (created == NULL) {
        return ENOMEM;
    }
    init_completion(&created->finished);
    created->function = function;
    created->argument = argument;
    created->journal_info = current->journal_info;
    created->task = kthread_create(run_thread, created, "%s", name);
    if (IS_ERR(created->task)) {
        const long error = PTR_ERR(created->task);

        tiffin_release(created, sizeof(*created));
        return error == -ENOMEM ? ENOMEM : EAGAIN;
    }
    get_task_struct(created->task);
    wake_up_process(created->task);
    *thread = created;
    return 0;
}

void tiffin_thread_join(struct tiffin_thread* thread) {
    /* A thread that is stopped before it first runs never calls its function. */
    wait_for_completion(&thread->finished);
    /* Waits until it has left this module's code as well. */
    kthread_stop(thread->task);
    put_task_struct(thread->task);
    tiffin_release(thread, sizeof(*thread));
}

uint32_t tiffin_concurrency_hint(void) { return raw_smp_processor_id(); }
