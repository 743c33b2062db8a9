// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Preloaded into a program: from the first SIGUSR2 on until the next one, one of FAILING_ONE_OF allocations fails, by a
// fixed sequence. How many did is then written to the file FAILING_REPORT. glibc's own names do the rest.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" {
void* __libc_malloc(size_t size);                      // NOLINT
void* __libc_calloc(size_t count, size_t size);        // NOLINT
void* __libc_realloc(void* memory, size_t size);       // NOLINT
void* __libc_memalign(size_t alignment, size_t size);  // NOLINT
}

namespace {

constinit std::atomic<bool> active{false};
constinit std::atomic<uint64_t> asked{0};
constinit std::atomic<uint64_t> failed{0};
uint64_t one_of = 20;

void toggle(int /*signal*/) {
    const bool was_active = active.exchange(!active.load());
    const char* report = getenv("FAILING_REPORT");
    if (!was_active || report == nullptr) {
        return;
    }
    char text[64];
    const int size = snprintf(text, sizeof text, "%llu of %llu\n",
                              static_cast<unsigned long long>(failed.load()),
                              static_cast<unsigned long long>(asked.load()));
    const int file = open(report, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    (void)!write(file, text, static_cast<size_t>(size));
    close(file);
}

__attribute__((constructor)) void prepare() {
    if (const char* text = getenv("FAILING_ONE_OF"); text != nullptr) {
        one_of = strtoull(text, nullptr, 10);
    }
    signal(SIGUSR2, toggle);
}

bool fails() {
    if (!active.load(std::memory_order_relaxed)) {
        return false;
    }
    // SplitMix64 of the number of the allocation.
    uint64_t mixed = asked.fetch_add(1, std::memory_order_relaxed) * 0x9e3779b97f4a7c15;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    if ((mixed ^ (mixed >> 31)) % one_of != 0) {
        return false;
    }
    failed.fetch_add(1, std::memory_order_relaxed);
    errno = ENOMEM;
    return true;
}

}  // namespace

extern "C" {

void* malloc(size_t size) { return fails() ? nullptr : __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return fails() ? nullptr : __libc_calloc(count, size); }
void* realloc(void* memory, size_t size) {
    return fails() ? nullptr : __libc_realloc(memory, size);
}
void* memalign(size_t alignment, size_t size) {
    return fails() ? nullptr : __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void** memory, size_t alignment, size_t size) {
    *memory = memalign(alignment, size);
    return *memory == nullptr ? ENOMEM : 0;
}

}  // extern "C"
