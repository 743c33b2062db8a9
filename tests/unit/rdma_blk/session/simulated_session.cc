// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/unit/rdma_blk/session/simulated_session.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tiffin::rdma_blk {

SimulatedSession::SimulatedSession(uint64_t seed, const SimulationRules& rules)
    : random_(seed),
      rules_(rules),
      words_(kWords),
      writers_(kWords, kNobody),
      entries_(rules.slot_count) {
    client_ = RequestSlots::create(rules.slot_count).release_value();
    start_server();
}

SimulatedSession::~SimulatedSession() {
    if (client_->pending_count() > 0) {
        client_->fail_all(Error::enodev);
    }
}

void SimulatedSession::run(SimulationCounts& counts) {
    // Anything may happen for a while; then only what brings things to an end.
    for (size_t step = 0; completed_count_ < rules_.operation_count; step++) {
        ASSERT_LT(step, rules_.operation_count * 2000) << "it does not come to an end";
        const bool calm = step > rules_.operation_count * 60;
        now_ns_++;
        submit_some();
        if (!connected_) {
            open();
        }
        send_some();
        deliver_late();
        deliver_to_server();
        execute_one();
        deliver_to_client();
        if (rules_.has_deadlines && client_->expire(now_ns_)) {
            cut();
        }
        if (calm) {
            if (!rules_.in_order && happens(10)) {
                client_->resend_all();
            }
        } else if (pick(1000) < 15) {
            cut();
        } else if (pick(1000) < 8) {
            kill_server();
        } else if (connected_ && pick(1000) < 30) {
            lose_path();
        }
        if (::testing::Test::HasFailure()) {
            return;
        }
    }
    check_end(counts);
}

// ---- The client ------------------------------------------------------------------------------------

std::unique_ptr<SimulatedSession::TrackedOperation> SimulatedSession::make_operation() {
    auto made = std::make_unique<TrackedOperation>();
    Operation& operation = made->operation;
    const OperationKind kinds[] = {OperationKind::read, OperationKind::write,
                                   OperationKind::compare_swap, OperationKind::fetch_add};
    operation.kind = kinds[pick(4)];
    operation.offset_bytes = pick(kWords) * 8;
    if (rules_.may_refuse && happens(5)) {
        operation.offset_bytes = kWords * 8;
    }
    made->session = this;
    made->value = random_();
    made->buffer = {&made->value, 8};
    operation.buffers = &made->buffer;
    operation.buffer_count = 1;
    operation.operand = random_();
    operation.compare = words_[pick(kWords)];
    operation.after_earlier = happens(25);
    operation.deadline_ns = rules_.has_deadlines && happens(30) ? now_ns_ + pick(60) : 0;
    operation.complete = completed;
    operation.owner = made.get();
    return made;
}

void SimulatedSession::submit_some() {
    if (operations_.size() >= rules_.operation_count || !happens(40)) {
        return;
    }
    const size_t batch = std::min<size_t>(1 + pick(4), rules_.operation_count - operations_.size());
    Operation* first = nullptr;
    Operation* last = nullptr;
    for (size_t i = 0; i < batch; i++) {
        std::unique_ptr<TrackedOperation> made = make_operation();
        for (size_t before = 0; made->operation.after_earlier && before < operations_.size();
             before++) {
            if (tracked(before).completions == 0) {
                made->predecessors.push_back(before);
            }
        }
        (last == nullptr ? first : last->next) = &made->operation;
        last = &made->operation;
        operations_.push_back(std::move(made));
    }
    client_->submit(*first);
}

void SimulatedSession::completed(Operation& operation) {
    auto& done = *static_cast<TrackedOperation*>(operation.owner);
    SimulatedSession& session = *done.session;
    session.completed_count_++;
    session.counts_.outcomes[static_cast<size_t>(operation.outcome)]++;
    EXPECT_EQ(++done.completions, 1);
    done.submitted_before_completion = session.operations_.size();
    if (operation.outcome == Outcome::executed) {
        EXPECT_GE(done.applied, 1);
        if (operation.kind == OperationKind::fetch_add ||
            operation.kind == OperationKind::compare_swap) {
            EXPECT_EQ(done.applied, 1);
            EXPECT_EQ(operation.old_value, done.old_value) << "somebody else's reply";
        }
    } else if (operation.outcome == Outcome::not_executed &&
               operation.kind != OperationKind::read) {  // which has no effect
        EXPECT_EQ(done.applied, 0);
    }
}

