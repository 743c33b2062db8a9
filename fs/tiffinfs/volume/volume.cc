// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The running volume: commits, making room, maintenance, and what happens on errors.
#include "fs/tiffinfs/volume/volume.h"

#include "fs/base/allocate.h"
#include "fs/base/text.h"
#include "fs/tiffinfs/volume/transaction_workspace.h"
#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {
namespace {

// A background commit is due when this much waits for one.
constexpr uint64_t kPendingJournalBytes = 512U << 10;
// The ring holds the journals of two generations: a checkpoint is wanted when it is half full, and
// transactions wait for one when it is nearly full.
constexpr uint32_t kJournalWantedPercent = 50;
constexpr uint32_t kJournalRequiredPercent = 80;
// Bitmaps that changed since the last checkpoint are copied by the seal; this bounds the copy.
constexpr uint64_t kMaximumDirtyGroups = 4096;
// Which part of the free space may be mapped between two checkpoints.
constexpr uint64_t kMappedWantedPart = 8;
constexpr uint64_t kMappedRequiredPart = 4;
constexpr uint64_t kIdleWakeUs = 60'000'000;

}  // namespace

Volume::Volume(vfs::BlockDevice& device, const VolumeOptions& options)
    : device_(device),
      options_(options),
      allocator_(device, readers_, this),
      cache_(device, options.cache_bytes, *this),
      pool_(cache_, allocator_),
      tree_(cache_, pool_),
      journal_(device) {}

Volume::~Volume() {
    stop_maintenance();
    while (TransactionWorkspace* workspace = workspaces_.take()) {
        destroy_object(workspace);
    }
}

Result<Volume*> Volume::open(vfs::BlockDevice& device, const VolumeOptions& options) {
    auto* volume = make_object<Volume>(device, options);
    if (volume == nullptr) {
        return Error::enomem;
    }
    Result<void> started = volume->start();
    if (!started.ok()) {
        destroy(volume);
        return started.error();
    }
    return volume;
}

void Volume::destroy(Volume* volume) { destroy_object(volume); }

Result<void> Volume::close() {
    stop_maintenance();
    if (is_shut_down()) {
        return {};
    }
    if (read_only()) {
        // What had been completed when an error stopped the volume.
        const Result<void> kept = sync();
        record_errors();
        return kept;
    }
    Result<void> written;
    {
        MutexLock lock(checkpoint_lock_);
        written = checkpoint_locked(Ending::unmount);
    }
    if (written.ok() || is_shut_down()) {
        return written;
    }
    // No memory to begin it, or an error before or behind its commit. A commit needs no memory; the next
    // mount replays the journal.
    const bool stopped = read_only();
    const Result<void> kept = sync();
    record_errors();
    if (!stopped && kept.ok()) {
        log_line(host::LogLevel::warning, "the last checkpoint could not be written (error ",
                 errno_value(written.error()), "): the next mount replays the journal");
    }
    return stopped ? written : kept;
}

Result<void> Volume::check_running() const {
    if (is_shut_down()) {
        return Error::eio;
    }
    return {};
}

Result<void> Volume::check_writable() const {
    TRY(check_running());
    if (read_only()) {
        return Error::erofs;
    }
    return {};
}

Result<void> Volume::commit(uint64_t ticket) {
    TRY(check_running());
    if (ticket == 0 || journal_.durable_ticket() >= ticket) {
        return {};
    }
    Result<void> committed = journal_.commit(ticket);
    if (!committed.ok()) {
        fail("the journal could not be written");
        return committed.error();
    }
    allocator_.release_data_frees(journal_.durable_ticket(), false);
    return {};
}

bool Volume::make_room(uint32_t attempt, SpacePriority priority, RoomWait wait) {
    if (read_only() || is_shut_down()) {
        return false;
    }
    const bool made = try_to_make_room(attempt, priority, wait);
    if (!made) {
        note_space_refusal();
    }
    return made;
}

