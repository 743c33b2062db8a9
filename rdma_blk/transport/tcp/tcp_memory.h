// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Remote memory over a stream socket: the client's side, and for transports with a path of their own for reads and
// writes (one_sided.h) the session. Requests go out from a thread that submits, with one system call for all that were
// submitted meanwhile; answers are received by one of the threads that wait (the leader), in its own recv().
// docs/remote.md, "tcp", says why.
//
// Who does what, and under which lock:
//   - mutex_ guards everything but receiving. Requests are sent under it, without blocking. Who submits does not
//     wait for it: what it puts into inbox_ is sent by who has the lock, in leave(), by which all let go of it.
//     leave() also calls the `complete` functions of what has completed meanwhile, without the lock.
//   - The lead (has_leader_) is the right to receive and to destroy the connection. Its holder receives
//     without mutex_, straight into callers' buffers, and takes mutex_ to look at what came. So a buffer is
//     given back only by who may write it.
//   - The session's thread (tcp_thread.cc) sleeps while others lead, but for a look now and then. It
//     leads for operations with a `complete` function when nobody waits, sends what was kept for too long
//     (Operation::more_follows), watches deadlines and the server's silence, and reconnects.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fs/vfs/host.h"
#include "rdma_blk/remote_memory.h"
#include "rdma_blk/session/request_slots.h"
#include "rdma_blk/session/sent_requests.h"
#include "rdma_blk/session/session_machine.h"
#include "rdma_blk/transport/busy_poll.h"
#include "rdma_blk/transport/one_sided.h"
#include "rdma_blk/transport/open.h"
#include "rdma_blk/transport/operation_batch.h"
#include "rdma_blk/transport/operation_inbox.h"
#include "rdma_blk/transport/operation_waiters.h"
#include "rdma_blk/transport/request_path.h"
#include "rdma_blk/transport/session_opening.h"
#include "rdma_blk/transport/tcp/stream_path.h"
#include "rdma_blk/transport/way_choice.h"

namespace tiffin::rdma_blk {

// What makes it the stream of another transport.
struct StreamExtension {
    std::string socket_path;            // of a Unix socket; empty: TCP
    OneSidedPath* one_sided = nullptr;  // must live until close()
    // Makes another way for requests of a link, by its place in the address; nullptr: it takes the stream. Not beside a
    // one-sided path.
    std::function<std::shared_ptr<RequestPath>(size_t link)> make_requests = nullptr;
    // They take it where that measures better; else wherever it comes up. Not with several links: a session that gets a second
    // one stays with its streams.
    std::optional<WayChoice::Options> measured = std::nullopt;
    const char* transport_reason = "";  // for ConnectionInfo; of static storage
};

class TcpMemory final : public RemoteMemory, private Patience {
  public:
    // See open_remote_memory(). `user` may be nullptr, and lives until close().
    static Result<std::unique_ptr<TcpMemory>> open(const RemoteAddress& address,
                                                   const OpenOptions& options,
                                                   ConnectionListener* listener, Holder& holder,
                                                   std::string& problem,
                                                   OneSidedUser* user = nullptr,
                                                   const StreamExtension& extension = {});
    ~TcpMemory() override;

    // Waits until the server has answered the path_join of the one-sided path. Errors: eopnotsupp (it, or the
    // path itself, said no), etimedout, estale (the session has ended).
    Result<void> wait_until_joined(uint64_t deadline_ns) EXCLUDES(mutex_);
    // Whether submitted operations have not completed yet.
    bool has_pending() const EXCLUDES(mutex_);

