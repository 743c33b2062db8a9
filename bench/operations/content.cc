// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Content of a file in all ways: read and written, one after the other and at random, in calls of 4 KiB and 128 KiB, by the
// page cache (cached, or after it was dropped), around it (O_DIRECT) and through a mapping. Each is called
// content_WAY_ORDER_SIZE, and a call is one iteration.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bench/operations/folder.h"

namespace {

using tiffin::bench::drop_caches;
using tiffin::bench::Folder;
using tiffin::bench::kBlockBytes;
using tiffin::bench::kLargeBytes;
using tiffin::bench::make_file;

constexpr size_t kFileBytes = 32 * kLargeBytes;

struct Way {
    const char* name;
    bool is_write;
    bool is_cold;
    bool is_mapped;
    int flags;
};
constexpr Way kWays[] = {
    {"read", false, false, false, 0},
    {"read_cold", false, true, false, 0},
    {"read_direct", false, false, false, O_DIRECT},
    {"read_mapped", false, false, true, 0},
    {"write", true, false, false, 0},
    {"write_direct", true, false, false, O_DIRECT},
    {"write_mapped", true, false, true, 0},
};

// Each place of the file once.
std::vector<off_t> places(size_t call_bytes, bool at_random) {
    std::vector<off_t> all;
    for (size_t place = 0; place < kFileBytes; place += call_bytes) {
        all.push_back(static_cast<off_t>(place));
    }
    uint64_t state = 1;
    for (size_t i = all.size(); at_random && i > 1; --i) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        std::swap(all[i - 1], all[(state >> 33) % i]);
    }
    return all;
}

struct Release {
    void operator()(char* memory) const { std::free(memory); }
};
std::unique_ptr<char, Release> buffer_of(size_t bytes) {
    std::unique_ptr<char, Release> buffer(
        static_cast<char*>(std::aligned_alloc(kBlockBytes, bytes)));
    std::memset(buffer.get(), 'y', bytes);
    return buffer;
}

void run(benchmark::State& state, const Way& way, bool at_random, size_t call_bytes) {
    Folder folder;
    const std::vector<off_t> all = places(call_bytes, at_random);
    const auto buffer = buffer_of(call_bytes);
    make_file(folder.name(0), kFileBytes);
    const int file = MUST_CALL(open(folder.name(0).c_str(), O_RDWR | way.flags));
    MUST_CALL(fsync(file));
    if (way.is_cold) {
        drop_caches();
    }
    char* mapping = nullptr;
    if (way.is_mapped) {
        void* mapped = mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (mapped == MAP_FAILED) {
            tiffin::bench::fail("mmap");
        }
        mapping = static_cast<char*>(mapped);
    }
    size_t i = 0;
    for (auto _ : state) {
        const off_t place = all[i++];
        if (way.is_mapped) {
            std::memcpy(way.is_write ? mapping + place : buffer.get(),
                        way.is_write ? buffer.get() : mapping + place, call_bytes);
            benchmark::ClobberMemory();
        } else {
            const ssize_t count =
                MUST_CALL(way.is_write ? pwrite(file, buffer.get(), call_bytes, place)
                                       : pread(file, buffer.get(), call_bytes, place));
            if (count != static_cast<ssize_t>(call_bytes)) {
                tiffin::bench::fail("a short transfer");
            }
        }
    }
    if (way.is_mapped) {
        MUST_CALL(munmap(mapping, kFileBytes));
    }
    MUST_CALL(close(file));
}

// Whether changing a file in place makes it slow to read: what was written at random is read in order, from the device.
void read_after_overwrites(benchmark::State& state) {
    constexpr size_t kCallBytes = 128 << 10;
    constexpr int kWritesPerFsync = 256;
    Folder folder;
    const auto buffer = buffer_of(kCallBytes);
    make_file(folder.name(0), kFileBytes);
    const int file = MUST_CALL(open(folder.name(0).c_str(), O_RDWR));
    MUST_CALL(fsync(file));
    int written = 0;
    for (const off_t place : places(kBlockBytes, true)) {
        MUST_CALL(pwrite(file, buffer.get(), kBlockBytes, place));
        if (++written % kWritesPerFsync == 0) {
            MUST_CALL(fsync(file));
        }
    }
    drop_caches();
    off_t place = 0;
    for (auto _ : state) {
        MUST_CALL(pread(file, buffer.get(), kCallBytes, place));
        place += static_cast<off_t>(kCallBytes);
    }
    MUST_CALL(close(file));
}
BENCHMARK(read_after_overwrites)
    ->Name("content_read_cold_after_random_overwrites_128k")
    ->Iterations(kFileBytes / (128 << 10));

const bool kRegistered = [] {
    for (const Way& way : kWays) {
        for (const bool at_random : {false, true}) {
            for (const size_t call_bytes : {kBlockBytes, size_t{128} << 10}) {
                const std::string name = std::string("content_") + way.name +
                                         (at_random ? "_random_" : "_sequential_") +
                                         std::to_string(call_bytes >> 10) + "k";
                benchmark::RegisterBenchmark(name.c_str(), run, way, at_random, call_bytes)
                    ->Iterations(static_cast<benchmark::IterationCount>(kFileBytes / call_bytes));
            }
        }
    }
    return true;
}();

}  // namespace
