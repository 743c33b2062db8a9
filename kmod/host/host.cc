// SPDX-License-Identifier: MIT OR GPL-2.0-only
// fs/vfs/host.h in the kernel: each function is one of kernel_services.h.
//
// Nothing here is analysed by -Wthread-safety: these functions are what the analysis takes on trust.
#include "fs/vfs/host.h"

#include "kmod/host/kernel_services.h"

namespace tiffin::host {

static_assert(kLockStorageBytes == TIFFIN_LOCK_STORAGE_BYTES);

// ---- Memory --------------------------------------------------------------------------------

void* allocate(size_t size_bytes) { return tiffin_allocate(size_bytes); }
void release(void* memory, size_t size_bytes) { tiffin_release(memory, size_bytes); }
void* allocate_pages(size_t size_bytes) { return tiffin_allocate_pages(size_bytes); }
void release_pages(void* memory, size_t size_bytes) { tiffin_release_pages(memory, size_bytes); }

uint32_t enter_memory_reserve() { return tiffin_enter_memory_reserve(); }
void leave_memory_reserve(uint32_t before) { tiffin_leave_memory_reserve(before); }

// ---- Locks ---------------------------------------------------------------------------------

static_assert(static_cast<unsigned int>(LockClass::leaf) < TIFFIN_LOCK_CLASSES);

Mutex::Mutex(LockClass lock_class) : lock_class_(lock_class) {
    tiffin_mutex_initialize(storage_, static_cast<unsigned int>(lock_class));
}
Mutex::~Mutex() { tiffin_mutex_destroy(storage_); }
void Mutex::lock() { tiffin_mutex_lock(storage_); }
void Mutex::unlock() { tiffin_mutex_unlock(storage_); }
bool Mutex::try_lock() { return tiffin_mutex_try_lock(storage_); }

SharedMutex::SharedMutex(LockClass lock_class) : lock_class_(lock_class) {
    const bool has_levels = lock_class == LockClass::object_state ||
                            lock_class == LockClass::transaction ||
                            lock_class == LockClass::tree_node;
    tiffin_shared_mutex_initialize(storage_, static_cast<unsigned int>(lock_class), has_levels);
}
SharedMutex::~SharedMutex() { tiffin_shared_mutex_destroy(storage_); }
void SharedMutex::lock(uint64_t /*level*/) { tiffin_shared_mutex_lock(storage_); }
#ifdef TIFFIN_PLANTED_FAULTS
bool finds_broken_invariant() { return tiffin_breaks_for_test(TIFFIN_BREAKS_BEFORE_CHANGE); }
#endif
void SharedMutex::unlock() {
#ifdef TIFFIN_PLANTED_FAULTS
    TIFFIN_ASSERT(!tiffin_breaks_for_test(TIFFIN_BREAKS_ANYWHERE));
#endif
    tiffin_shared_mutex_unlock(storage_);
}
void SharedMutex::lock_shared(uint64_t /*level*/) { tiffin_shared_mutex_lock_shared(storage_); }
void SharedMutex::unlock_shared() { tiffin_shared_mutex_unlock_shared(storage_); }
bool SharedMutex::try_lock() { return tiffin_shared_mutex_try_lock(storage_); }
bool SharedMutex::try_lock_shared() { return tiffin_shared_mutex_try_lock_shared(storage_); }
// The order of locks is checked elsewhere.
void SharedMutex::note_shared_owner(uint64_t /*level*/) {}
void SharedMutex::forget_shared_owner() {}

Condition::Condition() { tiffin_condition_initialize(storage_); }
Condition::~Condition() { tiffin_condition_destroy(storage_); }
void Condition::wait(Mutex& mutex) { tiffin_condition_wait(storage_, mutex.storage()); }
bool Condition::wait_for(Mutex& mutex, uint64_t timeout_us) {
    return tiffin_condition_wait_for(storage_, mutex.storage(), timeout_us);
}
void Condition::notify_one() { tiffin_condition_notify_one(storage_); }
void Condition::notify_all() { tiffin_condition_notify_all(storage_); }

Semaphore::Semaphore(uint32_t count) { tiffin_semaphore_initialize(storage_, count); }
Semaphore::~Semaphore() { tiffin_semaphore_destroy(storage_); }
void Semaphore::post() { tiffin_semaphore_post(storage_); }
void Semaphore::wait() { tiffin_semaphore_wait(storage_); }

// ---- Threads -------------------------------------------------------------------------------

Thread::~Thread() { TIFFIN_ASSERT(handle_ == nullptr); }

Result<void> Thread::start(const char* name, void (*function)(void* argument), void* argument) {
    TIFFIN_ASSERT(handle_ == nullptr);
    tiffin_thread* thread = nullptr;
    const int error = tiffin_thread_start(&thread, name, function, argument);
    if (error != 0) {
        return static_cast<Error>(error);
    }
    handle_ = thread;
    return {};
}

void Thread::join() {
    TIFFIN_ASSERT(handle_ != nullptr);
    tiffin_thread_join(static_cast<tiffin_thread*>(handle_));
    handle_ = nullptr;
}

uint32_t concurrency_hint() { return tiffin_concurrency_hint(); }

// ---- Time, chance; checksums are in crc32c.cc ----------------------------------------------------------------

int64_t realtime_ns() { return tiffin_realtime_ns(); }
uint64_t monotonic_ns() { return tiffin_monotonic_ns(); }
void random_bytes(void* destination, size_t size_bytes) {
    tiffin_random_bytes(destination, size_bytes);
}

// ---- What people are told --------------------------------------------------------------------

void log(LogLevel level, const char* message) {
    tiffin_log(static_cast<unsigned int>(level), message);
}

// The thread does not go on, and its locks stay taken, so that nothing it left half done reaches the device; other
// mounts and the machine go on. The instruction is for where that cannot be; it stands here, not behind a call, since
// objtool knows no functions of ours that do not return.
void panic(const char* file, int line, const char* message) {
    tiffin_panic(file, line, message);
    __builtin_trap();
}

}  // namespace tiffin::host
