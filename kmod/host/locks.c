/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Locks and conditions for the core, on the kernel's sleeping locks and wait queues. */
#include "kernel_services.h"

#include <linux/bug.h>
#include <linux/build_bug.h>
#include <linux/completion.h>
#include <linux/hrtimer.h>
#include <linux/irqflags.h>
#include <linux/ktime.h>
#include <linux/lockdep.h>
#include <linux/mutex.h>
#include <linux/preempt.h>
#include <linux/rwsem.h>
#include <linux/sched.h>
#include <linux/wait.h>

static_assert(sizeof(struct mutex) <= TIFFIN_LOCK_STORAGE_BYTES);
static_assert(sizeof(struct rw_semaphore) <= TIFFIN_LOCK_STORAGE_BYTES);
static_assert(sizeof(struct wait_queue_head) <= TIFFIN_LOCK_STORAGE_BYTES);
static_assert(sizeof(struct completion) <= TIFFIN_LOCK_STORAGE_BYTES);

/*
 * Completions of I/O run in interrupts and may only post semaphores. Without this a lock that is free
 * would be taken there, and the mistake seen only when it is not.
 */
static void assert_may_sleep(void) { WARN_ON_ONCE(!in_task() || irqs_disabled()); }

/* For lockdep: a class for each of host.h's. */
static struct lock_class_key class_keys[TIFFIN_LOCK_CLASSES];

/* ---- Mutex ---- */

void tiffin_mutex_initialize(void* storage, unsigned int lock_class) {
    __mutex_init(storage, "tiffin", &class_keys[lock_class]);
}

void tiffin_mutex_destroy(void* storage) {
    WARN_ON_ONCE(mutex_is_locked(storage));
    mutex_destroy(storage);
}

void tiffin_mutex_lock(void* storage) {
    assert_may_sleep();
    mutex_lock(storage);
}

void tiffin_mutex_unlock(void* storage) { mutex_unlock(storage); }

bool tiffin_mutex_try_lock(void* storage) {
    assert_may_sleep();
    return mutex_trylock(storage) != 0;
}

/* ---- Shared mutex: the kernel's lets no stream of readers starve a writer ---- */

void tiffin_shared_mutex_initialize(void* storage, unsigned int lock_class, bool has_levels) {
    struct rw_semaphore* semaphore = storage;

    __init_rwsem(semaphore, "tiffin", &class_keys[lock_class]);
    if (has_levels) {
        lockdep_set_novalidate_class(semaphore);
    }
}

void tiffin_shared_mutex_destroy(void* storage) { WARN_ON_ONCE(rwsem_is_locked(storage)); }

void tiffin_shared_mutex_lock(void* storage) {
    assert_may_sleep();
    down_write(storage);
}

void tiffin_shared_mutex_unlock(void* storage) { up_write(storage); }

void tiffin_shared_mutex_lock_shared(void* storage) {
    assert_may_sleep();
    down_read(storage);
}

void tiffin_shared_mutex_unlock_shared(void* storage) { up_read(storage); }

bool tiffin_shared_mutex_try_lock(void* storage) { return down_write_trylock(storage) != 0; }

bool tiffin_shared_mutex_try_lock_shared(void* storage) { return down_read_trylock(storage) != 0; }

/* ---- Condition ---- */

void tiffin_condition_initialize(void* storage) {
    struct wait_queue_head* queue = storage;

    init_waitqueue_head(queue);
}

void tiffin_condition_destroy(void* storage) { WARN_ON_ONCE(waitqueue_active(storage)); }

/* Maintenance threads wait for as long as there is no work: idle, so that this is neither load nor a
 * task that hangs. */
void tiffin_condition_wait(void* storage, void* mutex) {
    struct wait_queue_head* queue = storage;
    DEFINE_WAIT(entry);

    prepare_to_wait_exclusive(queue, &entry, TASK_IDLE);
    mutex_unlock(mutex);
    schedule();
    finish_wait(queue, &entry);
    mutex_lock(mutex);
}

bool tiffin_condition_wait_for(void* storage, void* mutex, uint64_t timeout_us) {
    struct wait_queue_head* queue = storage;
    const u64 timeout_ns = min_t(u64, timeout_us, KTIME_MAX / (2 * NSEC_PER_USEC)) * NSEC_PER_USEC;
    ktime_t timeout = ns_to_ktime(timeout_ns);
    unsigned long flags;
    bool notified;
    DEFINE_WAIT(entry);

    prepare_to_wait_exclusive(queue, &entry, TASK_IDLE);
    mutex_unlock(mutex);
    /* A little late is early enough for all who wait with a time-out: the kernel may join timers. */
    schedule_hrtimeout_range(&timeout, timeout_ns / 16, HRTIMER_MODE_REL);
    __set_current_state(TASK_RUNNING);
    /* Who wakes us takes the entry off the queue, so that a notification is never lost on somebody
     * whose time was up. */
    spin_lock_irqsave(&queue->lock, flags);
    notified = list_empty(&entry.entry);
    if (!notified) {
        list_del_init(&entry.entry);
    }
    spin_unlock_irqrestore(&queue->lock, flags);
    mutex_lock(mutex);
    return notified;
}

void tiffin_condition_notify_one(void* storage) {
    struct wait_queue_head* queue = storage;

    wake_up(queue);
}

void tiffin_condition_notify_all(void* storage) {
    struct wait_queue_head* queue = storage;

    wake_up_all(queue);
}

/* ---- Semaphore: a completion counts, and may be destroyed by its waiter ---- */

void tiffin_semaphore_initialize(void* storage, uint32_t count) {
    struct completion* completion = storage;

    init_completion(completion);
    completion->done = count;
}

void tiffin_semaphore_destroy(void* storage) {
    struct completion* completion = storage;

    WARN_ON_ONCE(swait_active(&completion->wait));
}

void tiffin_semaphore_post(void* storage) { complete(storage); }

void tiffin_semaphore_wait(void* storage) {
    assert_may_sleep();
    wait_for_completion_io(storage);
}