void SimulatedSession::send_some() {
    for (size_t i = pick(4); connected_ && i > 0; i--) {
        Message message{};
        Operation* operation = client_->take_next(message.request);
        if (operation == nullptr) {
            return;
        }
        message.request.session_id = session_id_;
        message.request.epoch = 1;
        message.request.incarnation = incarnation_;
        message.operation = operation->submit_number - 1;
        message.value = tracked(message.operation).value;
        paths_[pick(paths_.size())].to_server.push_back(message);
    }
}

// ---- The network ------------------------------------------------------------------------------------

SimulatedSession::Message SimulatedSession::take(std::deque<Message>& queue, bool in_order,
                                                 uint64_t random) {
    const size_t place = in_order ? 0 : random % queue.size();
    Message message = queue[place];
    const bool repeated = !in_order && (random >> 32) % 100 < 20;
    if (!repeated) {
        queue.erase(queue.begin() + static_cast<ptrdiff_t>(place));
    }
    return message;
}

void SimulatedSession::deliver_to_server() {
    for (size_t i = pick(4); connected_ && i > 0; i--) {
        Path& path = paths_[pick(paths_.size())];
        if (path.to_server.empty()) {
            continue;
        }
        const Message message = take(path.to_server, rules_.in_order, random_());
        if (rules_.in_order || !happens(10)) {
            receive_request(message);
        }
    }
    if (connected_ && !rules_.in_order && happens(2)) {
        client_->resend_all();
    }
}

bool SimulatedSession::is_wanted(const Message& message) {
    auto found = client_->find(message.response);
    EXPECT_TRUE(found.ok()) << "slot " << message.response.slot;
    if (!found.ok() || *found == nullptr) {
        return false;
    }
    EXPECT_EQ(*found, &tracked(message.operation).operation) << "somebody else's answer";
    return true;
}

void SimulatedSession::deliver_to_client() {
    for (size_t i = pick(4); connected_ && i > 0; i--) {
        Path& path = paths_[pick(paths_.size())];
        if (path.to_client.empty()) {
            continue;
        }
        const Message message = take(path.to_client, rules_.in_order, random_());
        if ((!rules_.in_order && happens(10)) || !is_wanted(message)) {
            continue;
        }
        check_value(message);
        client_->finish(message.response);
    }
}

// However often it was repeated, a read does not return what was ordered behind it.
void SimulatedSession::check_value(const Message& message) {
    if (message.writer == kNobody) {
        return;
    }
    counts_.values_read++;
    const std::vector<size_t>& before = tracked(message.writer).predecessors;
    EXPECT_EQ(std::count(before.begin(), before.end(), message.operation), 0)
        << "operation " << message.operation << " reads what its follower " << message.writer
        << " wrote";
}

// One of two paths breaks; what was on it is lost, but for late requests.
void SimulatedSession::lose_path() {
    counts_.path_losses++;
    keep_late_requests();
    paths_[pick(paths_.size())] = Path{};
    client_->resend_all();
}

void SimulatedSession::keep_late_requests() {
    for (const Path& path : paths_) {
        for (const Message& message : path.to_server) {
            if (happens(20)) {
                late_.push_back(message);
            }
        }
    }
}

// What a switch or a socket had kept of paths that are no more.
void SimulatedSession::deliver_late() {
    if (late_.empty() || !happens(10)) {
        return;
    }
    const size_t place = pick(late_.size());
    const Message message = late_[place];
    late_.erase(late_.begin() + static_cast<ptrdiff_t>(place));
    counts_.late_requests++;
    receive_request(message);
}

void SimulatedSession::cut() {
    counts_.cuts++;
    keep_late_requests();
    paths_.clear();
    connected_ = false;
    client_->connection_lost(now_ns_);
}

void SimulatedSession::open() {
    if (!happens(30)) {
        (void)client_->expire(now_ns_);
        return;
    }
    client_->connection_lost(now_ns_);
    incarnation_++;
    std::vector<wire::OutstandingEntry> outstanding(client_->slot_count());
    outstanding.resize(client_->fill_outstanding(outstanding.data()));
    // The server ends the old incarnation: nothing of it is being executed, and no answer gets out.
    while (!executing_.empty()) {
        execute_one();
    }
    paths_.clear();
    executing_.clear();
    waiting_.clear();
    std::vector<unsigned char> outcomes(outstanding.size());
    const ByteSpan entries(reinterpret_cast<const unsigned char*>(outstanding.data()),
                           outstanding.size() * sizeof(wire::OutstandingEntry));
    auto opened =
        server_->open_incarnation(incarnation_, client_->next_sequence(), entries, outcomes.data());
    ASSERT_TRUE(opened.ok());
    recorded_incarnation_ = incarnation_;
    if (happens(20)) {
        counts_.lost_answers_to_open++;
        return;
    }
    paths_.resize(2);
    connected_ = true;
    if (!has_session_) {
        client_->opened(rules_.slot_count);
        has_session_ = true;
    } else {
        ASSERT_TRUE(client_->resumed(ByteSpan(outcomes.data(), outcomes.size())).ok());
    }
}

