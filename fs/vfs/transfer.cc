// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/vfs/transfer.h"

namespace tiffin::vfs {

void Transfer::begin(uint32_t count, Completed completed, void* owner) {
    TIFFIN_ASSERT(count > 0 && pending_.load(std::memory_order_relaxed) == 0);
    unsubmitted_ = count;
    completed_ = completed;
    owner_ = owner;
    pending_.store(count, std::memory_order_relaxed);
    error_.store(0, std::memory_order_relaxed);
}

void Transfer::submit(BlockDevice& device, IoRequest& request) {
    TIFFIN_ASSERT(unsubmitted_ > 0);
    request.owner = this;
    request.complete = request_completed;
    request.more_follows = --unsubmitted_ > 0;
    device.submit(request);
}

Result<void> Transfer::wait(BlockDevice& device) {
    TIFFIN_ASSERT(unsubmitted_ == 0 && completed_ == nullptr);
    uint32_t pending = 0;
    while ((pending = pending_.load(std::memory_order_acquire)) != 0 &&
           device.help(pending_, pending)) {
    }
    all_completed_.wait();
    return result();
}

Result<void> Transfer::result() const {
    const int error = error_.load(std::memory_order_relaxed);
    return error == 0 ? Result<void>() : static_cast<Error>(error);
}

void Transfer::request_completed(IoRequest& request, Result<void> result) {
    auto* transfer = static_cast<Transfer*>(request.owner);
    if (!result.ok()) {
        transfer->error_.store(errno_value(result.error()), std::memory_order_relaxed);
    }
    const Completed completed = transfer->completed_;
    void* const owner = transfer->owner_;
    if (transfer->pending_.fetch_sub(1, std::memory_order_acq_rel) != 1) {
        return;
    }
    if (completed != nullptr) {
        completed(owner);
    } else {
        transfer->all_completed_.post();
    }
}

}  // namespace tiffin::vfs
