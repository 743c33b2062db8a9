// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/memory_shortage.h"

#include <chrono>
#include <new>
#include <thread>

#include "fs/vfs/host.h"

namespace tiffin::fuse {
namespace {

constexpr uint32_t kLookEveryMs = 5;
constexpr uint64_t kNsPerMs = 1'000'000;
// An allocation that still finds no memory comes back at once.
constexpr uint64_t kApartNs = 2 * kNsPerMs;

struct Waiting {
    uint64_t since_ns = 0;
    uint64_t looked_ns = 0;  // the end of the last look; 0: there was none
};
constinit thread_local Waiting waiting;

}  // namespace

void wait_for_memory(uint32_t patience_ms) {
    const uint64_t now_ns = host::monotonic_ns();
    if (waiting.looked_ns == 0 || now_ns - waiting.looked_ns > kApartNs) {
        waiting.since_ns = now_ns;
    }
    if (now_ns - waiting.since_ns >= patience_ms * kNsPerMs) {
        waiting.looked_ns = 0;
        throw std::bad_alloc();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(kLookEveryMs));
    waiting.looked_ns = host::monotonic_ns();
}

void wait_when_out_of_memory() {
    std::set_new_handler([] { wait_for_memory(kMemoryPatienceMs); });
}

}  // namespace tiffin::fuse
