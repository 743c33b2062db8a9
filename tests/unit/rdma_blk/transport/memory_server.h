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
    // Of the protocol, at most; it has no paths beside a session's first one.
    void set_version(uint8_t version) { version_ = version; }
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
    void refuse_openings(wire::RefusalReason reason, int times, uint64_t epochs = 0);
    // The next resumptions wait, as for a flush to a slow disk, and longer than the server bears with an opening.
    void keep_waiting(int times) { kept_waiting_ = times; }
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
    std::atomic<uint8_t> version_{wire::kHighestVersion};
    std::atomic<int> damaged_reads_{0};
    std::atomic<int> kept_waiting_{0};

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
    uint64_t epochs_after_refusals_ = 0;
    ExecutionCounts counts_;
};

}  // namespace tiffin::rdma_blk::test