    const Geometry& geometry() const override { return geometry_; }
    const Limits& limits() const override { return limits_; }
    ConnectionInfo connection() const override EXCLUDES(mutex_);
    Statistics statistics() const override EXCLUDES(mutex_);
    void submit(Operation& first) override EXCLUDES(mutex_);
    void send_gathered() override EXCLUDES(mutex_);
    void wait(Operation& operation) override EXCLUDES(mutex_);
    bool help(const std::atomic<uint32_t>& count, uint32_t seen) override EXCLUDES(mutex_);
    size_t progress() override EXCLUDES(mutex_);
    Result<void> add_arena(MutableByteSpan memory) override;  // nothing to register
    Result<void> start_writing(bool force, Holder& holder) override EXCLUDES(mutex_);
    uint64_t change_mark() const override EXCLUDES(mutex_);
    void changes_flushed(uint64_t mark) override EXCLUDES(mutex_);
    Result<void> add_link(const char* host, uint16_t port) override EXCLUDES(mutex_);
    Result<void> remove_link(const char* host, uint16_t port) override EXCLUDES(mutex_);
    void close() override EXCLUDES(mutex_);

    // ---- For a OneSidedUser ----

    // Asks for a path beside the connection of a link, and waits for the answer; one call at a time for each link. Errors:
    // eagain (the connection broke, or there is none now), estale (the session has ended), etimedout, ecanceled (by
    // `patience`, which is asked without a lock).
    Result<PathAnswer> join_path(size_t link, wire::PathTransport transport, ByteSpan parameters,
                                 Patience& patience) EXCLUDES(mutex_);
    LinksView links() const EXCLUDES(mutex_);
    // Of several: ends one whose stream is well, but beside which no path can be had; not where no other one is ready, nor
    // another connection than that of `ended_count` (LinksView).
    void give_link_up(size_t link, uint32_t ended_count) EXCLUDES(mutex_);
    // What is expected has not come for some milliseconds.
    void watch_links() {
        is_late_beside_.store(true);
        poke();
    }
    // session_flag of the latest session_opened.
    uint16_t session_flags() const EXCLUDES(mutex_);
    uint32_t probe_interval_ms() const EXCLUDES(mutex_);

  private:
    // While threads lead for themselves, the socket is not watched, as each answer would wake the thread, too. Then an
    // operation that nobody waits for is found after this time at most; so is what is kept in the inbox.
    static constexpr uint64_t kLookNs = 20'000'000;
    // The same while threads help(): more often, as those who do not wait for themselves depend on it.
    static constexpr uint64_t kHelpedLookNs = 1'000'000;
    // What it finds kept, it leaves alone for so long.
    static constexpr uint64_t kKeptNs = 200'000;
    static_assert(kLookNs + kKeptNs < uint64_t{kMostGatherMs} * 1'000'000);
    // A thread that submits may set a timer of the path of requests that who receives, asleep, does not know of: so
    // long he sleeps at most.
    static constexpr uint64_t kLongestPathSleepNs = 10'000'000;

    // What this transport keeps beside a slot.
    struct SlotNote {
        uint64_t message = 0;  // MessageWriter::added_count() behind its request
        uint64_t round = 0;    // of sending
        uint64_t sent_ns = 0;  // of requests with a mark
        uint32_t mark = 0;     // of a trial, see WayChoice
        bool is_on_path = false;
        bool is_repeated = false;  // sent more than once
        uint8_t stream = 0;        // of paths_, on which it went out last
        uint64_t sequence = 0;     // over a stream
    };
    struct Lease {
        bool is_wanted = false;
        bool is_sent = false;
        bool is_answered = false;
        bool force = false;
        wire::LeaseReply reply{};
    };
    // All owners of mutex_ let go of it by leave(), and so do those who only ask something.
    class SCOPED_CAPABILITY Locked {
      public:
        explicit Locked(const TcpMemory& memory) ACQUIRE(memory.mutex_)
            : memory_(const_cast<TcpMemory&>(memory)) {
            memory_.mutex_.lock();
        }
        ~Locked() RELEASE() { memory_.leave(); }
        Locked(const Locked&) = delete;
        Locked& operator=(const Locked&) = delete;

      private:
        TcpMemory& memory_;
    };

    TcpMemory(const RemoteAddress& address, const OpenOptions& options,
              ConnectionListener* listener, OneSidedUser* user, const StreamExtension& extension);

