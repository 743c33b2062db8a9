/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Time, chance and checksums for the core. */
#include "kernel_services.h"

#include <linux/crc32c.h>
#include <linux/ktime.h>
#include <linux/random.h>
#include <linux/sched.h>
#include <linux/timekeeping.h>

/* The clock of the VFS's own time stamps (current_time()), so that neither is ahead of the other. */
int64_t tiffin_realtime_ns(void) { return ktime_get_coarse_real_ns(); }

uint64_t tiffin_monotonic_ns(void) { return ktime_get_ns(); }

void tiffin_random_bytes(void* destination, size_t size_bytes) {
    get_random_bytes(destination, size_bytes);
}

uint32_t tiffin_crc32c(uint32_t remainder, const void* data, size_t size_bytes) {
    return crc32c(remainder, data, size_bytes);
}

void tiffin_offer_processor(void) { cond_resched(); }
