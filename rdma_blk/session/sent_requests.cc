// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/session/sent_requests.h"

#include <algorithm>
#include <new>
#include <utility>

#include "rdma_blk/wire/parse.h"

namespace tiffin::rdma_blk {

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
    std::unique_ptr<SentRequests> made(new (std::nothrow) SentRequests(
        slots, machine, std::move(paths), std::move(may_answer_over), std::move(entries)));
    if (!made) {
        return Error::enomem;
    }
    made->forget();
    return made;
}

void SentRequests::sent(uint16_t slot, size_t path, uint64_t now_ns) {
    leave_path(slot);
    paths_[slot] = static_cast<uint8_t>(path);
    may_answer_over_[slot] |= bit(path);
    machine_.sent(path, now_ns);
}

void SentRequests::answered(uint16_t slot) {
    leave_path(slot);
    may_answer_over_[slot] = 0;
}

void SentRequests::leave_path(uint16_t slot) {
    if (path_of(slot) != SessionMachine::kNoPath) {
        machine_.answered(path_of(slot));
        paths_[slot] = uint8_t{SessionMachine::kNoPath};
    }
}

void SentRequests::forget() {
    std::fill_n(paths_.get(), slots_.slot_count(), uint8_t{SessionMachine::kNoPath});
    std::fill_n(may_answer_over_.get(), slots_.slot_count(), uint8_t{0});
    entry_count_ = asked_count_ = 0;
}

bool SentRequests::concerns(uint16_t slot, size_t lost) const {
    return resends_all_ ? path_of(slot) == lost : (may_answer_over_[slot] & bit(lost)) != 0;
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

Result<void> SentRequests::take_answer(const wire::PathRecovered& answer, ByteSpan outcomes,
                                       size_t over, uint64_t now_ns) {
    if (answer.number > number_) {
        return Error::eproto;
    }
    const size_t lost = machine_.recovering();
    if (answer.number != number_ || lost == SessionMachine::kNoPath ||
        machine_.recovering_over() != over) {
        return {};
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
                sent(entry.slot, over, now_ns);
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
    return {};
}

}  // namespace tiffin::rdma_blk
