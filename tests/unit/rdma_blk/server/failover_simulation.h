// SPDX-License-Identifier: MIT OR GPL-2.0-only
// One client and one server's session over several links, in virtual time: the client's RequestSlots, SessionMachine and
// SentRequests, and the server's VolumeSession, are the real ones; links are streams that are cut where the test says.
//
// What holds is checked after every event and at the end: no memory goes back, what follows is not there before what it
// follows, every operation is executed once, and old values are those of one history.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "rdma_blk/server/volume_session.h"
#include "rdma_blk/session/request_slots.h"
#include "rdma_blk/session/sent_requests.h"
#include "rdma_blk/session/session_machine.h"

namespace tiffin::rdma_blk {

struct FailoverRules {
    uint64_t seed = 1;
    size_t link_count = 2;
    size_t operation_count = 40;
    // At this message, of all that are sent by either end (0: never), ...
    uint64_t cut_at = 0;
    bool cuts_to_server = true;
    bool cuts_to_client = true;
    bool tells_client = false;  // it gets an error at once; else silence
    bool tells_server = false;
    bool keeps_late = false;   // what was on its way to the server arrives after the failover
    uint64_t repaired_ns = 0;  // after the cut; 0: never
    uint64_t cut_other_at =
        0;                 // the link that took over is cut silently, too, both ways, for 20 ms
    uint64_t flap_ns = 0;  // the first link goes down and up again and again, this long each
    uint32_t flaps = 0;
    // So often is a link cut, at random, one way or both, and repaired some time later.
    uint32_t cuts = 0;
    uint64_t flush_ns = 200'000;
    bool spreads = false;      // requests take all links
    bool cuts_beside = false;  // a link that is not the active one
    // At this message the active link is taken away, and added again a millisecond after it was removed.
    uint64_t remove_at = 0;
    // ---- Faults that must be found ----
    bool resends_all = false;  // without asking what was executed
    bool revokes_after_replay = false;
    bool removes_at_once = false;        // a link that is taken away, with what is on its way on it
    bool executes_late = false;          // whatever comes late is executed, on whichever path
    bool sends_followers_early = false;  // before what they follow has arrived over another link
};

struct FailoverCounts {
    uint64_t messages = 0;  // sent, by either end
    uint64_t resent = 0;
    uint64_t recovered = 0;
    uint64_t repeated = 0;  // requests that came to the server though it had them, but for reads
    uint64_t failovers = 0;
    uint64_t suspicions = 0;
    uint64_t incarnations = 0;
    uint64_t joins = 0;
    uint64_t revocations = 0;
    uint64_t late = 0;
    uint64_t removed = 0;
    uint64_t added = 0;
    uint64_t cut_ns = 0;
    uint64_t first_completion_ns = 0;  // after the cut, of what was pending then; 0: nothing was
    uint64_t hold_ns = 0;              // of the first path, at the end
    size_t active = 0;                 // at the end
    uint64_t sent_beside = 0;          // requests, on another link than the active one
};

class FailoverSimulation {
  public:
    explicit FailoverSimulation(const FailoverRules& rules);
    ~FailoverSimulation();
    FailoverSimulation(const FailoverSimulation&) = delete;
    FailoverSimulation& operator=(const FailoverSimulation&) = delete;

    // Until all operations are complete. What is wrong is in `problems`, and so counted by tests of planted faults.
    FailoverCounts run();
    std::vector<std::string> problems;

  private:
    static constexpr int kToServer = 0;
    static constexpr int kToClient = 1;
    static constexpr uint64_t kDelayNs = 10'000;
    static constexpr uint64_t kProbeIntervalNs = 1'000'000'000;
    static constexpr size_t kPairs = 3;  // of a word and the word that is written behind it
    static constexpr uint64_t kCounterOffset = 512;
    static constexpr uint64_t kSwapOffset = 576;
    static constexpr uint16_t kSlots = 6;

    struct Tracked {
        Operation operation;
        FailoverSimulation* simulation = nullptr;
        vfs::IoVector buffer;
        uint64_t value = 0;
        size_t pair = kPairs;  // of chains and their readers
        bool is_last = false;  // of its batch
        uint64_t least = 0;    // that a read may return
        bool was_pending_at_cut = false;
        int completions = 0;
    };
    struct Message {
        enum class Kind : uint8_t { request, response, question, answer, probe, probe_reply, end };
        Kind kind = Kind::probe;
        wire::Request request{};
        wire::Response response{};
        wire::PathRecover question{};
        wire::PathRecovered answer{};
        std::vector<unsigned char> payload;
    };
    class ServerPath;
    // A connection on a link. Messages of a direction arrive in their order, or not at all.
    struct Connection {
        size_t link = 0;
        uint16_t id = 0;
        uint32_t incarnation = 0;
        bool is_client_open = true;
        std::shared_ptr<ServerPath> server;  // nullptr: it has ended there
        std::deque<Message> held[2];         // what a cut direction has not let through
        std::deque<Message> unread;          // the server holds too much to read on
        std::deque<std::pair<uint64_t, Message>> under_way[2];
        uint64_t delivered = 0;  // to the server, as the client's kernel learns it
        uint64_t acknowledged = 0;
        uint64_t seen_acknowledged = 0;
    };
    struct Link {
        bool is_up[2] = {true, true};
        std::shared_ptr<Connection> connection;
    };
    class QueuingFlusher final : public Flusher {
      public:
        void start(FlushJob job) override { jobs.push_back(std::move(job)); }
        std::deque<FlushJob> jobs;
    };
    using Event = std::function<void()>;

