// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The client of the simulation: its operations, what comes back of them, and its paths.
#include <algorithm>
#include <cstring>

#include "rdma_blk/session/key_schedule.h"
#include "tests/unit/rdma_blk/server/failover_simulation.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint64_t kConnectNs = 30'000;
constexpr uint64_t kConnectTimeoutNs = 5'000'000;
constexpr size_t kMostPending = 8;

}  // namespace

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
        const bool follows = random_() % 2 == 0;
        batch.back()->operation.after_earlier = follows;
        batch.back()->least = pair_value_[pair] - (has_pair_pending_[pair] && !follows ? 1 : 0);
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
        case SessionMachine::Action::Kind::leave:
            close_connection(action.path);
            break;
        case SessionMachine::Action::Kind::remove:
            close_connection(action.path);
            counts_.removed++;
            at(now_ns_ + 1'000'000, [this] {
                counts_.added++;
                if (machine_.add(now_ns_) == SessionMachine::kNoPath) {
                    problem("a link that was removed has no place");
                }
            });
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
        if (reason == wire::RefusalReason::stale_incarnation && rules_.cuts > 0) {
            connection->server.reset();  // it has lost all of them, which the client will see
            machine_.join_failed(link, now_ns_);
            return;
        }
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
    machine_.opened(link, now_ns_, kProbeIntervalNs, 2 * kDelayNs);
    machine_.measured(link, 2 * kDelayNs, now_ns_);
}

void FailoverSimulation::send_requests() {
    while (is_open_) {
        uint32_t links = 0;
        for (size_t link = 0; link < machine_.path_count(); link++) {
            links |= machine_.may_take(link, now_ns_) ? 1U << link : 0;
        }
        if (links == 0 || (!rules_.sends_followers_early && !sent_->may_send_next(links))) {
            return;
        }
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
        const uint64_t bytes = message.request.length_bytes;
        const size_t path = sent_->choose(links, message.request, bytes, now_ns_);
        counts_.sent_beside += path != machine_.active() ? 1 : 0;
        sent_->sent(message.request.slot, path, bytes, now_ns_);
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
        machine_.measured(path, now_ns_ - probe_sent_ns_[path], now_ns_);
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
            sent_->answered(message.response.slot, path, now_ns_);
            slots_->finish(message.response);
        }
    }
}

}  // namespace tiffin::rdma_blk
