// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Time, chance and checksums for the user-space host.
#include <isa-l/crc.h>
#include <sys/random.h>
#include <time.h>

#include <cerrno>

#include "fs/vfs/host.h"

namespace tiffin::host {
namespace {

int64_t read_clock_ns(clockid_t clock) {
    timespec now{};
    TIFFIN_ASSERT(clock_gettime(clock, &now) == 0);
    return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

// ISA-L's loops leave the upper halves of vector registers in use, and then the next instruction of the kind that
// compilers make for x86-64 waits for some hundred cycles, longer than a checksum of 4 KiB takes.
void release_vector_registers() {
#if defined(__x86_64__)
    static const bool has_upper_halves = __builtin_cpu_supports("avx") != 0;
    if (has_upper_halves) {
        asm volatile("vzeroupper" ::
                         : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                           "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
    }
#endif
}

}  // namespace

// The clock of the kernel's own time stamps, which moves with its timer: where the kernel stamps what it
// has cached and the file system the rest, neither is ahead of the other.
int64_t realtime_ns() { return read_clock_ns(CLOCK_REALTIME_COARSE); }

uint64_t monotonic_ns() { return static_cast<uint64_t>(read_clock_ns(CLOCK_MONOTONIC)); }

void random_bytes(void* destination, size_t size_bytes) {
    auto* bytes = static_cast<unsigned char*>(destination);
    while (size_bytes > 0) {
        const ssize_t count = getrandom(bytes, size_bytes, 0);
        if (count < 0) {
            TIFFIN_ASSERT(errno == EINTR);
            continue;
        }
        bytes += count;
        size_bytes -= static_cast<size_t>(count);
    }
}

uint32_t crc32c(uint32_t seed, const void* data, size_t size_bytes) {
    // crc32_iscsi works on the bare remainder, neither inverted at the start nor at the end; its
    // lengths are int, its data is not const though it only reads.
    auto* bytes = static_cast<unsigned char*>(const_cast<void*>(data));
    uint32_t remainder = ~seed;
    constexpr size_t kMaxBytes = size_t{1} << 30;
    while (size_bytes > kMaxBytes) {
        remainder = crc32_iscsi(bytes, static_cast<int>(kMaxBytes), remainder);
        bytes += kMaxBytes;
        size_bytes -= kMaxBytes;
    }
    remainder = crc32_iscsi(bytes, static_cast<int>(size_bytes), remainder);
    release_vector_registers();
    return ~remainder;
}

}  // namespace tiffin::host
