// SPDX-License-Identifier: MIT OR GPL-2.0-only
// One TCP connection: handshake, then a session's opening or a further path of one, then requests. It belongs to
// one thread at a time, which calls serve() and tick(); what other threads do (SessionPath) only queues
// and wakes. Everything is bounded by ConnectionLimits.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rdma_blk/server/counters.h"
#include "rdma_blk/server/datagram_path.h"
#include "rdma_blk/server/output_queue.h"
#include "rdma_blk/server/session_path.h"
#include "rdma_blk/server/unique_descriptor.h"
#include "rdma_blk/server/volume.h"
#include "rdma_blk/session/handshake.h"
#include "rdma_blk/transport/tcp/framing.h"

namespace tiffin::rdma_blk {

class Connection;

struct ConnectionLimits {
    uint8_t highest_version = wire::kHighestVersion;  // of the protocol
    uint64_t handshake_timeout_ns = 5'000'000'000;    // until a session is there
    uint64_t probe_interval_ns = 1'000'000'000;
    uint64_t stall_timeout_ns = 30'000'000'000;
    size_t staging_bytes = (1 << 20) + (64 << 10);
    size_t send_buffer_bytes = 4 << 20;
    DatagramLimits datagrams;
};

// What connections need of the server. Any threads.
class ConnectionHost {
  public:
    virtual const CookieJar& cookies() const = 0;
    virtual const unsigned char* server_uuid() const = 0;
    virtual std::shared_ptr<Volume> find_volume(const char* name) const = 0;
    virtual ServerCounters& counters() = 0;
    // Whether a connection may add to the answers that its client has not read (ServerCounters::unread_answer_bytes).
    virtual bool has_answer_memory() const = 0;
    // What a thread that serves connections must not wait for; another one does it soon, in order, and no kind holds up
    // another. False: too much of it is pending.
    enum class Work : uint8_t {
        lease,         // for the state file
        registration,  // of memory with devices: minutes perhaps
        wait,          // for the end of processes
    };
    virtual bool run_later(Work kind, std::function<void()> work) = 0;
    // Whether a new session may have a connection. `is_reader`: by a reader's key.
    virtual bool has_room(bool is_reader) const = 0;
    // Whether one that is connected may have a further one: that of a reader takes no place of readers that may come back.
    virtual bool has_room_for_more(bool is_reader) const = 0;
    // Whether a reader's session that has no connection may have one again; and connections of readers, which that goes by.
    virtual bool may_reader_return() const = 0;
    virtual void count_reader(int by) = 0;
    // Somebody was turned away: a line for the log, of which there is one in ten seconds.
    virtual void note_refusal(const std::string& line) = 0;

  protected:
    ~ConnectionHost() = default;
};

// Whoever runs connections: makes serve() be called soon. Any threads.
class ConnectionRunner {
  public:
    virtual void wake(std::shared_ptr<Connection> connection) = 0;

