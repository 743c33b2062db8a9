// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The memory of a volume for processes of this host (shm).
#include "rdma_blk/server/volume.h"
#include "rdma_blk/wire/store_release.h"

namespace tiffin::rdma_blk {

Volume::Mapping Volume::map(const std::shared_ptr<VolumeSession>& session, uint32_t incarnation,
                            const std::shared_ptr<PeerProcess>& process) {
    MutexLock lock(mutex_);
    Mapping mapping;
    const auto refused = [&](wire::RefusalReason why) {
        count(counters_.sessions_refused[static_cast<size_t>(why)]);
        mapping.reason = why;
        return std::move(mapping);
    };
    if (stopping_) {
        return refused(wire::RefusalReason::stopping);
    }
    if (session->is_fenced() || find(session->id()) != session) {
        return refused(wire::RefusalReason::fenced);
    }
    if (incarnation != session->incarnation()) {
        return refused(wire::RefusalReason::stale_incarnation);
    }
    const bool is_writer = find_holder() == session;
    if (!process || (is_writer && !may_hold_memory(*session, process))) {
        return refused(wire::RefusalReason::no_transport);
    }
    Result<UniqueDescriptor> data = data_->open_again(is_writer);
    Result<UniqueDescriptor> control = control_->open_again(false);
    if (!data.ok() || !control.ok()) {
        return refused(wire::RefusalReason::no_room);
    }
    if (is_writer) {
        // Before the process can have the memory, so that a server that starts again knows of it.
        wire::SessionRecord& record = *session->place().record;
        record.process_start_ticks = process->start_ticks();
        store_release(record.process_id, static_cast<uint32_t>(process->id()));
        session->set_process(process);
    }
    mapping.is_granted = true;
    mapping.parameters.data_bytes = state_.data_bytes;
    mapping.parameters.control_bytes = layout_.control_bytes;
    mapping.parameters.is_writable = is_writer ? 1 : 0;
    mapping.data = data.release_value();
    mapping.control = control.release_value();
    return mapping;
}

// Who gets the memory for writing must be one that it can be taken away from; and a session has one process,
// as long as that lives.
bool Volume::may_hold_memory(const VolumeSession& session,
                             const std::shared_ptr<PeerProcess>& process) const {
    const std::shared_ptr<PeerProcess>& earlier = session.process();
    if (earlier && earlier->id() != process->id() && !earlier->is_gone()) {
        return false;
    }
    return !options_.shm_kills || process->may_be_ended() || process->is_this_process();
}

// Of a session that this process finds in memory that was kept. A process that may live and cannot be found must not
// be taken for gone: its lease would be given away while it writes.
Result<void> Volume::find_process_again(VolumeSession& session) const {
    wire::SessionRecord& record = *session.place().record;
    const auto id = static_cast<pid_t>(__atomic_load_n(&record.process_id, __ATOMIC_ACQUIRE));
    if (id <= 0) {
        return {};
    }
    auto process = PeerProcess::find(id, record.process_start_ticks);
    if (process.ok()) {
        session.set_process(process.release_value());
    } else if (process.error() != Error::enoent) {
        host::log(host::LogLevel::error, ("volume " + name_ + ": process " + std::to_string(id) +
                                          ", which has its memory mapped, cannot be looked up")
                                             .c_str());
        return process.error();
    }
    return {};
}

}  // namespace tiffin::rdma_blk
