// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Remote memory over RDMA, Reliable Connected: reads and writes are posted to a queue pair and carried out by the server's
// network card in windows that are this session's alone. Beside it is a TcpMemory (control_): it has the session, leases and
// probes, resumes the session after a break, and takes flushes and atomics as requests. docs/remote.md, "rc", says why.
//
// Who does what, and under which lock:
//   - mutex_ guards everything but polling. Work is posted under it; nothing else is locked while it is held, so what
//     goes to control_ is handed over after it has been let go.
//   - The lead (has_leader_) is the right to poll the completion queue and to destroy the queue pair. One of the
//     waiting threads has it and polls for all; a little while without sleeping, then with the device's events.
//   - The path (queue pair and windows) ends with any error, with control_'s connection, and when rights or sizes change.
//     The thread (rc_thread.cc) gets another one (rc_paths.cc), and reads the completion log (wire::CompletionLog) over it:
//     the server has ended the earlier one by then. It also watches deadlines, completes what control_ has done, and polls
//     when operations have a `complete` function and nobody waits.
//   - With several links there is a path for each, of which one is used. Another thread (rc_standby.cc) makes the others, so
//     that nothing is built when a link fails.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fs/vfs/host.h"
#include "rdma_blk/remote_memory.h"
#include "rdma_blk/session/one_sided_queue.h"
#include "rdma_blk/transport/open.h"
#include "rdma_blk/transport/operation_batch.h"
#include "rdma_blk/transport/operation_waiters.h"
#include "rdma_blk/transport/rc/bounce_pool.h"
#include "rdma_blk/transport/tcp/tcp_memory.h"
#include "rdma_blk/transport/verbs/verbs.h"