    // ---- tcp_memory.cc: the caller's side ----
    Result<void> prepare(uint16_t slot_count);
    Result<Socket> connect(size_t link, uint64_t deadline_ns, Patience& patience,
                           std::string& problem);
    Result<void> connect_first(size_t link, uint64_t deadline_ns, std::string& problem);
    Result<void> connect_first_of_all(uint64_t deadline_ns, std::string& problem);
    Result<void> open_first(Holder& holder, std::string& problem) EXCLUDES(mutex_);
    ConnectionInfo present_info() const REQUIRES(mutex_);
    PathStatus path_status(size_t index) const REQUIRES(mutex_);
    void note_inherited(bool is_unflushed) REQUIRES(mutex_);
    bool has_flushed_all() const REQUIRES(mutex_);
    uint64_t all_changes() const REQUIRES(mutex_);
    // ---- tcp_submit.cc: in and out ----
    void put(Operation& first, bool more_follows) EXCLUDES(mutex_);
    void send_inbox() EXCLUDES(mutex_);
    void take_inbox() REQUIRES(mutex_);
    bool is_kept_too_long();
    void start_batches(Operation& first) REQUIRES(mutex_);
    uint64_t add_batch(Operation& first) REQUIRES(mutex_);
    void note_flush(const OperationQueue& batch) REQUIRES(mutex_);
    void poke_after_submit(uint64_t earliest_deadline_ns) REQUIRES(mutex_);
    void leave() RELEASE(mutex_);
    void wait_for_change() REQUIRES(mutex_);
    // ---- tcp_one_sided.cc ----
    void want_join(StreamPath& path) REQUIRES(mutex_);
    void send_join(StreamPath& path) REQUIRES(mutex_);
    void reset_join(StreamPath& path) REQUIRES(mutex_);
    Result<void> wait_for_join(uint64_t deadline_ns) REQUIRES(mutex_);
    bool is_joining() const REQUIRES(mutex_);
    // ---- tcp_user.cc ----
    bool is_asking_for_path() const REQUIRES(mutex_);
    void tell_user_of_links() const REQUIRES(mutex_);
    void stop_one_sided() REQUIRES(mutex_);
    // ---- tcp_requests.cc: requests on a path of their own beside each stream; those of paths_[at_] need the lead ----
    bool makes_requests() const REQUIRES(mutex_) { return makes_requests_; }
    // Whether the next request that takes this link goes there.
    bool takes_request_path(const StreamPath& path) const REQUIRES(mutex_);
    static Result<size_t> offer_request_path(StreamPath& path, MutableByteSpan parameters);
    void finish_request_join(StreamPath& path) REQUIRES(mutex_);
    void leave_request_path(StreamPath& path) REQUIRES(mutex_);
    void stop_requests(StreamPath& path) REQUIRES(mutex_);
    void note_who_sums_up() REQUIRES(mutex_);
    uint64_t next_request_path_ns(uint64_t now_ns) const REQUIRES(mutex_);
    void receive_from_all() REQUIRES(mutex_);
    bool meets_answer() REQUIRES(mutex_);
    bool receive_from_path() REQUIRES(mutex_);
    void serve_request_path() REQUIRES(mutex_);
    void look_at_answers() REQUIRES(mutex_);
    // ---- tcp_way.cc: which way, where that is measured ----
    void watch_stream(uint64_t now_ns) REQUIRES(mutex_);
    void note_way(const wire::Request& request, const Operation& operation, bool takes_path)
        REQUIRES(mutex_);
    void note_answer(SlotNote& note, const Operation& operation) REQUIRES(mutex_);
    bool is_request_path_resting() const REQUIRES(mutex_);
    void serve_resting_path() REQUIRES(mutex_);
    Result<void> handle_path_answers() REQUIRES(mutex_);
    Result<void> handle_path_answer(const RequestPath::Answer& answer) REQUIRES(mutex_);
    void lead(const Operation& operation) REQUIRES(mutex_);
    bool is_found_soon() const REQUIRES(mutex_);
    void receive_round() REQUIRES(mutex_);
    void pass_lead(bool comes_back) REQUIRES(mutex_);
    bool must_say_goodbye() const REQUIRES(mutex_);
    void wait_to_say_goodbye(uint64_t deadline_ns) REQUIRES(mutex_);
    void say_goodbye() REQUIRES(mutex_);

