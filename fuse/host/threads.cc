// SPDX-License-Identifier: MIT OR GPL-2.0-only
// host::Thread on POSIX threads, and concurrency_hint().
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "fs/vfs/host.h"

namespace tiffin::host {
namespace {

struct NativeThread {
    pthread_t thread{};
    char name[16] = {};
    void (*function)(void*) = nullptr;
    void* argument = nullptr;
};

void* run_thread(void* pointer) {
    auto* native = static_cast<NativeThread*>(pointer);
    // The name is for people who look at the process; a failure to set it changes nothing.
    (void)pthread_setname_np(pthread_self(), native->name);
    native->function(native->argument);
    return nullptr;
}

}  // namespace

Thread::~Thread() { TIFFIN_ASSERT(handle_ == nullptr); }

Result<void> Thread::start(const char* name, void (*function)(void* argument), void* argument) {
    TIFFIN_ASSERT(handle_ == nullptr);
    auto* native = new (std::nothrow) NativeThread;
    if (native == nullptr) {
        return Error::enomem;
    }
    strncpy(native->name, name, sizeof native->name - 1);
    native->function = function;
    native->argument = argument;

    // Signals are for the threads of the program, which know what to do with them.
    sigset_t all;
    sigset_t previous;
    sigfillset(&all);
    TIFFIN_ASSERT(pthread_sigmask(SIG_SETMASK, &all, &previous) == 0);
    const int error = pthread_create(&native->thread, nullptr, run_thread, native);
    TIFFIN_ASSERT(pthread_sigmask(SIG_SETMASK, &previous, nullptr) == 0);
    if (error != 0) {
        delete native;
        return error == ENOMEM ? Error::enomem : Error::eagain;
    }
    handle_ = native;
    return {};
}

void Thread::join() {
    TIFFIN_ASSERT(handle_ != nullptr);
    auto* native = static_cast<NativeThread*>(handle_);
    TIFFIN_ASSERT(pthread_join(native->thread, nullptr) == 0);
    delete native;
    handle_ = nullptr;
}

uint32_t concurrency_hint() {
    // The C library reads the processor's number from memory it shares with the kernel.
    const int processor = sched_getcpu();
    if (processor >= 0) [[likely]] {
        return static_cast<uint32_t>(processor);
    }
    static std::atomic<uint32_t> next_number{0};
    thread_local const uint32_t number = next_number.fetch_add(1, std::memory_order_relaxed);
    return number;
}

}  // namespace tiffin::host
