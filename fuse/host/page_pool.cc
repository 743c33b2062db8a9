// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/page_pool.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#include "fs/vfs/host.h"

namespace tiffin::fuse {
namespace {

using host::kPageBytes;

// What is asked of the system at once.
constexpr size_t kChunkBytes = 1U << 20;
constexpr uint32_t kShards = 16;

struct FreePage {
    FreePage* next;
};

// Unused pages: those that were returned, and the rest of a chunk that was never touched. Without
// host::Mutex, since memory is taken and returned under any lock.
struct alignas(64) Shard {
    pthread_mutex_t lock = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
    FreePage* returned = nullptr;
    unsigned char* fresh = nullptr;
    unsigned char* fresh_end = nullptr;

    // nullptr when there is none.
    void* take() {
        if (returned != nullptr) {
            FreePage* const page = returned;
            returned = page->next;
            return page;
        }
        if (fresh == fresh_end) {
            return nullptr;
        }
        void* const page = fresh;
        fresh += kPageBytes;
        return page;
    }
};

constinit Shard shards[kShards];

void lock_shard(Shard& shard) { TIFFIN_ASSERT(pthread_mutex_lock(&shard.lock) == 0); }
void unlock_shard(Shard& shard) { TIFFIN_ASSERT(pthread_mutex_unlock(&shard.lock) == 0); }

Shard& own_shard() { return shards[host::concurrency_hint() % kShards]; }

// Threads that only take and threads that only return pages must not make the pool grow.
void* take_from_others() {
    for (Shard& shard : shards) {
        lock_shard(shard);
        void* const page = shard.take();
        unlock_shard(shard);
        if (page != nullptr) {
            return page;
        }
    }
    return nullptr;
}

void* take_from_system(Shard& shard) {
    void* const chunk = mmap(nullptr, kChunkBytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (chunk == MAP_FAILED) {
        return nullptr;
    }
    auto* const pages = static_cast<unsigned char*>(chunk);
    lock_shard(shard);
    if (shard.fresh == shard.fresh_end) {
        shard.fresh = pages + kPageBytes;
        shard.fresh_end = pages + kChunkBytes;
    } else {
        // Another thread was here first: this chunk's pages go to those that were returned.
        for (size_t offset = kPageBytes; offset < kChunkBytes; offset += kPageBytes) {
            auto* const page = reinterpret_cast<FreePage*>(pages + offset);
            page->next = shard.returned;
            shard.returned = page;
        }
    }
    unlock_shard(shard);
    return pages;
}

}  // namespace

void* take_page() {
    Shard& shard = own_shard();
    lock_shard(shard);
    void* page = shard.take();
    unlock_shard(shard);
    if (page == nullptr) [[unlikely]] {
        page = take_from_others();
    }
    return page != nullptr ? page : take_from_system(shard);
}

void return_page(void* page) {
    Shard& shard = own_shard();
    auto* const free_page = static_cast<FreePage*>(page);
    lock_shard(shard);
    free_page->next = shard.returned;
    shard.returned = free_page;
    unlock_shard(shard);
}

}  // namespace tiffin::fuse
