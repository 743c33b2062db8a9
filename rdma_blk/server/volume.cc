// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/server/volume.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "rdma_blk/server/printable.h"
#include "rdma_blk/wire/store_release.h"

namespace tiffin::rdma_blk {
namespace {

uint64_t to_ms(uint64_t duration_ns) { return duration_ns / 1'000'000; }

bool same_uuid(const unsigned char* left, const unsigned char* right) {
    return std::memcmp(left, right, 16) == 0;
}

}  // namespace

Volume::OpenAnswer Volume::open_session(const wire::SessionOpen& open, ByteSpan entries,
                                        const unsigned char client_uuid[16], bool is_reader,
                                        const std::shared_ptr<SessionPath>& path, uint64_t now_ns,
                                        const PeerProcess* asking) {
    MutexLock lock(mutex_);
    forgive_own_pause(now_ns);
    OpenAnswer answer;
    if (stopping_) {
        answer = refuse(wire::RefusalReason::stopping, now_ns);
    } else if (!same_uuid(open.client_uuid, client_uuid)) {
        answer = refuse(wire::RefusalReason::malformed, now_ns);
    } else if (is_reader && (open.mode == static_cast<uint8_t>(wire::SessionMode::write) ||
                             (open.flags & wire::open_flag::force) != 0)) {
        answer = refuse(wire::RefusalReason::read_only, now_ns);
    } else if (is_reader && open.session_id == 0 && find_holder() &&
               open.mode == static_cast<uint8_t>(wire::SessionMode::read_steady)) {
        answer = refuse(wire::RefusalReason::held, now_ns);
    } else if (open.session_id == 0) {
        answer = open_new(open, client_uuid, is_reader, path, now_ns, asking);
    } else {
        answer = resume(open, entries, client_uuid, path);
    }
    if (answer.session) {
        answer.session->set_by_reader(is_reader);
        answer.session->heard(now_ns);
    }
    return answer;
}

Volume::OpenAnswer Volume::refuse(wire::RefusalReason reason, uint64_t now_ns) {
    count(counters_.sessions_refused[static_cast<size_t>(reason)]);
    OpenAnswer answer;
    answer.kind = OpenAnswer::Kind::refused;
    answer.refused.reason = static_cast<uint8_t>(reason);
    answer.refused.epoch = state_.epoch;
    answer.refused.content_incarnation = state_.content_incarnation;
    answer.refused.empty_since_incarnation = state_.empty_since_incarnation;
    const SessionPointer holder = find_holder();
    const SessionPointer obstacle = holder ? holder : find_reader(nullptr);
    if (reason == wire::RefusalReason::held && obstacle) {
        answer.refused.held_for_ms = to_ms(obstacle->silence_ns(now_ns));
        std::string text =
            printable(holder ? lease().holder_text : obstacle->place().record->holder_text,
                      wire::kHolderTextBytes - 1);
        if (holder && !obstacle->has_paths()) {
            text = with_silence(text, answer.refused.held_for_ms, options_.lease_timeout_ms,
                                wire::kHolderTextBytes);
        }
        std::memcpy(answer.refused.holder_text, text.data(), text.size());
    }
    return answer;
}

Volume::OpenAnswer Volume::open_new(const wire::SessionOpen& open,
                                    const unsigned char client_uuid[16], bool is_reader,
                                    const std::shared_ptr<SessionPath>& path, uint64_t now_ns,
                                    const PeerProcess* asking) {
    if (open.next_sequence != 1 || open.outstanding_count != 0 || open.incarnation == 0 ||
        open.slot_count == 0) {
        return refuse(wire::RefusalReason::malformed, now_ns);
    }
    const auto mode = static_cast<wire::SessionMode>(open.mode);
    const bool wants_lease = mode == wire::SessionMode::write;
    // The same client once more: the answer to its first attempt was lost, and that session is of no use. Its lease is, under
    // the same epoch: a writer that comes back takes a further one for that of somebody who has written meanwhile.
    bool has_lease = false;
    for (const auto& [id, session] : sessions_) {
        if (same_uuid(session->place().client_uuid, client_uuid) && !session->is_fenced()) {
            const SessionPointer earlier = session;
            if (!earlier->close(path, nullptr)) {
                return OpenAnswer{};
            }
            has_lease = wants_lease && find_holder() == earlier;
            free_record(earlier);
            break;
        }
    }
    const bool reads_steadily = mode == wire::SessionMode::read_steady;
    const bool force = (open.flags & wire::open_flag::force) != 0;
    // Before the lease: nobody is ended for a session that there is no room for.
    uint32_t index = 0;
    if (!find_place(index, is_reader, now_ns)) {
        return refuse(wire::RefusalReason::no_room, now_ns);
    }
    // The grant of a server that has died since: its answer did not come to this client, nor has anybody else had a lease.
    const bool is_granted_before = wants_lease && open.epoch != 0 &&
                                   open.epoch + 1 == state_.epoch && !find_holder() &&
                                   same_uuid(state_.epoch_owner, client_uuid);
    // A reader that has lost its connection would miss a writer of the same epoch: this client waits until it is back, or is no
    // more waited for: then the epoch is raised, and ends this client, too, to which a further one means another writer.
    if (is_granted_before && !force && may_steady_reader_return(now_ns)) {
        OpenAnswer refused = refuse(wire::RefusalReason::held, now_ns);
        refused.refused.epoch = open.epoch;
        return refused;
    }
    OpenAnswer wait;
    switch (may_open(mode, asking, force, now_ns, wait.ending)) {
        case LeaseTurn::yes:
            break;
        case LeaseTurn::held:
        case LeaseTurn::held_by_reader: {
            OpenAnswer refused = refuse(wire::RefusalReason::held, now_ns);
            if (is_granted_before) {
                refused.refused.epoch = open.epoch;  // nobody has written since that: it may wait
            }
            return refused;
        }
        case LeaseTurn::cannot_be_granted:
            return refuse(wire::RefusalReason::no_room, now_ns);
        case LeaseTurn::when_process_is_gone:
            return wait;
    }
    // Also without a holder: the queue pair of a former one may have been left when its session ended.
    if (reads_steadily && !(find_holder() ? end_lease(nullptr) : rc_leftovers_.end_all()).ok()) {
        return refuse(wire::RefusalReason::no_room, now_ns);
    }
    uint64_t session_id = 0;
    while (session_id == 0 || sessions_.count(session_id) != 0) {
        host::random_bytes(&session_id, sizeof(session_id));
    }
    Result<SessionPointer> made = make_session(index, session_id, client_uuid);
    if (!made.ok()) {
        return refuse(wire::RefusalReason::no_room, now_ns);
    }
    const bool gives_again =
        is_granted_before && std::none_of(sessions_.begin(), sessions_.end(), [](const auto& one) {
            return one.second->reads_steadily() && !one.second->is_fenced();
        });
    const SessionPointer session = made.value();
    wire::SessionRecord& record = *session->place().record;
    record.session_id = session_id;
    std::memcpy(record.client_uuid, client_uuid, 16);
    record.epoch = 0;
    record.incarnation = 0;
    record.slot_count = std::min<uint32_t>(open.slot_count, layout_.slot_count);
    const std::string holder_text = printable(open.holder_text, wire::kHolderTextBytes - 1);
    session->set_holder_text(holder_text.c_str());
    std::memcpy(record.holder_text, holder_text.data(), holder_text.size());
    record.reads_steadily = reads_steadily ? 1 : 0;
    sessions_[session_id] = session;
    const bool inherits_unflushed = (wants_lease || reads_steadily) && may_be_unflushed();
    if (wants_lease && !grant_lease(*session, open.holder_text, !has_lease && !gives_again).ok()) {
        (void)session->close(nullptr, nullptr);
        free_record(session);
        return refuse(wire::RefusalReason::no_room, now_ns);
    }
    update_access(*session);
    unsigned char none = 0;
    const auto result = session->open_incarnation(open, ByteSpan(), path, &none);
    TIFFIN_ASSERT(result == VolumeSession::OpenResult::opened);
    store_release(record.state, static_cast<uint32_t>(wire::SessionState::open));
    count(counters_.sessions_opened);
    OpenAnswer answer;
    answer.kind = OpenAnswer::Kind::opened;
    answer.opened = describe(*session, open.incarnation);
    answer.opened.flags |= inherits_unflushed ? wire::session_flag::inherits_unflushed : 0;
    answer.session = session;
    return answer;
}

Volume::OpenAnswer Volume::resume(const wire::SessionOpen& open, ByteSpan entries,
                                  const unsigned char client_uuid[16],
                                  const std::shared_ptr<SessionPath>& path) {
    const SessionPointer session = find(open.session_id);
    if (!session || !same_uuid(session->place().client_uuid, client_uuid)) {
        // Forgotten. A writer since whom another one has written must not start again as if nothing had
        // happened in between.
        const bool was_succeeded = open.epoch != 0 && open.epoch != state_.epoch;
        return refuse(was_succeeded ? wire::RefusalReason::fenced : wire::RefusalReason::no_session,
                      0);
    }
    if (session->is_fenced()) {
        return refuse(wire::RefusalReason::fenced, 0);
    }
    OpenAnswer answer;
    answer.outcomes.resize(open.outstanding_count);
    unsigned char none = 0;
    switch (session->open_incarnation(open, entries, path,
                                      answer.outcomes.empty() ? &none : answer.outcomes.data())) {
        case VolumeSession::OpenResult::opened:
            break;
        case VolumeSession::OpenResult::busy:
            answer.session = session;  // the disk is slow, but its client is there
            return answer;
        case VolumeSession::OpenResult::stale:
            return refuse(wire::RefusalReason::stale_incarnation, 0);
        case VolumeSession::OpenResult::malformed:
            return refuse(wire::RefusalReason::malformed, 0);
        case VolumeSession::OpenResult::not_ended:
            return refuse(wire::RefusalReason::no_room, 0);  // it tries again
    }
    count(counters_.sessions_resumed);
    answer.kind = OpenAnswer::Kind::opened;
    answer.opened = describe(*session, open.incarnation);
    answer.opened.flags |= wire::session_flag::resumed;
    answer.opened.outstanding_count = open.outstanding_count;
    answer.session = session;
    return answer;
}

wire::SessionOpened Volume::describe(const VolumeSession& session, uint32_t incarnation) const {
    wire::SessionOpened opened{};
    opened.session_id = session.id();
    opened.epoch = state_.epoch;
    opened.content_incarnation = state_.content_incarnation;
    opened.empty_since_incarnation = state_.empty_since_incarnation;
    opened.data_bytes = state_.data_bytes;
    opened.control_bytes = layout_.control_bytes;
    opened.session_record_offset = layout_.session_offset(session.place().index);
    std::memcpy(opened.server_uuid, header_->server_uuid, 16);
    std::memcpy(opened.volume_uuid, state_.uuid, 16);
    opened.incarnation = incarnation;
    opened.transfer_bytes = wire::kMaxTransferBytes;
    opened.eager_bytes = wire::kEagerBytes;
    opened.write_unit_bytes = header_->write_unit_bytes;
    opened.probe_interval_ms = options_.probe_interval_ms;
    opened.lease_timeout_ms = options_.lease_timeout_ms;
    opened.slot_count = static_cast<uint16_t>(session.place().record->slot_count);
    opened.flags = options_.offers_rc ? wire::session_flag::offers_rc : 0;
    opened.flags |= state_.words_are_known ? 0 : wire::session_flag::words_unknown;
    opened.durability = header_->durability;
    return opened;
}

std::shared_ptr<VolumeSession> Volume::join(const wire::PathJoin& join,
                                            const unsigned char client_uuid[16],
                                            const Secret<kSealKeyBytes>& secret,
                                            const wire::PathProof& proof,
                                            const std::shared_ptr<SessionPath>& path,
                                            wire::RefusalReason& reason) {
    MutexLock lock(mutex_);
    SessionPointer session = find(join.session_id);
    const auto refused = [&](wire::RefusalReason why) {
        reason = why;
        count(counters_.sessions_refused[static_cast<size_t>(why)]);
        return SessionPointer();
    };
    if (!session || !same_uuid(session->place().client_uuid, client_uuid)) {
        return refused(wire::RefusalReason::no_session);
    }
    const wire::RefusalReason joined = session->is_fenced()
                                           ? wire::RefusalReason::fenced
                                           : session->join_stream(join, secret, proof, path);
    return joined == wire::RefusalReason{} ? session : refused(joined);
}

// A server that was stopped, or got no processor, comes back to unread messages of holders who were not silent.
// Whoever asks for their lease may be the first to be read.
void Volume::forgive_own_pause(uint64_t now_ns) {
    constexpr uint64_t kMissedTicks = 3;
    const uint64_t interval_ns = uint64_t{options_.probe_interval_ms} * 1'000'000;
    if (ticked_ns_ == 0 || now_ns <= ticked_ns_ ||
        now_ns - ticked_ns_ < kMissedTicks * interval_ns) {
        return;
    }
    const uint64_t pause_ns = now_ns - ticked_ns_;
    for (const auto& [id, session] : sessions_) {
        session->heard(std::min(now_ns, session->last_heard_ns() + pause_ns));
    }
    ticked_ns_ = now_ns;
}

bool Volume::close_session(const std::shared_ptr<VolumeSession>& session,
                           const std::shared_ptr<SessionPath>& path, bool all_flushed) {
    MutexLock lock(mutex_);
    if (find(session->id()) != session) {
        return true;
    }
    if (!session->close(path, nullptr)) {
        return false;
    }
    if (all_flushed && find_holder() == session) {
        store_release(lease().is_flushed, uint32_t{1});
    }
    free_record(session);
    return true;
}

// ---- Records ---------------------------------------------------------------------------------------------

wire::SessionRecord* Volume::record_at(uint32_t index) const {
    return reinterpret_cast<wire::SessionRecord*>(memory_.control + layout_.session_offset(index));
}

wire::LeaseRecord& Volume::lease() const {
    return *reinterpret_cast<wire::LeaseRecord*>(memory_.control + wire::kLeaseOffset);
}

bool Volume::is_connected(uint64_t session_id, const unsigned char client_uuid[16]) const {
    MutexLock lock(mutex_);
    const SessionPointer session = find(session_id);
    return session && same_uuid(session->place().client_uuid, client_uuid) && session->has_paths();
}

bool Volume::is_silent(const VolumeSession& session, uint64_t now_ns) const {
    return session.silence_ns(now_ns) >= uint64_t{options_.lease_timeout_ms} * 1'000'000;
}

bool Volume::may_come_back(const VolumeSession& session, uint64_t now_ns) const {
    return !session.is_fenced() && !session.has_paths() && !is_silent(session, now_ns);
}

bool Volume::may_steady_reader_return(uint64_t now_ns) const {
    return std::any_of(sessions_.begin(), sessions_.end(), [&](const auto& one) {
        return one.second->reads_steadily() && may_come_back(*one.second, now_ns);
    });
}

size_t Volume::absent_readers(uint64_t now_ns) const {
    MutexLock lock(mutex_);
    return static_cast<size_t>(
        std::count_if(sessions_.begin(), sessions_.end(), [&](const auto& one) {
            return one.second->is_by_reader() && may_come_back(*one.second, now_ns);
        }));
}

Volume::SessionPointer Volume::find(uint64_t session_id) const {
    const auto found = sessions_.find(session_id);
    return found == sessions_.end() ? nullptr : found->second;
}

Volume::SessionPointer Volume::find_holder() const {
    if (lease().epoch == 0) {
        return nullptr;
    }
    const SessionPointer session = find(lease().session_id);
    return session && !session->is_fenced() ? session : nullptr;
}

// A free record; else one whose session has been silent for longer than a lease lasts and has no lease. Sessions by a
// reader's key leave a quarter of the places to others, who else could not come in to write.
bool Volume::find_place(uint32_t& index, bool is_reader, uint64_t now_ns) {
    const uint32_t bound = std::min(layout_.session_count, options_.session_count);
    const auto reader_count =
        std::count_if(sessions_.begin(), sessions_.end(),
                      [](const auto& each) { return each.second->is_by_reader(); });
    const bool replaces_reader =
        is_reader && static_cast<size_t>(reader_count) >= most_of_readers(bound);
    if (sessions_.size() < bound && !replaces_reader) {
        for (index = 0; index < layout_.session_count; index++) {
            if (record_at(index)->state == static_cast<uint32_t>(wire::SessionState::free)) {
                return true;
            }
        }
        return false;
    }
    SessionPointer oldest;
    const SessionPointer holder = find_holder();
    for (const auto& [id, session] : sessions_) {
        if (session != holder && is_silent(*session, now_ns) && !session->has_paths() &&
            (session->is_by_reader() || !replaces_reader) &&
            (!oldest || session->last_heard_ns() < oldest->last_heard_ns())) {
            oldest = session;
        }
    }
    if (!oldest || !oldest->close(nullptr, nullptr)) {
        return false;
    }
    index = oldest->place().index;
    free_record(oldest);
    return true;
}

void Volume::free_record(const SessionPointer& session) {
    if (find_holder() == session) {
        clear_lease();
    }
    wire::SessionRecord& record = *session->place().record;
    store_release(record.state, static_cast<uint32_t>(wire::SessionState::free));
    record = wire::SessionRecord{};
    const Span<wire::SlotEntry> entries = session->place().entries;
    std::memset(static_cast<void*>(entries.data()), 0, entries.size() * sizeof(wire::SlotEntry));
    sessions_.erase(session->id());
}

void Volume::update_access(VolumeSession& session) {
    SessionAccess access;
    access.session_id = session.id();
    access.volume_epoch = state_.epoch;
    access.is_writer = lease().epoch == state_.epoch && lease().session_id == session.id();
    access.data_bytes = state_.data_bytes;
    access.control_bytes = layout_.control_bytes;
    access.words_offset = layout_.words_offset;
    access.words_bytes = layout_.words_bytes;
    access.client_offset = layout_.session_offset(session.place().index) + layout_.client_offset;
    access.client_bytes = layout_.session_stride_bytes - layout_.client_offset;
    session.set_access(access);
}

}  // namespace tiffin::rdma_blk
