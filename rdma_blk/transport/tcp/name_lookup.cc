// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/tcp/name_lookup.h"

#include <pthread.h>

#include <atomic>
#include <new>
#include <utility>

#include "fs/vfs/host.h"

namespace tiffin::rdma_blk {
namespace {

// How many may be at work, those that nobody waits for any more included.
constexpr uint32_t kMostRunning = 16;
std::atomic<uint32_t> running{0};

// What a thread of its own looks up. Its own, and that of whoever waits.
struct Lookup {
    std::string host;
    std::string port;
    host::Mutex mutex{host::LockClass::leaf};
    host::Condition is_changed;
    bool is_done GUARDED_BY(mutex) = false;
    int status GUARDED_BY(mutex) = 0;
    Addresses found GUARDED_BY(mutex);
};

int ask(const Lookup& lookup, int flags, Addresses& found) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV | flags;
    addrinfo* all = nullptr;
    const int status = getaddrinfo(lookup.host.c_str(), lookup.port.c_str(), &hints, &all);
    found.reset(status == 0 ? all : nullptr);
    return status;
}

void* run_lookup(void* argument) {
    const std::unique_ptr<std::shared_ptr<Lookup>> own(
        static_cast<std::shared_ptr<Lookup>*>(argument));
    Lookup& lookup = **own;
    Addresses found;
    const int status = ask(lookup, 0, found);
    {
        MutexLock lock(lookup.mutex);
        lookup.status = status;
        lookup.found = std::move(found);
        lookup.is_done = true;
        lookup.is_changed.notify_all();
    }
    running.fetch_sub(1);
    return nullptr;
}

Result<void> start(const std::shared_ptr<Lookup>& lookup) {
    if (running.fetch_add(1) >= kMostRunning) {
        running.fetch_sub(1);
        return Error::etimedout;
    }
    auto* own = new (std::nothrow) std::shared_ptr<Lookup>(lookup);
    pthread_t thread{};
    if (own == nullptr || pthread_create(&thread, nullptr, run_lookup, own) != 0) {
        delete own;
        running.fetch_sub(1);
        return Error::enomem;
    }
    pthread_detach(thread);
    return {};
}

Result<Addresses> wait_for(Lookup& lookup, uint64_t deadline_ns, Patience& patience,
                           std::string& problem) {
    MutexLock lock(lookup.mutex);
    while (!lookup.is_done) {
        lookup.is_changed.wait_for(lookup.mutex, uint64_t{Patience::kIntervalMs} * 1000);
        if (lookup.is_done) {
            break;
        }
        lookup.mutex.unlock();
        const bool goes_on = patience.go_on();
        lookup.mutex.lock();
        if (!goes_on || host::monotonic_ns() >= deadline_ns) {
            return goes_on ? Error::etimedout : Error::ecanceled;
        }
    }
    if (lookup.status != 0) {
        problem = gai_strerror(lookup.status);
        return lookup.status == EAI_AGAIN ? Error::eio : Error::enxio;
    }
    return std::move(lookup.found);
}

}  // namespace

Result<Addresses> look_up(const RemoteAddress& address, uint64_t deadline_ns, Patience& patience,
                          std::string& problem) {
    const std::shared_ptr<Lookup> lookup(new (std::nothrow) Lookup);
    if (!lookup) {
        return Error::enomem;
    }
    lookup->host = address.host;
    lookup->port = std::to_string(address.port);
    Addresses digits;
    if (ask(*lookup, AI_NUMERICHOST, digits) == 0) {
        return digits;
    }
    problem = "looking up " + address.host + " takes too long";
    TRY(start(lookup));
    return wait_for(*lookup, deadline_ns, patience, problem);
}

}  // namespace tiffin::rdma_blk
