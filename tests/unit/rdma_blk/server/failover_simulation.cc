// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/unit/rdma_blk/server/failover_simulation.h"

#include <algorithm>
#include <cstring>

#include "fs/vfs/host.h"
#include "rdma_blk/session/key_schedule.h"

namespace tiffin::rdma_blk {
namespace {

constexpr int kToServer = 0;
constexpr int kToClient = 1;
constexpr uint64_t kLateNs = 100'000;
constexpr uint64_t kFlushNs = 200'000;
constexpr uint64_t kConnectNs = 30'000;
constexpr uint64_t kConnectTimeoutNs = 5'000'000;
constexpr uint64_t kMostSilenceNs = 30'000'000'000;
constexpr size_t kMostPending = 8;

}  // namespace

// The server's end of a connection.
class FailoverSimulation::ServerPath final : public SessionPath {
  public:
    ServerPath(FailoverSimulation& simulation, const std::shared_ptr<Connection>& connection)
        : simulation_(simulation), connection_(connection) {}

    void send_response(const wire::Response& response, ByteSpan payload) override {
        Message message;
        message.kind = Message::Kind::response;
        message.response = response;
        message.payload.assign(payload.begin(), payload.end());
        send(std::move(message));
    }
    void end(const wire::Notice* /*notice*/) override {
        Message message;
        message.kind = Message::Kind::end;
        send(std::move(message));
        is_ended_ = true;
    }
    void send_notice(const wire::Notice& /*notice*/) override {}
    void hold(size_t /*payload_bytes*/, size_t /*answer_bytes*/) override {}
    void release_held(size_t /*payload_bytes*/, size_t /*answer_bytes*/) override {}
    void wake() override {}

    bool is_ended() const { return is_ended_; }

  private:
    void send(Message message) {
        const auto connection = connection_.lock();
        if (connection && !is_ended_) {
            simulation_.send(connection, kToClient, std::move(message));
        }
    }

