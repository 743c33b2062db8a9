// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The right to write a volume: the lease, and the fencing of its former holder.
#include <cstring>
#include <string>

#include "rdma_blk/server/printable.h"
#include "rdma_blk/server/volume.h"
#include "rdma_blk/wire/hexadecimal.h"
#include "rdma_blk/wire/store_release.h"

namespace tiffin::rdma_blk {

// Whether the lease is free for `asker`. A holder that stands in the way is fenced by grant_lease(); what a process
// has mapped can only be taken away with the process, so that one is ended first.
Volume::LeaseTurn Volume::may_take_lease(const VolumeSession* asker, const PeerProcess* asking,
                                         bool force, uint64_t now_ns,
                                         std::shared_ptr<PeerProcess>& ending) {
    const SessionPointer holder = find_holder();
    if (!holder || holder.get() == asker) {
        return LeaseTurn::yes;
    }
    // The end of a process that has the memory mapped is known, without waiting for silence.
    const std::shared_ptr<PeerProcess>& process = holder->process();
    if (process && process->is_gone()) {
        return LeaseTurn::yes;
    }
    if (!force && !is_silent(*holder, now_ns)) {
        return LeaseTurn::held;
    }
    if (!process) {
        return LeaseTurn::yes;
    }
    // A process that asks for the lease while an earlier session of its own has it is not killed for that.
    const bool is_asking = asking != nullptr && asking->id() == process->id() &&
                           asking->start_ticks() == process->start_ticks();
    if (!options_.shm_kills || is_asking || !process->may_be_ended()) {
        return LeaseTurn::held;
    }
    ending = process;
    if (process->is_ending()) {
        return LeaseTurn::when_process_is_gone;
    }
    // Not for a grant that is not going to be, nor for a client that does not wait for it any more.
    if (!directory_.save(state_).ok()) {
        host::log(
            host::LogLevel::error,
            ("volume " + name_ +
             ": the state cannot be saved, so the lease is not granted, and its holder keeps it")
                .c_str());
        return LeaseTurn::cannot_be_granted;
    }
    if (asker != nullptr && !asker->has_paths()) {
        return LeaseTurn::held;
    }
    host::log(host::LogLevel::warning,
              ("volume " + name_ + ": process " + std::to_string(process->id()) +
               " has its memory mapped and is killed, as its lease is taken over")
                  .c_str());
    count(counters_.kills);
    process->end();
    return LeaseTurn::when_process_is_gone;
}

// A reader that has a connection. One that has none is fenced by grant_lease(), and learns that when it comes back.
Volume::SessionPointer Volume::find_reader(const VolumeSession* asker) const {
    for (const auto& [id, session] : sessions_) {
        if (session.get() != asker && session->reads_steadily() && session->has_paths()) {
            return session;
        }
    }
    return nullptr;
}

Volume::LeaseTurn Volume::may_open(wire::SessionMode mode, const PeerProcess* asking, bool force,
                                   uint64_t now_ns, std::shared_ptr<PeerProcess>& ending) {
    switch (mode) {
        case wire::SessionMode::read:
            return LeaseTurn::yes;
        case wire::SessionMode::write:
            if (!force && find_reader(nullptr) != nullptr) {
                return LeaseTurn::held_by_reader;
            }
            break;
        case wire::SessionMode::read_steady:
            break;
    }
    return may_take_lease(nullptr, asking, force, now_ns, ending);
}

// The order matters: an epoch is durable before the holder is told, and the holder is shut out before another
// one is let in. What it has left unflushed stays unflushed.
Result<void> Volume::end_lease(const unsigned char* owner, bool raises_epoch) {
    VolumeState next = state_;
    next.epoch += raises_epoch ? 1 : 0;
    next.is_flushed = false;
    std::memset(next.epoch_owner, 0, sizeof(next.epoch_owner));
    if (owner != nullptr) {
        std::memcpy(next.epoch_owner, owner, sizeof(next.epoch_owner));
    }
    const Result<void> saved = directory_.save(next);
    if (!saved.ok()) {
        host::log(host::LogLevel::error,
                  ("volume " + name_ + ": the state cannot be saved, so the lease is not granted")
                      .c_str());
        return saved.error();
    }
    state_.epoch = next.epoch;
    state_.is_flushed = false;
    std::memcpy(state_.epoch_owner, next.epoch_owner, sizeof(next.epoch_owner));
    if (const SessionPointer holder = find_holder()) {
        host::log(host::LogLevel::warning,
                  ("volume " + name_ + ": the lease of \"" +
                   printable(lease().holder_text, wire::kHolderTextBytes) + "\" is taken over")
                      .c_str());
        fence(*holder);
    }
    clear_lease();
    store_release(header_->epoch, next.epoch);
    return rc_leftovers_.end_all();
}

Result<void> Volume::grant_lease(VolumeSession& session, const char* holder_text,
                                 bool raises_epoch) {
    if (raises_epoch || state_.is_flushed) {
        TRY(end_lease(session.place().client_uuid, raises_epoch));
    }
    fence_readers(session);
    TRY(rc_leftovers_.end_all());
    wire::LeaseRecord& record = lease();
    store_release(record.is_flushed, uint32_t{0});
    record.session_id = session.id();
    std::memcpy(record.client_uuid, session.place().client_uuid, 16);
    record.granted_realtime_ns = host::realtime_ns();
    const std::string text = printable(holder_text, wire::kHolderTextBytes - 1);
    std::memset(record.holder_text, 0, sizeof(record.holder_text));
    std::memcpy(record.holder_text, text.data(), text.size());
    session.place().record->reads_steadily = 0;
    session.place().record->epoch = state_.epoch;
    store_release(record.epoch, state_.epoch);
    for (const auto& [id, each] : sessions_) {
        update_access(*each);
    }
    return {};
}

// Whether the next holder of the lease has to flush what others have written.
bool Volume::may_be_unflushed() const {
    return header_->durability == static_cast<uint8_t>(Durability::power) &&
           lease().is_flushed == 0;
}

void Volume::fence(VolumeSession& session) {
    wire::Notice notice{};
    notice.epoch = state_.epoch;
    notice.data_bytes = state_.data_bytes;
    notice.reason = static_cast<uint8_t>(wire::NoticeReason::fenced);
    session.fence(notice);
    store_release(session.place().record->state, static_cast<uint32_t>(wire::SessionState::fenced));
    count(counters_.fences);
}

void Volume::fence_readers(const VolumeSession& writer) {
    for (const auto& [id, session] : sessions_) {
        if (session.get() != &writer && session->reads_steadily()) {
            host::log(host::LogLevel::warning,
                      ("volume " + name_ + ": \"" + session->holder_text() +
                       "\" reads it no more, as it gets a writer")
                          .c_str());
            fence(*session);
        }
    }
}

void Volume::clear_lease() {
    wire::LeaseRecord& record = lease();
    store_release(record.epoch, uint64_t{0});
    record.session_id = 0;
    std::memset(record.holder_text, 0, sizeof(record.holder_text));
}

Volume::LeaseAnswer Volume::request_lease(const std::shared_ptr<VolumeSession>& session,
                                          uint8_t flags, uint64_t now_ns,
                                          const PeerProcess* asking) {
    MutexLock lock(mutex_);
    forgive_own_pause(now_ns);
    LeaseAnswer answer;
    wire::LeaseReply& reply = answer.reply;
    reply.epoch = state_.epoch;
    const auto refused = [&](wire::RefusalReason reason) {
        count(counters_.sessions_refused[static_cast<size_t>(reason)]);
        reply.reason = static_cast<uint8_t>(reason);
        return answer;
    };
    if (stopping_) {
        return refused(wire::RefusalReason::stopping);
    }
    if (session->is_fenced() || find(session->id()) != session) {
        return refused(wire::RefusalReason::fenced);
    }
    const uint8_t granted_flags = may_be_unflushed() ? wire::lease_flag::inherits_unflushed : 0;
    if (find_holder() == session) {
        // Its answer was lost, and what was in that: to flush once too often does no harm.
        reply.flags = granted_flags;
        return answer;
    }
    // Also when it waits: should the process not end in time, this is what the caller says.
    std::memcpy(reply.holder_text, lease().holder_text, wire::kHolderTextBytes);
    const bool force = (flags & wire::open_flag::force) != 0;
    const SessionPointer reader = force ? nullptr : find_reader(session.get());
    switch (reader ? LeaseTurn::held_by_reader
                   : may_take_lease(session.get(), asking, force, now_ns, answer.ending)) {
        case LeaseTurn::yes:
            break;
        case LeaseTurn::held_by_reader:
            reply.flags = wire::lease_flag::held_by_reader;
            std::memset(reply.holder_text, 0, sizeof(reply.holder_text));
            std::memcpy(reply.holder_text, reader->place().record->holder_text,
                        wire::kHolderTextBytes - 1);
            return refused(wire::RefusalReason::held);
        case LeaseTurn::held:
            answer.ending.reset();
            if (const SessionPointer holder = find_holder(); holder && !holder->has_paths()) {
                const std::string text =
                    with_silence(printable(lease().holder_text, wire::kHolderTextBytes - 1),
                                 holder->silence_ns(now_ns) / 1'000'000, options_.lease_timeout_ms,
                                 wire::kHolderTextBytes);
                std::memset(reply.holder_text, 0, sizeof(reply.holder_text));
                std::memcpy(reply.holder_text, text.data(), text.size());
            }
            return refused(wire::RefusalReason::held);
        case LeaseTurn::cannot_be_granted:
            answer.ending.reset();
            return refused(wire::RefusalReason::no_room);
        case LeaseTurn::when_process_is_gone:
            reply.reason = static_cast<uint8_t>(wire::RefusalReason::held);
            return answer;
    }
    std::memset(reply.holder_text, 0, sizeof(reply.holder_text));
    const std::string text =
        session->holder_text().empty()
            ? "client " + to_hexadecimal(ByteSpan(session->place().client_uuid, 16))
            : session->holder_text();
    if (!grant_lease(*session, text.c_str()).ok()) {
        return refused(wire::RefusalReason::no_room);
    }
    reply.epoch = state_.epoch;
    reply.flags = granted_flags;
    return answer;
}

}  // namespace tiffin::rdma_blk
