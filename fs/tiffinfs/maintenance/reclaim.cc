// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Deleting files that have no links and no references any more, in the background and in bounded
// transactions: unlink() of a large file returns at once.
//
// An orphan key in the tree stands for every node without links, from the transaction that took the
// last link until the one that erases the inode. So a mount finds what a crash has left.
#include "fs/base/text.h"
#include "fs/tiffinfs/objects/file_system.h"
#include "fs/tiffinfs/objects/operations.h"

namespace tiffin::tiffinfs {
namespace {

// When something could not be deleted, the next try comes after this.
constexpr uint64_t kRetryUs = 10'000;
// After its work the thread looks once more so much later, and need not be woken until then: waking
// it for each of many files that are deleted one after the other costs more than deleting them.
constexpr uint64_t kLingerUs = 2000;
// How long reclaim_now() waits: so many times so long, and less while nothing moves on, since what the
// thread waits for may be a lock of the caller.
constexpr uint32_t kWaitCount = 100;
constexpr uint32_t kIdleWaitCount = 10;
constexpr uint64_t kWaitUs = 100'000;
// How long it waits for the host to forget what was unlinked.
constexpr uint64_t kForgetWaitNs = 200'000'000;
constexpr uint64_t kForgetLookUs = 10'000;

// Collects the offsets of keys of one kind: node ids.
class NodeBatch final : public TreeVisitor {
  public:
    bool visit(Key key, ByteSpan /*value*/) override {
        nodes_[count_++] = key.offset();
        return count_ < kMaximumNodes;
    }

    // Reads the next ids, from `first` on. Empty at the end.
    Result<void> fill(Volume& volume, Kind kind, uint64_t first) {
        count_ = 0;
        if (first > kKeyOffsetMask) {
            return {};
        }
        return volume.tree().scan(make_key(kVolumeNode, kind, first),
                                  next_key(make_key(kVolumeNode, kind, kKeyOffsetMask)), *this);
    }
    uint32_t count() const { return count_; }
    uint64_t operator[](uint32_t index) const { return nodes_[index]; }
    uint64_t after() const { return nodes_[count_ - 1] + 1; }

