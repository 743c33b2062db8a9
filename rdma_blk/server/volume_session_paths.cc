// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Several connections of one session: who may join, and what has become of what was sent on one that failed.
#include <algorithm>

#include "rdma_blk/server/volume_session.h"
#include "rdma_blk/session/key_schedule.h"
#include "rdma_blk/wire/parse.h"

namespace tiffin::rdma_blk {

void VolumeSession::set_secret(uint32_t incarnation, const Secret<kSealKeyBytes>& secret) {
    MutexLock lock(mutex_);
    if (incarnation == table_->incarnation()) {
        secret_ = secret;
        has_secret_ = true;
    }
}

wire::RefusalReason VolumeSession::join_stream(const wire::PathJoin& join,
                                               const Secret<kSealKeyBytes>& secret,
                                               const wire::PathProof& proof,
                                               const std::shared_ptr<SessionPath>& path) {
    MutexLock lock(mutex_);
    unsigned char expected[wire::kProofBytes];
    make_join_proof(secret_, secret, join, expected);
    if (!has_secret_ || !proofs_equal(expected, proof.proof)) {
        return wire::RefusalReason::no_session;
    }
    // A path id that is not new may be one that was ended while its connection was being made.
    if (closed_ || is_fenced() || join.incarnation != table_->incarnation() || paths_.empty() ||
        join.path_id <= last_path_id_) {
        return wire::RefusalReason::stale_incarnation;
    }
    if (paths_.size() >= kMaxPaths) {
        return wire::RefusalReason::no_room;
    }
    last_path_id_ = join.path_id;
    paths_.push_back({path, join.path_id});
    count(place_.counters->paths_joined);
    return wire::RefusalReason{};
}

// From here on nothing that comes on it is executed; what waits there is answered elsewhere.
Result<void> VolumeSession::end_paths_of(uint16_t path_id) {
    last_path_id_ = std::max(last_path_id_, path_id);
    for (size_t index = 0; index < paths_.size();) {
        if (paths_[index].id != path_id) {
            index++;
            continue;
        }
        const std::shared_ptr<SessionPath> path = paths_[index].path;
        TRY(end_rc_paths(path.get()));
        remove_path(*path);
        path->end(nullptr);
        count(place_.counters->paths_revoked);
    }
    // Its connection may have ended before, and a device not its queue pair.
    return place_.rc_leftovers->end_of(id());
}

Result<wire::RefusalReason> VolumeSession::recover(const wire::PathRecover& question,
                                                   ByteSpan entries,
                                                   const std::shared_ptr<SessionPath>& path,
                                                   unsigned char* outcomes) {
    constexpr auto kPending = static_cast<unsigned char>(Outcome::pending);
    constexpr auto kNotExecuted = static_cast<unsigned char>(Outcome::not_executed);
    MutexLock lock(mutex_);
    if (closed_ || !is_path(path) || question.incarnation != table_->incarnation()) {
        return wire::RefusalReason::stale_incarnation;
    }
    const auto asking = std::find_if(paths_.begin(), paths_.end(),
                                     [&](const JoinedPath& each) { return each.path == path; });
    const bool revokes = (question.flags & wire::recover_flag::revoke) != 0;
    if (revokes && (asking->id == question.path_id || !end_paths_of(question.path_id).ok())) {
        return wire::RefusalReason::malformed;
    }
    uint64_t previous = 0;
    for (size_t index = 0; index < question.outstanding_count; index++) {
        const auto entry = TRY(wire::parse_outstanding_entry(entries, index, previous));
        previous = entry.sequence;
        wire::Response response{};
        const SlotTable::Fate fate = TRY(table_->fate_of(entry, response));
        outcomes[index] = fate == SlotTable::Fate::missing ? kNotExecuted : kPending;
        if (fate == SlotTable::Fate::answered) {
            count(place_.counters->answered_again);
            path->send_response(response, ByteSpan());
        } else if (fate == SlotTable::Fate::in_progress) {
            (void)takes_answer_over(path, entry.slot);
        }
    }
    count(place_.counters->recoveries);
    return wire::RefusalReason{};
}

}  // namespace tiffin::rdma_blk