    // ---- tcp_messages.cc: the connection's side ----
    void send_queued() REQUIRES(mutex_);
    void send_request(wire::Request& request, Operation& operation, size_t index) REQUIRES(mutex_);
    void flush_output(StreamPath& path) REQUIRES(mutex_);
    template <typename T>
    bool send_control(wire::MessageType type, const T& message, ByteSpan payload = ByteSpan())
        REQUIRES(mutex_) {
        return send_on(active(), type, message, payload);
    }
    template <typename T>
    bool send_on(StreamPath& path, wire::MessageType type, const T& message,
                 ByteSpan payload = ByteSpan()) REQUIRES(mutex_);
    // These need the lead.
    Result<size_t> receive_once(int flags) REQUIRES(mutex_);
    Result<size_t> receive_patiently() REQUIRES(mutex_);
    void handle_received(const Result<size_t>& received) REQUIRES(mutex_);
    Result<void> handle_messages() REQUIRES(mutex_);
    Result<void> handle_message() REQUIRES(mutex_);
    Result<void> handle_response() REQUIRES(mutex_);
    Result<void> handle_payload() REQUIRES(mutex_);
    Result<void> handle_probe() REQUIRES(mutex_);
    Result<void> handle_probe_reply() REQUIRES(mutex_);
    Result<void> handle_notice() REQUIRES(mutex_);
    Result<void> handle_path_joined() REQUIRES(mutex_);
    void finish_path_question(StreamPath& path, bool is_lost) REQUIRES(mutex_);
    Result<void> handle_one_sided_joined() REQUIRES(mutex_);
    void finish_join() REQUIRES(mutex_);
    uint32_t sum_up(const Operation& operation) REQUIRES(mutex_);
    void finish_operation(Operation& operation, const wire::Response& response) REQUIRES(mutex_);
    void abort_connection() REQUIRES(mutex_);
    void break_connection() REQUIRES(mutex_);
    void end_session(ConnectionState state, Error error) REQUIRES(mutex_);
    void set_state(ConnectionState state) REQUIRES(mutex_);

