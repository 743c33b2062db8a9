// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Mutex, SharedMutex, Condition and Semaphore on POSIX threads, with the lock-order checker where it is on.
//
// Nothing here is analysed by -Wthread-safety: these functions are what the analysis takes on trust.
#include <pthread.h>
#include <semaphore.h>
#include <time.h>

#include <cerrno>
#include <cstdio>
#include <new>

#include "fs/base/processor_pause.h"
#include "fs/vfs/host.h"
#include "fuse/host/build_checks.h"
#include "fuse/host/lock_order.h"

namespace tiffin::fuse {
namespace {

thread_local HeldLocks held_locks;

[[noreturn]] void order_violated(const char* reason) {
    char message[256];
    snprintf(message, sizeof message, "lock order: this thread %s", reason);
    host::panic(__FILE__, __LINE__, message);
}

// Before a thread waits for a lock: a violation is reported even when the lock happens to be free.
void before_wait(const void* lock, host::LockClass lock_class, uint64_t level) {
    if (kCheckLockOrder) {
        char reason[200];
        if (!held_locks.may_wait_for({lock, lock_class, level}, reason, sizeof reason)) {
            order_violated(reason);
        }
    }
}

void after_acquire(const void* lock, host::LockClass lock_class, uint64_t level) {
    if (kCheckLockOrder) {
        if (!held_locks.add({lock, lock_class, level})) {
            order_violated(held_locks.count() == HeldLocks::kMaxLocks
                               ? "holds too many locks"
                               : "takes a lock that it holds already");
        }
    }
}

void before_release(const void* lock) {
    if (kCheckLockOrder) {
        if (!held_locks.remove(lock)) {
            order_violated("releases a lock that it does not hold");
        }
    }
}

// Locks of these classes are held for less time than going to sleep and being woken takes, unless a node or a bitmap
// has to be read or blocks are discarded: so a thread that finds one taken looks a few times more first. Those before are held
// for whole operations: there sleeping is also better for all, since the owner of the lock does several operations, with all
// they need in its processor's cache, before the other one is awake.
constexpr bool is_held_briefly(host::LockClass lock_class) {
    return lock_class >= host::LockClass::object_state &&
           lock_class != host::LockClass::maintenance && lock_class != host::LockClass::transaction;
}

// How often a SharedMutex is looked at before the thread goes to sleep, in pauses of the processor: some 5 us
// on processors of today. (For a Mutex the C library has a measure of its own.)
constexpr uint32_t kPausesAtMost = 128;

// A writer that sleeps on a lock is handed it by the next unlock, and the owner, which wants it again after a
// microsecond, sleeps until the other one is awake and done: once they have begun with that, two threads that write to
// one file go on so with every write. So a thread naps first, of which the owner notices nothing, and sleeps on the lock
// only after a millisecond.
constexpr long kNapNs = 20'000;
constexpr uint32_t kNapsAtMost = 40;
constexpr bool has_naps(host::LockClass lock_class) {
    return lock_class == host::LockClass::object_state;
}

// Calls try_once() with growing pauses in between, until it returns something else than EBUSY or it has been
// tried long enough. Returns what it returned last.
template <typename TryOnce>
int try_for_a_while(host::LockClass lock_class, TryOnce try_once) {
    int error = try_once();
    for (uint32_t pauses = 1, paused = 0; error == EBUSY && paused < kPausesAtMost;
         paused += pauses, pauses = pauses < 8 ? 2 * pauses : pauses) {
        for (uint32_t i = 0; i < pauses; ++i) {
            pause_processor();
        }
        error = try_once();
    }
    for (uint32_t naps = 0; error == EBUSY && naps < kNapsAtMost && has_naps(lock_class); ++naps) {
        const timespec nap{.tv_sec = 0, .tv_nsec = kNapNs};
        // That a signal ends it does no harm.
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, nullptr);
        error = try_once();
    }
    return error;
}

}  // namespace

bool lock_order_is_checked() { return kCheckLockOrder; }

}  // namespace tiffin::fuse