// ---- The server -------------------------------------------------------------------------------------

void SimulatedSession::receive_request(const Message& message) {
    if (message.request.session_id != session_id_) {
        return;  // of a session that is no more: there is no table for it
    }
    auto decided = server_->decide(message.request);
    ASSERT_TRUE(decided.ok()) << "sequence " << message.request.sequence;
    switch (decided->action) {
        case RequestAction::execute:
            executing_.push_back(message);
            break;
        case RequestAction::wait:
            waiting_[message.request.slot] = message;
            break;
        case RequestAction::reply:
            answer(decided->response, message.operation, 0);
            take_ready();
            break;
        case RequestAction::ignore:
            break;
    }
}

void SimulatedSession::take_ready() {
    ReadyRequest ready;
    while (server_->next_ready(ready)) {
        ASSERT_EQ(waiting_.count(ready.slot), 1U);
        const Message message = waiting_[ready.slot];
        waiting_.erase(ready.slot);
        if (ready.decision.action == RequestAction::execute) {
            executing_.push_back(message);
        } else {
            answer(ready.decision.response, message.operation, 0);
        }
    }
}

void SimulatedSession::answer(const wire::Response& response, size_t operation, uint64_t value,
                              size_t writer) {
    if (paths_.empty()) {
        return;
    }
    Message message{};
    message.response = response;
    message.response.payload_bytes = response.operation == 1 && response.outcome == 1 ? 8 : 0;
    message.operation = operation;
    message.value = value;
    message.writer = writer;
    paths_[pick(paths_.size())].to_client.push_back(message);
}

void SimulatedSession::execute_one() {
    if (executing_.empty() || (connected_ && !happens(60))) {
        return;
    }
    const size_t place = pick(executing_.size());
    const Message message = executing_[place];
    executing_.erase(executing_.begin() + static_cast<ptrdiff_t>(place));
    execute(message);
    take_ready();
}

void SimulatedSession::execute(const Message& message) {
    TrackedOperation& done = tracked(message.operation);
    const wire::Request& request = message.request;
    wire::Response response;
    uint64_t value = 0;
    size_t writer = kNobody;
    switch (done.operation.kind) {
        case OperationKind::read:
            value = word(request);
            writer = writers_[request.offset_bytes / 8];
            check_apply(message.operation);
            response = server_->finish(request, Outcome::executed, Error::eio, 0);
            break;
        case OperationKind::write:
            apply(message);
            response = server_->finish(request, Outcome::executed, Error::eio, 0);
            break;
        default:
            done.old_value = word(request);
            check_apply(message.operation);
            response = execute_atomic(*server_, request, &word(request));
            if (word(request) != done.old_value) {
                writers_[request.offset_bytes / 8] = message.operation;
            }
            break;
    }
    if (done.operation.kind != OperationKind::read) {
        EXPECT_EQ(++done.recorded, 1) << "executed again";
    }
    answer(response, message.operation, value, writer);
}

void SimulatedSession::apply(const Message& message) {
    check_apply(message.operation);
    word(message.request) = message.value;
    writers_[message.request.offset_bytes / 8] = message.operation;
}

// An effect of an operation is about to happen: may it?
void SimulatedSession::check_apply(size_t index) {
    TrackedOperation& applied = tracked(index);
    applied.applied++;
    const bool repeatable = applied.operation.kind == OperationKind::read ||
                            applied.operation.kind == OperationKind::write;
    EXPECT_TRUE(repeatable || applied.applied == 1) << "an atomic was executed twice";
    EXPECT_EQ(applied.recorded, 0);
    for (const size_t before : applied.predecessors) {
        EXPECT_GE(tracked(before).applied, 1) << "not after operation " << before;
    }
    counts_.followers_applied += applied.predecessors.empty() ? 0 : 1;
    if (applied.completions != 0) {
        // Reads that come late do no harm; the client knows the rest as unknown.
        if (applied.operation.kind != OperationKind::read) {
            EXPECT_EQ(applied.operation.outcome, Outcome::unknown);
            EXPECT_LE(greatest_applied_, applied.submitted_before_completion)
                << "settled operations came back";
        }
    } else {
        greatest_applied_ = std::max(greatest_applied_, applied.operation.submit_number);
    }
}

