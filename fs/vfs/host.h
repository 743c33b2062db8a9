// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Everything that a file system may ask of the world it runs in.
//
// Each host links in its own implementation of exactly these functions (that of user space is
// fuse/host); fs/ calls nothing else, and a build target fails when an object of fs/ needs any other
// symbol. Since every allocation, lock, wait, clock reading and random number passes through here, a
// host for tests can schedule and fail them all from a seed.
//
// Threading: unless a function says otherwise, it may be called from any thread that may sleep.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/vfs/result.h"
#include "fs/vfs/thread_annotations.h"

namespace tiffin::host {

// ---- Memory --------------------------------------------------------------------------------

// Returns at least `size_bytes` of memory, 16-byte aligned, contents undefined; nullptr when there
// is none. Never blocks on file-system work (the kernel host uses GFP_NOFS).
[[nodiscard]] void* allocate(size_t size_bytes);
// Returns memory to the host. `size_bytes` is what was asked for; nullptr is allowed.
void release(void* memory, size_t size_bytes);

// Like allocate and release, for I/O buffers: aligned to 4096 bytes, size a multiple of 4096.
inline constexpr size_t kPageBytes = 4096;
[[nodiscard]] void* allocate_pages(size_t size_bytes);
void release_pages(void* memory, size_t size_bytes);

// From here to the end of the scope the calling thread's allocations may use a reserve that the host keeps: for work
// whose failure loses what a program believes to be written. Bounded, so that they may fail all the same. Scopes may
// lie within each other. (PF_MEMALLOC of Linux.)
uint32_t enter_memory_reserve();
void leave_memory_reserve(uint32_t before);

class MemoryReserveScope {
  public:
    MemoryReserveScope() : before_(enter_memory_reserve()) {}
    ~MemoryReserveScope() { leave_memory_reserve(before_); }
    MemoryReserveScope(const MemoryReserveScope&) = delete;
    MemoryReserveScope& operator=(const MemoryReserveScope&) = delete;

  private:
    uint32_t before_;
};

// ---- Locks ---------------------------------------------------------------------------------

// The classes of locks, in the order in which they may be taken: a thread that holds a lock may
// take only locks of a greater class, or of the same class with a greater nesting level. Hosts may
// check this at run time (the user-space host does in debug builds and under sanitizers). This list is the one place
// where the project's lock order is written down; docs/design.md says what each class guards.
enum class LockClass : uint8_t {
    session,          // a host's own locks, taken before any call into a file system
    rename,           // one per volume: cross-directory moves of directories
    entry_name,       // names in directories for which something is being made
    object_state,     // one per object: attributes, entries and mapping; several by ascending id
    object_table,     // the shards of the object cache
    maintenance,      // serialises checkpoints
    transaction,      // the gate that lets a checkpoint seal a generation
    directory_count,  // what new entries change in their directory: number, times, ids at hand
    tree_root,        // the anchor that points to the root node
    tree_node,        // tree nodes, root first; nesting level = depth
    node_cache,       // the shards of the node cache
    node_pool,        // spare nodes
    allocator_group,  // the bitmap of one group
    allocator,        // opening groups; releasing deferred frees
    journal_commit,   // the right to write to the journal
    journal_buffer,   // which of the buffers of transactions is open, and which are to be written
    leaf,             // anything that takes no other lock while it is held
};

// Space for the host's own lock object: constructing a lock cannot fail, so it must not allocate. A
// host whose locks are larger (a kernel that debugs its locks) compiles everything with another value. With this one a
// lock and its class, and a few bytes that are changed with it, take one cache line.
#if defined(TIFFIN_LOCK_STORAGE_BYTES)
inline constexpr size_t kLockStorageBytes = TIFFIN_LOCK_STORAGE_BYTES;
#else
inline constexpr size_t kLockStorageBytes = 56;
#endif

// Destroying a Mutex, SharedMutex or Condition: no thread may be inside one of its functions. A thread that
// has just taken a lock cannot know that the last owner's unlock() has returned, so a lock must not lie
// in an object that its next owner destroys, unless something else (a count that is taken down after
// unlock()) says when. To wait for the last of something and then let go of it, use a Semaphore.

// A sleeping lock with one owner. Not recursive.
class CAPABILITY("mutex") Mutex {
  public:
    explicit Mutex(LockClass lock_class);
    ~Mutex();
    Mutex(const Mutex&) = delete;
    Mutex& operator=(const Mutex&) = delete;

    void lock() ACQUIRE();
    void unlock() RELEASE();
    [[nodiscard]] bool try_lock() TRY_ACQUIRE(true);

    void* storage() { return storage_; }
    LockClass lock_class() const { return lock_class_; }

  private:
    alignas(16) unsigned char storage_[kLockStorageBytes];
    LockClass lock_class_;
};

// A sleeping lock with one exclusive or many shared owners. Not recursive, no upgrade. Shared
// owners may starve exclusive ones only for a bounded time.
class CAPABILITY("shared mutex") SharedMutex {
  public:
    explicit SharedMutex(LockClass lock_class);
    ~SharedMutex();
    SharedMutex(const SharedMutex&) = delete;
    SharedMutex& operator=(const SharedMutex&) = delete;

    // `level` orders several locks of one class; see LockClass.
    void lock(uint64_t level = 0) ACQUIRE();
    void unlock() RELEASE();
    void lock_shared(uint64_t level = 0) ACQUIRE_SHARED();
    void unlock_shared() RELEASE_SHARED();
    [[nodiscard]] bool try_lock() TRY_ACQUIRE(true);
    [[nodiscard]] bool try_lock_shared() TRY_ACQUIRE_SHARED(true);