    // ---- tcp_paths.cc: several links ----
    bool has_several() const REQUIRES(mutex_) { return has_several_; }
    StreamPath& active() REQUIRES(mutex_) { return paths_[machine_.active()]; }
    // With the lead: the one whose messages are being handled. With one link it is that.
    ClientConnection& stream() const { return *paths_[at_].connection; }
    void abort_path(StreamPath& path) REQUIRES(mutex_);
    // These need the lead.
    // Of a link with a fault, and of one that is given up on purpose; `why` goes to the log.
    void fail_path(size_t index, const std::string& why) REQUIRES(mutex_);
    // For the log: of which volume, and where it leads.
    std::string link_text(size_t index) const REQUIRES(mutex_);
    bool is_left_at_end(size_t index) const REQUIRES(mutex_);
    void give_path_up(size_t index, const char* why) REQUIRES(mutex_);
    void end_path_now(size_t index) REQUIRES(mutex_);
    static constexpr const char* kNoDatagrams = "no datagrams come through any more";
    // That of paths_[at_], on which something came that should not, or which does not carry what it should.
    void end_path(const char* why = "what came over it cannot be understood") REQUIRES(mutex_) {
        has_several() ? fail_path(at_, why) : abort_connection();
    }
    void close_path(StreamPath& path) REQUIRES(mutex_);
    void note_segments(size_t index, bool was_silent, bool is_sure = false) REQUIRES(mutex_);
    void close_paths() REQUIRES(mutex_);
    void serve_paths() REQUIRES(mutex_);
    void act(const SessionMachine::Action& action) REQUIRES(mutex_);
    static uint32_t repeated_packets(const StreamPath& path);
    void send_probe(size_t index) REQUIRES(mutex_);
    void look_for_life(size_t index, uint64_t now_ns) REQUIRES(mutex_);
    static void note_stream_heard(StreamPath& path, uint64_t now_ns);
    bool has_lost_datagrams(size_t index, uint64_t now_ns) REQUIRES(mutex_);
    bool take_unread(size_t index) REQUIRES(mutex_);
    void ask_about(const SessionMachine::Action& action) REQUIRES(mutex_);
    Result<void> handle_path_recovered() REQUIRES(mutex_);
    Result<void> finish_path_recovered() REQUIRES(mutex_);
    Result<void> end_sending_on_streams(const wire::Response& response) REQUIRES(mutex_);
    void stop_receiving(size_t index) REQUIRES(mutex_);
    void end_other_receiving(const Operation& operation) REQUIRES(mutex_);
    void end_other_sending(uint16_t slot) REQUIRES(mutex_);
    bool spreads() const REQUIRES(mutex_) {
        return has_several_ && user_ == nullptr && address_.link_policy == LinkPolicy::spread;
    }
    uint32_t links_with_room(uint64_t now_ns) const REQUIRES(mutex_);
    // ---- tcp_path_receiving.cc ----
    static void set_up(const StreamPath& path);
    bool must_watch_all() const REQUIRES(mutex_);
    bool has_request_path_in_use() const REQUIRES(mutex_);
    // Of fill_poll(): for each link its stream and, where there are such, its path of requests.
    static constexpr size_t kMaxPolled = 2 * SessionMachine::kMaxPaths;
    size_t polled_per_path() const REQUIRES(mutex_) { return makes_requests() ? 2 : 1; }
    void receive_from_paths() REQUIRES(mutex_);
    void look_at_paths(const pollfd* ready) REQUIRES(mutex_);
    void flush_waiting(const pollfd* ready) REQUIRES(mutex_);
    size_t fill_poll(pollfd* ready, bool receives) REQUIRES(mutex_);
    // ---- tcp_linker.cc ----
    static void run_linker(void* memory);
    void link_paths() EXCLUDES(mutex_);
    void make_path(size_t index) EXCLUDES(mutex_);
    Result<void> join_stream(size_t index, const SessionFacts& facts, Patience& patience,
                             std::string& problem) EXCLUDES(mutex_);
    void tell_of_failure(size_t index, const std::string& problem) REQUIRES(mutex_);
    bool may_link(uint32_t incarnation) EXCLUDES(mutex_);
    // ---- tcp_links.cc ----
    Result<void> get_several(const char* host, uint16_t port) EXCLUDES(mutex_);
    void become_several() REQUIRES(mutex_);
    size_t find_link(const char* host, uint16_t port) const REQUIRES(mutex_);
    bool is_removed(size_t index) const REQUIRES(mutex_) {
        return machine_.state(index) == SessionMachine::PathState::removed;
    }

    // ---- tcp_thread.cc ----
    static void run_thread(void* memory);
    void run() EXCLUDES(mutex_);
    void serve_ready(uint64_t now_ns) REQUIRES(mutex_);
    bool should_receive(uint64_t now_ns) REQUIRES(mutex_);
    bool is_path_idle(uint64_t now_ns) const REQUIRES(mutex_);
    uint64_t next_look_after(uint64_t now_ns, bool receives) const REQUIRES(mutex_);
    void watch_deadlines(uint64_t now_ns) REQUIRES(mutex_);
    void watch_silence(uint64_t now_ns) REQUIRES(mutex_);
    // What came, on the stream and on the path of requests, where there is one link.
    struct Events {
        short stream = 0;
        short path = 0;
    };
    Events sleep_until(uint64_t time_ns, Events wanted) REQUIRES(mutex_);
    void look_and_sleep(pollfd* ready, size_t count, uint64_t time_ns, bool looks_first)
        EXCLUDES(mutex_);
    void reconnect(uint64_t now_ns) REQUIRES(mutex_);
    Result<void> connect_again(size_t link, uint64_t connect_deadline_ns, uint64_t deadline_ns)
        EXCLUDES(mutex_);
    Result<void> try_session() REQUIRES(mutex_);
    Result<void> adopt(const wire::SessionOpened& opened) REQUIRES(mutex_);
    Result<void> handle_refusal(const wire::SessionRefused& refused) REQUIRES(mutex_);
    SessionFacts facts_now() const REQUIRES(mutex_);
    bool is_same_volume(const wire::SessionOpened& opened) const;
    uint64_t executed_count() const REQUIRES(mutex_);
    bool has_got_nowhere(uint64_t now_ns) const REQUIRES(mutex_);
    bool is_reconnection_late(uint64_t now_ns) const REQUIRES(mutex_);
    void poke();
    bool go_on() override EXCLUDES(mutex_);