namespace tiffin::rdma_blk {

class RcMemory final : public RemoteMemory,
                       private ConnectionListener,
                       private OneSidedUser,
                       private Patience {
  public:
    // See open_remote_memory(). Error eopnotsupp: the session could be opened, but rc does not work: no device here
    // or there, another network, memory that cannot be registered, or nothing comes through.
    // `reason`: for ConnectionInfo, of static storage.
    static Result<std::unique_ptr<RemoteMemory>> open(const RemoteAddress& address,
                                                      const OpenOptions& options,
                                                      const char* reason,
                                                      ConnectionListener* listener, Holder& holder,
                                                      std::string& problem);
    ~RcMemory() override;

    const Geometry& geometry() const override { return control_->geometry(); }
    const Limits& limits() const override { return limits_; }
    ConnectionInfo connection() const override EXCLUDES(mutex_);
    Statistics statistics() const override EXCLUDES(mutex_);
    void submit(Operation& first) override EXCLUDES(mutex_);
    void wait(Operation& operation) override EXCLUDES(mutex_);
    size_t progress() override EXCLUDES(mutex_);
    Result<void> add_arena(MutableByteSpan memory) override EXCLUDES(mutex_);
    Result<void> start_writing(bool force, Holder& holder) override EXCLUDES(mutex_);
    Result<void> add_link(const char* host, uint16_t port) override {
        return control_->add_link(host, port);
    }
    Result<void> remove_link(const char* host, uint16_t port) override {
        return control_->remove_link(host, port);
    }
    // control_ counts what goes over it, and adds what does not.
    uint64_t change_mark() const override { return control_->change_mark(); }
    void changes_flushed(uint64_t mark) override { control_->changes_flushed(mark); }
    void close() override EXCLUDES(mutex_);

  private:
    static constexpr size_t kMaxArenas = 64;
    static constexpr uint32_t kMaxPieces = 16;
    // The log is written behind so many changes, or so many bytes of them: what a break may repeat in vain.
    static constexpr uint32_t kLogChanges = 16;
    static constexpr uint32_t kLogBytes = 64 * 1024;

    // What is kept beside a posted operation.
    struct Entry {
        uint64_t round = 0;
        uint16_t chunk_count = 0;
        uint16_t chunks[BouncePool::kMaxChunks] = {};
        verbs::Piece pieces[kMaxPieces];
    };
    // An operation that control_ has for one of ours.
    struct Proxy {
        Operation operation;
        RcMemory* owner = nullptr;
        Operation* target = nullptr;
        Proxy* next = nullptr;
    };
    struct Arena {
        unsigned char* begin = nullptr;
        unsigned char* end = nullptr;
    };
    // Of one network that links are on.
    struct Device {
        uint8_t address[16] = {};  // of this host's end
        std::unique_ptr<verbs::Device> device;
        std::unique_ptr<verbs::Memory> bounce;
        std::vector<std::unique_ptr<verbs::Memory>> arenas;  // one for each of arenas_
    };
    struct Path {
        std::unique_ptr<verbs::QueuePair> queue_pair;
        wire::RcWindow windows[wire::kRcWindowCount] = {};
        const Device* device = nullptr;
        size_t link = 0;
        uint32_t ended_count = 0;  // LinksView::Link::ended_count before it was asked for
        uint32_t generation = 0;   // control_generation_ before that
        // Of the completion log, before anything was posted to it.
        uint64_t executed_through = 0;
    };
    // A path that broke with something posted. Until the server has ended it, that may still be executed.
    struct Doubt {
        bool exists = false;
        size_t link = 0;
        uint32_t ended_count = 0;
        uint32_t generation = 0;
    };
    static constexpr size_t kNoLink = LinksView::kCapacity;
    // Of what was posted to paths that broke.
    struct LinkCounts {
        uint64_t resent = 0;
        uint64_t resent_bytes = 0;
        uint64_t recovered = 0;
    };
    struct LogWrite {
        uint64_t number = 0;
        verbs::Piece piece;
    };

    RcMemory(const OpenOptions& options, const char* reason, ConnectionListener* listener,
             bool has_several);

    // ---- rc_memory.cc ----
    Result<void> prepare(std::string& problem) EXCLUDES(mutex_);
    ConnectionInfo present_info() const REQUIRES(mutex_);
    void set_state(ConnectionState state) REQUIRES(mutex_);
    uint64_t change_count() const override { return change_count_.load(); }
    bool expects_answers() override { return was_posted_.exchange(false) || is_posted_.load(); }
    void links_changed() override;
    void connection_changed(const ConnectionInfo& info) override;

    // ---- rc_posting.cc: the queue pair ----
    // Posts what may be posted. What goes to control_ is in the list returned; the caller submits it without mutex_.
    [[nodiscard]] Proxy* pump() REQUIRES(mutex_);
    void submit_to_control(Proxy* first) EXCLUDES(mutex_);
    enum class Admission : uint8_t { post, wait, refuse, new_path };
    Admission admit(const Operation& operation, const wire::RcWindow*& window, Error& error) const
        REQUIRES(mutex_);
    bool find_pieces(const Operation& operation, Entry& entry, uint32_t& piece_count) const
        REQUIRES(mutex_);
    bool take_bounce(const Operation& operation, uint64_t size_bytes, Entry& entry,
                     uint32_t& piece_count) REQUIRES(mutex_);
    Admission fill_work(const Operation& operation, const wire::RcWindow& window,
                        verbs::WorkRequest& work) REQUIRES(mutex_);
    [[nodiscard]] bool is_log_due(const Operation& posted) REQUIRES(mutex_);
    void fill_log(uint64_t number, size_t log_index, verbs::WorkRequest& work) REQUIRES(mutex_);
    Proxy* take_proxy(Operation& operation) REQUIRES(mutex_);
    static void control_done(Operation& operation);
    void handle_control_done() REQUIRES(mutex_);
    // These need the lead.
    void handle_completions(const verbs::Completion* completions, size_t count) REQUIRES(mutex_);
    void finish_up_to(uint64_t number) REQUIRES(mutex_);
    [[nodiscard]] bool finish_one() REQUIRES(mutex_);
    bool count_change(const Path& path) REQUIRES(mutex_);
    void release_entry(uint64_t number) REQUIRES(mutex_);
    void poll_round(uint64_t sleep_until_ns, bool is_thread) REQUIRES(mutex_);
    void end_queue_pair() REQUIRES(mutex_);
    void break_path() REQUIRES(mutex_);
    void abort_path() REQUIRES(mutex_);
    Entry& entry(uint64_t number) REQUIRES(mutex_) { return entries_[number % entries_.size()]; }

    // ---- rc_waiting.cc ----
    void lead(const Operation& operation) REQUIRES(mutex_);
    void pass_lead() REQUIRES(mutex_);
    bool wake_next_leader() REQUIRES(mutex_);

    // ---- rc_thread.cc ----
    static void run_thread(void* memory);
    void run() EXCLUDES(mutex_);
    void serve_path(uint64_t now_ns) REQUIRES(mutex_);
    void look_at_control() REQUIRES(mutex_);
    void look_at_links() REQUIRES(mutex_);
    void beat() REQUIRES(mutex_);
    void end_session(ConnectionState state, Error error) REQUIRES(mutex_);
    // Before control_ says goodbye: what has no known outcome may have changed something that was not counted.
    void count_unknown() REQUIRES(mutex_);
    void sleep_until(uint64_t time_ns) REQUIRES(mutex_);
    // Pumps, and submits to control_ with mutex_ let go for that.
    void pump_all() REQUIRES(mutex_);
    void poke();
    void wake_leader();

    // ---- rc_paths.cc ----
    void rejoin(uint64_t now_ns) REQUIRES(mutex_);
    size_t next_link(const LinksView& view) const REQUIRES(mutex_);
    void tell_of_break() REQUIRES(mutex_);
    bool go_on() override EXCLUDES(mutex_);
    bool is_late(uint64_t now_ns) const REQUIRES(mutex_);
    Result<Path> get_path(size_t link, const LinksView& view, uint32_t generation, Path standby,
                          std::string& problem) EXCLUDES(mutex_);
    Result<Path> ask_for_path(size_t link, const LinksView& view, uint32_t generation,
                              std::string& problem) EXCLUDES(mutex_);
    Result<void> run_work(verbs::QueuePair& queue_pair, const verbs::WorkRequest* work,
                          size_t count) EXCLUDES(mutex_);
    Result<void> exchange_log(Path& path, uint64_t session_id) EXCLUDES(mutex_);
    bool adopt(Path& path) REQUIRES(mutex_);
    [[nodiscard]] bool finish_logged(const Path& path) REQUIRES(mutex_);
    LinkCounts counts_of(size_t link) const REQUIRES(mutex_);
    Result<Device*> find_device(const uint8_t (&address)[16], std::string& problem)
        EXCLUDES(mutex_);
    Device* present_device(const uint8_t (&address)[16]) const REQUIRES(mutex_);

    // ---- rc_standby.cc ----
    static void run_standby(void* memory);
    void keep_standbys() EXCLUDES(mutex_);
    void make_standby(size_t link, const LinksView& view, uint32_t generation) EXCLUDES(mutex_);
    bool is_usable(const Path& path, const LinksView& view) const REQUIRES(mutex_);
    bool lacks_standby(size_t link, const LinksView& view) const REQUIRES(mutex_);
    Result<void> try_standby(const Path& path) EXCLUDES(mutex_);
    void drop_standbys() REQUIRES(mutex_);

    OpenOptions options_;
    const char* reason_;
    const bool has_several_;  // links
    ConnectionListener* listener_;
    std::unique_ptr<TcpMemory> control_;
    Limits limits_;
    uint32_t piece_count_ = 0;  // of one request

    mutable host::Mutex mutex_{host::LockClass::leaf};
    host::Condition changed_;  // the path, or the state
    std::unique_ptr<OneSidedQueue> queue_ GUARDED_BY(mutex_);
    std::vector<Entry> entries_ GUARDED_BY(mutex_);  // by number
    std::vector<verbs::WorkRequest> work_ GUARDED_BY(mutex_);
    std::vector<LogWrite> log_writes_ GUARDED_BY(mutex_);  // of what is being posted
    uint32_t unlogged_changes_ GUARDED_BY(mutex_) = 0;
    uint64_t unlogged_bytes_ GUARDED_BY(mutex_) = 0;
    uint64_t log_session_id_ = 0;  // whose log has been begun; the thread's, or of who opens
    std::vector<Arena> arenas_ GUARDED_BY(mutex_);
    BouncePool bounce_ GUARDED_BY(mutex_);
    std::vector<std::unique_ptr<Device>> devices_ GUARDED_BY(mutex_);  // none goes before the end
    // Its queue pair: posted to under mutex_; polled with the lead; made and destroyed with both.
    Path path_;
    Path standbys_[LinksView::kCapacity] GUARDED_BY(mutex_);  // by link; without a queue pair: none
    // Those that a device could not end. What comes through them late lands in chunks that nobody gets any more.
    std::vector<std::unique_ptr<verbs::QueuePair>> unended_ GUARDED_BY(mutex_);
    bool is_asking_[LinksView::kCapacity] GUARDED_BY(mutex_) = {};        // for a path of that link
    bool is_standby_told_[LinksView::kCapacity] GUARDED_BY(mutex_) = {};  // that it cannot be made
    uint32_t rights_count_ GUARDED_BY(mutex_) = 0;  // how often rights or sizes have changed
    Doubt doubt_ GUARDED_BY(mutex_);
    LinkCounts link_counts_[LinksView::kCapacity] GUARDED_BY(mutex_);
    // The link whose failure the queue's counts are put down to, from where they were then.
    size_t failed_link_ GUARDED_BY(mutex_) = 0;
    LinkCounts counted_ GUARDED_BY(mutex_);
    bool is_draining_ GUARDED_BY(mutex_) = false;  // nothing is posted until all have answers
    std::atomic<bool> is_posted_{false};
    std::atomic<bool> was_posted_{false};
    bool is_broken_ GUARDED_BY(mutex_) = false;  // whoever leads destroys the path
    bool is_planned_ GUARDED_BY(mutex_) =
        false;  // ... for another one with other rights: no failure
    ConnectionState state_ GUARDED_BY(mutex_) = ConnectionState::connecting;

    std::vector<Proxy> proxies_;
    Proxy* free_proxies_ GUARDED_BY(mutex_) = nullptr;
    std::atomic<Proxy*> done_proxies_{nullptr};  // a stack, pushed to by control_'s threads

    bool has_leader_ GUARDED_BY(mutex_) = false;
    OperationWaiters waiters_ GUARDED_BY(mutex_);
    uint64_t post_round_ GUARDED_BY(mutex_) = 0;
    uint64_t counted_round_ GUARDED_BY(mutex_) = 0;
    Statistics statistics_ GUARDED_BY(mutex_);

    std::atomic<uint64_t> change_count_{0};  // raised under mutex_

    // What control_ says of itself; written by its threads.
    std::atomic<ConnectionState> control_state_{ConnectionState::connecting};
    std::atomic<uint32_t> control_generation_{0};  // raised when it leaves `ready`
    std::atomic<uint64_t> session_id_{0};
    std::atomic<uint32_t> incarnation_{0};
    std::atomic<uint64_t> epoch_{0};
    std::atomic<uint64_t> content_incarnation_{0};
    std::atomic<uint64_t> empty_since_incarnation_{0};
    std::atomic<bool> inherits_unflushed_{false};
    std::atomic<bool> words_unknown_{false};
    std::atomic<bool> has_news_{false};  // of control_, for the thread

    Operation heartbeat_;
    vfs::IoVector heartbeat_buffer_{};
    uint64_t heartbeat_count_ = 0;
    std::atomic<bool> is_beating_{false};
    std::atomic<uint64_t> unknown_beat_count_{0};
    uint64_t next_beat_ns_ GUARDED_BY(mutex_) = 0;
    uint64_t beat_interval_ns_ = 1'000'000'000;

    host::Thread thread_;
    host::Thread standby_thread_;
    host::Condition standby_wanted_;
    int event_ = -1;       // wakes the thread
    int lead_event_ = -1;  // wakes a leader that sleeps
    bool is_stopping_ GUARDED_BY(mutex_) = false;
    uint64_t next_look_ns_ GUARDED_BY(mutex_) = 0;
    uint64_t lost_ns_ GUARDED_BY(mutex_) = 0;
    // When there was last seen to be no stream, whose absence does not count; 0: there is one.
    uint64_t away_ns_ GUARDED_BY(mutex_) = 0;
    uint64_t adopted_count_ GUARDED_BY(mutex_) = 0;   // finished_count() when the path came
    uint64_t path_wanted_by_ GUARDED_BY(mutex_) = 0;  // submit_number of what it was to cover
    uint32_t attempts_ GUARDED_BY(mutex_) = 0;
    uint64_t next_attempt_ns_ GUARDED_BY(mutex_) = 0;
};

}  // namespace tiffin::rdma_blk