bool Volume::try_to_make_room(uint32_t attempt, SpacePriority priority, RoomWait wait) {
    // What came free since the caller met an error helps, too.
    const uint64_t free_before = allocator_.free_blocks();
    const uint64_t kept = allocator_.kept_blocks(priority);
    const uint64_t too_few_blocks = free_before < kept ? free_before : kept;
    switch (attempt) {
        case 0:
            // Data freed by transactions that are not durable yet.
            if (!sync().ok()) {
                return false;
            }
            allocator_.release_data_frees(journal_.durable_ticket(), wait == RoomWait::others);
            if (allocator_.free_blocks() > too_few_blocks) {
                return true;
            }
            [[fallthrough]];
        case 1:
            // Nodes of older generations, and what is held in reserve.
            pool_.drain();
            if (allocator_.deferred_blocks() > 0 && (!checkpoint().ok() || !checkpoint().ok())) {
                return false;
            }
            allocator_.release_data_frees(journal_.durable_ticket(), wait == RoomWait::others);
            if (allocator_.free_blocks() > too_few_blocks) {
                return true;
            }
            [[fallthrough]];
        case 2:
            // Deleted files that are still being taken apart; what was may have come to its end just now.
            if (wait == RoomWait::others && priority != SpacePriority::privileged &&
                reclaimer_ != nullptr) {
                reclaimer_->reclaim_now();
            }
            if (allocator_.deferred_blocks() > 0 && sync().ok() && checkpoint().ok() &&
                checkpoint().ok()) {
                allocator_.release_data_frees(journal_.durable_ticket(), wait == RoomWait::others);
            }
            return allocator_.free_blocks() > too_few_blocks;
        default:
            return false;
    }
}

bool Volume::wait_for_part(int64_t seen) {
    constexpr uint64_t kLookUs = 20'000;  // a notification may be missed
    constexpr uint32_t kLooks = 250;
    part_waiters_.fetch_add(1, std::memory_order_relaxed);
    bool has_ended = parts_ended() != seen;
    if (!has_ended) {
        MutexLock lock(part_lock_);
        for (uint32_t i = 0; i < kLooks && !has_ended && parts_granted_.sum() > seen; ++i) {
            (void)part_ended_.wait_for(part_lock_, kLookUs);
            has_ended = parts_ended() != seen;
        }
    }
    part_waiters_.fetch_sub(1, std::memory_order_relaxed);
    return has_ended;
}

bool Volume::needs_checkpoint() const {
    return journal_.fuller_than(kJournalWantedPercent) ||
           cache_.dirty_bytes() > cache_.budget_bytes() / 2 ||
           allocator_.dirty_groups() > kMaximumDirtyGroups ||
           allocator_.mapped_more_than(kMappedWantedPart);
}

bool Volume::must_checkpoint() const {
    return journal_.fuller_than(kJournalRequiredPercent) || memory_is_full() ||
           allocator_.mapped_more_than(kMappedRequiredPart);
}

bool Volume::memory_is_full() const {
    return cache_.dirty_bytes() > cache_.budget_bytes() - cache_.budget_bytes() / 8;
}

void Volume::after_commit(uint64_t pending_bytes) {
    if (needs_checkpoint() || pending_bytes > kPendingJournalBytes) {
        wake_maintenance();
    }
}

void Volume::wake_maintenance() {
    // The caller has changed what the thread is to look at. Either the thread, which takes the request and then looks,
    // sees that, or this sees that the request has been taken: so there are fences on both sides.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (maintenance_requested_.load(std::memory_order_relaxed) ||
        maintenance_requested_.exchange(true, std::memory_order_relaxed)) {
        return;
    }
    MutexLock lock(maintenance_lock_);
    maintenance_wake_.notify_one();
}

Result<void> Volume::start_maintenance() {
    if (maintenance_thread_.running()) {
        return {};
    }
    return maintenance_thread_.start("tiffin-maint", maintenance_main, this);
}

void Volume::stop_maintenance() {
    {
        MutexLock lock(maintenance_lock_);
        stopping_ = true;
        maintenance_wake_.notify_one();
    }
    if (maintenance_thread_.running()) {
        maintenance_thread_.join();
    }
}

void Volume::maintenance_main(void* volume) { static_cast<Volume*>(volume)->maintenance(); }

