/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Time, chance and checksums for the core. */
#include "kernel_services.h"

#include <linux/crc32c.h>
#include <linux/ktime.h>
#include <linux/random.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/timekeeping.h>

/* The clock of the VFS's own time stamps (current_time()), so that neither is ahead of the other. */
int64_t tiffin_realtime_ns(void) { return ktime_get_coarse_real_ns(); }

uint64_t tiffin_monotonic_ns(void) { return ktime_get_ns(); }

void tiffin_random_bytes(void* destination, size_t size_bytes) {
    get_random_bytes(destination, size_bytes);
}

/* The kernel's function works on the bare remainder, inverted neither at the start nor at the end. */
uint32_t tiffin_crc32c(uint32_t seed, const void* data, size_t size_bytes) {
    u32 remainder = ~seed;

    /* In pieces: long loops over a file's data come through here, and a kernel that is not
     * preemptible has to be asked for the processor. */
    while (size_bytes > SZ_64K) {
        remainder = crc32c(remainder, data, SZ_64K);
        data += SZ_64K;
        size_bytes -= SZ_64K;
        cond_resched();
    }
    return ~crc32c(remainder, data, size_bytes);
}
