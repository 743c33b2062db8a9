// SPDX-License-Identifier: MIT OR GPL-2.0-only
// One client's RequestSlots and one server's SlotTable, with an unreliable world in between, all decided by
// a seed: paths that deliver in order or not, lose and repeat, connections that are cut anywhere, a server
// that is killed between any two steps and starts again with its memory or without.
//
// What must hold is checked all the time: who executed what, how often, in which order, and what the
// client was told.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "rdma_blk/session/request_slots.h"
#include "rdma_blk/session/slot_table.h"

namespace tiffin::rdma_blk {

struct SimulationRules {
    bool in_order = true;  // each path is a stream; else datagrams, that get lost and repeated
    bool may_lose_memory = false;
    bool may_refuse = false;  // some operations are beyond the end of the volume
    bool has_deadlines = false;
    uint16_t slot_count = 4;
    size_t operation_count = 150;
};

// That rare things have happened at all.
struct SimulationCounts {
    uint64_t cuts = 0;
    uint64_t lost_answers_to_open = 0;
    uint64_t kills = 0;
    uint64_t partial_executions = 0;
    uint64_t memory_losses = 0;
    uint64_t path_losses = 0;
    uint64_t late_requests = 0;
    uint64_t followers_applied = 0;
    uint64_t values_read = 0;  // that an operation of the session had written
    uint64_t outcomes[4] = {};
    uint64_t replayed = 0;
    uint64_t fetched = 0;
    uint64_t answered_again = 0;
    uint64_t waited = 0;
    uint64_t refused = 0;
};

class SimulatedSession {
  public:
    SimulatedSession(uint64_t seed, const SimulationRules& rules);
    ~SimulatedSession();
    SimulatedSession(const SimulatedSession&) = delete;
    SimulatedSession& operator=(const SimulatedSession&) = delete;

    // Runs until every operation is complete; expectations fail where a rule is broken.
    void run(SimulationCounts& counts);

  private:
    static constexpr size_t kWords = 8;
    static constexpr uint64_t kSessionRecord = 4096;
    static constexpr size_t kNobody = SIZE_MAX;

    struct TrackedOperation {
        Operation operation;
        SimulatedSession* session = nullptr;
        uint64_t value = 0;  // of a write
        vfs::IoVector buffer;
        std::vector<size_t> predecessors;  // that must be applied first
        // In the server's memory as it is now:
        int applied = 0;
        int recorded = 0;  // finished, so that it must never be applied again
        uint64_t old_value = 0;
        // What the client was told:
        int completions = 0;
        uint64_t submitted_before_completion = 0;
    };
    struct Message {
        wire::Request request;
        wire::Response response;
        uint64_t value = 0;  // the payload
        size_t operation = 0;
        size_t writer = kNobody;  // of a read's answer: whose value it is
    };
    struct Path {
        std::deque<Message> to_server;
        std::deque<Message> to_client;
    };

    uint64_t pick(uint64_t bound) { return random_() % bound; }
    bool happens(uint64_t in_a_hundred) { return pick(100) < in_a_hundred; }
    TrackedOperation& tracked(size_t index) { return *operations_[index]; }

    void submit_some();
    std::unique_ptr<TrackedOperation> make_operation();
    void send_some();
    void deliver_to_server();
    void deliver_to_client();
    static Message take(std::deque<Message>& queue, bool in_order, uint64_t random);
    void receive_request(const Message& message);
    void execute_one();
    void execute(const Message& message);
    void apply(const Message& message);
    void check_apply(size_t index);
    void answer(const wire::Response& response, size_t operation, uint64_t value,
                size_t writer = kNobody);
    void check_value(const Message& message);
    void take_ready();
    void lose_path();
    void cut();
    void keep_late_requests();
    void deliver_late();
    void open();
    void kill_server();
    void execute_partly(const Message& message);
    void start_server();
    void lose_memory();
    void check_end(SimulationCounts& counts);
    static void completed(Operation& operation);
    static uint64_t read_word(void* owner, AddressSpace space, uint64_t offset_bytes);
    uint64_t& word(const wire::Request& request) { return words_[request.offset_bytes / 8]; }
    bool is_wanted(const Message& message);

    std::mt19937_64 random_;
    SimulationRules rules_;
    SimulationCounts counts_;
    uint64_t now_ns_ = 1;
    std::vector<std::unique_ptr<TrackedOperation>> operations_;
    size_t completed_count_ = 0;
    uint64_t greatest_applied_ = 0;  // submit number

    // The client.
    std::unique_ptr<RequestSlots> client_;
    uint32_t incarnation_ = 0;
    uint64_t session_id_ = 1;
    bool connected_ = false;
    bool has_session_ = false;

    // The network.
    std::vector<Path> paths_;
    std::vector<Message> late_;

    // The server: memory, and what dies with its process.
    std::vector<uint64_t> words_;
    std::vector<size_t> writers_;  // of each word's value
    std::vector<wire::SlotEntry> entries_;
    uint32_t recorded_incarnation_ = 0;
    std::unique_ptr<SlotTable> server_;
    std::vector<Message> executing_;
    std::map<uint16_t, Message> waiting_;
};

}  // namespace tiffin::rdma_blk
