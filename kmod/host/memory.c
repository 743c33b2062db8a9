/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Memory for the core: the slab allocator, and virtually contiguous pages beyond it. */
#include "kernel_services.h"

#include <linux/atomic.h>
#include <linux/bug.h>
#include <linux/hash.h>
#include <linux/irqflags.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

/*
 * NOFS: reclaim may not call into a file system, since the caller may be inside one. The core handles
 * failure, so a large allocation that fails is no news for the kernel's log.
 */
#define TIFFIN_GFP (GFP_NOFS | __GFP_NOWARN)

struct usage {
    s64 allocations;
    s64 bytes;
};
static DEFINE_PER_CPU(struct usage, usage);

static void count(s64 allocations, s64 bytes) {
    this_cpu_add(usage.allocations, allocations);
    this_cpu_add(usage.bytes, bytes);
}

struct tiffin_memory_use tiffin_memory_in_use(void) {
    struct tiffin_memory_use sum = {0, 0};
    int cpu;

    for_each_possible_cpu(cpu) {
        sum.allocations += per_cpu(usage.allocations, cpu);
        sum.bytes += per_cpu(usage.bytes, cpu);
    }
    return sum;
}

/*
 * The slab allocator aligns to more than 8 bytes only where the size is a power of two; among the
 * sizes it has, 96 and 192 are none.
 */
static size_t with_alignment(size_t size_bytes) {
    if (size_bytes <= 16) {
        return 16;
    }
    return size_bytes <= 192 ? roundup_pow_of_two(size_bytes) : size_bytes;
}

/*
 * For tests, while it is not 0: one of n allocations fails. Which ones looks random and is not: were it each n-th, an
 * operation that makes n of them could be tried again without end.
 */
static unsigned int fail_every;
module_param(fail_every, uint, 0600);
static atomic_t allocation_number = ATOMIC_INIT(0);

static bool fails_for_test(void) {
    const unsigned int every = READ_ONCE(fail_every);

    return unlikely(every != 0) && hash_32(atomic_inc_return(&allocation_number), 16) % every == 0;
}

unsigned int tiffin_enter_memory_reserve(void) { return memalloc_noreclaim_save(); }
void tiffin_leave_memory_reserve(unsigned int before) { memalloc_noreclaim_restore(before); }

void* tiffin_allocate(size_t size_bytes) {
    void* memory;

    WARN_ON_ONCE(!in_task() || irqs_disabled());
    memory = fails_for_test() ? NULL : kvmalloc(with_alignment(size_bytes), TIFFIN_GFP);
    if (memory != NULL) {
        count(1, size_bytes);
    }
    return memory;
}

void tiffin_release(void* memory, size_t size_bytes) {
    if (memory != NULL) {
        count(-1, -(s64)size_bytes);
        kvfree(memory);
    }
}

/* The slab allocator aligns sizes of a page and more, which it rounds up to a power of two, to a page. */
void* tiffin_allocate_pages(size_t size_bytes) {
    BUG_ON(!PAGE_ALIGNED(size_bytes));
    return tiffin_allocate(size_bytes == 0 ? PAGE_SIZE : size_bytes);
}

void tiffin_release_pages(void* memory, size_t size_bytes) {
    tiffin_release(memory, size_bytes == 0 ? PAGE_SIZE : size_bytes);
}