    // For fs/base/biased_shared_mutex.h, which knows of some shared owners itself: tells a host that checks the order of
    // locks that the calling thread is one now, or no longer. Does nothing else, and nothing in other hosts.
    void note_shared_owner(uint64_t level);
    void forget_shared_owner();

    void* storage() { return storage_; }
    LockClass lock_class() const { return lock_class_; }

  private:
    alignas(16) unsigned char storage_[kLockStorageBytes];
    LockClass lock_class_;
};

// A place to wait for a change of state that a Mutex guards. Waits may end without a reason, so a
// waiter checks its condition in a loop.
class Condition {
  public:
    Condition();
    ~Condition();
    Condition(const Condition&) = delete;
    Condition& operator=(const Condition&) = delete;

    void wait(Mutex& mutex) REQUIRES(mutex);
    // Returns false when `timeout_us` passed without a notification.
    bool wait_for(Mutex& mutex, uint64_t timeout_us) REQUIRES(mutex);
    void notify_one();
    void notify_all();

    void* storage() { return storage_; }

  private:
    alignas(16) unsigned char storage_[kLockStorageBytes];
};

// Counts events that threads wait for, such as completions of I/O, or permits that they share.
//
// As soon as the wait() that took the last count has returned, the semaphore may be destroyed, also
// while the post() that gave it is still on its way out: it may lie on the waiter's stack.
class Semaphore {
  public:
    explicit Semaphore(uint32_t count = 0);
    ~Semaphore();
    Semaphore(const Semaphore&) = delete;
    Semaphore& operator=(const Semaphore&) = delete;

    // Adds one. Never blocks; may be called from any context, interrupt handlers included.
    void post();
    // Sleeps until the count is not zero, and takes one.
    void wait();

    void* storage() { return storage_; }

  private:
    alignas(16) unsigned char storage_[kLockStorageBytes];
};

// ---- Threads -------------------------------------------------------------------------------

// A thread of the host. start() at most once; join() before destruction when start() succeeded.
class Thread {
  public:
    Thread() = default;
    ~Thread();
    Thread(const Thread&) = delete;
    Thread& operator=(const Thread&) = delete;

    // `name` is at most 15 characters and is copied. Errors: eagain, enomem.
    Result<void> start(const char* name, void (*function)(void* argument), void* argument);
    void join();
    bool running() const { return handle_ != nullptr; }

  private:
    void* handle_ = nullptr;
};

// A small number that differs between threads that run at the same time, for spreading them over
// counters and groups (a processor number or a thread number). Cheap; need not be stable.
[[nodiscard]] uint32_t concurrency_hint();

// ---- Time and chance ------------------------------------------------------------------------

// Nanoseconds since 1970-01-01 UTC, and since an arbitrary start (never goes back).
[[nodiscard]] int64_t realtime_ns();
[[nodiscard]] uint64_t monotonic_ns();
// Unpredictable bytes, for identifiers and hash keys.
void random_bytes(void* destination, size_t size_bytes);

// ---- Work the host does better ---------------------------------------------------------------

// CRC32C (Castagnoli) of `size_bytes` at `data`, continuing from `seed` (0 at the start); crc32c of
// "123456789" is 0xe3069283.
[[nodiscard]] uint32_t crc32c(uint32_t seed, const void* data, size_t size_bytes);

// ---- What people are told --------------------------------------------------------------------

enum class LogLevel : uint8_t { debug, info, warning, error };
// `message` is one line without a newline; the host adds time and origin.
void log(LogLevel level, const char* message);

}  // namespace tiffin::host

namespace tiffin {

// TIFFIN_ASSERT states an invariant. It stays on in release builds: a broken invariant must stop a
// file system before it reaches the disk.
#define TIFFIN_ASSERT(condition)                                                        \
    do {                                                                                \
        if (!(condition)) [[unlikely]] {                                                \
            ::tiffin::host::panic(__FILE__, __LINE__, "assertion failed: " #condition); \
        }                                                                               \
    } while (false)

namespace host {
#ifdef TIFFIN_PLANTED_FAULTS
// For tests: whether an invariant that is stated before a change is to be found broken now.
bool finds_broken_invariant();
#else
constexpr bool finds_broken_invariant() { return false; }
#endif
}  // namespace host

// Scoped owners of the locks above.
class SCOPED_CAPABILITY MutexLock {
  public:
    explicit MutexLock(host::Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
    ~MutexLock() RELEASE() { mutex_.unlock(); }
    MutexLock(const MutexLock&) = delete;
    MutexLock& operator=(const MutexLock&) = delete;

  private:
    host::Mutex& mutex_;
};

class SCOPED_CAPABILITY SharedLock {
  public:
    explicit SharedLock(host::SharedMutex& mutex, uint64_t level = 0) ACQUIRE_SHARED(mutex)
        : mutex_(mutex) {
        mutex_.lock_shared(level);
    }
    ~SharedLock() RELEASE() { mutex_.unlock_shared(); }
    SharedLock(const SharedLock&) = delete;
    SharedLock& operator=(const SharedLock&) = delete;

  private:
    host::SharedMutex& mutex_;
};

class SCOPED_CAPABILITY ExclusiveLock {
  public:
    explicit ExclusiveLock(host::SharedMutex& mutex, uint64_t level = 0) ACQUIRE(mutex)
        : mutex_(mutex) {
        mutex_.lock(level);
    }
    ~ExclusiveLock() RELEASE() { mutex_.unlock(); }
    ExclusiveLock(const ExclusiveLock&) = delete;
    ExclusiveLock& operator=(const ExclusiveLock&) = delete;

  private:
    host::SharedMutex& mutex_;
};

}  // namespace tiffin