namespace tiffin::host {
namespace {

static_assert(sizeof(pthread_mutex_t) <= kLockStorageBytes && alignof(pthread_mutex_t) <= 16);
static_assert(sizeof(pthread_rwlock_t) <= kLockStorageBytes && alignof(pthread_rwlock_t) <= 16);
static_assert(sizeof(pthread_cond_t) <= kLockStorageBytes && alignof(pthread_cond_t) <= 16);
static_assert(sizeof(sem_t) <= kLockStorageBytes && alignof(sem_t) <= 16);

pthread_mutex_t* native(Mutex& mutex) {
    return std::launder(static_cast<pthread_mutex_t*>(mutex.storage()));
}

pthread_rwlock_t* native(SharedMutex& mutex) {
    return std::launder(static_cast<pthread_rwlock_t*>(mutex.storage()));
}

pthread_cond_t* native(Condition& condition) {
    return std::launder(static_cast<pthread_cond_t*>(condition.storage()));
}

sem_t* native(Semaphore& semaphore) {
    return std::launder(static_cast<sem_t*>(semaphore.storage()));
}

}  // namespace

// ---- Mutex ---------------------------------------------------------------------------------

Mutex::Mutex(LockClass lock_class) : lock_class_(lock_class) {
    if (fuse::is_held_briefly(lock_class)) {
        new (storage_) pthread_mutex_t(PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP);
    } else {
        new (storage_) pthread_mutex_t(PTHREAD_MUTEX_INITIALIZER);
    }
}

Mutex::~Mutex() {
    // EBUSY: destroyed while a thread holds it.
    TIFFIN_ASSERT(pthread_mutex_destroy(native(*this)) == 0);
}

NO_THREAD_SAFETY_ANALYSIS void Mutex::lock() {
    fuse::before_wait(this, lock_class_, 0);
    TIFFIN_ASSERT(pthread_mutex_lock(native(*this)) == 0);
    fuse::after_acquire(this, lock_class_, 0);
}

NO_THREAD_SAFETY_ANALYSIS void Mutex::unlock() {
    fuse::before_release(this);
    TIFFIN_ASSERT(pthread_mutex_unlock(native(*this)) == 0);
}

NO_THREAD_SAFETY_ANALYSIS bool Mutex::try_lock() {
    const int error = pthread_mutex_trylock(native(*this));
    if (error == EBUSY) {
        return false;
    }
    TIFFIN_ASSERT(error == 0);
    fuse::after_acquire(this, lock_class_, 0);
    return true;
}

// ---- SharedMutex ---------------------------------------------------------------------------

// Before, trying and waiting for one lock could hang (its bug 23844).
static_assert(__GLIBC_PREREQ(2, 30));

SharedMutex::SharedMutex(LockClass lock_class) : lock_class_(lock_class) {
    // Waiting writers hold back new readers, so that a stream of readers cannot starve them. This
    // is safe because shared locks are not recursive.
    new (storage_) pthread_rwlock_t(PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP);
}

SharedMutex::~SharedMutex() { TIFFIN_ASSERT(pthread_rwlock_destroy(native(*this)) == 0); }

NO_THREAD_SAFETY_ANALYSIS void SharedMutex::lock(uint64_t level) {
    fuse::before_wait(this, lock_class_, level);
    int error = EBUSY;
    if (fuse::is_held_briefly(lock_class_)) {
        error = fuse::try_for_a_while(lock_class_,
                                      [&] { return pthread_rwlock_trywrlock(native(*this)); });
    }
    if (error == EBUSY) {
        error = pthread_rwlock_wrlock(native(*this));
    }
    TIFFIN_ASSERT(error == 0);
    fuse::after_acquire(this, lock_class_, level);
}

NO_THREAD_SAFETY_ANALYSIS void SharedMutex::unlock() {
    fuse::before_release(this);
    TIFFIN_ASSERT(pthread_rwlock_unlock(native(*this)) == 0);
}

NO_THREAD_SAFETY_ANALYSIS void SharedMutex::lock_shared(uint64_t level) {
    fuse::before_wait(this, lock_class_, level);
    int error = EBUSY;
    if (fuse::is_held_briefly(lock_class_)) {
        error = fuse::try_for_a_while(lock_class_,
                                      [&] { return pthread_rwlock_tryrdlock(native(*this)); });
    }
    if (error == EBUSY) {
        error = pthread_rwlock_rdlock(native(*this));
    }
    TIFFIN_ASSERT(error == 0);
    fuse::after_acquire(this, lock_class_, level);
}

NO_THREAD_SAFETY_ANALYSIS void SharedMutex::unlock_shared() {
    fuse::before_release(this);
    TIFFIN_ASSERT(pthread_rwlock_unlock(native(*this)) == 0);
}

// A lock taken by trying can cause no deadlock, whatever its place in the order: level 0 is noted,
// which forbids nothing that its class allows.
NO_THREAD_SAFETY_ANALYSIS bool SharedMutex::try_lock() {
    const int error = pthread_rwlock_trywrlock(native(*this));
    if (error == EBUSY || error == EDEADLK) {
        return false;
    }
    TIFFIN_ASSERT(error == 0);
    fuse::after_acquire(this, lock_class_, 0);
    return true;
}

NO_THREAD_SAFETY_ANALYSIS bool SharedMutex::try_lock_shared() {
    const int error = pthread_rwlock_tryrdlock(native(*this));
    if (error == EBUSY || error == EAGAIN) {
        return false;
    }
    TIFFIN_ASSERT(error == 0);
    fuse::after_acquire(this, lock_class_, 0);
    return true;
}

void SharedMutex::note_shared_owner(uint64_t level) {
    fuse::before_wait(this, lock_class_, level);
    fuse::after_acquire(this, lock_class_, level);
}

void SharedMutex::forget_shared_owner() { fuse::before_release(this); }

// ---- Condition -----------------------------------------------------------------------------

Condition::Condition() {
    // Time-outs must not move when the clock is set.
    pthread_condattr_t attributes;
    TIFFIN_ASSERT(pthread_condattr_init(&attributes) == 0);
    TIFFIN_ASSERT(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    auto* condition = new (storage_) pthread_cond_t;
    TIFFIN_ASSERT(pthread_cond_init(condition, &attributes) == 0);
    TIFFIN_ASSERT(pthread_condattr_destroy(&attributes) == 0);
}

Condition::~Condition() { TIFFIN_ASSERT(pthread_cond_destroy(native(*this)) == 0); }

// Waking up takes the mutex again, so it must be the last in order of all that the thread holds.
NO_THREAD_SAFETY_ANALYSIS void Condition::wait(Mutex& mutex) {
    fuse::before_release(&mutex);
    fuse::before_wait(&mutex, mutex.lock_class(), 0);
    TIFFIN_ASSERT(pthread_cond_wait(native(*this), native(mutex)) == 0);
    fuse::after_acquire(&mutex, mutex.lock_class(), 0);
}

NO_THREAD_SAFETY_ANALYSIS bool Condition::wait_for(Mutex& mutex, uint64_t timeout_us) {
    // A hundred years are for ever, and keep the sum below from overflowing.
    constexpr uint64_t kMaxTimeoutUs = uint64_t{100} * 365 * 24 * 3600 * 1000000;
    if (timeout_us > kMaxTimeoutUs) {
        timeout_us = kMaxTimeoutUs;
    }
    const uint64_t deadline_ns = monotonic_ns() + timeout_us * 1000;
    timespec deadline{};
    deadline.tv_sec = static_cast<time_t>(deadline_ns / 1000000000);
    deadline.tv_nsec = static_cast<long>(deadline_ns % 1000000000);

    fuse::before_release(&mutex);
    fuse::before_wait(&mutex, mutex.lock_class(), 0);
    const int error = pthread_cond_timedwait(native(*this), native(mutex), &deadline);
    TIFFIN_ASSERT(error == 0 || error == ETIMEDOUT);
    fuse::after_acquire(&mutex, mutex.lock_class(), 0);
    return error == 0;
}

void Condition::notify_one() { TIFFIN_ASSERT(pthread_cond_signal(native(*this)) == 0); }

void Condition::notify_all() { TIFFIN_ASSERT(pthread_cond_broadcast(native(*this)) == 0); }

// ---- Semaphore -----------------------------------------------------------------------------

// POSIX's semaphores promise what ours do: they may be destroyed when no thread waits, even if one still posts.
Semaphore::Semaphore(uint32_t count) {
    auto* semaphore = new (storage_) sem_t;
    TIFFIN_ASSERT(sem_init(semaphore, 0, count) == 0);
}

Semaphore::~Semaphore() { TIFFIN_ASSERT(sem_destroy(native(*this)) == 0); }

void Semaphore::post() { TIFFIN_ASSERT(sem_post(native(*this)) == 0); }

void Semaphore::wait() {
    while (sem_wait(native(*this)) != 0) {
        TIFFIN_ASSERT(errno == EINTR);
    }
}

}  // namespace tiffin::host
