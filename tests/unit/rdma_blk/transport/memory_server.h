// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A memory server for tests of transports' clients: one volume in memory, real handshakes and slots, one
// thread for each connection, and nothing that makes a server fast. It fails as it is told to.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "rdma_blk/session/handshake.h"
#include "rdma_blk/session/slot_table.h"
#include "rdma_blk/transport/tcp/framing.h"

namespace tiffin::rdma_blk::test {

// What was executed. Repetitions that the slots answered are not counted.
struct ExecutionCounts {
    uint64_t reads = 0;
    uint64_t writes = 0;
    uint64_t atomics = 0;
    uint64_t flushes = 0;
    uint64_t refused = 0;
    uint64_t probes = 0;
    uint64_t sessions_opened = 0;
    uint64_t sessions_resumed = 0;
    uint64_t sessions_closed = 0;
};

class MemoryServer final : public VolumeKeys {
  public:
    static constexpr uint64_t kDataBytes = 4 << 20;
    static constexpr uint64_t kControlBytes = 64 << 10;
    static constexpr unsigned char kKey[kVolumeKeyBytes] = {3, 1, 4, 1, 5, 9};

    MemoryServer();
    ~MemoryServer();

    uint16_t port() const { return port_; }
    ExecutionCounts counts() const;
    void set_probe_interval_ms(uint32_t interval) { probe_interval_ms_ = interval; }
    void set_slot_count(uint16_t count) { slot_count_ = count; }
    std::vector<unsigned char> data() const;

    // ---- Failing ----
    void cut_connections();
    // The process stands still: nothing is read or answered.
    void freeze();
    void thaw();
    // The process ends and another one starts. Sessions are gone; unflushed content may have been lost, or
    // (`is_empty`) all of it.
    void restart(bool is_empty);
    // Another one takes the volume. `tells`: the holder gets a notice; else it finds out when it resumes.
    void fence_all(bool tells);
    // Session openings are refused for this reason, that many times.
    void refuse_openings(wire::RefusalReason reason, int times);
    // The next answers to reads have a checksum that is not theirs.
    void damage_reads(int times) { damaged_reads_ = times; }
    void resize(uint64_t data_bytes);

    bool find_key(const char* volume_name, Secret<kVolumeKeyBytes>& key) const override;

  private:
    struct Peer;
    struct Session {
        uint64_t id = 0;
        unsigned char client_uuid[16] = {};
        std::vector<wire::SlotEntry> entries;
        std::unique_ptr<SlotTable> slots;
        bool is_writer = false;
        bool is_fenced = false;
        Peer* peer = nullptr;
        char holder_text[wire::kHolderTextBytes] = {};
    };

    void accept_all();
    void serve(Peer& peer);
    bool shake_hands(Peer& peer);
    bool receive_message(Peer& peer);
    bool handle(Peer& peer);
    bool open(Peer& peer);
    bool refuse(Peer& peer, wire::RefusalReason reason, const Session* held_by);
    void grant(Session& session);
    void set_access(Session& session);
    bool handle_request(Peer& peer);
    bool execute(Peer& peer, const wire::Request& request);
    bool answer_lease(Peer& peer);
    template <typename T>
    bool send(Peer& peer, wire::MessageType type, const T& message, ByteSpan payload = {});
    Session* holder();
    void cut_locked();
    void wait_while_frozen();

    CookieJar cookies_;
    unsigned char uuid_[16] = {0x5e};
    int listener_ = -1;
    uint16_t port_ = 0;
    std::thread acceptor_;
    std::atomic<bool> stops_{false};
    std::atomic<uint32_t> probe_interval_ms_{1000};
    std::atomic<uint16_t> slot_count_{8};
    std::atomic<int> damaged_reads_{0};

    mutable std::mutex mutex_;
    std::condition_variable thawed_;
    bool is_frozen_ = false;
    std::vector<std::unique_ptr<Peer>> peers_;
    std::map<uint64_t, std::unique_ptr<Session>> sessions_;
    uint64_t next_session_id_ = 100;
    uint64_t epoch_ = 0;
    uint64_t content_incarnation_ = 1;
    uint64_t empty_since_ = 1;
    std::vector<unsigned char> data_ = std::vector<unsigned char>(kDataBytes);
    std::vector<unsigned char> control_ = std::vector<unsigned char>(kControlBytes);
    wire::RefusalReason refusal_ = wire::RefusalReason::held;
    int refusals_ = 0;
    ExecutionCounts counts_;
};

// Stands between a client and a server, and breaks what passes. Bytes are counted from arm() on.
class FaultyLink {
  public:
    explicit FaultyLink(uint16_t server_port);
    ~FaultyLink();

    uint16_t port() const { return port_; }
    // The connection is cut right behind that many more bytes to the server (or to the client); once.
    void cut_to_server_after(int64_t bytes) { to_server_left_ = bytes; }
    void cut_to_client_after(int64_t bytes) { to_client_left_ = bytes; }
    // No more than so many bytes pass to clients from here on, until thaw_to_client().
    void stall_to_client_after(int64_t bytes) { to_client_credit_ = bytes; }
    // They are all in the client's socket.
    bool is_stalled_to_client() const { return to_client_credit_ == 0; }
    void thaw_to_client() { to_client_credit_ = -1; }
    uint64_t bytes_to_server() const { return to_server_; }
    uint64_t bytes_to_client() const { return to_client_; }
    uint64_t connections() const { return connections_; }
    uint64_t cuts() const { return cuts_; }
    // Nothing passes while stalled; connections stay.
    void stall(bool stalls) { stalls_ = stalls; }

  private:
    struct Pair {
        int client = -1;
        int server = -1;
    };
    void run();
    bool forward(int from, int to, std::atomic<int64_t>& left, std::atomic<uint64_t>& total,
                 std::atomic<int64_t>* credit = nullptr);
    void accept_one();

    uint16_t server_port_;
    uint16_t port_ = 0;
    int listener_ = -1;
    std::vector<Pair> pairs_;
    std::atomic<bool> stops_{false};
    std::atomic<bool> stalls_{false};
    std::atomic<int64_t> to_server_left_{-1};
    std::atomic<int64_t> to_client_left_{-1};
    std::atomic<int64_t> to_client_credit_{-1};  // negative: no bound
    std::atomic<uint64_t> to_server_{0};
    std::atomic<uint64_t> to_client_{0};
    std::atomic<uint64_t> connections_{0};
    std::atomic<uint64_t> cuts_{0};
    std::thread thread_;
};

}  // namespace tiffin::rdma_blk::test