    // Copies of what the caller gave; options_ points to the texts.
    RemoteAddress address_;
    std::string volume_name_;
    std::string holder_text_;
    OpenOptions options_;
    ConnectionListener* listener_;
    OneSidedUser* user_;
    const StreamExtension extension_;

    mutable host::Mutex mutex_{host::LockClass::leaf};
    OperationInbox inbox_;
    // Threads in a Condition's wait, which lets go of the lock without leave().
    std::atomic<uint32_t> silent_unlocks_{0};
    // The thread will look at the inbox within kLookNs.
    std::atomic<bool> is_thread_looking_{false};
    host::Condition lease_changed_;  // or the answer about a path
    Geometry geometry_;              // but for data_bytes, fixed
    Limits limits_;
    OperationQueue completed_ GUARDED_BY(mutex_);  // to be handed back
    std::unique_ptr<RequestSlots> slots_ GUARDED_BY(mutex_);
    std::vector<SlotNote> notes_ GUARDED_BY(mutex_);
    std::optional<WayChoice> choice_ GUARDED_BY(mutex_);  // of StreamExtension::measured
    size_t path_pending_ GUARDED_BY(mutex_) = 0;  // requests on the path of requests, with choice_
    uint64_t path_served_ns_ GUARDED_BY(mutex_) = 0;  // when it was, while it rested
    // One for each link, in the order of the address, and then those that were added: there is room for all, none moves.
    // See StreamPath for who may use what.
    std::vector<StreamPath> paths_;
    std::vector<RemoteAddress::Link> links_;  // their addresses; one that is in use does not change
    bool has_several_ GUARDED_BY(mutex_);     // or may get more
    bool wants_several_ GUARDED_BY(mutex_) = false;  // from the next incarnation on
    bool makes_requests_ GUARDED_BY(mutex_);
    const char* transport_reason_ GUARDED_BY(mutex_);
    size_t at_ = 0;  // with the lead, or while there is no connection: of paths_
    SessionMachine machine_ GUARDED_BY(mutex_);
    std::unique_ptr<SentRequests> sent_ GUARDED_BY(mutex_);
    wire::PathRecovered recovered_ GUARDED_BY(mutex_){};  // whose payload is on its way
    uint64_t looked_at_all_ns_ GUARDED_BY(mutex_) = 0;    // paths
    bool was_silent_ GUARDED_BY(mutex_) = false;  // the active path, when who led slept on it
    uint16_t next_path_id_ GUARDED_BY(mutex_) = 1;
    size_t first_link_ GUARDED_BY(mutex_) = 0;  // that is tried to reconnect
    uint8_t version_ GUARDED_BY(mutex_) = 0;    // of the protocol, in this incarnation
    Secret<kSealKeyBytes> session_secret_ GUARDED_BY(mutex_);
    host::Thread linker_;  // makes connections of further links
    host::Semaphore link_wanted_;
    std::vector<wire::OutstandingEntry> entries_;
    std::vector<unsigned char> outcomes_;
    ConnectionState state_ GUARDED_BY(mutex_) = ConnectionState::connecting;
    SessionFacts facts_ GUARDED_BY(mutex_);
    Lease lease_ GUARDED_BY(mutex_);
    uint16_t session_flags_ GUARDED_BY(mutex_) = 0;
    bool is_broken_ GUARDED_BY(mutex_) = false;  // aborted; whoever leads will destroy it
    bool is_closed_by_server_ GUARDED_BY(mutex_) = false;