  private:
    static constexpr uint32_t kMaximumNodes = 32;
    uint64_t nodes_[kMaximumNodes];
    uint32_t count_ = 0;
};

bool may_succeed_later(Error error) {
    return error == Error::ebusy || error == Error::enomem || error == Error::enospc ||
           error == Error::erofs;
}

}  // namespace

// ---- One object --------------------------------------------------------------------------------

// One transaction's worth. True: nothing is left to do.
Result<bool> TiffinFileSystem::reclaim_step(Object& object) {
    if (!check_alive(object).ok() || object.inode.link_count != 0 ||
        objects_.has_references(object.node)) {
        return true;  // the last forget() queues it again
    }
    reclaim_steps_.fetch_add(1, std::memory_order_relaxed);
    if (!TRY(erase_small_object(object))) {
        if (!TRY(free_some_data(object))) {
            return false;
        }
        Transaction transaction(*volume_);
        TRY(transaction.begin(SpacePriority::privileged, {.scattered = 2}));
        TRY(transaction.erase(make_key(object.node, Kind::inode, 0)));
        TRY(transaction.erase(make_key(kVolumeNode, Kind::orphan, object.node)));
        TRY(transaction.prepare());
        (void)transaction.commit();
    }
    object.deleted = true;
    objects_.cancel_reclaim(object);
    return true;
}

// Errors: ebusy when another thread has the object locked; it is not waited for, since it may be waiting
// for room (reclaim_now).
Result<void> TiffinFileSystem::reclaim_object(Object& object, bool to_the_end) {
    while (true) {
        if (!object.state.try_lock()) {
            return Error::ebusy;
        }
        const Result<bool> step = reclaim_step(object);
        object.state.unlock();
        if (!step.ok()) {
            return step.error();
        }
        if (step.value()) {
            return {};
        }
        if (!to_the_end && reclaim_stopping()) {
            return Error::ebusy;
        }
    }
}

// ---- All of them -------------------------------------------------------------------------------

TiffinFileSystem::PassResult TiffinFileSystem::reclaim_queue(bool to_the_end) {
    PassResult result = PassResult::done;
    // What is queued again does not come up twice in one pass.
    uint64_t retries = 0;
    while (objects_.waiting_for_reclaim() > retries) {
        if (!volume_->check_writable().ok() || (!to_the_end && reclaim_stopping())) {
            return PassResult::refused;
        }
        ObjectPin pin = objects_.next_for_reclaim();
        if (!pin) {
            break;
        }
        Result<void> reclaimed = reclaim_object(*pin, to_the_end);
        if (reclaimed.ok()) {
            continue;
        }
        if (may_succeed_later(reclaimed.error())) {
            objects_.queue_for_reclaim(*pin);
            ++retries;
            result = PassResult::later;
        } else {
            log_line(host::LogLevel::error, "node ", pin->node,
                     " has no links and could not be deleted (error ",
                     errno_value(reclaimed.error()), "); the next mount tries again");
            objects_.cancel_reclaim(*pin);
        }
    }
    return result;
}

// Looks for intents and orphans in the tree, when there may be unknown ones.
TiffinFileSystem::PassResult TiffinFileSystem::reclaim_leftovers(bool to_the_end) {
    if (leftovers_done_.exchange(true, std::memory_order_relaxed)) {
        return PassResult::done;
    }
    Result<void> resumed = resume_intents();
    Result<PassResult> orphans =
        resumed.ok() ? reclaim_orphans(to_the_end) : Result<PassResult>(resumed.error());
    if (orphans.ok() && orphans.value() == PassResult::done) {
        return PassResult::done;
    }
    if (orphans.ok() || may_succeed_later(orphans.error())) {
        leftovers_done_.store(false, std::memory_order_relaxed);
        return orphans.ok() ? orphans.value() : PassResult::later;
    }
    log_line(host::LogLevel::error,
             "what an earlier mount has left to delete was not found (error ",
             errno_value(orphans.error()), ")");
    return PassResult::done;
}

TiffinFileSystem::PassResult TiffinFileSystem::reclaim_pass(bool to_the_end) {
    PassResult result = PassResult::refused;
    do {
        if (!volume_->check_writable().ok()) {
            return PassResult::refused;
        }
        result = reclaim_leftovers(to_the_end);
        if (result == PassResult::done) {
            result = reclaim_queue(to_the_end);
        }
        if (objects_.take_queue_overflow()) {
            leftovers_done_.store(false, std::memory_order_relaxed);
        }
    } while (result == PassResult::done && !leftovers_done_.load(std::memory_order_relaxed));
    return result;
}

// ---- What an earlier mount has left ------------------------------------------------------------

Result<void> TiffinFileSystem::resume_intents() {
    NodeBatch batch;
    uint64_t next = 0;
    while (true) {
        TRY(batch.fill(*volume_, Kind::intent, next));
        if (batch.count() == 0) {
            return {};
        }
        for (uint32_t i = 0; i < batch.count(); ++i) {
            IntentValue intent{};
            Result<void> resumed =
                volume_->tree().get_value(make_key(kVolumeNode, Kind::intent, batch[i]), intent);
            if (resumed.ok()) {
                resumed = resume_intent(batch[i], intent);
            }
            // Every change of the file goes on with it too, so nothing is lost but some space.
            if (!resumed.ok() && resumed.error() != Error::enoent) {
                log_line(host::LogLevel::error, "node ", batch[i], ": interrupted work (error ",
                         errno_value(resumed.error()), ") goes on with its next change");
            }
        }
        next = batch.after();
    }
}

Result<void> TiffinFileSystem::queue_orphan(uint64_t node) {
    Result<ObjectPin> pin = objects_.get(node);
    if (pin.ok()) {
        Object& object = **pin;
        BiasedSharedLock lock(object.state, object.node);
        // With links the key should not be there; the checker decides.
        if (check_alive(object).ok() && object.inode.link_count == 0) {
            objects_.queue_for_reclaim(object);
        }
        return {};
    }
    if (pin.error() != Error::estale) {
        return pin.error();
    }
    log_line(host::LogLevel::warning, "node ", node, " is gone; its orphan key is dropped");
    Transaction transaction(*volume_);
    TRY(transaction.begin(SpacePriority::privileged, {.scattered = 1}));
    TRY(transaction.erase(make_key(kVolumeNode, Kind::orphan, node)));
    TRY(transaction.prepare());
    (void)transaction.commit();
    return {};
}

// In batches, since every object in the queue takes memory.
Result<TiffinFileSystem::PassResult> TiffinFileSystem::reclaim_orphans(bool to_the_end) {
    NodeBatch batch;
    uint64_t next = 0;
    while (true) {
        TRY(batch.fill(*volume_, Kind::orphan, next));
        if (batch.count() == 0) {
            return PassResult::done;
        }
        for (uint32_t i = 0; i < batch.count(); ++i) {
            Result<void> queued = queue_orphan(batch[i]);
            if (!queued.ok()) {
                if (may_succeed_later(queued.error())) {
                    return queued.error();
                }
                log_line(host::LogLevel::error, "node ", batch[i],
                         " has no links and could not be read (error ", errno_value(queued.error()),
                         ")");
            }
        }
        if (reclaim_queue(to_the_end) == PassResult::refused) {
            return PassResult::refused;
        }
        next = batch.after();
    }
}

// ---- The thread --------------------------------------------------------------------------------

void TiffinFileSystem::reclaim_main(void* file_system) {
    static_cast<TiffinFileSystem*>(file_system)->reclaim_loop();
}

void TiffinFileSystem::reclaim_loop() {
    while (true) {
        {
            MutexLock lock(reclaim_lock_);
            while (!reclaim_pending_ && !reclaim_stopping_) {
                reclaim_wake_.wait(reclaim_lock_);
            }
            if (reclaim_stopping_) {
                return;
            }
        }
        const PassResult result = reclaim_pass(false);
        MutexLock lock(reclaim_lock_);
        if (result == PassResult::done && objects_.waiting_for_reclaim() == 0 &&
            !reclaim_stopping_) {
            reclaim_lingers_ = true;
            reclaim_wake_.notify_all();
            (void)reclaim_wake_.wait_for(reclaim_lock_, kLingerUs);
            reclaim_lingers_ = false;
        }
        // A thaw or remount may have come since.
        if (result == PassResult::refused
                ? reclaim_stopping_ || !volume_->check_writable().ok()
                : result == PassResult::done && objects_.waiting_for_reclaim() == 0 &&
                      leftovers_done_.load(std::memory_order_relaxed)) {
            reclaim_pending_ = false;
            reclaim_wake_.notify_all();
        } else if (result == PassResult::later && !reclaim_stopping_) {
            (void)reclaim_wake_.wait_for(reclaim_lock_, kRetryUs);
        }
    }
}

void TiffinFileSystem::wake_reclaim() {
    if (objects_.waiting_for_reclaim() == 0) {
        return;
    }
    MutexLock lock(reclaim_lock_);
    if (!reclaim_pending_) {
        reclaim_pending_ = true;
        reclaim_wake_.notify_all();
    }
}

bool TiffinFileSystem::reclaim_stopping() {
    MutexLock lock(reclaim_lock_);
    return reclaim_stopping_;
}

void TiffinFileSystem::stop_reclaim() {
    {
        MutexLock lock(reclaim_lock_);
        reclaim_stopping_ = true;
        reclaim_wake_.notify_all();
    }
    if (reclaim_thread_.running()) {
        reclaim_thread_.join();
    }
}

bool TiffinFileSystem::reclaim_is_idle() {
    return (!reclaim_pending_ || reclaim_lingers_) && objects_.waiting_for_reclaim() == 0;
}

// FUSE tells by a message of its own that an unlinked file is not in use, which may be still on its way when unlink() has
// returned. Only once for the files unlinked so far: they may be open. All operations that need space then wait until then.
void TiffinFileSystem::wait_for_forget(const ObjectTable::Orphans& orphans) {
    if (orphans.now == 0) {
        return;
    }
    if (orphans.so_far != orphans_waited_for_) {
        orphans_waited_for_ = orphans.so_far;
        forget_wait_end_ns_ = host::monotonic_ns() + kForgetWaitNs;
    }
    const uint64_t steps = reclaim_steps_.load(std::memory_order_relaxed);
    while (reclaim_is_idle() && !reclaim_stopping_ &&
           reclaim_steps_.load(std::memory_order_relaxed) == steps &&
           host::monotonic_ns() < forget_wait_end_ns_) {
        (void)reclaim_wake_.wait_for(reclaim_lock_, kForgetLookUs);
    }
}

void TiffinFileSystem::reclaim_now() {
    const ObjectTable::Orphans orphans = objects_.orphans();
    MutexLock lock(reclaim_lock_);
    if (reclaim_is_idle()) {
        wait_for_forget(orphans);
    }
    if (reclaim_stopping_ || reclaim_is_idle()) {
        return;
    }
    reclaim_pending_ = true;
    reclaim_lingers_ = false;
    reclaim_wake_.notify_all();
    uint64_t steps = reclaim_steps_.load(std::memory_order_relaxed);
    uint32_t idle_waits = 0;
    for (uint32_t i = 0; i < kWaitCount && idle_waits < kIdleWaitCount && reclaim_pending_ &&
                         !reclaim_lingers_ && !reclaim_stopping_;
         ++i) {
        (void)reclaim_wake_.wait_for(reclaim_lock_, kWaitUs);
        const uint64_t steps_now = reclaim_steps_.load(std::memory_order_relaxed);
        idle_waits = steps_now == steps ? idle_waits + 1 : 0;
        steps = steps_now;
    }
}

}  // namespace tiffin::tiffinfs
