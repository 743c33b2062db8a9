// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The device's own thread: it goes on with requests that had to wait, does flushes of submit(), and tells
// the log what becomes of the connections, since completions can do none of that.
#include <utility>

#include "fs/base/text.h"
#include "rdma_blk/volume/remote_block_device.h"

namespace tiffin::rdma_blk {
namespace {

bool is_final(ConnectionState state) {
    return state == ConnectionState::fenced || state == ConnectionState::memory_lost ||
           state == ConnectionState::closed;
}

const char* reason(ConnectionState state, bool is_reader) {
    switch (state) {
        case ConnectionState::fenced:
            return is_reader ? "another client writes the volume now, or has written it meanwhile"
                             : "another client has taken the volume";
        case ConnectionState::memory_lost:
            return "its content is gone from the server: the volume was deleted, or the server has "
                   "lost what was not flushed";
        default:
            return "the server could not be reached for as long as timeout_s= allows";
    }
}

}  // namespace

void DeviceServer::connection_changed(const ConnectionInfo& info) {
    if (is_closing.load()) {
        return;
    }
    state.store(info.state);
    if (is_final(info.state)) {
        device.failed_.store(true, std::memory_order_release);
    }
    device.wake_worker();
}

void RemoteBlockDevice::wake_worker() {
    if (!worker_awake_.exchange(true)) {
        worker_wake_.post();
    }
}

void RemoteBlockDevice::enqueue(Transfer& transfer, Advance reason) {
    {
        MutexLock lock(mutex_);
        if (reason == Advance::held_back && flushing_) {
            held_.push(transfer);
            return;  // the end of the flush sees to it
        }
        waiting_.push(transfer);
        waiting_count_.fetch_add(1);
    }
    // What it waits for may have come just before it was counted.
    wake_worker();
}

void RemoteBlockDevice::enqueue_request(vfs::IoRequest& request) {
    {
        MutexLock lock(mutex_);
        if (request.operation == vfs::IoOperation::flush) {
            flushes_.push(request);
        } else {
            requests_.push(request);
            waiting_count_.fetch_add(1);
        }
    }
    wake_worker();
}

void RemoteBlockDevice::run_worker() {
    while (true) {
        worker_wake_.wait();
        worker_awake_.store(false);
        if (worker_stops_.load()) {
            return;
        }
        report_connections();
        tell_of_failure();
        if (continue_transfers()) {
            while (start_requests()) {
            }
        }
        run_flushes();
    }
}

// False when there are no free operations.
bool RemoteBlockDevice::continue_transfers() {
    while (true) {
        Transfer* transfer = nullptr;
        {
            MutexLock lock(mutex_);
            transfer = waiting_.pop();
        }
        if (transfer == nullptr) {
            return true;
        }
        const Advance reached = advance(*transfer, false);
        if (reached == Advance::finished) {
            waiting_count_.fetch_sub(1);
            continue;
        }
        MutexLock lock(mutex_);
        if (reached == Advance::held_back && flushing_) {
            held_.push(*transfer);
            waiting_count_.fetch_sub(1);
            continue;
        }
        waiting_.push_front(*transfer);
        if (reached == Advance::no_operation) {
            return false;
        }
    }
}

// Starts the oldest request that waits. False: there is none, or it cannot be started yet.
bool RemoteBlockDevice::start_requests() {
    Transfer* transfer = transfers_.take();
    if (transfer == nullptr) {
        return false;
    }
    vfs::IoRequest* request = nullptr;
    {
        MutexLock lock(mutex_);
        request = requests_.pop();
    }
    if (request == nullptr) {
        transfers_.give_back(*transfer);
        return false;
    }
    waiting_count_.fetch_sub(1);
    start_transfer(*transfer, *request);
    const Advance reached = advance(*transfer, false);
    if (reached != Advance::finished) {
        enqueue(*transfer, reached);
    }
    return reached != Advance::no_operation;
}

// Requests that wait for operations wait for these, too; no file system here flushes through submit().
void RemoteBlockDevice::run_flushes() {
    while (true) {
        vfs::IoRequest* request = nullptr;
        {
            MutexLock lock(mutex_);
            request = flushes_.pop();
        }
        if (request == nullptr) {
            return;
        }
        const Result<void> result = flush();
        request->complete(*request, result.ok() ? Result<void>() : Result<void>(result.error()));
    }
}

void RemoteBlockDevice::on_failure(std::function<void()> tell) {
    {
        MutexLock lock(failure_lock_);
        on_failure_ = std::move(tell);
    }
    wake_worker();  // It may have failed before.
}

void RemoteBlockDevice::tell_of_failure() {
    if (!failed()) {
        return;
    }
    MutexLock lock(failure_lock_);
    if (const auto tell = std::exchange(on_failure_, nullptr)) {
        tell();
    }
}

void RemoteBlockDevice::report_connections() {
    for (auto& server : servers_) {
        const ConnectionState state = server->state.load();
        if (state == server->reported_state || is_final(server->reported_state)) {
            continue;
        }
        const char* name = options_.name.c_str();
        if (is_final(state)) {
            log_line(host::LogLevel::error, "volume ", name, ", server ", server->name.c_str(),
                     ": ", reason(state, geometry().read_only),
                     "; everything fails with EIO from now on");
        } else if (state == ConnectionState::reconnecting) {
            log_line(host::LogLevel::warning, "volume ", name, ", server ", server->name.c_str(),
                     ": the connection is lost; trying again");
        } else if (server->reported_state == ConnectionState::reconnecting) {
            log_line(host::LogLevel::info, "volume ", name, ", server ", server->name.c_str(),
                     ": connected again");
        }
        server->reported_state = state;
    }
}

}  // namespace tiffin::rdma_blk