    bool has_leader_ GUARDED_BY(mutex_) = false;
    uint64_t lead_count_ GUARDED_BY(mutex_) = 0;
    OperationWaiters waiters_ GUARDED_BY(mutex_);
    // Requests take a path whose datagrams are summed up one by one. Read without the lock; to be wrong costs time only.
    std::atomic<bool> takes_datagrams_{false};
    std::atomic<bool> is_late_beside_{false};  // watch_links() was called
    uint32_t looks_ GUARDED_BY(mutex_) = 0;    // at answers, since the stream was looked at
    BusyPoll busy_poll_;                       // with the lead
    BusyPoll thread_poll_;                     // the thread's
    uint64_t kept_since_ns_ =
        0;  // the thread's: when it found what is kept in the inbox; 0: nothing
    uint64_t receive_calls_ GUARDED_BY(mutex_) = 0;  // that received something

    // A change is a write or atomic that was executed. A flush of everything covers the changes that were
    // executed when it was submitted, and those it is ordered behind; see also changes_flushed().
    uint64_t change_count_ GUARDED_BY(mutex_) = 0;
    uint64_t flushed_count_ GUARDED_BY(mutex_) = 0;

    uint64_t send_round_ GUARDED_BY(mutex_) = 0;
    uint64_t counted_round_ GUARDED_BY(mutex_) = 0;
    Statistics statistics_ GUARDED_BY(mutex_);

    host::Thread thread_;
    int event_ = -1;  // wakes the thread
    bool is_stopping_ GUARDED_BY(mutex_) = false;
    bool is_closing_ GUARDED_BY(mutex_) = false;
    bool has_said_goodbye_ GUARDED_BY(mutex_) = false;
    bool is_thread_receiving_ GUARDED_BY(mutex_) = false;  // it watches the socket
    uint64_t next_look_ns_ GUARDED_BY(mutex_) = 0;
    uint64_t seen_lead_count_ GUARDED_BY(mutex_) = 0;
    uint64_t led_ns_ GUARDED_BY(mutex_) = 0;
    bool has_callbacks_ GUARDED_BY(mutex_) = false;      // were pending when the thread looked last
    bool expects_callbacks_ GUARDED_BY(mutex_) = false;  // then or the time before
    bool has_helper_ GUARDED_BY(mutex_) = false;         // since then somebody has called help()
    bool had_helper_ GUARDED_BY(mutex_) = false;         // between the last two times
    uint64_t probe_interval_ns_ GUARDED_BY(mutex_) = 0;
    uint64_t next_probe_id_ GUARDED_BY(mutex_) = 1;
    uint64_t heard_calls_ GUARDED_BY(mutex_) = 0;  // receive_calls_ when last looked
    // While it reconnects: the server has proved the key in this attempt, and is asked for the session. It has the question,
    // and does not answer: it waits for a flush of the session to end.
    bool is_opening_ GUARDED_BY(mutex_) = false;
    bool is_kept_waiting_ GUARDED_BY(mutex_) = false;
    // Since when the server says that nobody has written meanwhile, and that this writer shall wait for a reader; 0: it does not.
    uint64_t held_since_ns_ GUARDED_BY(mutex_) = 0;
    // When the session left `ready`, or was kept waiting last, or, when nothing has been executed since, an earlier time when it did.
    uint64_t lost_ns_ GUARDED_BY(mutex_) = 0;
    // How much had been executed when it became ready with something pending; kNothingPending: without.
    static constexpr uint64_t kNothingPending = UINT64_MAX;
    uint64_t executed_before_ GUARDED_BY(mutex_) = kNothingPending;
    uint64_t ready_ns_ GUARDED_BY(mutex_) = 0;  // when it became ready
    uint32_t attempts_ GUARDED_BY(mutex_) = 0;  // failed, since then
    uint64_t next_attempt_ns_ GUARDED_BY(mutex_) = 0;
};

}  // namespace tiffin::rdma_blk
