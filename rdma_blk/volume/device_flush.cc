// SPDX-License-Identifier: MIT OR GPL-2.0-only
// flush(): what was written since the last one, from the servers' memory to their disks.
#include "rdma_blk/volume/remote_block_device.h"

namespace tiffin::rdma_blk {

Result<void> RemoteBlockDevice::flush() {
    if (failed()) {
        return Error::eio;
    }
    if (!needs_flush_) {
        return {};
    }
    flush_permit_.wait();
    Result<void> result = flush_servers();
    flush_permit_.post();
    return result;
}

// With the permit, as all below.
void RemoteBlockDevice::begin_flush() {
    {
        MutexLock lock(mutex_);
        flushing_ = true;
    }
    for (auto& server : servers_) {
        if (server->needs_flush) {
            // Before the walk: what is written while it goes on may be behind it.
            server->change_mark = server->memory->change_mark();
            server->dirty.start_flush();
        }
    }
}

// The next ones of each server, as many as an operation takes. False: there are none left.
bool RemoteBlockDevice::take_dirty_ranges() {
    bool any = false;
    for (auto& server : servers_) {
        server->range_count = 0;
        if (server->needs_flush) {
            const size_t capacity = server->memory->limits().flush_range_count;
            server->range_count = server->dirty.take(
                server->ranges, capacity < kFlushRanges ? capacity : kFlushRanges);
            any = any || server->range_count != 0;
        }
    }
    return any;
}

void RemoteBlockDevice::end_flush() {
    {
        MutexLock lock(mutex_);
        flushing_ = false;
    }
    release_writers();
}

// Lets those that were held back try again: what they write to may have been flushed.
void RemoteBlockDevice::release_writers() {
    bool were_held = false;
    {
        MutexLock lock(mutex_);
        ++flush_step_;
        while (Transfer* transfer = held_.pop()) {
            waiting_.push(*transfer);
            waiting_count_.fetch_add(1);
            were_held = true;
        }
        flush_stepped_.notify_all();
    }
    if (were_held) {
        wake_worker();
    }
}

// Rounds, in each of which every server gets one operation with as many ranges as it takes.
Result<void> RemoteBlockDevice::flush_servers() {
    begin_flush();
    bool flushed = true;
    while (flushed && take_dirty_ranges()) {
        flushed = flush_round();
    }
    for (auto& server : servers_) {
        if (flushed && server->needs_flush) {
            server->memory->changes_flushed(server->change_mark);
        }
    }
    end_flush();
    if (!flushed || failed()) {
        return Error::eio;
    }
    return {};
}

bool RemoteBlockDevice::flush_round() {
    for (auto& server : servers_) {
        if (server->range_count != 0) {
            Operation& operation = server->flush_operation;
            operation.reset();
            operation.kind = OperationKind::flush;
            operation.ranges = server->ranges;
            operation.range_count = server->range_count;
            server->memory->submit(operation);
        }
    }
    bool all_flushed = true;
    for (auto& server : servers_) {
        if (server->range_count == 0) {
            continue;
        }
        server->memory->wait(server->flush_operation);
        const bool flushed = server->flush_operation.outcome == Outcome::executed;
        server->dirty.put(server->ranges, server->range_count, flushed);
        release_writers();
        all_flushed = all_flushed && flushed;
    }
    return all_flushed;
}

// A writer that was held back. It tries again when a part of the flush has ended; when all of it has meanwhile, at
// once.
void RemoteBlockDevice::wait_for_flush() {
    MutexLock lock(mutex_);
    const uint64_t seen = flush_step_;
    while (flushing_ && flush_step_ == seen) {
        flush_stepped_.wait(mutex_);
    }
}

}  // namespace tiffin::rdma_blk