// Commits on a timer and checkpoints when one is wanted, so that callers rarely have to.
void Volume::maintenance() {
    uint64_t interval_us =
        options_.commit_interval_ms != 0 ? options_.commit_interval_ms * 1000 : kIdleWakeUs;
    while (true) {
        {
            MutexLock lock(maintenance_lock_);
            if (!stopping_ && !maintenance_requested_.load(std::memory_order_relaxed)) {
                maintenance_wake_.wait_for(maintenance_lock_, interval_us);
            }
            if (stopping_) {
                return;
            }
        }
        maintenance_requested_.store(false, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        // Also after damage: what had been completed by then is to be durable. Failures have been
        // logged and have made the volume read-only.
        (void)sync().ok();
        record_errors();
        if (read_only() || is_shut_down()) {
            continue;
        }
        allocator_.release_data_frees(journal_.durable_ticket(), false);
        const uint64_t seen = counters_.checkpoints.load(std::memory_order_acquire);
        if (needs_checkpoint()) {
            (void)checkpoint_after(seen).ok();
        }
    }
}

void Volume::fail(const char* why) {
    errors_seen_.fetch_add(1, std::memory_order_relaxed);
    if (!read_only_.exchange(true, std::memory_order_relaxed)) {
        stopped_by_error_.store(true, std::memory_order_relaxed);
    }
    if (!failed_.exchange(true, std::memory_order_relaxed)) {
        log_line(host::LogLevel::error, why,
                 ": the volume is read-only now; acknowledged data is safe");
        wake_maintenance();
    }
}

Error Volume::report_damage(const char* what, uint64_t node, uint64_t detail) {
    log_line(host::LogLevel::error, "damaged metadata: ", what, " (node ", node, ", at ", detail,
             ")");
    damage_met();
    return Error::euclean;
}

void Volume::damage_met() {
    const bool first = errors_seen_.fetch_add(1) == 0;
    if (!apply_errors_policy() && first) {
        log_line(host::LogLevel::error, "the volume is damaged: unmount it and run fsck.tiffin");
    }
}

bool Volume::apply_errors_policy() {
    if (options_.errors != ErrorsPolicy::remount_read_only || read_only_.exchange(true)) {
        return false;
    }
    stopped_by_error_.store(true, std::memory_order_relaxed);
    log_line(host::LogLevel::error,
             "the volume is damaged and read-only now (errors=remount-ro): unmount it and run "
             "fsck.tiffin");
    wake_maintenance();
    return true;
}

void Volume::damage_avoided() { has_avoided_damage_.store(true, std::memory_order_relaxed); }

Error Volume::invariant_broken(const char* file, int line, const char* condition) {
    log_line(host::LogLevel::error, file, ":", line, ": broken invariant: ", condition,
             "; nothing more is written: unmount the volume and mount it again");
    shut_down();
    return Error::eio;
}

void Volume::shut_down() {
    shut_down_.store(true, std::memory_order_release);
    journal_.kill();
    log_line(host::LogLevel::warning, "the volume was shut down");
}

vfs::Timestamp Volume::now() {
    constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;
    int64_t now_ns = host::realtime_ns();
    int64_t seconds = now_ns / kNanosecondsPerSecond;
    int64_t nanoseconds = now_ns % kNanosecondsPerSecond;
    if (nanoseconds < 0) {
        seconds--;
        nanoseconds += kNanosecondsPerSecond;
    }
    return {seconds, static_cast<uint32_t>(nanoseconds)};
}

TransactionWorkspace* Volume::take_workspace() {
    if (TransactionWorkspace* workspace = workspaces_.take(); workspace != nullptr) {
        return workspace;
    }
    return make_object<TransactionWorkspace>(cache_, tree_, allocator_);
}

void Volume::give_back_workspace(TransactionWorkspace* workspace) {
    if (workspace->records_capacity > TransactionWorkspace::kKeptRecordBytes ||
        !workspaces_.give_back(workspace)) {
        destroy_object(workspace);
    }
}

}  // namespace tiffin::tiffinfs
