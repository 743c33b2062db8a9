// SPDX-License-Identifier: MIT OR GPL-2.0-only
// host::allocate and its relatives on malloc and page_pool.h, with the hooks of allocation_hooks.h.
#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>

#include "fs/vfs/host.h"
#include "fuse/host/allocation_hooks.h"
#include "fuse/host/build_checks.h"
#include "fuse/host/memory_reserve.h"
#include "fuse/host/page_pool.h"

namespace tiffin::fuse {
namespace {

struct Hooks {
    std::atomic<bool> active{false};
    std::atomic<int64_t> live_bytes{0};
    std::atomic<int64_t> live_allocations{0};
    std::atomic<uint64_t> allocations{0};
    std::atomic<uint64_t> failed{0};
    // Allocations with a number in [fail_first, fail_end) fail; numbers start at 1.
    std::atomic<uint64_t> fail_first{0};
    std::atomic<uint64_t> fail_end{0};
};

constinit Hooks hooks;

void count_live(size_t size_bytes) {
    hooks.live_bytes.fetch_add(static_cast<int64_t>(size_bytes), std::memory_order_relaxed);
    hooks.live_allocations.fetch_add(1, std::memory_order_relaxed);
}

// Returns false when this allocation is to fail.
bool count_allocation(size_t size_bytes) {
    const uint64_t number = hooks.allocations.fetch_add(1, std::memory_order_relaxed) + 1;
    if (number >= hooks.fail_first.load(std::memory_order_relaxed) &&
        number < hooks.fail_end.load(std::memory_order_relaxed)) {
        hooks.failed.fetch_add(1, std::memory_order_relaxed);
        return false;
    }
    count_live(size_bytes);
    return true;
}

void count_release(size_t size_bytes) {
    hooks.live_bytes.fetch_sub(static_cast<int64_t>(size_bytes), std::memory_order_relaxed);
    hooks.live_allocations.fetch_sub(1, std::memory_order_relaxed);
}

bool watched() { return hooks.active.load(std::memory_order_relaxed); }

// What `take` returns, else from the reserve, if the thread may.
template <typename Take>
void* obtain(size_t size_bytes, Take take) {
    void* memory = nullptr;
    if (!watched()) [[likely]] {
        memory = take();
    } else if (count_allocation(size_bytes)) {
        memory = take();
        if (memory == nullptr) {
            count_release(size_bytes);
        }
    }
    if (memory == nullptr) [[unlikely]] {
        memory = take_from_reserve(size_bytes);
        if (memory != nullptr && watched()) {
            count_live(size_bytes);
        }
    }
    return memory;
}

}  // namespace

AllocationWatch::AllocationWatch() {
    hooks.live_bytes = 0;
    hooks.live_allocations = 0;
    hooks.allocations = 0;
    hooks.failed = 0;
    stop_failing();
    TIFFIN_ASSERT(!hooks.active.exchange(true));
}

AllocationWatch::~AllocationWatch() { hooks.active = false; }

int64_t AllocationWatch::live_bytes() const { return hooks.live_bytes; }
int64_t AllocationWatch::live_allocations() const { return hooks.live_allocations; }
uint64_t AllocationWatch::allocations() const { return hooks.allocations; }
uint64_t AllocationWatch::failed_allocations() const { return hooks.failed; }

void AllocationWatch::fail_allocation(uint64_t number) {
    stop_failing();
    const uint64_t first = hooks.allocations + number;
    hooks.fail_first = first;
    hooks.fail_end = first + 1;
}

void AllocationWatch::fail_allocations_from(uint64_t number) {
    stop_failing();
    hooks.fail_first = hooks.allocations + number;
    hooks.fail_end = UINT64_MAX;
}

void AllocationWatch::stop_failing() { hooks.fail_end = 0; }

}  // namespace tiffin::fuse

namespace tiffin::host {
namespace {

// The sanitizers watch malloc.
constexpr bool kUsePagePool = !fuse::kAddressSanitizer && !fuse::kThreadSanitizer;

static_assert(alignof(std::max_align_t) >= 16, "malloc must align to 16 bytes");

// The address sanitizer knows the exact size of every allocation: there, a wrong size given to
// release() is found at once instead of spoiling some other host's accounting.
void check_size(void* memory, size_t size_bytes) {
    if (fuse::kAddressSanitizer && size_bytes != 0) {
        TIFFIN_ASSERT(malloc_usable_size(memory) == size_bytes);
    }
}

}  // namespace

void* allocate(size_t size_bytes) {
    return fuse::obtain(size_bytes, [=] { return malloc(size_bytes == 0 ? 1 : size_bytes); });
}

void release(void* memory, size_t size_bytes) {
    if (memory == nullptr) {
        return;
    }
    if (fuse::watched()) [[unlikely]] {
        fuse::count_release(size_bytes);
    }
    if (fuse::return_to_reserve(memory, size_bytes)) [[unlikely]] {
        return;
    }
    check_size(memory, size_bytes);
    free(memory);
}

void* allocate_pages(size_t size_bytes) {
    TIFFIN_ASSERT(size_bytes % kPageBytes == 0);
    return fuse::obtain(size_bytes, [=] {
        return kUsePagePool && size_bytes == kPageBytes
                   ? fuse::take_page()
                   : aligned_alloc(kPageBytes, size_bytes == 0 ? kPageBytes : size_bytes);
    });
}

void release_pages(void* memory, size_t size_bytes) {
    TIFFIN_ASSERT(size_bytes % kPageBytes == 0);
    if (!kUsePagePool || size_bytes != kPageBytes || memory == nullptr) {
        release(memory, size_bytes);
        return;
    }
    if (fuse::watched()) [[unlikely]] {
        fuse::count_release(size_bytes);
    }
    if (!fuse::return_to_reserve(memory, size_bytes)) [[likely]] {
        fuse::return_page(memory);
    }
}

}  // namespace tiffin::host
