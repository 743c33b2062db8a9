// SPDX-License-Identifier: MIT OR GPL-2.0-only
// For tests: watches the memory that goes through host::allocate and host::allocate_pages, and makes
// chosen allocations fail. Costs one predictable branch for each allocation when no watch exists.
#pragma once

#include <cstdint>

namespace tiffin::fuse {

// Counts from its construction to its destruction, in all threads. At most one exists at a time.
//
//     AllocationWatch watch;
//     watch.fail_allocation(3);
//     ... the third allocation from here on returns nullptr ...
//     EXPECT_EQ(watch.live_bytes(), 0);
//
// All functions may be called from any thread.
class AllocationWatch {
  public:
    AllocationWatch();
    ~AllocationWatch();
    AllocationWatch(const AllocationWatch&) = delete;
    AllocationWatch& operator=(const AllocationWatch&) = delete;

    // Allocated and not released since the watch began. Negative when memory from before was
    // released.
    int64_t live_bytes() const;
    int64_t live_allocations() const;
    // How many allocations were asked for, including those that failed.
    uint64_t allocations() const;
    // How many were made to fail.
    uint64_t failed_allocations() const;

    // The `number`th allocation from now fails (1 is the next one), the others succeed.
    void fail_allocation(uint64_t number);
    // The `number`th allocation from now and all after it fail.
    void fail_allocations_from(uint64_t number);
    // No further allocation is made to fail.
    void stop_failing();
};

}  // namespace tiffin::fuse
