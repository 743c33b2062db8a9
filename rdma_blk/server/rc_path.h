// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a client of rc may reach by itself: a volume's memory as one network card knows it, and of that, for each
// session, a queue pair with memory windows that nobody else's queue pair can use. The server's processor has no
// part in what is read and written; it opens and closes windows.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fs/vfs/host.h"
#include "rdma_blk/session/access.h"
#include "rdma_blk/transport/verbs/verbs.h"
#include "rdma_blk/wire/control_area.h"
#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk {

// A volume's memory, registered with one device without rights for anybody. Its pages stay in memory as long.
struct RcRegion {
    std::unique_ptr<verbs::Device> device;  // destroyed after the others
    std::unique_ptr<verbs::Memory> data;
    std::unique_ptr<verbs::Memory> control;
    // Parts that are written get registrations of their own, here and in RcPath: rdma_rxe (Linux 6.1) checks who uses a
    // window, but not that the access is within it, only that it is within what the window is a part of.
    std::unique_ptr<verbs::Memory> words;
    unsigned char* data_address = nullptr;
    unsigned char* control_address = nullptr;
    uint64_t data_bytes = 0;

    // `address`: this host's, on the network that the client comes from. Errors: enodev, eio, enomem.
    static Result<std::shared_ptr<RcRegion>> create(
        const uint8_t address[16], unsigned char* data_address, uint64_t data_bytes,
        unsigned char* control_address, const wire::ControlLayout& layout, std::string& problem);
};

// One thread at a time.
class RcPath {
  public:
    // A queue pair that is connected to the client's and may reach nothing yet. Errors: those of verbs.
    static Result<std::unique_ptr<RcPath>> create(std::shared_ptr<RcRegion> region,
                                                  const wire::QueuePairAddress& client);
    // Revokes.
    ~RcPath();
    RcPath(const RcPath&) = delete;
    RcPath& operator=(const RcPath&) = delete;

    // Opens what `access` allows, and describes it. Waits for the device, not for the network. Errors: eio.
    Result<void> open_windows(const SessionAccess& access, wire::RcPathAnswer& answer);

    // When it has succeeded, nothing comes through this path any more: the windows are closed, one after the other,
    // and the queue pair is destroyed, or in its error state at least. Errors: eio: the device did not say so, and this may be
    // called again.
    Result<void> revoke();

  private:
    explicit RcPath(std::shared_ptr<RcRegion> region) : region_(std::move(region)) {}
    Result<void> open_one(size_t index, verbs::Memory& memory, unsigned char* base,
                          uint64_t offset_bytes, uint64_t size_bytes, bool allows_writes,
                          wire::RcWindow& description);
    Result<void> execute(const verbs::WorkRequest& work);

    std::shared_ptr<RcRegion> region_;
    std::unique_ptr<verbs::Memory> client_part_;  // of the session
    std::unique_ptr<verbs::Window> windows_[wire::kRcWindowCount];
    bool is_open_[wire::kRcWindowCount] = {};
    std::unique_ptr<verbs::QueuePair> queue_pair_;
};

// A volume's paths that a device would not end. Through these somebody may still come, so they are kept, and tried again:
// until they have ended nobody gets the lease, and their session does not go on. Any threads.
class RcLeftovers {
  public:
    // Revokes it. Errors: eio: it was kept.
    Result<void> end(uint64_t session_id, std::unique_ptr<RcPath> path);
    // Those of one session, or all, once more. Errors: eio: some have not ended.
    Result<void> end_of(uint64_t session_id);
    Result<void> end_all();

  private:
    struct Leftover {
        uint64_t session_id;
        std::unique_ptr<RcPath> path;
    };

    template <typename Condition>
    Result<void> end_those(Condition condition);

    host::Mutex mutex_{host::LockClass::leaf};
    std::vector<Leftover> left_ GUARDED_BY(mutex_);
};

}  // namespace tiffin::rdma_blk
