// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A session's requests and answers as reliable SDR messages over UDP, or over UC queue pairs, beside the TCP connection that asked for it and
// with which it ends. Requests land in slots of this path, in whole, and are carried out from there with one copy;
// what has not landed when the session is fenced, or lands later, changes nothing.
//
// The connection's thread calls serve(); answers and the end may come from any thread (SessionPath).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "rdma_blk/server/counters.h"
#include "rdma_blk/server/session_path.h"
#include "rdma_blk/server/volume_session.h"
#include "rdma_blk/session/handshake.h"
#include "rdma_blk/transport/sdr/message_path.h"

namespace tiffin::rdma_blk {

struct DatagramLimits {
    uint16_t port = wire::kDefaultPort;  // 0: any, another one for each path
    uint32_t max_paths = 64;             // of the whole server; 0: none is offered
    uint16_t landing_slots = 16;         // of each path: memory for so many of the largest requests
    size_t held_bytes =
        1 << 20;            // payloads that wait for earlier requests, before no more is taken
    uint32_t drop_ppm = 0;  // for trials: see MessagePathOptions
};

class DatagramPath final : public SessionPath, public std::enable_shared_from_this<DatagramPath> {
  public:
    // `local` and `peer` are the ends of the TCP connection, `keys` those of its handshake, `wake` makes its thread
    // call serve(), from any thread, until close(). `known_packet_bytes`: of the session
    // (VolumeSession::known_packet_bytes()). Errors: enospc (max_paths), enomem, those of sockets.
    static Result<std::shared_ptr<DatagramPath>> create(
        const DatagramLimits& limits, ServerCounters& counters, const sockaddr_in6& local,
        const sockaddr_in6& peer, const TrafficKeys& keys, const wire::DatagramPathEnd& offer,
        uint32_t known_packet_bytes, std::function<void()> wake);
    // Over queue pairs of the device that has this address of the host (IPv4: mapped into IPv6). Takes its time, as memory is
    // registered: not for a thread that serves others. Errors: enospc (max_paths), enomem, those of verbs and of
    // MessagePath::create_uc().
    static Result<std::shared_ptr<DatagramPath>> create_uc(
        const DatagramLimits& limits, ServerCounters& counters, const uint8_t address[16],
        const TrafficKeys& keys, const wire::UcPathEnd& offer, std::function<void()> wake);
    ~DatagramPath() override;

    // This end, for path_joined: wire::DatagramPathEnd, or wire::UcPathEnd.
    ByteSpan end() const { return ByteSpan(end_, end_bytes_); }

    // ---- For its thread ----

    int socket() const { return socket_; }
    uint64_t next_time_ns(uint64_t now_ns) const;
    // Without waiting. True: something has come, or is due, and serve() has to be called.
    bool look(uint64_t now_ns);
    // A bounded turn, without waiting. Errors: eproto (a malformed request; counted), estale (fenced), enodev (the
    // network has failed): the path ends, and the connection with it unless is_dispensable().
    Result<void> serve(uint64_t now_ns, VolumeSession& session);
    bool has_heard() { return std::exchange(has_heard_, false); }
    // Whether a request was handled since the last call.
    bool had_request() { return std::exchange(has_request_, false); }
    // After serve() has failed with enodev or estale: whether only the path ends. The session has ended it, and the
    // connection hears of its own end by itself; or no request has ever come this way, so that the client has them on
    // the stream (its network may carry datagrams in one direction only).
    bool is_dispensable() const { return is_ending_.load() || !has_taken_request_; }
    // From time to time: gives memory back when nothing has come since the last time.
    void tick();
    // Nothing is woken any more, and nothing goes out.
    void close();

    // ---- SessionPath: any thread ----

    void send_response(const wire::Response& response, ByteSpan payload) override;
    void request_ignored() override;
    void end(const wire::Notice* notice) override;
    void send_notice(const wire::Notice& /*notice*/) override {}  // the connection does
    void hold(size_t payload_bytes, size_t answer_bytes) override;
    void release_held(size_t payload_bytes, size_t answer_bytes) override;
    void wake() override;

  private:
    DatagramPath(const DatagramLimits& limits, ServerCounters& counters, std::function<void()> wake)
        : limits_(limits), counters_(counters), wake_(std::move(wake)) {}
    static Result<std::shared_ptr<DatagramPath>> make(const DatagramLimits& limits,
                                                      ServerCounters& counters,
                                                      std::function<void()> wake);
    MessagePathOptions message_options(const TrafficKeys& keys) const;
    template <typename End>
    void begin(const End& end) REQUIRES(mutex_);
    Result<void> serve_turn(uint64_t now_ns, VolumeSession& session);
    Result<void> handle_messages(uint64_t now_ns, VolumeSession& session);
    bool next_message(MessagePath::Message& message) REQUIRES(mutex_);
    Result<void> handle(const MessagePath::Message& message, VolumeSession& session);
    void release_landed(uint64_t now_ns) REQUIRES(mutex_);
    void publish() REQUIRES(mutex_);

    const DatagramLimits limits_;
    ServerCounters& counters_;
    unsigned char end_[sizeof(wire::UcPathEnd)] = {};
    static_assert(sizeof(wire::UcPathEnd) >= sizeof(wire::DatagramPathEnd));
    size_t end_bytes_ = 0;
    bool is_uc_ = false;
    int socket_ = -1;
    bool is_counted_ = false;
    bool has_heard_ = false;
    bool has_request_ = false;
    bool has_taken_request_ = false;
    uint64_t heard_datagrams_ = 0;   // received until the last turn
    uint64_t ticked_datagrams_ = 0;  // received until the last tick
    bool has_given_back_ = true;     // since something was received

    mutable host::Mutex mutex_{host::LockClass::leaf};
    const std::function<void()> wake_;
    std::unique_ptr<MessagePath> messages_ GUARDED_BY(mutex_);
    // Slots of requests that were looked at and that take no further message yet: too much waits.
    std::vector<MessagePath::Message> landed_ GUARDED_BY(mutex_);
    size_t expected_answers_ GUARDED_BY(mutex_) = 0;
    MessagePathStatistics published_ GUARDED_BY(mutex_);
    bool is_broken_ GUARDED_BY(mutex_) = false;
    bool is_closed_ GUARDED_BY(mutex_) = false;
    std::atomic<bool> is_ending_{false};
    std::atomic<size_t> held_bytes_{0};
};

}  // namespace tiffin::rdma_blk
