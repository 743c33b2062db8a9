// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/server/rc_path.h"

#include <algorithm>
#include <iterator>
#include <thread>

#include "fs/vfs/host.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint32_t kQueueDepth = 8;
// Opening or closing a window takes microseconds; a device that needs longer than this is broken.
constexpr uint64_t kDeviceTimeoutNs = 2'000'000'000;

}  // namespace

Result<std::shared_ptr<RcRegion>> RcRegion::create(const uint8_t address[16],
                                                   unsigned char* data_address, uint64_t data_bytes,
                                                   unsigned char* control_address,
                                                   const wire::ControlLayout& layout,
                                                   std::string& problem) {
    auto region = std::make_shared<RcRegion>();
    region->device = TRY(verbs::devices().open(address, problem));
    if (!region->device->capabilities().has_windows) {
        problem = std::string("the device ") + region->device->capabilities().device_name +
                  " has no memory windows of type 2B";
        return Error::enodev;
    }
    problem = "the memory cannot be registered (ulimit -l?)";
    region->data = TRY(region->device->register_memory(data_address, data_bytes, true));
    region->control =
        TRY(region->device->register_memory(control_address, layout.control_bytes, true));
    region->words = TRY(region->device->register_memory(control_address + layout.words_offset,
                                                        layout.words_bytes, true));
    problem.clear();
    region->data_address = data_address;
    region->data_bytes = data_bytes;
    region->control_address = control_address;
    return region;
}

Result<std::unique_ptr<RcPath>> RcPath::create(std::shared_ptr<RcRegion> region,
                                               const wire::QueuePairAddress& client) {
    std::unique_ptr<RcPath> path(new RcPath(std::move(region)));
    path->queue_pair_ = TRY(path->region_->device->create_queue_pair(kQueueDepth, false));
    TRY(path->queue_pair_->connect(client));
    for (auto& window : path->windows_) {
        window = TRY(path->region_->device->allocate_window());
    }
    return path;
}

RcPath::~RcPath() { (void)revoke(); }

// Posts one request and waits for its end.
Result<void> RcPath::execute(const verbs::WorkRequest& work) {
    TRY(queue_pair_->post(&work, 1));
    const uint64_t deadline = host::monotonic_ns() + kDeviceTimeoutNs;
    verbs::Completion completion;
    while (queue_pair_->poll(&completion, 1) == 0) {
        if (host::monotonic_ns() >= deadline) {
            return Error::eio;
        }
        std::this_thread::yield();
    }
    return completion.status == verbs::Status::success ? Result<void>() : Error::eio;
}

Result<void> RcPath::open_one(size_t index, verbs::Memory& memory, unsigned char* base,
                              uint64_t offset_bytes, uint64_t size_bytes, bool allows_writes,
                              wire::RcWindow& description) {
    verbs::WorkRequest bind;
    bind.kind = verbs::WorkKind::bind_window;
    bind.is_signalled = true;
    bind.window = windows_[index].get();
    bind.memory = &memory;
    bind.address = base + offset_bytes;
    bind.size_bytes = size_bytes;
    bind.allows_writes = allows_writes;
    TRY(execute(bind));
    is_open_[index] = true;
    description.address = reinterpret_cast<uint64_t>(base + offset_bytes);
    description.offset_bytes = offset_bytes;
    description.length_bytes = size_bytes;
    description.key = windows_[index]->key();
    description.kind = static_cast<uint8_t>(index + 1);
    description.writes = allows_writes ? 1 : 0;
    return {};
}

Result<void> RcPath::open_windows(const SessionAccess& access, wire::RcPathAnswer& answer) {
    const RcRegion& region = *region_;
    answer = wire::RcPathAnswer{};
    answer.server = queue_pair_->address();
    TRY(open_one(0, *region.data, region.data_address, 0,
                 std::min(region.data_bytes, access.data_bytes), access.is_writer,
                 answer.windows[0]));
    TRY(open_one(1, *region.control, region.control_address, 0, access.control_bytes, false,
                 answer.windows[1]));
    if (access.is_writer) {
        TRY(open_one(2, *region.words, region.control_address, access.words_offset,
                     access.words_bytes, true, answer.windows[2]));
    }
    // For the heartbeat, which readers have, too.
    client_part_ = TRY(region.device->register_memory(region.control_address + access.client_offset,
                                                      access.client_bytes, true));
    return open_one(3, *client_part_, region.control_address, access.client_offset,
                    access.client_bytes, true, answer.windows[3]);
}

Result<void> RcPath::revoke() {
    if (!queue_pair_) {
        return {};
    }
    for (size_t index = 0; index < wire::kRcWindowCount; index++) {
        if (!is_open_[index]) {
            continue;
        }
        verbs::WorkRequest close;
        close.kind = verbs::WorkKind::invalidate;
        close.is_signalled = true;
        close.window = windows_[index].get();
        // It fails when the connection is broken already. Then there is no way through it either, and no sense in trying the
        // others; whether it is so, the end of the queue pair tells.
        if (!execute(close).ok()) {
            break;
        }
    }
    const bool is_stopped = queue_pair_->stop().ok();
    // First: rdma_rxe waits 50 s for windows that could not be closed above before it destroys their queue pair.
    for (size_t index = 0; index < wire::kRcWindowCount; index++) {
        windows_[index].reset();
        is_open_[index] = false;
    }
    if (!queue_pair_->destroy().ok() && !is_stopped) {
        return Error::eio;
    }
    queue_pair_.reset();
    return {};
}

// ---- Paths that do not end ---------------------------------------------------------------------------------

Result<void> RcLeftovers::end(uint64_t session_id, std::unique_ptr<RcPath> path) {
    if (path == nullptr || path->revoke().ok()) {
        return {};
    }
    host::log(
        host::LogLevel::error,
        "an RDMA device does not end a queue pair, by which a client may still reach a volume: "
        "until it does, or tiffind is started again, that volume's lease is not granted");
    MutexLock lock(mutex_);
    left_.push_back({session_id, std::move(path)});
    return Error::eio;
}

template <typename Condition>
Result<void> RcLeftovers::end_those(Condition condition) {
    MutexLock lock(mutex_);
    bool have_ended = true;
    for (auto each = left_.begin(); each != left_.end();) {
        const bool is_meant = condition(*each);
        const bool has_ended = is_meant && each->path->revoke().ok();
        have_ended = have_ended && (has_ended || !is_meant);
        each = has_ended ? left_.erase(each) : std::next(each);
    }
    return have_ended ? Result<void>() : Error::eio;
}

Result<void> RcLeftovers::end_of(uint64_t session_id) {
    return end_those([&](const Leftover& left) { return left.session_id == session_id; });
}

Result<void> RcLeftovers::end_all() {
    return end_those([](const Leftover&) { return true; });
}

}  // namespace tiffin::rdma_blk
