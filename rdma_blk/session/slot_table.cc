// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/session/slot_table.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "fs/vfs/host.h"
#include "rdma_blk/wire/parse.h"

namespace tiffin::rdma_blk {
namespace {

// A store that the compiler moves nothing across. More is not needed: what counts is which instructions a
// process had carried out when it ended.
template <typename T>
void store_in_order(T& place, T value) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&place, value, __ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

bool is_read(const wire::Request& request) {
    return request.operation == static_cast<uint8_t>(OperationKind::read);
}

constexpr auto kDone = static_cast<uint8_t>(wire::SlotState::done);
constexpr auto kPrepared = static_cast<uint8_t>(wire::SlotState::prepared);
constexpr auto kExecuted = static_cast<uint8_t>(Outcome::executed);
constexpr auto kNotExecuted = static_cast<uint8_t>(Outcome::not_executed);

}  // namespace

Result<std::unique_ptr<SlotTable>> SlotTable::create(Span<wire::SlotEntry> entries) {
    if (entries.empty() || entries.size() > wire::kMaxSlots) {
        return Error::einval;
    }
    std::unique_ptr<Slot[]> slots(new (std::nothrow) Slot[entries.size()]);
    std::unique_ptr<uint64_t[]> missing(new (std::nothrow) uint64_t[entries.size()]);
    if (!slots || !missing) {
        return Error::enomem;
    }
    std::unique_ptr<SlotTable> table(new (std::nothrow)
                                         SlotTable(entries, std::move(slots), std::move(missing)));
    if (!table) {
        return Error::enomem;
    }
    return table;
}

void SlotTable::recover(uint32_t last_incarnation,
                        uint64_t (*word)(void* owner, AddressSpace space, uint64_t offset_bytes),
                        void* owner, bool has_mapped_data) {
    incarnation_ = last_incarnation;
    was_recovered_ = true;
    for (wire::SlotEntry& entry : entries_) {
        if (entry.sequence == 0 || entry.state != kPrepared) {
            continue;
        }
        const auto space = static_cast<AddressSpace>(entry.space);
        const uint64_t now = word(owner, space, entry.offset_bytes);
        const bool may_be_others = has_mapped_data && space == AddressSpace::data;
        if (!may_be_others && now == entry.new_value) {
            entry.outcome = static_cast<uint8_t>(Outcome::executed);
            entry.error = 0;
        } else if (!may_be_others && now == entry.value) {
            entry.sequence = 0;  // as if it had never come
        } else {
            entry.outcome = static_cast<uint8_t>(Outcome::unknown);
            entry.error = static_cast<uint16_t>(errno_value(Error::eio));
        }
        store_in_order(entry.state, kDone);
    }
}

// ---- Incarnations ----------------------------------------------------------------------------------

// What is known about an outstanding request: a reply is kept, or it will be executed when it comes again.
Result<unsigned char> SlotTable::outcome_of(const wire::OutstandingEntry& outstanding) const {
    if (outstanding.slot >= entries_.size()) {
        return Error::eproto;
    }
    const wire::SlotEntry& entry = entries_[outstanding.slot];
    if (entry.sequence > outstanding.sequence) {
        return Error::eproto;
    }
    const bool kept = entry.sequence == outstanding.sequence && entry.state == kDone;
    return static_cast<unsigned char>(kept ? Outcome::executed : Outcome::not_executed);
}

Result<void> SlotTable::open_incarnation(uint32_t incarnation, uint64_t next_sequence,
                                         ByteSpan entries, unsigned char* outcomes) {
    TIFFIN_ASSERT(executing_count_ == 0);
    if (incarnation <= incarnation_) {
        return Error::estale;
    }
    const size_t count = entries.size() / sizeof(wire::OutstandingEntry);
    if (count > entries_.size()) {
        return Error::eproto;
    }
    // First all checks, then all changes: a request that is refused leaves the table as it was.
    uint64_t previous = 0;
    for (size_t index = 0; index < count; index++) {
        const wire::OutstandingEntry entry =
            TRY(wire::parse_outstanding_entry(entries, index, previous));
        previous = entry.sequence;
        outcomes[index] = TRY(outcome_of(entry));
    }
    if (previous >= next_sequence || next_sequence <= highest_) {
        return Error::eproto;
    }
    incarnation_ = incarnation;
    is_open_ = true;
    if (was_recovered_) {
        suspect_below_ = next_sequence;
        was_recovered_ = false;
    }
    highest_ = next_sequence - 1;
    waiting_count_ = 0;
    for (size_t index = 0; index < entries_.size(); index++) {
        const wire::SlotEntry& entry = entries_[index];
        slots_[index] = Slot{};
        slots_[index].sequence = entry.sequence;
        if (entry.sequence != 0 && entry.outcome != kExecuted) {
            note_refusal(entry.sequence);
        }
    }
    missing_count_ = 0;
    previous = 0;
    for (size_t index = 0; index < count; index++) {
        previous = MUST(wire::parse_outstanding_entry(entries, index, previous)).sequence;
        if (outcomes[index] == kNotExecuted) {
            missing_[missing_count_++] = previous;
        }
    }
    return {};
}

// ---- Order -------------------------------------------------------------------------------------------

// The place of a sequence in missing_, or where it would be.
size_t SlotTable::find_missing(uint64_t sequence) const {
    return static_cast<size_t>(
        std::lower_bound(missing_.get(), missing_.get() + missing_count_, sequence) -
        missing_.get());
}

// Takes note of a sequence that was not seen before in its slot. `is_settled`: it belongs to an earlier
// incarnation, and the client does not want it any more. False: more is missing than there are slots.
bool SlotTable::note_arrival(uint64_t sequence, bool& is_settled) {
    is_settled = false;
    if (sequence <= highest_) {
        const size_t place = find_missing(sequence);
        is_settled = place == missing_count_ || missing_[place] != sequence;
        return true;
    }
    if (sequence - highest_ > entries_.size() - missing_count_) {
        return false;
    }
    while (highest_ < sequence) {
        missing_[missing_count_++] = ++highest_;
    }
    return true;
}

void SlotTable::settle(uint64_t sequence) {
    const size_t place = find_missing(sequence);
    if (place < missing_count_ && missing_[place] == sequence) {
        std::copy(missing_.get() + place + 1, missing_.get() + missing_count_,
                  missing_.get() + place);
        missing_count_--;
    }
}

bool SlotTable::may_apply(const wire::Request& request) const {
    return request.after == 0 || missing_count_ == 0 || missing_[0] > request.after;
}

bool SlotTable::follows_refusal(const wire::Request& request) const {
    const auto touches = [&](uint64_t first, uint64_t last) {
        return first != 0 && first <= request.after && last >= request.pending_since;
    };
    return request.after != 0 && (touches(first_refused_, last_refused_) ||
                                  std::any_of(std::begin(refused_), std::end(refused_),
                                              [&](uint64_t one) { return touches(one, one); }));
}

// What overtakes a request that waits may be refused without a reason to refuse that one: so the latest are kept
// one by one.
void SlotTable::note_refusal(uint64_t sequence) {
    const uint64_t oldest = std::exchange(refused_[next_refused_], sequence);
    next_refused_ = (next_refused_ + 1) % kRefusalsKept;
    if (oldest != 0) {
        first_refused_ = first_refused_ == 0 ? oldest : std::min(first_refused_, oldest);
        last_refused_ = std::max(last_refused_, oldest);
    }
}

// ---- Requests ----------------------------------------------------------------------------------------

RequestDecision SlotTable::ignore() {
    statistics_.ignored++;
    return {};
}

Result<RequestDecision> SlotTable::decide(const wire::Request& request) {
    if (request.session_id != access_.session_id || request.slot >= entries_.size()) {
        return Error::eproto;
    }
    if (!is_open_ || request.incarnation != incarnation_) {
        return ignore();
    }
    if (fenced_) {
        statistics_.refused++;
        RequestDecision decision{RequestAction::reply, response_to(request)};
        decision.response.outcome = kNotExecuted;
        decision.response.error = static_cast<uint16_t>(errno_value(Error::estale));
        return decision;
    }
    const Slot& slot = slots_[request.slot];
    if (request.sequence < slot.sequence) {
        return ignore();
    }
    if (request.sequence > slot.sequence) {
        return decide_new(request);
    }
    if (slot.progress != Progress::idle) {
        return ignore();
    }
    const wire::SlotEntry& entry = entries_[request.slot];
    if (entry.sequence == request.sequence && entry.state == kDone) {
        if (request.operation != entry.operation) {
            return Error::eproto;
        }
        statistics_.answered_again++;
        return RequestDecision{RequestAction::reply, kept_response(request)};
    }
    // A read that was answered, or refused: it has no kept reply, and doing it again does no harm.
    if (!is_read(request)) {
        return Error::eproto;
    }
    return decide_new(request);
}

bool SlotTable::is_in_progress(const wire::Request& request) const {
    const Slot& slot = slots_[request.slot];
    return is_open_ && request.incarnation == incarnation_ && slot.sequence == request.sequence &&
           slot.progress != Progress::idle;
}

Result<RequestDecision> SlotTable::decide_new(const wire::Request& request) {
    Slot& slot = slots_[request.slot];
    if (slot.progress != Progress::idle && !slot.is_repeated) {
        return Error::eproto;  // two in one slot
    }
    bool is_settled = false;
    if (!note_arrival(request.sequence, is_settled)) {
        return Error::eproto;
    }
    if (is_settled && request.sequence != slot.sequence) {
        return ignore();
    }
    slot.is_repeated = is_settled;
    slot.sequence = request.sequence;
    slot.request = request;
    // What a reader may not do is refused at once, whatever it is to follow: the content of a write would be kept for it.
    const bool may_wait = access_.is_writer || is_read(request);
    if (may_wait && !may_apply(request)) {
        slot.progress = Progress::waiting;
        waiting_count_++;
        statistics_.waited++;
        return RequestDecision{RequestAction::wait, {}};
    }
    return begin(slot);
}

// All that `slot.request` had to wait for is settled: it is executed, or refused.
RequestDecision SlotTable::begin(Slot& slot) {
    const wire::Request& request = slot.request;
    slot.progress = Progress::executing;
    executing_count_++;
    Error refusal = Error::ecanceled;
    if (fenced_) {
        refusal = Error::estale;
    } else if ((request.flags & wire::request_flag::reply_only) == 0 && !follows_refusal(request)) {
        const Result<void> access = check_access(access_, request);
        if (access.ok()) {
            return {RequestAction::execute, {}};
        }
        refusal = access.error();
    }
    const bool is_suspect = request.sequence < suspect_below_ && !is_read(request);
    const Outcome outcome = is_suspect ? Outcome::unknown : Outcome::not_executed;
    return {RequestAction::reply, finish(request, outcome, refusal, 0)};
}

bool SlotTable::next_ready(ReadyRequest& ready) {
    if (waiting_count_ == 0) {
        return false;
    }
    for (uint16_t index = 0; index < slot_count(); index++) {
        Slot& slot = slots_[index];
        if (slot.progress == Progress::waiting && may_apply(slot.request)) {
            waiting_count_--;
            ready.slot = index;
            ready.decision = begin(slot);
            return true;
        }
    }
    return false;
}

Result<SlotTable::Fate> SlotTable::fate_of(const wire::OutstandingEntry& entry,
                                           wire::Response& response) const {
    if (entry.slot >= entries_.size()) {
        return Error::eproto;
    }
    const Slot& slot = slots_[entry.slot];
    if (slot.sequence != entry.sequence) {
        return slot.sequence > entry.sequence ? Fate::settled : Fate::missing;
    }
    if (slot.request.operation != 0 && slot.request.operation != entry.operation) {
        return Error::eproto;
    }
    if (slot.progress != Progress::idle) {
        return Fate::in_progress;
    }
    const wire::SlotEntry& kept = entries_[entry.slot];
    if (kept.sequence != entry.sequence || kept.state != kDone) {
        return Fate::missing;  // a read: it is done again
    }
    if (kept.operation != entry.operation) {
        return Error::eproto;
    }
    wire::Request request{};
    request.session_id = access_.session_id;
    request.sequence = entry.sequence;
    request.slot = entry.slot;
    request.operation = entry.operation;
    response = kept_response(request);
    return Fate::answered;
}

// ---- Replies -----------------------------------------------------------------------------------------

wire::Response SlotTable::response_to(const wire::Request& request) const {
    wire::Response response{};
    response.session_id = request.session_id;
    response.epoch = access_.volume_epoch;
    response.sequence = request.sequence;
    response.incarnation = incarnation_;
    response.slot = request.slot;
    response.operation = request.operation;
    return response;
}

wire::Response SlotTable::kept_response(const wire::Request& request) const {
    const wire::SlotEntry& entry = entries_[request.slot];
    wire::Response response = response_to(request);
    response.outcome = entry.outcome;
    response.error = entry.error;
    response.value = entry.value;
    return response;
}

void SlotTable::prepare_atomic(const wire::Request& request, uint64_t old_value,
                               uint64_t new_value) {
    wire::SlotEntry& entry = entries_[request.slot];
    TIFFIN_ASSERT(slots_[request.slot].progress == Progress::executing);
    store_in_order(entry.sequence, uint64_t{0});
    entry.value = old_value;
    entry.new_value = new_value;
    entry.offset_bytes = request.offset_bytes;
    entry.space = request.space;
    entry.operation = request.operation;
    entry.incarnation = incarnation_;
    entry.state = kPrepared;
    store_in_order(entry.sequence, request.sequence);
}

void SlotTable::keep_reply(const wire::Request& request, Outcome outcome, uint16_t error,
                           uint64_t value) {
    wire::SlotEntry& entry = entries_[request.slot];
    const bool was_prepared = entry.sequence == request.sequence;
    if (!was_prepared) {
        store_in_order(entry.sequence, uint64_t{0});
        entry.operation = request.operation;
        entry.incarnation = incarnation_;
    }
    entry.value = value;
    entry.outcome = static_cast<uint8_t>(outcome);
    entry.error = error;
    store_in_order(entry.state, kDone);
    store_in_order(entry.sequence, request.sequence);
}

wire::Response SlotTable::finish(const wire::Request& request, Outcome outcome, Error error,
                                 uint64_t value) {
    Slot& slot = slots_[request.slot];
    const bool executed = outcome == Outcome::executed;
    const auto error_number = static_cast<uint16_t>(executed ? 0 : errno_value(error));
    (executed ? statistics_.executed : statistics_.refused)++;
    TIFFIN_ASSERT(executing_count_ > 0);
    executing_count_--;
    if (slot.sequence == request.sequence) {  // else a repeated read, and the slot is in use again
        TIFFIN_ASSERT(slot.progress == Progress::executing);
        slot.progress = Progress::idle;
        slot.is_repeated = false;
        if (!executed) {
            note_refusal(request.sequence);
        }
        if (!is_read(request)) {
            keep_reply(request, outcome, error_number, value);
        }
        settle(request.sequence);
    }
    wire::Response response = response_to(request);
    response.outcome = static_cast<uint8_t>(outcome);
    response.error = error_number;
    response.value = value;
    return response;
}

wire::Response execute_atomic(SlotTable& table, const wire::Request& request, uint64_t* word) {
    const bool is_swap = request.operation == static_cast<uint8_t>(OperationKind::compare_swap);
    uint64_t old_value = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    while (true) {
        const bool changes = !is_swap || old_value == request.compare;
        const uint64_t new_value = is_swap ? request.operand : old_value + request.operand;
        if (!changes) {
            break;
        }
        table.prepare_atomic(request, old_value, new_value);
        if (__atomic_compare_exchange_n(word, &old_value, new_value, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
            break;
        }
    }
    return table.finish(request, Outcome::executed, Error::eio, old_value);
}

}  // namespace tiffin::rdma_blk