  protected:
    ~ConnectionRunner() = default;
};

class Connection final : public SessionPath,
                         private VolumeKeys,
                         public std::enable_shared_from_this<Connection> {
  public:
    // `peer_address`: bytes that name the peer, at most 64. Errors: enomem.
    static Result<std::shared_ptr<Connection>> create(ConnectionHost& host,
                                                      const ConnectionLimits& limits,
                                                      UniqueDescriptor socket,
                                                      std::vector<unsigned char> peer_address,
                                                      uint64_t now_ns);
    ~Connection() override;

    int socket() const { return socket_.get(); }
    // Of a Unix socket, before the first serve(): whose sessions may have the memory itself.
    void set_peer_process(std::shared_ptr<PeerProcess> process) { process_ = std::move(process); }

    // ---- For its thread ----

    // Reads, answers and sends, in a bounded turn and without waiting. False: it is over; close() comes next.
    [[nodiscard]] bool serve(uint64_t now_ns);
    // Timers. False: it is over.
    [[nodiscard]] bool tick(uint64_t now_ns);
    // After serve(): what to wait for, and whether there is more to do at once.
    bool wants_read() const;
    bool wants_write() const;
    bool has_more() const { return has_more_; }
    // Its path of datagrams, if it has one: what to wait for (-1: nothing), until when (~0: for ever), and what to do
    // then. False: it is over.
    int datagram_socket() const { return datagrams_ ? datagrams_->socket() : -1; }
    // Of the present path: another one may have the same socket's number.
    uint32_t datagram_path_number() const { return datagrams_ ? datagram_path_number_ : 0; }
    uint64_t datagram_time_ns(uint64_t now_ns) const;
    // Whether something has come there, or is due: then serve_datagrams() has to be called.
    bool look_at_datagrams(uint64_t now_ns) { return datagrams_ && datagrams_->look(now_ns); }
    [[nodiscard]] bool serve_datagrams(uint64_t now_ns);
    // Whether it has not shown the volume's key yet, or has done nothing else.
    bool is_stranger() const { return !is_attached(); }
    // See create().
    const std::vector<unsigned char>& peer_address() const { return peer_address_; }
    // Whether it belongs to a session, so that a data thread may have it.
    bool is_attached() const { return session_ != nullptr; }
    void set_runner(ConnectionRunner* runner) { runner_.store(runner); }
    ConnectionRunner* runner() const { return runner_.load(); }
    // Leaves its session.
    void close();

    // ---- SessionPath: any thread ----

    void send_response(const wire::Response& response, ByteSpan payload) override;
    void end(const wire::Notice* notice) override;
    void send_notice(const wire::Notice& notice) override;
    void hold(size_t payload_bytes, size_t answer_bytes) override;
    void release_held(size_t payload_bytes, size_t answer_bytes) override;
    void wake() override;

  private:
    enum class State : uint8_t { hello, proof, authenticated, attached };

    // A control message that cannot be answered yet: earlier requests are still being executed.
    struct Deferred {
        wire::MessageType type = wire::MessageType::probe;  // probe: none
        wire::SessionOpen open{};
        wire::SessionClose close{};
        std::vector<unsigned char> payload;
    };

    Connection(ConnectionHost& host, const ConnectionLimits& limits, UniqueDescriptor socket,
               std::vector<unsigned char> peer_address, uint64_t now_ns);

    bool serve_turn(uint64_t now_ns);
    void note_turn(uint64_t began_ns);
    bool has_progress();
    bool show_life(uint64_t now_ns);
    Result<void> read_turn(uint64_t now_ns);
    Result<void> on_message(uint64_t now_ns);
    Result<void> on_whole(uint64_t now_ns);
    Result<void> place_payload();
    Result<void> on_client_hello(uint64_t now_ns);
    Result<void> on_client_proof();
    Result<void> on_session_message(uint64_t now_ns);
    Result<void> on_request_head();
    Result<void> on_request();
    Result<void> on_path_join(uint64_t now_ns);
    Result<void> on_path_recover();
    Result<void> on_rc_join();
    void answer_rc_join(const wire::PathJoin& join, const wire::RcPathOffer& offer,
                        const std::shared_ptr<Volume>& volume,
                        const std::shared_ptr<VolumeSession>& session);
    Result<void> on_attached_path_join();
    Result<void> on_datagram_join();
    Result<void> on_uc_join();
    void make_uc_path(const wire::UcPathEnd& offer, const TrafficKeys& keys,
                      const DatagramLimits& limits);
    Result<void> adopt_uc_path();
    Result<void> answer_datagram_join(Result<std::shared_ptr<DatagramPath>> made);
    std::function<void()> datagram_wake();
    void end_datagrams();
    Result<void> on_memory_request();
    Result<void> on_lease_request(uint64_t now_ns);
    void ask_for_lease(uint8_t flags, uint64_t now_ns, uint64_t deadline_ns,
                       const std::shared_ptr<Volume>& volume,
                       const std::shared_ptr<VolumeSession>& session);
    Result<void> on_probe();
    Result<void> answer_deferred(uint64_t now_ns);
    bool find_room(bool has_room);
    void attach();
    DatagramLimits datagram_limits() const;
    Result<void> open_session(uint64_t now_ns);
    Result<void> try_when_gone(std::shared_ptr<PeerProcess> process);
    Result<void> close_session();
    bool find_key(const char* volume_name, Secret<kVolumeKeyBytes>& key) const override;
    void count_failure(Error error);
    void note_denied();
    void send_output() REQUIRES(mutex_);
    void note_queued() REQUIRES(mutex_);
    bool may_read() const;
    ByteSpan payload() const { return ByteSpan(staging_.get(), payload_bytes_); }

    template <typename T>
    Result<void> reply(wire::MessageType type, const T& fixed, ByteSpan payload = ByteSpan()) {
        MutexLock lock(mutex_);
        const Result<void> added = output_.add(type, fixed, payload);
        note_queued();
        return added;
    }

    ConnectionHost& host_;
    const ConnectionLimits limits_;
    UniqueDescriptor socket_;
    const std::vector<unsigned char> peer_address_;
    uint8_t local_address_[16] = {};  // IPv4 mapped into IPv6
    const uint64_t accepted_ns_;
    std::shared_ptr<PeerProcess> process_;
    std::atomic<ConnectionRunner*> runner_{nullptr};

    // Its thread's only.
    State state_ = State::hello;
    bool was_retried_ = false;
    std::unique_ptr<MessageReader> reader_;
    std::unique_ptr<HandshakeServer> handshake_;
    std::unique_ptr<Seal> open_seal_;
    // Whose key the handshake uses: another volume may have the name before it is over.
    mutable std::shared_ptr<Volume> volume_;
    mutable std::string asked_volume_;  // printable
    std::shared_ptr<VolumeSession> session_;
    std::shared_ptr<DatagramPath> datagrams_;
    uint32_t datagram_path_number_ = 0;
    wire::Request request_{};     // whose payload is being received
    wire::PathJoin path_join_{};  // the same
    wire::PathRecover path_recover_{};
    uint16_t path_id_ = 0;
    std::unique_ptr<unsigned char[]> staging_;
    size_t staging_capacity_ = 0;
    size_t payload_bytes_ = 0;
    bool has_more_ = false;
    bool was_stopped_ = false;   // the last turn of reading, by may_read()
    size_t answered_bytes_ = 0;  // in this turn, by the thread that serves it
    bool has_request_ = false;   // came in this turn
    Deferred deferred_;
    uint64_t last_received_ns_;
    uint64_t probe_sent_ns_ = 0;  // 0: none is unanswered
    int64_t acknowledged_bytes_ = 0;
    uint64_t next_probe_id_ = 1;
    uint64_t shown_ns_ = 0;      // that this end lives, while it does not read
    uint64_t last_progress_ns_;  // of sending, or when there was nothing to send
    uint64_t ended_ns_ = 0;      // since when ending_ is known; 0: it is not
    bool counts_as_reader_ = false;

    // Of the threads that answer.
    mutable host::Mutex mutex_{host::LockClass::leaf};
    OutputQueue output_ GUARDED_BY(mutex_);
    std::unique_ptr<Seal> seal_ GUARDED_BY(mutex_);
    bool broken_ GUARDED_BY(mutex_) = false;
    uint64_t sent_bytes_ GUARDED_BY(mutex_) = 0;
    uint64_t seen_sent_bytes_ = 0;  // its thread's
    // Made by the thread for such work, and not looked at yet.
    std::shared_ptr<DatagramPath> made_path_ GUARDED_BY(mutex_);
    Error made_path_error_ GUARDED_BY(mutex_) = Error{};
    std::atomic<bool> has_made_path_{false};
    std::atomic<bool> ending_{false};
    std::atomic<bool> lease_pending_{false};
    std::atomic<bool> path_pending_{false};
    std::atomic<bool> retry_deferred_{false};
    std::atomic<bool> datagrams_woken_{false};
    std::atomic<size_t> queued_bytes_{0};
    std::atomic<size_t> held_payload_bytes_{0};
    std::atomic<size_t> held_answer_bytes_{0};
};

}  // namespace tiffin::rdma_blk
