// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The network and the server of the simulation, its events and its checks.
#include "tests/unit/rdma_blk/server/failover_simulation.h"

#include <algorithm>
#include <cstring>

#include "fs/vfs/host.h"
#include "rdma_blk/session/key_schedule.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint64_t kLateNs = 100'000;
constexpr uint64_t kMostSilenceNs = 30'000'000'000;

}  // namespace

FailoverSimulation::FailoverSimulation(const FailoverRules& rules)
    : rules_(rules),
      random_(rules.seed),
      slots_(MUST(RequestSlots::create(kSlots))),
      machine_(rules.link_count),
      sent_(MUST(SentRequests::create(*slots_, machine_))),
      links_(rules.link_count) {
    if (rules.spreads) {
        machine_.set_spreads();
    }
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
    if (rules_.cuts > 0) {
        cut_at_random(rules_.cuts);
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
    if (counts_.messages == rules_.remove_at && is_open_) {
        const size_t link = machine_.active();
        if (machine_.retire(link) && rules_.removes_at_once) {
            close_connection(link);
        }
    }
}

void FailoverSimulation::cut() {
    counts_.cut_ns = now_ns_;
    for (const auto& tracked : operations_) {
        tracked->was_pending_at_cut = tracked->completions == 0;
    }
    const size_t link = (machine_.active() + (rules_.cuts_beside ? 1 : 0)) % links_.size();
    cut_link(link, rules_.cuts_to_server, rules_.cuts_to_client);
    lose_connection(link, rules_.tells_client, rules_.tells_server);
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

void FailoverSimulation::lose_connection(size_t link, bool tells_client, bool tells_server) {
    const auto connection = links_[link].connection;
    if (tells_client) {
        at(now_ns_, [this, link, connection] {
            if (links_[link].connection == connection && connection != nullptr) {
                close_connection(link);
                machine_.broken(link, now_ns_);
            }
        });
    }
    if (tells_server) {
        at(now_ns_, [this, connection] {
            if (connection && connection->server) {
                session_->path_lost(*connection->server);
                connection->server.reset();
            }
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

// From less than it takes to suspect a link to longer than it takes to give it up.
void FailoverSimulation::cut_at_random(uint32_t left) {
    constexpr uint64_t kRepairedNs[] = {300'000, 1'500'000, 5'000'000, 30'000'000, 3'000'000'000};
    const size_t link = random_() % links_.size();
    if (links_[link].is_up[kToServer] && links_[link].is_up[kToClient]) {
        const uint64_t ways = 1 + random_() % 3;
        cut_link(link, (ways & 1) != 0, (ways & 2) != 0);
        at(now_ns_ + kRepairedNs[random_() % std::size(kRepairedNs)],
           [this, link] { repair(link); });
    }
    // One end or both are told that a connection is lost, as by a packet that resets it.
    const uint64_t told = random_() % 16;
    const size_t lost = random_() % links_.size();
    if (told < 3 && links_[lost].connection) {
        lose_connection(lost, told != 1, told != 0);
    }
    if (told == 3 && is_open_) {
        (void)machine_.retire(lost);
    }
    if (left > 1) {
        at(now_ns_ + random_() % 3'000'000, [this, left] { cut_at_random(left - 1); });
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
        if (links_[connection->link].is_up[kToClient] && connection->server) {
            connection->acknowledged = std::max(connection->acknowledged, delivered);
        }
    });
    server_receives(connection, message);
}

// ---- The server -------------------------------------------------------------------------------------------

void FailoverSimulation::server_receives(const std::shared_ptr<Connection>& connection,
                                         const Message& message) {
    if (!connection->server) {
        return;
    }
    const auto server = connection->server;
    if (message.kind != Message::Kind::end && !(server->reads() && connection->unread.empty())) {
        connection->unread.push_back(message);
        return;
    }
    server_reads(connection, message);
}

void FailoverSimulation::read_on(const std::shared_ptr<Connection>& connection) {
    while (connection->server && connection->server->reads() && !connection->unread.empty()) {
        const Message message = std::move(connection->unread.front());
        connection->unread.pop_front();
        server_reads(connection, message);
    }
}

void FailoverSimulation::server_reads(const std::shared_ptr<Connection>& connection,
                                      const Message& message) {
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
        at(now_ns_ + rules_.flush_ns,
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
