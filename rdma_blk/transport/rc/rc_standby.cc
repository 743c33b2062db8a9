// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The paths of an RcMemory that are not used: one for each further link, made by a thread of its own, as the server may
// have to register its memory with another device first.
#include <utility>

#include "rdma_blk/transport/rc/rc_memory.h"
#include "rdma_blk/transport/time_units.h"

namespace tiffin::rdma_blk {
namespace {

// After an attempt that failed.
constexpr uint32_t kRetryUs = 1'000'000;

}  // namespace

void RcMemory::run_standby(void* memory) { static_cast<RcMemory*>(memory)->keep_standbys(); }

void RcMemory::keep_standbys() {
    while (true) {
        const uint32_t generation = control_generation_.load();
        const LinksView view = control_->links();
        for (size_t link = 0; link < view.count; link++) {
            make_standby(link, view, generation);
        }
        MutexLock lock(mutex_);
        if (is_stopping_) {
            return;
        }
        standby_wanted_.wait_for(mutex_, kRetryUs);
    }
}

bool RcMemory::is_usable(const Path& path, const LinksView& view) const {
    return path.queue_pair != nullptr && path.generation == control_generation_.load() &&
           path.ended_count == view.links[path.link].ended_count && view.links[path.link].is_ready;
}

// Not the link of the path that is used, or is to be used next.
bool RcMemory::lacks_standby(size_t link, const LinksView& view) const {
    const bool is_used = path_.queue_pair != nullptr ? path_.link == link : view.active == link;
    const bool is_doubtful =
        doubt_.exists && doubt_.link == link && doubt_.ended_count == view.links[link].ended_count;
    return !is_stopping_ && view.is_ready && view.has_queue_pairs && view.links[link].is_ready &&
           !is_used && !is_doubtful && !is_asking_[link] && !is_usable(standbys_[link], view);
}

void RcMemory::make_standby(size_t link, const LinksView& view, uint32_t generation) {
    uint32_t rights = 0;
    {
        MutexLock lock(mutex_);
        if (!lacks_standby(link, view)) {
            return;
        }
        standbys_[link] = Path();
        is_asking_[link] = true;
        rights = rights_count_;
    }
    std::string problem;
    auto path = ask_for_path(link, view, generation, problem);
    const bool is_made = path.ok() && try_standby(path.value()).ok();
    MutexLock lock(mutex_);
    is_asking_[link] = false;
    if (is_made && rights != rights_count_) {
        standby_wanted_.notify_all();  // it may have those of before
    } else if (is_made) {
        standbys_[link] = path.release_value();
        is_standby_told_[link] = false;
        links_changed();
    } else if ((path.ok() || path.error() != Error::eagain) && !is_stopping_ &&
               !std::exchange(is_standby_told_[link], true)) {
        host::log(host::LogLevel::warning,
                  ("remote memory: link " + std::to_string(link + 1) +
                   " has no queue pair ready, which is tried again: " +
                   (path.ok() ? "no answer through the RDMA devices" : problem))
                      .c_str());
    }
}

// Whether anything comes through.
Result<void> RcMemory::try_standby(const Path& path) {
    verbs::Piece word;
    {
        MutexLock lock(mutex_);
        word = {&bounce_.word(1), sizeof(uint64_t), path.device->bounce->local_key()};
    }
    verbs::WorkRequest work;
    work.kind = verbs::WorkKind::read;
    work.is_signalled = true;
    work.pieces = &word;
    work.piece_count = 1;
    work.remote_address = path.windows[1].address;
    work.remote_key = path.windows[1].key;
    return run_work(*path.queue_pair, &work, 1);
}

// Rights or sizes have changed. What is being made is not kept either.
void RcMemory::drop_standbys() {
    rights_count_++;
    for (Path& standby : standbys_) {
        standby = Path();
    }
    standby_wanted_.notify_all();
}

}  // namespace tiffin::rdma_blk
