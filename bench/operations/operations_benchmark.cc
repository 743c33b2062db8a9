// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What single operations on a mounted file system cost, as a program sees it: real system calls in a folder.
//
//     operations_benchmark FOLDER [options of Google Benchmark]
//
// Each measurement works in a fresh folder below FOLDER and takes it away again. bench/run --suite metadata runs
// it on several file systems in turns.
#include <benchmark/benchmark.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/operations/folder.h"

using tiffin::bench::drop_caches;
using tiffin::bench::Folder;
using tiffin::bench::kBlockBytes;
using tiffin::bench::kLargeBytes;
using tiffin::bench::make_file;

namespace {

constexpr int kOperations = 5000;
constexpr int kSynchronousOperations = 500;

// What each of the others has at least once: a call that does nothing.
void system_call(benchmark::State& state) {
    for (auto _ : state) {
        benchmark::DoNotOptimize(syscall(SYS_getppid));
    }
}
BENCHMARK(system_call);

// ---- Names ----------------------------------------------------------------------------------------

void create(benchmark::State& state) {
    Folder folder;
    const std::vector<std::string> names = folder.names(kOperations);
    size_t i = 0;
    for (auto _ : state) {
        MUST_CALL(close(MUST_CALL(open(names[i++].c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644))));
    }
}
BENCHMARK(create)->Iterations(kOperations);

void unlink(benchmark::State& state) {
    Folder folder;
    const std::vector<std::string> names = folder.names(kOperations);
    for (const std::string& name : names) {
        make_file(name);
    }
    size_t i = 0;
    for (auto _ : state) {
        MUST_CALL(::unlink(names[i++].c_str()));
    }
}
BENCHMARK(unlink)->Iterations(kOperations);

void rename(benchmark::State& state) {
    Folder folder;
    const std::string names[] = {folder.name(0), folder.name(1)};
    make_file(names[0]);
    size_t i = 0;
    for (auto _ : state) {
        MUST_CALL(::rename(names[i % 2].c_str(), names[(i + 1) % 2].c_str()));
        ++i;
    }
}
BENCHMARK(rename)->Iterations(kOperations);

void make_directory(benchmark::State& state) {
    Folder folder;
    const std::vector<std::string> names = folder.names(kOperations);
    size_t i = 0;
    for (auto _ : state) {
        MUST_CALL(mkdir(names[i++].c_str(), 0755));
    }
}
BENCHMARK(make_directory)->Iterations(kOperations);

void stat_of_a_known_file(benchmark::State& state) {
    Folder folder;
    const std::string name = folder.name(0);
    make_file(name);
    for (auto _ : state) {
        struct stat status;
        MUST_CALL(stat(name.c_str(), &status));
    }
}
BENCHMARK(stat_of_a_known_file);

void stat_of_an_uncached_file(benchmark::State& state) {
    Folder folder;
    const std::vector<std::string> names = folder.names(kOperations);
    for (const std::string& name : names) {
        make_file(name);
    }
    drop_caches();
    size_t i = 0;
    for (auto _ : state) {
        struct stat status;
        MUST_CALL(stat(names[i++].c_str(), &status));
    }
}
BENCHMARK(stat_of_an_uncached_file)->Iterations(kOperations);

void stat_of_a_missing_file(benchmark::State& state) {
    Folder folder;
    const std::vector<std::string> names = folder.names(kOperations);
    size_t i = 0;
    for (auto _ : state) {
        struct stat status;
        if (stat(names[i++].c_str(), &status) == 0) {
            std::exit(1);
        }
    }
}
BENCHMARK(stat_of_a_missing_file)->Iterations(kOperations);

void read_directory_of_1000(benchmark::State& state) {
    Folder folder;
    for (const std::string& name : folder.names(1000)) {
        make_file(name);
    }
    for (auto _ : state) {
        DIR* directory = opendir(folder.path().c_str());
        int entries = 0;
        while (readdir(directory) != nullptr) {
            ++entries;
        }
        closedir(directory);
        if (entries != 1002) {
            std::exit(1);
        }
    }
}
BENCHMARK(read_directory_of_1000);

// ---- Small data -----------------------------------------------------------------------------------

void append_4k(benchmark::State& state) {
    Folder folder;
    const std::vector<char> data(kBlockBytes, 'x');
    const int file = MUST_CALL(open(folder.name(0).c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644));
    for (auto _ : state) {
        MUST_CALL(write(file, data.data(), data.size()));
    }
    MUST_CALL(close(file));
}
BENCHMARK(append_4k)->Iterations(kOperations);

void overwrite_4k_and_fsync(benchmark::State& state) {
    Folder folder;
    make_file(folder.name(0), kLargeBytes);
    const std::vector<char> data(kBlockBytes, 'y');
    const int file = MUST_CALL(open(folder.name(0).c_str(), O_WRONLY));
    MUST_CALL(fsync(file));
    off_t block = 0;
    for (auto _ : state) {
        block = (block + 37) % (kLargeBytes / kBlockBytes);
        MUST_CALL(pwrite(file, data.data(), data.size(), block * static_cast<off_t>(kBlockBytes)));
        MUST_CALL(fsync(file));
    }
    MUST_CALL(close(file));
}
BENCHMARK(overwrite_4k_and_fsync)->Iterations(kSynchronousOperations);

void create_4k_and_fsync(benchmark::State& state) {
    Folder folder;
    const std::vector<std::string> names = folder.names(kSynchronousOperations);
    const std::vector<char> data(kBlockBytes, 'x');
    size_t i = 0;
    for (auto _ : state) {
        const int file = MUST_CALL(open(names[i++].c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644));
        MUST_CALL(write(file, data.data(), data.size()));
        MUST_CALL(fsync(file));
        MUST_CALL(close(file));
    }
}
BENCHMARK(create_4k_and_fsync)->Iterations(kSynchronousOperations);

void read_4k(benchmark::State& state, int flags) {
    constexpr size_t kFileBytes = 64 * kLargeBytes;
    Folder folder;
    make_file(folder.name(0), kFileBytes);
    auto* data = static_cast<char*>(std::aligned_alloc(kBlockBytes, kBlockBytes));
    const int file = MUST_CALL(open(folder.name(0).c_str(), O_RDONLY | flags));
    uint64_t block = 0;
    for (auto _ : state) {
        block = (block * 6364136223846793005U + 1442695040888963407U);
        MUST_CALL(
            pread(file, data, kBlockBytes,
                  static_cast<off_t>((block >> 33) % (kFileBytes / kBlockBytes) * kBlockBytes)));
    }
    MUST_CALL(close(file));
    std::free(data);
}
void read_4k_cached(benchmark::State& state) { read_4k(state, 0); }
BENCHMARK(read_4k_cached);
void read_4k_direct(benchmark::State& state) { read_4k(state, O_DIRECT); }
BENCHMARK(read_4k_direct);

// ---- Large data: per MiB --------------------------------------------------------------------------

void write_1m_and_fsync_at_the_end(benchmark::State& state) {
    Folder folder;
    const std::vector<char> data(kLargeBytes, 'x');
    const int file = MUST_CALL(open(folder.name(0).c_str(), O_WRONLY | O_CREAT, 0644));
    int written = 0;
    for (auto _ : state) {
        MUST_CALL(write(file, data.data(), data.size()));
        if (++written == 256) {
            MUST_CALL(fsync(file));
        }
    }
    MUST_CALL(close(file));
}
BENCHMARK(write_1m_and_fsync_at_the_end)->Iterations(256);

void read_1m_cached(benchmark::State& state) {
    Folder folder;
    make_file(folder.name(0), 64 * kLargeBytes);
    std::vector<char> data(kLargeBytes);
    const int file = MUST_CALL(open(folder.name(0).c_str(), O_RDONLY));
    off_t place = 0;
    for (auto _ : state) {
        MUST_CALL(
            pread(file, data.data(), data.size(), place % 64 * static_cast<off_t>(kLargeBytes)));
        ++place;
    }
    MUST_CALL(close(file));
}
BENCHMARK(read_1m_cached);

}  // namespace

int main(int count, char** arguments) {
    benchmark::Initialize(&count, arguments);
    if (count != 2) {
        std::fprintf(stderr, "usage: %s FOLDER [--benchmark_filter=REGEX]\n", arguments[0]);
        return 2;
    }
    tiffin::bench::g_folder = arguments[1];
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
