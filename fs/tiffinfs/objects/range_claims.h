// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Claims of ranges of one file: what changes a file's content or map claims the blocks that it works on, and keeps the
// claim while it waits for the device. Disjoint claims are held together; overlapping ones are held one after the other,
// in the order in which they were made. Readers claim nothing.
//
// Lock order: a claim is waited for without any lock, without a read epoch and without mappings; its holder may take
// object states, begin transactions, and wait for readers and for the thread that deletes. Neither waits for claims (the
// former may, where an intent keeps a file from being read: such an intent exists only while its maker has claimed the
// whole file, or after it has failed). A thread that holds a claim waits for another one of the same file only if other
// threads end what it has begun.
#pragma once

#include <cstdint>

#include "fs/vfs/host.h"
#include "fs/vfs/thread_annotations.h"

namespace tiffin::tiffinfs {

// Blocks of a file. Stays at one address from acquire() to release().
class RangeClaim {
  public:
    static constexpr uint64_t kEndOfFile = ~uint64_t{0};

    RangeClaim() = default;
    RangeClaim(const RangeClaim&) = delete;
    RangeClaim& operator=(const RangeClaim&) = delete;

    bool covers_file() const { return first_block_ == 0 && end_block_ == kEndOfFile; }

  private:
    friend class RangeClaims;
    bool overlaps(const RangeClaim& other) const {
        return first_block_ < other.end_block_ && other.first_block_ < end_block_;
    }

    uint64_t first_block_ = 0;
    uint64_t end_block_ = 0;
    RangeClaim* next_ = nullptr;
    RangeClaim* previous_ = nullptr;
    // Earlier claims that overlap with this one and are not released yet. Guarded by the lock of the list.
    uint32_t obstacles_ = 0;
    host::Semaphore granted_;
};

// The claims of one file, oldest first. For the analysis of locks, holding any of them is holding this.
class CAPABILITY("range claim") RangeClaims {
  public:
    RangeClaims() = default;
    RangeClaims(const RangeClaims&) = delete;
    RangeClaims& operator=(const RangeClaims&) = delete;

    // Waits until no earlier claim overlaps with blocks [first_block, end_block).
    void acquire(RangeClaim& claim, uint64_t first_block, uint64_t end_block)
        ACQUIRE() NO_THREAD_SAFETY_ANALYSIS;
    // The same without waiting: false, and nothing is claimed, where acquire() would wait.
    [[nodiscard]] bool try_acquire(RangeClaim& claim, uint64_t first_block, uint64_t end_block)
        TRY_ACQUIRE(true) NO_THREAD_SAFETY_ANALYSIS;
    // Any thread.
    void release(RangeClaim& claim) RELEASE() NO_THREAD_SAFETY_ANALYSIS;

    // Tells the analysis of locks that the caller's operation holds a claim which an earlier call has acquired.
    void assert_held() const ASSERT_CAPABILITY(this) {}

  private:
    uint32_t append(RangeClaim& claim, uint64_t first_block, uint64_t end_block) REQUIRES(lock_);
    void remove(RangeClaim& claim) REQUIRES(lock_);

    host::Mutex lock_{host::LockClass::leaf};
    RangeClaim* first_ GUARDED_BY(lock_) = nullptr;
    RangeClaim* last_ GUARDED_BY(lock_) = nullptr;
};

// Releases an acquired claim at the end of the scope.
class SCOPED_CAPABILITY ClaimScope {
  public:
    ClaimScope(RangeClaims& claims, RangeClaim& claim) ACQUIRE(claims)
        : claims_(claims), claim_(claim) {}
    ~ClaimScope() RELEASE() { claims_.release(claim_); }
    ClaimScope(const ClaimScope&) = delete;
    ClaimScope& operator=(const ClaimScope&) = delete;

  private:
    RangeClaims& claims_;
    RangeClaim& claim_;
};

}  // namespace tiffin::tiffinfs
