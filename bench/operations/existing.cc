// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A file called "hello", where the folder has one: what a file system can be compared in that makes no files. fs/hello keeps
// nothing but this file, so what it takes longer than tmpfs is the framework's.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "bench/operations/folder.h"

namespace {

using tiffin::bench::kBlockBytes;

enum class Call { stat, open, read, write };

void run(benchmark::State& state, Call call) {
    const std::string name = tiffin::bench::g_folder + "/hello";
    const int file = open(name.c_str(), O_RDWR);
    if (file < 0) {
        state.SkipWithError("no file hello");
        return;
    }
    std::vector<char> data(kBlockBytes, 'x');
    MUST_CALL(pwrite(file, data.data(), data.size(), 0));
    for (auto _ : state) {
        struct stat status;
        switch (call) {
            case Call::stat:
                MUST_CALL(stat(name.c_str(), &status));
                break;
            case Call::open:
                MUST_CALL(close(MUST_CALL(open(name.c_str(), O_RDONLY))));
                break;
            case Call::read:
                MUST_CALL(pread(file, data.data(), data.size(), 0));
                break;
            case Call::write:
                MUST_CALL(pwrite(file, data.data(), data.size(), 0));
                break;
        }
    }
    MUST_CALL(close(file));
}
BENCHMARK_CAPTURE(run, stat, Call::stat)->Name("existing_stat");
BENCHMARK_CAPTURE(run, open, Call::open)->Name("existing_open_and_close");
BENCHMARK_CAPTURE(run, read, Call::read)->Name("existing_read_4k");
BENCHMARK_CAPTURE(run, write, Call::write)->Name("existing_write_4k");

}  // namespace
