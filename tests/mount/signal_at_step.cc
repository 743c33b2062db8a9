// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Preloaded into mount.tiffin: sends a process a signal at a step of its life. A step is a call of one of the functions
// below, which is where a process meets the world.
//   STEP_OF=starter|server  which process: the program that was started, or the one that it starts
//   STEP_SIGNAL=NUMBER      which signal
//   STEP_AT=N               at which step; 0: never
//   STEP_COUNT=PATH         a server that ends in order writes there how many steps it took
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

struct iocb;

namespace {

std::atomic<uint64_t> steps{0};
uint64_t signal_at = 0;
int signal_number = SIGKILL;
bool is_server = false;
bool is_meant = false;

void look_at_process() {
    const char* who = getenv("STEP_OF");
    is_meant = who != nullptr && (std::strcmp(who, "server") == 0) == is_server;
    steps.store(0);
}

__attribute__((constructor)) void prepare() {
    const char* at = getenv("STEP_AT");
    const char* number = getenv("STEP_SIGNAL");
    signal_at = at == nullptr ? 0 : strtoull(at, nullptr, 10);
    signal_number = number == nullptr ? SIGKILL : atoi(number);
    look_at_process();
    pthread_atfork(nullptr, nullptr, [] {
        is_server = true;
        look_at_process();
    });
}

__attribute__((destructor)) void report() {
    const char* path = getenv("STEP_COUNT");
    if (!is_server || path == nullptr) {
        return;
    }
    if (FILE* file = fopen(path, "w"); file != nullptr) {
        fprintf(file, "%llu\n", static_cast<unsigned long long>(steps.load()));
        fclose(file);
    }
}

void step() {
    // A child that shares the memory and is meant by no name takes its steps as the server.
    if (is_meant && steps.fetch_add(1) + 1 == signal_at) {
        kill(getpid(), signal_number);
    }
}

template <typename Function>
Function next(const char* name) {
    return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

#define STEP(result, name, parameters, arguments)                              \
    extern "C" __attribute__((visibility("default"))) result name parameters { \
        static const auto real = next<result(*) parameters>(#name);            \
        step();                                                                \
        return real arguments;                                                 \
    }

STEP(int, mount,
     (const char* source, const char* target, const char* type, unsigned long flags,
      const void* data),
     (source, target, type, flags, data))
STEP(int, umount2, (const char* target, int flags), (target, flags))
STEP(int, statfs, (const char* path, struct statfs* status), (path, status))
STEP(int, statfs64, (const char* path, struct statfs64* status), (path, status))
STEP(ssize_t, read, (int file, void* data, size_t size), (file, data, size))
STEP(ssize_t, write, (int file, const void* data, size_t size), (file, data, size))
STEP(ssize_t, writev, (int file, const iovec* parts, int count), (file, parts, count))
STEP(ssize_t, pread64, (int file, void* data, size_t size, off64_t at), (file, data, size, at))
STEP(ssize_t, pwrite64, (int file, const void* data, size_t size, off64_t at),
     (file, data, size, at))
STEP(ssize_t, preadv64, (int file, const iovec* parts, int count, off64_t at),
     (file, parts, count, at))
STEP(ssize_t, pwritev64, (int file, const iovec* parts, int count, off64_t at),
     (file, parts, count, at))
STEP(int, io_submit, (void* context, long count, iocb** requests), (context, count, requests))
STEP(int, fdatasync, (int file), (file))
STEP(int, syncfs, (int file), (file))
STEP(int, close, (int file), (file))
STEP(ssize_t, send, (int file, const void* data, size_t size, int flags), (file, data, size, flags))
STEP(ssize_t, recv, (int file, void* data, size_t size, int flags), (file, data, size, flags))
STEP(pid_t, setsid, (), ())
