// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/session/sent_requests.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "rdma_blk/wire/parse.h"

namespace tiffin::rdma_blk {
namespace {

// Whether a server that lets it wait keeps much for it: what it brings, or room for its answer.
bool is_held_of_its_path(const Operation& operation) {
    return operation.kind == OperationKind::write || operation.kind == OperationKind::read ||
           operation.range_count != 0;
}

}  // namespace

Result<std::unique_ptr<SentRequests>> SentRequests::create(RequestSlots& slots,
                                                           SessionMachine& machine) {
    const uint16_t count = slots.slot_count();
    std::unique_ptr<uint8_t[]> paths(new (std::nothrow) uint8_t[count]);
    std::unique_ptr<uint8_t[]> may_answer_over(new (std::nothrow) uint8_t[count]);
    std::unique_ptr<wire::OutstandingEntry[]> entries(new (std::nothrow)
                                                          wire::OutstandingEntry[count]);
    if (!paths || !may_answer_over || !entries) {
        return Error::enomem;
    }
    PathLoads loads = TRY(PathLoads::create(count));
    std::unique_ptr<SentRequests> made(new (std::nothrow) SentRequests(
        slots, machine, std::move(paths), std::move(may_answer_over), std::move(entries),
        std::move(loads)));
    if (!made) {
        return Error::enomem;
    }
    made->forget();
    return made;
}

void SentRequests::sent(uint16_t slot, size_t path, uint64_t bytes, uint64_t now_ns) {
    leave_path(slot);
    put_on(slot, path, bytes, now_ns);
    last_path_ = path;
}

void SentRequests::put_on(uint16_t slot, size_t path, uint64_t bytes, uint64_t now_ns) {
    paths_[slot] = static_cast<uint8_t>(path);
    may_answer_over_[slot] |= bit(path);
    machine_.sent(path, now_ns);
    loads_.sent(slot, path, bytes, now_ns);
}

void SentRequests::answered(uint16_t slot, size_t over, uint64_t now_ns) {
    if (path_of(slot) == over && !is_delivered(slot)) {
        loads_.answered(slot, over, now_ns);
    }
    leave_path(slot);
    may_answer_over_[slot] = 0;
}

void SentRequests::leave_path(uint16_t slot) {
    const size_t path = path_of(slot);
    if (path != SessionMachine::kNoPath) {
        loads_.left(slot, path);
        machine_.answered(path);
        paths_[slot] = uint8_t{SessionMachine::kNoPath};
    }
}

// kNoPath: whichever is best.
size_t SentRequests::path_of_follower(uint32_t candidates) const {
    if (last_path_ != SessionMachine::kNoPath && (candidates & bit(last_path_)) != 0) {
        return last_path_;
    }
    return std::has_single_bit(candidates) ? static_cast<size_t>(std::countr_zero(candidates))
                                           : SessionMachine::kNoPath;
}

bool SentRequests::may_send_next(uint32_t candidates) const {
    uint64_t next_sequence = 0;
    const Operation* const next = slots_.peek(next_sequence);
    if (next == nullptr || !next->after_earlier || !is_held_of_its_path(*next)) {
        return true;
    }
    const size_t path = path_of_follower(candidates);
    for (uint16_t slot = 0; slot < slots_.slot_count(); slot++) {
        const uint64_t sequence = slots_.sequence_of(slot);
        if (sequence != 0 && sequence < next_sequence && path_of(slot) != path &&
            !is_delivered(slot)) {
            return false;
        }
    }
    return true;
}

size_t SentRequests::choose(uint32_t candidates, const wire::Request& request, uint64_t bytes,
                            uint64_t now_ns) const {
    const bool is_bound = request.after != 0 || std::has_single_bit(candidates);
    const size_t path = is_bound ? path_of_follower(candidates) : SessionMachine::kNoPath;
    return path != SessionMachine::kNoPath ? path
                                           : loads_.best(candidates, bytes, machine_, now_ns);
}

void SentRequests::forget() {
    std::fill_n(paths_.get(), slots_.slot_count(), uint8_t{SessionMachine::kNoPath});
    std::fill_n(may_answer_over_.get(), slots_.slot_count(), uint8_t{0});
    loads_.forget();
    last_path_ = SessionMachine::kNoPath;
    entry_count_ = asked_count_ = 0;
}

bool SentRequests::concerns(uint16_t slot, size_t lost) const {
    return (may_answer_over_[slot] & bit(lost)) != 0;
}

void SentRequests::ask(size_t lost, wire::PathRecover& question) {
    const uint16_t count = slots_.fill_sent(entries_.get());
    const auto end = std::remove_if(
        entries_.get(), entries_.get() + count,
        [&](const wire::OutstandingEntry& entry) { return !concerns(entry.slot, lost); });
    entry_count_ = static_cast<uint16_t>(end - entries_.get());
    for (uint16_t index = 0; index < entry_count_; index++) {
        may_answer_over_[entries_[index].slot] |= bit(machine_.recovering_over());
    }
    revokes_ = machine_.must_revoke(lost);
    asked_count_ = resends_all_ ? 0 : entry_count_;
    question.outstanding_count = asked_count_;
    question.number = ++number_;
    question.flags = revokes_ ? wire::recover_flag::revoke : 0;
}

Result<size_t> SentRequests::take_answer(const wire::PathRecovered& answer, ByteSpan outcomes,
                                         size_t over, uint64_t now_ns) {
    if (answer.number > number_) {
        return Error::eproto;
    }
    const size_t lost = machine_.recovering();
    if (answer.number != number_ || lost == SessionMachine::kNoPath ||
        machine_.recovering_over() != over) {
        return SessionMachine::kNoPath;
    }
    if (answer.reason != 0 || outcomes.size() != asked_count_) {
        return Error::eproto;
    }
    for (uint16_t index = 0; index < entry_count_; index++) {
        const auto outcome =
            resends_all_
                ? Outcome::not_executed
                : static_cast<Outcome>(TRY(wire::parse_recovered_outcome(outcomes, index)));
        const wire::OutstandingEntry& entry = entries_[index];
        // It is still on its way on a path that is not lost. Of a read the server does not know whether it was.
        if (outcome == Outcome::not_executed && path_of(entry.slot) != lost &&
            entry.operation != static_cast<uint8_t>(OperationKind::read)) {
            continue;
        }
        counts_[lost].recovered += outcome != Outcome::not_executed ? 1 : 0;
        switch (slots_.recover(entry, outcome)) {
            case RequestSlots::Recovery::settled:
                break;
            case RequestSlots::Recovery::answer_comes:
                leave_path(entry.slot);
                put_on(entry.slot, over, loads_.bytes(entry.slot), now_ns);
                paths_[entry.slot] |= kDelivered;
                break;
            case RequestSlots::Recovery::again:
                counts_[lost].again++;
                leave_path(entry.slot);
                break;
        }
    }
    for (uint16_t slot = 0; revokes_ && slot < slots_.slot_count(); slot++) {
        may_answer_over_[slot] &= static_cast<uint8_t>(~bit(lost));
    }
    counts_[lost].settled_ns = now_ns;
    machine_.recovered(lost, revokes_);
    return lost;
}

}  // namespace tiffin::rdma_blk
