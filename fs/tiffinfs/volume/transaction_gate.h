// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The gate that transactions pass and that a seal closes: a shared lock in several parts, so that threads that
// pass on different processors write to different cache lines (the "big-reader lock" of older Linux kernels;
// Mellor-Crummey and Scott, "Scalable Reader-Writer Synchronization", PPoPP 1991, say why one word does not do).
//
// Passing locks one part shared, closing locks all parts exclusively, one after the other: rare, and in no hurry.
// Lock class transaction; the level is the part.
#pragma once

#include <cstdint>

#include "fs/base/race_point.h"
#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {

class CAPABILITY("gate") TransactionGate {
  public:
    TransactionGate() = default;
    TransactionGate(const TransactionGate&) = delete;
    TransactionGate& operator=(const TransactionGate&) = delete;

    // Waits while the gate is closed. Returns what to leave with; any thread may do that. Not for a thread
    // that is inside already.
    [[nodiscard]] uint32_t enter() NO_THREAD_SAFETY_ANALYSIS {
        const uint32_t part = host::concurrency_hint() % kParts;
        race_point();
        parts_[part].mutex.lock_shared(part);
        race_point();
        return part;
    }
    void leave(uint32_t part) NO_THREAD_SAFETY_ANALYSIS { parts_[part].mutex.unlock_shared(); }

    // Closes the gate and waits until no thread is inside.
    void close() ACQUIRE() NO_THREAD_SAFETY_ANALYSIS {
        for (uint32_t part = 0; part < kParts; ++part) {
            parts_[part].mutex.lock(part);
            race_point();
        }
    }
    void open() RELEASE() NO_THREAD_SAFETY_ANALYSIS {
        for (Part& part : parts_) {
            part.mutex.unlock();
        }
    }

  private:
    static constexpr uint32_t kParts = 8;
    struct alignas(64) Part {
        host::SharedMutex mutex{host::LockClass::transaction};
    };
    Part parts_[kParts];
};

// The gate is closed for the length of a scope.
class SCOPED_CAPABILITY ClosedGate {
  public:
    explicit ClosedGate(TransactionGate& gate) ACQUIRE(gate) : gate_(gate) { gate_.close(); }
    ~ClosedGate() RELEASE() { gate_.open(); }
    ClosedGate(const ClosedGate&) = delete;
    ClosedGate& operator=(const ClosedGate&) = delete;

  private:
    TransactionGate& gate_;
};

}  // namespace tiffin::tiffinfs
