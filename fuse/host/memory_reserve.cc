// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/memory_reserve.h"

#include <pthread.h>

#include <algorithm>

#include "fs/vfs/host.h"

namespace tiffin::fuse {
namespace {

using host::kPageBytes;

constexpr size_t kPages = kReserveBytes / kPageBytes;

alignas(kPageBytes) constinit unsigned char memory_of_reserve[kReserveBytes] = {};

// Without host::Mutex, since memory is taken and returned under any lock.
constinit pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
constinit bool used[kPages] = {};  // under the lock

constinit thread_local uint32_t scopes = 0;

size_t pages_for(size_t size_bytes) {
    return std::max<size_t>(1, (size_bytes + kPageBytes - 1) / kPageBytes);
}

// The first of `count` free pages in a row; kPages: there are none.
size_t find_free(size_t count) {
    size_t run = 0;
    for (size_t page = 0; page < kPages; ++page) {
        run = used[page] ? 0 : run + 1;
        if (run == count) {
            return page + 1 - count;
        }
    }
    return kPages;
}

}  // namespace

void* take_from_reserve(size_t size_bytes) {
    if (scopes == 0 || size_bytes > kReserveBytes) {
        return nullptr;
    }
    const size_t count = pages_for(size_bytes);
    TIFFIN_ASSERT(pthread_mutex_lock(&mutex) == 0);
    const size_t first = find_free(count);
    if (first < kPages) {
        std::fill_n(used + first, count, true);
    }
    TIFFIN_ASSERT(pthread_mutex_unlock(&mutex) == 0);
    return first < kPages ? memory_of_reserve + first * kPageBytes : nullptr;
}

bool return_to_reserve(void* memory, size_t size_bytes) {
    const auto offset =
        reinterpret_cast<uintptr_t>(memory) - reinterpret_cast<uintptr_t>(&memory_of_reserve[0]);
    if (offset >= kReserveBytes) {
        return false;
    }
    TIFFIN_ASSERT(offset % kPageBytes == 0);
    TIFFIN_ASSERT(pthread_mutex_lock(&mutex) == 0);
    std::fill_n(used + offset / kPageBytes, pages_for(size_bytes), false);
    TIFFIN_ASSERT(pthread_mutex_unlock(&mutex) == 0);
    return true;
}

size_t reserve_used_bytes() {
    TIFFIN_ASSERT(pthread_mutex_lock(&mutex) == 0);
    const auto pages = static_cast<size_t>(std::count(used, used + kPages, true));
    TIFFIN_ASSERT(pthread_mutex_unlock(&mutex) == 0);
    return pages * kPageBytes;
}

}  // namespace tiffin::fuse

namespace tiffin::host {

uint32_t enter_memory_reserve() { return fuse::scopes++; }
void leave_memory_reserve(uint32_t before) { fuse::scopes = before; }

}  // namespace tiffin::host