    FailoverSimulation& simulation_;
    std::weak_ptr<Connection> connection_;
    bool is_ended_ = false;
};

FailoverSimulation::FailoverSimulation(const FailoverRules& rules)
    : rules_(rules),
      random_(rules.seed),
      slots_(MUST(RequestSlots::create(kSlots))),
      machine_(rules.link_count),
      sent_(MUST(SentRequests::create(*slots_, machine_))),
      links_(rules.link_count) {
    VolumeSession::Place place;
    place.session_id = 7;
    place.memory.data = reinterpret_cast<unsigned char*>(data_.data());
    place.record = reinterpret_cast<wire::SessionRecord*>(record_memory_.data());
    place.entries = Span<wire::SlotEntry>(entries_.data(), entries_.size());
    place.flusher = &flusher_;
    place.content_incarnation = &content_incarnation_;
    place.counters = &volume_counters_;
    place.rc_leftovers = &leftovers_;
    session_ = MUST(VolumeSession::create(place));
    SessionAccess access;
    access.session_id = place.session_id;
    access.volume_epoch = 1;
    access.is_writer = true;
    access.data_bytes = data_.size() * sizeof(uint64_t);
    session_->set_access(access);
    secret_.bytes[0] = 3;
}

FailoverSimulation::~FailoverSimulation() {
    if (slots_->pending_count() > 0) {
        slots_->connection_lost(now_ns_);
        slots_->fail_all(Error::enodev);
    }
}

void FailoverSimulation::problem(const std::string& text) {
    problems.push_back("at " + std::to_string(now_ns_ / 1000) + " us: " + text);
}

void FailoverSimulation::at(uint64_t time_ns, Event event) {
    events_[{std::max(time_ns, now_ns_), event_number_++}] = std::move(event);
}

FailoverCounts FailoverSimulation::run() {
    open_incarnation();
    if (rules_.flaps > 0) {
        at(now_ns_ + rules_.flap_ns, [this] { flap(rules_.flaps); });
    }
    while ((completed_ < rules_.operation_count || (rules_.flaps > 0 && !events_.empty())) &&
           problems.empty()) {
        submit_more();
        run_machine();
        send_requests();
        const uint64_t next_ns = is_open_ ? machine_.next_time_ns() : next_attempt_ns_;
        if (next_ns != wake_ns_ && next_ns != SessionMachine::kNever) {
            wake_ns_ = next_ns;
            at(next_ns, [] {});
        }
        if (events_.empty() || (rules_.flaps == 0 && now_ns_ - completed_ns_ > kMostSilenceNs)) {
            problem("it does not come to an end");
            break;
        }
        const auto first = events_.begin();
        now_ns_ = first->first.first;
        const Event event = std::move(first->second);
        events_.erase(first);
        event();
        schedule_flushes();
        check_memory();
        if (!is_open_ && now_ns_ >= next_attempt_ns_) {
            open_incarnation();
        }
    }
    check_end();
    counts_.resent = slots_->statistics().resent;
    counts_.recovered = slots_->statistics().recovered;
    counts_.repeated = session_->statistics().answered_again + session_->statistics().ignored;
    counts_.failovers = machine_.failovers();
    for (size_t path = 0; path < links_.size(); path++) {
        counts_.suspicions += machine_.counts(path).suspicions;
    }
    counts_.joins = volume_counters_.paths_joined.load();
    counts_.revocations = volume_counters_.paths_revoked.load();
    counts_.hold_ns = machine_.hold_ns(0);
    counts_.active = machine_.active();
    return counts_;
}

// ---- The network ------------------------------------------------------------------------------------------

void FailoverSimulation::count_message() {
    counts_.messages++;
    if (counts_.messages == rules_.cut_at) {
        cut();
    }
}

void FailoverSimulation::cut() {
    counts_.cut_ns = now_ns_;
    for (const auto& tracked : operations_) {
        tracked->was_pending_at_cut = tracked->completions == 0;
    }
    const size_t link = machine_.active();
    cut_link(link, rules_.cuts_to_server, rules_.cuts_to_client);
    if (rules_.tells_client) {
        at(now_ns_, [this, link, connection = links_[link].connection] {
            if (links_[link].connection == connection && connection != nullptr) {
                close_connection(link);
                machine_.broken(link, now_ns_);
            }
        });
    }
    if (rules_.tells_server) {
        at(now_ns_, [this, connection = links_[link].connection] {
            if (connection && connection->server) {
                session_->path_lost(*connection->server);
                connection->server.reset();
            }
        });
    }
    if (rules_.repaired_ns != 0) {
        at(now_ns_ + rules_.repaired_ns, [this, link] { repair(link); });
    }
    if (rules_.cut_other_at != 0) {
        at(now_ns_ + rules_.cut_other_at, [this, link] {
            const size_t other = (link + 1) % links_.size();
            cut_link(other, true, true);
            at(now_ns_ + 20'000'000, [this, other] { repair(other); });
        });
    }
}

void FailoverSimulation::cut_link(size_t link, bool to_server, bool to_client) {
    links_[link].is_up[kToServer] = !to_server;
    links_[link].is_up[kToClient] = !to_client;
}

// What a stream could not deliver is repeated.
void FailoverSimulation::repair(size_t link) {
    links_[link].is_up[kToServer] = links_[link].is_up[kToClient] = true;
    const auto connection = links_[link].connection;
    if (!connection) {
        return;
    }
    at(now_ns_ + kDelayNs, [this, connection] {
        for (const int direction : {kToServer, kToClient}) {
            std::deque<Message> held;
            held.swap(connection->held[direction]);
            for (const Message& message : held) {
                put_on_link(connection, direction, message);
            }
        }
    });
}

void FailoverSimulation::flap(uint32_t left) {
    cut_link(0, left % 2 == 0, left % 2 == 0);
    if (left % 2 != 0) {
        repair(0);
    }
    if (left > 1) {
        at(now_ns_ + rules_.flap_ns, [this, left] { flap(left - 1); });
    }
}

void FailoverSimulation::send(const std::shared_ptr<Connection>& connection, int direction,
                              Message message) {
    count_message();
    at(now_ns_ + kDelayNs, [this, connection, direction, message = std::move(message)] {
        put_on_link(connection, direction, message);
    });
}

// It arrives, if it can.
void FailoverSimulation::put_on_link(const std::shared_ptr<Connection>& connection, int direction,
                                     Message message) {
    const bool is_up = links_[connection->link].is_up[direction];
    if (!is_up || !connection->held[direction].empty()) {
        if (connection->is_client_open) {
            connection->held[direction].push_back(std::move(message));
        } else if (direction == kToServer && rules_.keeps_late) {
            at(now_ns_ + kLateNs, [this, connection, late = std::move(message)] {
                counts_.late++;
                server_receives(connection, late);
            });
        }
        return;
    }
    if (direction == kToClient) {
        if (connection->is_client_open) {
            client_receives(connection, message);
        }
        return;
    }
    connection->delivered++;
    at(now_ns_ + kDelayNs, [this, connection, delivered = connection->delivered] {
        if (links_[connection->link].is_up[kToClient]) {
            connection->acknowledged = std::max(connection->acknowledged, delivered);
        }
    });
    server_receives(connection, message);
}

// ---- The client's operations ------------------------------------------------------------------------------

void FailoverSimulation::add(std::vector<std::unique_ptr<Tracked>>& batch, OperationKind kind,
                             uint64_t offset, uint64_t value) {
    auto made = std::make_unique<Tracked>();
    made->simulation = this;
    made->value = value;
    made->buffer = {&made->value, sizeof(made->value)};
    Operation& operation = made->operation;
    operation.kind = kind;
    operation.offset_bytes = offset;
    operation.buffers = &made->buffer;
    operation.buffer_count = kind == OperationKind::flush ? 0 : 1;
    operation.complete = completed;
    operation.owner = made.get();
    batch.push_back(std::move(made));
}

void FailoverSimulation::submit_more() {
    if (rules_.flaps > 0) {  // now and then, for as long as the link flaps
        if (operations_.size() < rules_.operation_count && now_ns_ >= next_submit_ns_) {
            next_submit_ns_ = now_ns_ + rules_.flap_ns;
            at(next_submit_ns_, [] {});
            submit_one();
        }
        return;
    }
    while (operations_.size() < rules_.operation_count && slots_->pending_count() < kMostPending) {
        submit_one();
    }
}

void FailoverSimulation::submit_one() {
    std::vector<std::unique_ptr<Tracked>> batch;
    const size_t pair = random_() % kPairs;
    const uint64_t chosen = random_() % 8;
    if (chosen < 3 && !has_pair_pending_[pair] &&
        operations_.size() + 3 <= rules_.operation_count) {
        has_pair_pending_[pair] = true;
        const uint64_t value = ++pair_value_[pair];
        add(batch, OperationKind::write, pair * 16, value);
        add(batch, OperationKind::write, pair * 16 + 8, value);
        if (chosen == 0) {
            add(batch, OperationKind::flush, 0, 0);
        }
        for (size_t i = 1; i < batch.size(); i++) {
            batch[i]->operation.after_earlier = true;
            batch[i - 1]->operation.next = &batch[i]->operation;
        }
        batch.back()->pair = pair;
        batch.back()->is_last = true;
    } else if (chosen == 4) {
        add(batch, OperationKind::compare_swap, kSwapOffset, 0);
        batch.back()->operation.compare = swapped_.empty() ? 0 : swapped_.back().second;
        batch.back()->operation.operand = operations_.size() + 1;
    } else if (chosen == 5) {
        add(batch, OperationKind::flush, 0, 0);
    } else if (chosen == 6) {
        add(batch, OperationKind::read, pair * 16, 0);
        batch.back()->pair = pair;
        batch.back()->least = pair_value_[pair] - (has_pair_pending_[pair] ? 1 : 0);
    } else {
        add(batch, OperationKind::fetch_add, kCounterOffset, 0);
        batch.back()->operation.operand = 1;
        batch.back()->operation.after_earlier = random_() % 4 == 0;
        adds_++;
    }
    Operation& first = batch.front()->operation;
    for (auto& made : batch) {
        operations_.push_back(std::move(made));
    }
    slots_->submit(first);
}

void FailoverSimulation::completed(Operation& operation) {
    auto& done = *static_cast<Tracked*>(operation.owner);
    done.simulation->check_completed(done);
}

void FailoverSimulation::check_completed(Tracked& done) {
    const Operation& operation = done.operation;
    completed_++;
    completed_ns_ = now_ns_;
    if (++done.completions != 1) {
        problem("an operation completed twice");
    }
    if (operation.outcome != Outcome::executed) {
        problem("an operation was not executed, outcome " +
                std::to_string(static_cast<int>(operation.outcome)));
        return;
    }
    if (done.was_pending_at_cut && counts_.first_completion_ns == 0) {
        counts_.first_completion_ns = now_ns_ - counts_.cut_ns;
    }
    if (done.is_last) {
        has_pair_pending_[done.pair] = false;
    }
    switch (operation.kind) {
        case OperationKind::fetch_add:
            added_.push_back(operation.old_value);
            break;
        case OperationKind::compare_swap:
            if (operation.old_value == operation.compare) {
                swapped_.push_back({operation.old_value, operation.operand});
            }
            break;
        case OperationKind::read:
            if (done.value < done.least || done.value > pair_value_[done.pair]) {
                problem("a read returned " + std::to_string(done.value));
            }
            break;
        default:
            break;
    }
}

// ---- The client's paths -----------------------------------------------------------------------------------

void FailoverSimulation::run_machine() {
    while (is_open_) {
        const SessionMachine::Action action = machine_.next(now_ns_);
        if (action.kind == SessionMachine::Action::Kind::none) {
            break;
        }
        act(action);
    }
    if (is_open_ && !machine_.has_living()) {
        is_open_ = false;
        machine_.lost();
        sent_->forget();
        for (size_t link = 0; link < links_.size(); link++) {
            close_connection(link);
        }
        slots_->connection_lost(now_ns_);
        next_attempt_ns_ = now_ns_ + kConnectTimeoutNs;
    }
}

void FailoverSimulation::act(const SessionMachine::Action& action) {
    const auto connection = links_[action.path].connection;
    switch (action.kind) {
        case SessionMachine::Action::Kind::connect:
            connect(action.path);
            break;
        case SessionMachine::Action::Kind::probe:
            if (connection->acknowledged > connection->seen_acknowledged) {
                connection->seen_acknowledged = connection->acknowledged;
                machine_.heard(action.path, now_ns_);
            } else {
                probe_sent_ns_[action.path] = now_ns_;
                send(connection, kToServer, Message{});
            }
            break;
        case SessionMachine::Action::Kind::close:
            close_connection(action.path);
            break;
        case SessionMachine::Action::Kind::recover:
            if (rules_.resends_all) {
                slots_->resend_all();
                sent_->forget();
                machine_.recovered(action.path, true);
                break;
            }
            ask(action, true);
            break;
        case SessionMachine::Action::Kind::none:
            break;
    }
}

void FailoverSimulation::ask(const SessionMachine::Action& action, bool revokes) {
    Message message;
    message.kind = Message::Kind::question;
    sent_->ask(action.path, message.question);
    message.question.session_id = session_->id();
    message.question.incarnation = incarnation_;
    message.question.path_id =
        links_[action.path].connection ? links_[action.path].connection->id : 0;
    if (rules_.revokes_after_replay && revokes) {
        message.question.flags = 0;
    }
    const ByteSpan entries = sent_->entries();
    message.payload.assign(entries.begin(), entries.end());
    send(links_[action.over].connection, kToServer, std::move(message));
}

void FailoverSimulation::close_connection(size_t link) {
    const auto connection = links_[link].connection;
    if (!connection || !connection->is_client_open) {
        return;
    }
    connection->is_client_open = false;
    connection->held[kToClient].clear();
    std::deque<Message> late;
    late.swap(connection->held[kToServer]);
    for (Message& message : late) {
        put_on_link(connection, kToServer, std::move(message));
    }
    Message end;
    end.kind = Message::Kind::end;
    if (links_[link].is_up[kToServer]) {
        at(now_ns_ + kDelayNs, [this, connection, end] { server_receives(connection, end); });
    }
}

void FailoverSimulation::connect(size_t link) {
    auto connection = std::make_shared<Connection>();
    connection->link = link;
    connection->id = next_path_id_++;
    connection->incarnation = incarnation_;
    const auto join = [this, link, connection] {
        if (!is_open_ || connection->incarnation != incarnation_) {
            return;
        }
        if (!links_[link].is_up[kToServer] || !links_[link].is_up[kToClient]) {
            at(now_ns_ + kConnectTimeoutNs, [this, link, connection] {
                if (is_open_ && connection->incarnation == incarnation_) {
                    machine_.join_failed(link, now_ns_);
                }
            });
            return;
        }
        wire::PathJoin question{};
        question.session_id = session_->id();
        question.incarnation = incarnation_;
        question.path_id = connection->id;
        Secret<kSealKeyBytes> own;
        own.bytes[0] = static_cast<unsigned char>(connection->id);
        wire::PathProof proof{};
        make_join_proof(secret_, own, question, proof.proof);
        connection->server = std::make_shared<ServerPath>(*this, connection);
        const auto reason = session_->join_stream(question, own, proof, connection->server);
        if (reason != wire::RefusalReason{}) {
            problem("a path was refused, reason " + std::to_string(static_cast<int>(reason)));
        }
        links_[link].connection = connection;
        machine_.joined(link, now_ns_, 2 * kDelayNs);
    };
    at(now_ns_ + kConnectNs, join);
}

void FailoverSimulation::open_incarnation() {
    const size_t link = attempts_++ % links_.size();
    next_attempt_ns_ = now_ns_ + kConnectTimeoutNs;
    if (!links_[link].is_up[kToServer] || !links_[link].is_up[kToClient]) {
        return;
    }
    slots_->connection_lost(now_ns_);
    std::vector<wire::OutstandingEntry> outstanding(kSlots);
    outstanding.resize(slots_->fill_outstanding(outstanding.data()));
    wire::SessionOpen open{};
    open.incarnation = ++incarnation_;
    open.next_sequence = slots_->next_sequence();
    open.outstanding_count = static_cast<uint16_t>(outstanding.size());
    auto connection = std::make_shared<Connection>();
    connection->link = link;
    connection->incarnation = incarnation_;
    connection->server = std::make_shared<ServerPath>(*this, connection);
    std::vector<unsigned char> outcomes(kSlots);
    const ByteSpan entries(reinterpret_cast<const unsigned char*>(outstanding.data()),
                           outstanding.size() * sizeof(wire::OutstandingEntry));
    const auto opened =
        session_->open_incarnation(open, entries, connection->server, outcomes.data());
    if (opened == VolumeSession::OpenResult::busy) {
        return;  // a flush is still being executed
    }
    if (opened != VolumeSession::OpenResult::opened) {
        problem("the incarnation was not opened");
        return;
    }
    session_->set_secret(incarnation_, secret_);
    if (!was_opened_) {
        slots_->opened(kSlots);
    } else if (!slots_->resumed(ByteSpan(outcomes.data(), outstanding.size())).ok()) {
        problem("the answer to the opening does not fit");
    }
    counts_.incarnations++;
    was_opened_ = is_open_ = true;
    next_path_id_ = 1;
    links_[link].connection = connection;
    machine_.opened(link, now_ns_, kProbeIntervalNs);
    machine_.measured(link, 2 * kDelayNs);
}

void FailoverSimulation::send_requests() {
    while (is_open_ && machine_.is_ready(machine_.active())) {
        Message message;
        message.kind = Message::Kind::request;
        Operation* const operation = slots_->take_next(message.request);
        if (operation == nullptr) {
            return;
        }
        message.request.session_id = session_->id();
        message.request.epoch = 1;
        message.request.incarnation = incarnation_;
        if (operation->kind == OperationKind::write &&
            (message.request.flags & wire::request_flag::reply_only) == 0) {
            const auto* bytes = static_cast<const unsigned char*>(operation->buffers[0].data);
            message.payload.assign(bytes, bytes + operation->buffers[0].size_bytes);
        }
        const size_t path = machine_.active();
        sent_->sent(message.request.slot, path, now_ns_);
        send(links_[path].connection, kToServer, std::move(message));
    }
}

void FailoverSimulation::client_receives(const std::shared_ptr<Connection>& connection,
                                         const Message& message) {
    const size_t path = connection->link;
    if (connection->incarnation != incarnation_ || !machine_.is_living(path)) {
        return;
    }
    if (message.kind == Message::Kind::end) {
        close_connection(path);
        machine_.broken(path, now_ns_);
        return;
    }
    machine_.heard(path, now_ns_);
    if (message.kind == Message::Kind::probe_reply) {
        machine_.measured(path, now_ns_ - probe_sent_ns_[path]);
    } else if (message.kind == Message::Kind::answer) {
        const ByteSpan outcomes(message.payload.data(), message.payload.size());
        if (!sent_->take_answer(message.answer, outcomes, path, now_ns_).ok()) {
            problem("an answer about a path does not fit");
        }
    } else if (message.kind == Message::Kind::response) {
        const auto found = slots_->find(message.response);
        if (!found.ok()) {
            problem("an answer to no request");
        } else if (found.value() != nullptr) {
            Operation& operation = *found.value();
            if (operation.kind == OperationKind::read) {
                std::memcpy(operation.buffers[0].data, message.payload.data(),
                            message.payload.size());
            }
            sent_->answered(message.response.slot);
            slots_->finish(message.response);
        }
    }
}

// ---- The server -------------------------------------------------------------------------------------------

void FailoverSimulation::server_receives(const std::shared_ptr<Connection>& connection,
                                         const Message& message) {
    if (!connection->server) {
        return;
    }
    const auto server = connection->server;
    switch (message.kind) {
        case Message::Kind::request: {
            const wire::Request& request = message.request;
            if (rules_.executes_late && server->is_ended() && request.offset_bytes < 1024) {
                uint64_t& place = data_[request.offset_bytes / 8];
                if (request.operation == static_cast<uint8_t>(OperationKind::write)) {
                    std::memcpy(&place, message.payload.data(), sizeof(place));
                } else {
                    place += request.operand;
                }
                return;
            }
            // Also when the path has ended: what is late must be refused.
            const auto handled = session_->handle_request(
                server, request, ByteSpan(message.payload.data(), message.payload.size()));
            if (!handled.ok() && handled.error() != Error::estale) {
                problem("the server refuses a request");
            }
            break;
        }
        case Message::Kind::question: {
            Message answer;
            answer.kind = Message::Kind::answer;
            answer.payload.resize(message.question.outstanding_count);
            const auto reason = session_->recover(
                message.question, ByteSpan(message.payload.data(), message.payload.size()), server,
                answer.payload.data());
            answer.answer.number = message.question.number;
            answer.answer.outstanding_count = message.question.outstanding_count;
            answer.answer.reason =
                static_cast<uint8_t>(reason.ok() ? reason.value() : wire::RefusalReason::held);
            send(connection, kToClient, std::move(answer));
            break;
        }
        case Message::Kind::probe: {
            Message reply;
            reply.kind = Message::Kind::probe_reply;
            send(connection, kToClient, std::move(reply));
            break;
        }
        case Message::Kind::end:
            session_->path_lost(*server);
            connection->server.reset();
            break;
        default:
            break;
    }
}

void FailoverSimulation::schedule_flushes() {
    for (; !flusher_.jobs.empty(); flusher_.jobs.pop_front()) {
        at(now_ns_ + kFlushNs,
           [this, job = flusher_.jobs.front()] { session_->finish_flush(job, {}); });
    }
}

uint64_t FailoverSimulation::word(uint64_t offset) const { return data_[offset / 8]; }

// Values only grow, but for that of the swaps; what follows is not there before what it follows.
void FailoverSimulation::check_memory() {
    for (size_t pair = 0; pair < kPairs; pair++) {
        if (word(pair * 16) < word(pair * 16 + 8)) {
            problem("a write is there before the one it follows");
        }
    }
    for (size_t index = 0; index < kSwapOffset / 8; index++) {
        if (data_[index] < seen_[index]) {
            problem("word " + std::to_string(index) + " went back");
        }
        seen_[index] = data_[index];
    }
}

void FailoverSimulation::check_end() {
    if (!problems.empty()) {
        return;
    }
    for (size_t pair = 0; pair < kPairs; pair++) {
        if (word(pair * 16) != pair_value_[pair] || word(pair * 16 + 8) != pair_value_[pair]) {
            problem("a write is lost");
        }
    }
    std::sort(added_.begin(), added_.end());
    for (size_t index = 0; index < added_.size(); index++) {
        if (added_[index] != index) {
            problem("an addition was executed twice, or has another's answer");
            break;
        }
    }
    if (added_.size() != adds_ || word(kCounterOffset) != adds_) {
        problem("the sum is " + std::to_string(word(kCounterOffset)) + ", and not " +
                std::to_string(adds_));
    }
    std::map<uint64_t, uint64_t> next;
    for (const auto& [old_value, new_value] : swapped_) {
        if (!next.emplace(old_value, new_value).second) {
            problem("two swaps replaced the same value");
        }
    }
    uint64_t value = 0;
    size_t steps = 0;
    for (auto found = next.find(0); found != next.end(); found = next.find(value)) {
        value = found->second;
        steps++;
    }
    if (steps != swapped_.size() || value != word(kSwapOffset)) {
        problem("the swaps are not one history");
    }
}

}  // namespace tiffin::rdma_blk