    void at(uint64_t time_ns, Event event);
    void problem(const std::string& text);
    // ---- The network ----
    void send(const std::shared_ptr<Connection>& connection, int direction, Message message);
    void put_on_link(const std::shared_ptr<Connection>& connection, int direction, Message message);
    void count_message();
    void cut();
    void lose_connection(size_t link, bool tells_client, bool tells_server);
    void cut_link(size_t link, bool to_server, bool to_client);
    void repair(size_t link);
    void flap(uint32_t left);
    void cut_at_random(uint32_t left);
    // ---- The client ----
    void submit_more();
    void submit_one();
    void add(std::vector<std::unique_ptr<Tracked>>& batch, OperationKind kind, uint64_t offset,
             uint64_t value);
    void run_machine();
    void act(const SessionMachine::Action& action);
    void ask(const SessionMachine::Action& action, bool revokes);
    void close_connection(size_t link);
    void connect(size_t link);
    void open_incarnation();
    void send_requests();
    void client_receives(const std::shared_ptr<Connection>& connection, const Message& message);
    static void completed(Operation& operation);
    void check_completed(Tracked& done);
    // ---- The server ----
    void server_receives(const std::shared_ptr<Connection>& connection, const Message& message);
    void server_reads(const std::shared_ptr<Connection>& connection, const Message& message);
    void read_on(const std::shared_ptr<Connection>& connection);
    void schedule_flushes();
    void check_memory();
    void check_end();
    uint64_t word(uint64_t offset) const;

    const FailoverRules rules_;
    std::mt19937_64 random_;
    FailoverCounts counts_;
    uint64_t now_ns_ = 1'000'000'000;
    uint64_t event_number_ = 0;
    std::map<std::pair<uint64_t, uint64_t>, Event> events_;
    uint64_t wake_ns_ = 0;

    // The client.
    std::vector<std::unique_ptr<Tracked>> operations_;
    size_t completed_ = 0;
    uint64_t next_submit_ns_ = 0;
    uint64_t completed_ns_ = 1'000'000'000;
    std::unique_ptr<RequestSlots> slots_;
    SessionMachine machine_;
    std::unique_ptr<SentRequests> sent_;
    uint32_t incarnation_ = 0;
    uint16_t next_path_id_ = 1;
    bool is_open_ = false;
    bool was_opened_ = false;
    uint64_t next_attempt_ns_ = 0;
    size_t attempts_ = 0;
    uint64_t probe_sent_ns_[SessionMachine::kMaxPaths] = {};
    bool has_pair_pending_[kPairs] = {};
    uint64_t pair_value_[kPairs] = {};
    uint64_t adds_ = 0;
    std::vector<uint64_t> added_;                         // old values
    std::vector<std::pair<uint64_t, uint64_t>> swapped_;  // old, new: of those that took effect
    Secret<kSealKeyBytes> secret_;

    // The network.
    std::vector<Link> links_;

    // The server.
    std::vector<uint64_t> data_ = std::vector<uint64_t>(128);
    std::vector<uint64_t> seen_ = std::vector<uint64_t>(128);
    std::vector<unsigned char> record_memory_ = std::vector<unsigned char>(4096);
    std::vector<wire::SlotEntry> entries_ = std::vector<wire::SlotEntry>(kSlots);
    std::atomic<uint64_t> content_incarnation_{1};
    VolumeCounters volume_counters_;
    RcLeftovers leftovers_;
    QueuingFlusher flusher_;
    std::shared_ptr<VolumeSession> session_;
};

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
    // Nothing more is read while a write or read of what came waits.
    void hold(size_t payload_bytes, size_t answer_bytes) override {
        held_bytes_ += payload_bytes + answer_bytes - kAnswerBytes;
    }
    void release_held(size_t payload_bytes, size_t answer_bytes) override {
        held_bytes_ -= payload_bytes + answer_bytes - kAnswerBytes;
        const auto connection = connection_.lock();
        if (connection && reads()) {
            simulation_.at(simulation_.now_ns_, [&simulation = simulation_, connection] {
                simulation.read_on(connection);
            });
        }
    }
    bool reads() const { return held_bytes_ == 0; }
    void wake() override {}

    bool is_ended() const { return is_ended_; }

  private:
    static constexpr size_t kAnswerBytes = sizeof(wire::MessageHeader) + sizeof(wire::Response);

    void send(Message message) {
        const auto connection = connection_.lock();
        if (connection && !is_ended_) {
            simulation_.send(connection, kToClient, std::move(message));
        }
    }

    FailoverSimulation& simulation_;
    std::weak_ptr<Connection> connection_;
    bool is_ended_ = false;
    size_t held_bytes_ = 0;
};

}  // namespace tiffin::rdma_blk
