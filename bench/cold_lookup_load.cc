// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a lookup in one large directory costs tiffinfs itself, counted, without a host: COUNT files of 1 KiB are made
// in this process on memory, the volume is mounted anew, and all names are looked up once in an order that is not
// that of the tree, as in phase lookup-flat of bench/scale.
//
//     cold_lookup_load [COUNT] [CACHE_MIB]
//
// Prints for each tenth, for each lookup: tree nodes that were asked for, those of them that were read from the device,
// and those that had to make room; and the processor time in microseconds.
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "fs/tiffinfs/objects/file_system.h"
#include "fs/tiffinfs/tiffinfs.h"
#include "fuse/host/memory_device.h"

namespace {

using namespace tiffin;

constexpr uint64_t kTenths = 10;
constexpr uint64_t kStride = 611'953;  // as in bench/scale_load.cc
constexpr uint64_t kDeviceBytes = 16ULL << 30;
constexpr size_t kFileBytes = 1024;

template <typename T>
T must(Result<T> result, const char* what) {
    if (!result.ok()) {
        std::fprintf(stderr, "cold_lookup_load: %s fails\n", what);
        std::exit(1);
    }
    return std::move(result.value());
}

double processor_us() {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

vfs::Name name_of(const std::string& text) { return {text.data(), text.size()}; }
std::string file_name(uint64_t number) { return "file-" + std::to_string(number); }

void make_files(vfs::BlockDevice& device, uint64_t count) {
    if (!tiffinfs::make_file_system(device, {}).ok()) {
        std::exit(1);
    }
    vfs::FileSystem* const fs = must(tiffinfs::mount(device, {}), "mount");
    std::string content(kFileBytes, 'c');
    for (uint64_t i = 0; i < count; ++i) {
        const std::string name = file_name(i);
        const uint64_t node =
            must(fs->create({}, vfs::kRootNode, name_of(name), 0644, 0, 0, {}), "create").node;
        const vfs::IoVector buffer{content.data(), content.size()};
        must(fs->write(node, 0, 0, Span<const vfs::IoVector>(&buffer, 1), 0), "write");
        fs->forget(node, 1);
    }
    if (!fs->unmount().ok()) {
        std::exit(1);
    }
    tiffinfs::destroy(fs);
}

void look_up_all(vfs::BlockDevice& device, uint64_t count, uint64_t cache_bytes) {
    tiffinfs::MountOptions options;
    options.volume.cache_bytes = cache_bytes;
    vfs::FileSystem* const fs = must(tiffinfs::mount(device, options), "mount");
    auto& volume = static_cast<tiffinfs::TiffinFileSystem*>(fs)->volume();
    std::printf("tree of %u levels, cache of %lu MiB\n%-8s %10s %10s %10s %10s\n",
                volume.tree().root().level + 1U, cache_bytes >> 20, "tenth", "nodes", "read",
                "evicted", "us");
    for (uint64_t tenth = 0; tenth < kTenths; ++tenth) {
        const auto before = volume.cache().counters();
        const double start_us = processor_us();
        const uint64_t begin = count * tenth / kTenths;
        const uint64_t end = count * (tenth + 1) / kTenths;
        for (uint64_t i = begin; i < end; ++i) {
            const std::string name = file_name(i * kStride % count);
            // Not forgotten, as by a kernel that remembers what it has looked up.
            must(fs->lookup(vfs::kRootNode, name_of(name)), "lookup");
        }
        const double us = processor_us() - start_us;
        const auto after = volume.cache().counters();
        const auto each = [&](uint64_t amount) {
            return static_cast<double>(amount) / static_cast<double>(end - begin);
        };
        std::printf("%-8lu %10.3f %10.3f %10.3f %10.2f\n", tenth + 1,
                    each(after.hits + after.misses - before.hits - before.misses),
                    each(after.misses - before.misses), each(after.evictions - before.evictions),
                    us / static_cast<double>(end - begin));
    }
    if (!fs->unmount().ok()) {
        std::exit(1);
    }
    tiffinfs::destroy(fs);
}

}  // namespace

int main(int count, char** arguments) {
    const uint64_t files = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 1'000'000;
    const uint64_t cache_mib = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 256;
    if (count > 3 || files < kTenths || cache_mib == 0) {
        std::fprintf(stderr, "usage: %s [COUNT] [CACHE_MIB]\n", arguments[0]);
        return 2;
    }
    const auto device = std::move(fuse::MemoryDevice::create(kDeviceBytes).value());
    make_files(*device, files);
    look_up_all(*device, files, cache_mib << 20);
    return 0;
}
