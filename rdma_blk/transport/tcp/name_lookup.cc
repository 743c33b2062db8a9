// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/tcp/name_lookup.h"

#include <new>
#include <utility>

#include "fs/vfs/host.h"

namespace tiffin::rdma_blk {
namespace {

// What the resolver reads and writes until it has an answer.
struct Lookup {
    std::string host;
    std::string port;
    addrinfo hints{};
    gaicb request{};

    ~Lookup() {
        if (request.ar_result != nullptr) {
            freeaddrinfo(request.ar_result);
        }
    }
    bool is_running() { return gai_error(&request) == EAI_INPROGRESS; }
};

// Those that nobody waits for any more. As many as the C library has threads for them, so that there are no more.
class Abandoned {
  public:
    // False: too many are still running.
    bool has_room() EXCLUDES(mutex_) {
        MutexLock lock(mutex_);
        bool has_free = false;
        for (std::unique_ptr<Lookup>& lookup : lookups_) {
            if (lookup && !lookup->is_running()) {
                lookup.reset();
            }
            has_free = has_free || !lookup;
        }
        return has_free;
    }
    // Two that come at once may find one place: then the memory is given up.
    void keep(std::unique_ptr<Lookup> running) EXCLUDES(mutex_) {
        MutexLock lock(mutex_);
        for (std::unique_ptr<Lookup>& lookup : lookups_) {
            if (!lookup) {
                lookup = std::move(running);
                return;
            }
        }
        [[maybe_unused]] const Lookup* given_up = running.release();
    }

  private:
    static constexpr size_t kCapacity = 16;

    host::Mutex mutex_{host::LockClass::leaf};
    std::unique_ptr<Lookup> lookups_[kCapacity] GUARDED_BY(mutex_);
};

// Never destroyed: the resolver's threads may live until the process ends.
Abandoned& abandoned() {
    static Abandoned* const all = new (std::nothrow) Abandoned;
    TIFFIN_ASSERT(all != nullptr);
    return *all;
}

Error lookup_error(int status, std::string& problem) {
    problem = gai_strerror(status);
    return status == EAI_AGAIN ? Error::eio : status == EAI_MEMORY ? Error::enomem : Error::enxio;
}

Result<void> wait_for(Lookup& lookup, uint64_t deadline_ns, Patience& patience) {
    const gaicb* const requests[] = {&lookup.request};
    const timespec interval{0, Patience::kIntervalMs * 1'000'000L};
    while (lookup.is_running()) {
        (void)gai_suspend(requests, 1, &interval);
        if (!lookup.is_running()) {
            break;
        }
        if (!patience.go_on()) {
            return Error::ecanceled;
        }
        if (host::monotonic_ns() >= deadline_ns) {
            return Error::etimedout;
        }
    }
    return {};
}

}  // namespace

Result<Addresses> look_up(const RemoteAddress& address, uint64_t deadline_ns, Patience& patience,
                          std::string& problem) {
    std::unique_ptr<Lookup> lookup(new (std::nothrow) Lookup);
    if (!lookup) {
        return Error::enomem;
    }
    lookup->host = address.host;
    lookup->port = std::to_string(address.port);
    lookup->hints.ai_family = AF_UNSPEC;
    lookup->hints.ai_socktype = SOCK_STREAM;
    lookup->hints.ai_flags = AI_NUMERICSERV | AI_NUMERICHOST;
    addrinfo* digits = nullptr;
    if (getaddrinfo(lookup->host.c_str(), lookup->port.c_str(), &lookup->hints, &digits) == 0) {
        return Addresses(digits);
    }
    lookup->hints.ai_flags = AI_NUMERICSERV;
    lookup->request.ar_name = lookup->host.c_str();
    lookup->request.ar_service = lookup->port.c_str();
    lookup->request.ar_request = &lookup->hints;
    problem = "looking up " + address.host + " takes too long";
    if (!abandoned().has_room()) {
        return Error::etimedout;
    }
    gaicb* requests[] = {&lookup->request};
    const int started = getaddrinfo_a(GAI_NOWAIT, requests, 1, nullptr);
    if (started != 0) {
        return lookup_error(started, problem);
    }
    const Result<void> waited = wait_for(*lookup, deadline_ns, patience);
    if (!waited.ok()) {
        if (gai_cancel(&lookup->request) == EAI_NOTCANCELED) {
            abandoned().keep(std::move(lookup));
        }
        return waited.error();
    }
    const int status = gai_error(&lookup->request);
    if (status != 0) {
        return lookup_error(status, problem);
    }
    return Addresses(std::exchange(lookup->request.ar_result, nullptr));
}

}  // namespace tiffin::rdma_blk
