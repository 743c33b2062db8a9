/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The border inside the kernel host: C functions on the kernel's services, which the C++ side calls.
 * fs/vfs/host.h says what each has to do; here stands only what C and C++ have to agree on.
 *
 * The C++ side sees no header of the kernel (they are not C++), and the C side none of the core. This
 * header is all that both include.
 */
#ifndef TIFFIN_KMOD_KERNEL_SERVICES_H
#define TIFFIN_KMOD_KERNEL_SERVICES_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <cstddef>
#include <cstdint>
#endif

/* Room for the kernel's lock objects. A kernel that debugs its locks needs more: see kmod/kbuild. */
#ifndef TIFFIN_LOCK_STORAGE_BYTES
#define TIFFIN_LOCK_STORAGE_BYTES 56
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Memory (memory.c). Releasing NULL is allowed. */
void* tiffin_allocate(size_t size_bytes);
void tiffin_release(void* memory, size_t size_bytes);
unsigned int tiffin_enter_memory_reserve(void);
void tiffin_leave_memory_reserve(unsigned int before);
void* tiffin_allocate_pages(size_t size_bytes);
void tiffin_release_pages(void* memory, size_t size_bytes);

/* What was allocated and not released, in all of the module. Exact when nobody allocates. */
struct tiffin_memory_use {
    int64_t allocations;
    int64_t bytes;
};
struct tiffin_memory_use tiffin_memory_in_use(void);

/*
 * Locks (locks.c). `storage` is TIFFIN_LOCK_STORAGE_BYTES of memory, aligned to 16 bytes. `lock_class` is
 * host::LockClass's number. `has_levels`: several locks of the class are taken in an order that lockdep cannot know.
 */
#define TIFFIN_LOCK_CLASSES 32
void tiffin_mutex_initialize(void* storage, unsigned int lock_class);
void tiffin_mutex_destroy(void* storage);
void tiffin_mutex_lock(void* storage);
void tiffin_mutex_unlock(void* storage);
bool tiffin_mutex_try_lock(void* storage);

void tiffin_shared_mutex_initialize(void* storage, unsigned int lock_class, bool has_levels);
void tiffin_shared_mutex_destroy(void* storage);
void tiffin_shared_mutex_lock(void* storage);
void tiffin_shared_mutex_unlock(void* storage);
void tiffin_shared_mutex_lock_shared(void* storage);
void tiffin_shared_mutex_unlock_shared(void* storage);
bool tiffin_shared_mutex_try_lock(void* storage);
bool tiffin_shared_mutex_try_lock_shared(void* storage);

void tiffin_condition_initialize(void* storage);
void tiffin_condition_destroy(void* storage);
void tiffin_condition_wait(void* storage, void* mutex);
bool tiffin_condition_wait_for(void* storage, void* mutex, uint64_t timeout_us);
void tiffin_condition_notify_one(void* storage);
void tiffin_condition_notify_all(void* storage);

void tiffin_semaphore_initialize(void* storage, uint32_t count);
void tiffin_semaphore_destroy(void* storage);
void tiffin_semaphore_post(void* storage);
void tiffin_semaphore_wait(void* storage);

/* Threads (threads.c). */
struct tiffin_thread;
/* Returns 0 or a positive errno; `*thread` is to be joined when it is 0. */
int tiffin_thread_start(struct tiffin_thread** thread, const char* name,
                        void (*function)(void* argument), void* argument);
void tiffin_thread_join(struct tiffin_thread* thread);
uint32_t tiffin_concurrency_hint(void);

/*
 * How deep kernel stacks become (stack_depth.c). The part of the running thread's stack that is free
 * now is painted at the beginning; at the end, what has lost its paint was used.
 */
void tiffin_stack_depth_begin(void);
void tiffin_stack_depth_end(void);
/* The deepest stack between any begin and end so far, in bytes of the whole stack. */
size_t tiffin_deepest_stack_bytes(void);

/* Time, chance, checksums (clock.c). */
int64_t tiffin_realtime_ns(void);
uint64_t tiffin_monotonic_ns(void);
void tiffin_random_bytes(void* destination, size_t size_bytes);
/* The kernel's function, on the bare remainder: inverted neither at the start nor at the end. */
uint32_t tiffin_crc32c(uint32_t remainder, const void* data, size_t size_bytes);
/* In a kernel that is not preemptible: others may run now. */
void tiffin_offer_processor(void);

/* Messages (log.c). `level` is host::LogLevel's number. */
void tiffin_log(unsigned int level, const char* message);
/*
 * An invariant is broken. Never returns where the thread can be put away for ever, with its locks taken: it then has called
 * tiffin_close_mount(). Returns where that does not exist or the thread may not sleep; the caller then has to trap.
 */
void tiffin_panic(const char* file, int line, const char* message);
extern void (*tiffin_close_mount)(void);

/* For tests: whether an invariant is to be found broken now, at one of the two kinds of places (fs/tiffinfs/volume/volume.h). */
enum tiffin_breaking_place { TIFFIN_BREAKS_ANYWHERE, TIFFIN_BREAKS_BEFORE_CHANGE };
bool tiffin_breaks_for_test(enum tiffin_breaking_place place);

#ifdef __cplusplus
}
#endif

#endif