void SimulatedSession::start_server() {
    server_ =
        SlotTable::create(Span<wire::SlotEntry>(entries_.data(), entries_.size())).release_value();
    SessionAccess access;
    access.session_id = session_id_;
    access.volume_epoch = 1;
    access.is_writer = true;
    access.data_bytes = kWords * 8;
    server_->set_access(access);
    server_->recover(recorded_incarnation_, read_word, this);
}

uint64_t SimulatedSession::read_word(void* owner, AddressSpace space, uint64_t offset_bytes) {
    EXPECT_EQ(space, AddressSpace::data);
    return static_cast<SimulatedSession*>(owner)->words_[offset_bytes / 8];
}

// The process ends in the middle of something; its memory stays, or does not.
void SimulatedSession::kill_server() {
    counts_.kills++;
    if (!executing_.empty() && happens(70)) {
        execute_partly(executing_[pick(executing_.size())]);
    }
    counts_.answered_again += server_->statistics().answered_again;
    counts_.waited += server_->statistics().waited;
    counts_.refused += server_->statistics().refused;
    executing_.clear();
    waiting_.clear();
    server_.reset();
    cut();
    if (rules_.may_lose_memory && happens(30)) {
        lose_memory();
    }
    start_server();
}

void SimulatedSession::execute_partly(const Message& message) {
    const wire::Request& request = message.request;
    TrackedOperation& broken = tracked(message.operation);
    counts_.partial_executions++;
    if (broken.operation.kind == OperationKind::write) {
        apply(message);
    } else if (broken.operation.kind == OperationKind::fetch_add) {
        const uint64_t old_value = word(request);
        server_->prepare_atomic(request, old_value, old_value + request.operand);
        if (happens(50)) {
            check_apply(message.operation);
            broken.old_value = old_value;
            broken.recorded = 1;
            word(request) = old_value + request.operand;
            writers_[request.offset_bytes / 8] = message.operation;
        }
    }
}

// All was flushed before, as far as this client is concerned: it starts over in a new session.
void SimulatedSession::lose_memory() {
    counts_.memory_losses++;
    std::fill(words_.begin(), words_.end(), 0);
    std::fill(writers_.begin(), writers_.end(), kNobody);
    std::fill(entries_.begin(), entries_.end(), wire::SlotEntry{});
    late_.clear();
    recorded_incarnation_ = 0;
    session_id_++;
    incarnation_ = 0;
    // What is pending starts over in this memory; what came before in it is not needed any more.
    for (const auto& operation : operations_) {
        if (operation->completions == 0) {
            operation->applied = 0;
            operation->recorded = 0;
        }
    }
    if (has_session_) {
        client_->restarted(rules_.slot_count);
        client_->connection_lost(now_ns_);
    }
}

void SimulatedSession::check_end(SimulationCounts& counts) {
    // Whatever is still on its way must not change anything.
    while (!late_.empty() && !::testing::Test::HasFailure()) {
        deliver_late();
    }
    while (!executing_.empty()) {
        execute_one();
    }
    for (const auto& operation : operations_) {
        EXPECT_EQ(operation->completions, 1);
        if (operation->operation.outcome == Outcome::not_executed &&
            operation->operation.kind != OperationKind::read) {
            EXPECT_EQ(operation->applied, 0) << "executed after all";
        }
    }
    EXPECT_EQ(client_->pending_count(), 0U);
    counts_.answered_again += server_->statistics().answered_again;
    counts_.waited += server_->statistics().waited;
    counts_.refused += server_->statistics().refused;
    counts_.replayed = client_->statistics().replayed;
    counts_.fetched = client_->statistics().fetched;
    uint64_t* const all = reinterpret_cast<uint64_t*>(&counts);
    const uint64_t* const own = reinterpret_cast<const uint64_t*>(&counts_);
    for (size_t i = 0; i < sizeof(counts) / sizeof(uint64_t); i++) {
        all[i] += own[i];
    }
}

}  // namespace tiffin::rdma_blk
