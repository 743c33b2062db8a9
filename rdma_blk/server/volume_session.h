// SPDX-License-Identifier: MIT OR GPL-2.0-only
// One session of a volume: carries requests out on the volume's memory, each at most once, and sends the
// answers. Requests of one session are carried out under its lock, so that when fence() has returned, nothing
// more of it lands.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "fs/vfs/host.h"
#include "rdma_blk/server/counters.h"
#include "rdma_blk/server/peer_process.h"
#include "rdma_blk/server/rc_path.h"
#include "rdma_blk/server/session_path.h"
#include "rdma_blk/session/handshake.h"
#include "rdma_blk/session/slot_table.h"

namespace tiffin::rdma_blk {

class VolumeSession;

// The memory of a volume; addresses stay while the volume lives.
struct VolumeMemory {
    unsigned char* data = nullptr;
    unsigned char* control = nullptr;
};

// A flush that is on its way to the disk.
struct FlushJob {
    std::shared_ptr<VolumeSession> session;
    wire::Request request{};
    std::vector<wire::FlushRange> ranges;  // of the request's space; empty: all of it
    uint64_t began_ns = 0;
};

// Makes things durable. start() only queues; finish_flush() of the session is called later, by another thread.
class Flusher {
  public:
    virtual void start(FlushJob job) = 0;

  protected:
    ~Flusher() = default;
};

class VolumeSession : public std::enable_shared_from_this<VolumeSession> {
  public:
    // What does not change. `flusher` nullptr: a flush has nothing to do.
    struct Place {
        uint64_t session_id = 0;
        unsigned char client_uuid[16] = {};
        uint32_t index = 0;  // of its record
        VolumeMemory memory;
        wire::SessionRecord* record = nullptr;
        Span<wire::SlotEntry> entries;
        Flusher* flusher = nullptr;
        const std::atomic<uint64_t>* content_incarnation = nullptr;
        VolumeCounters* counters = nullptr;
        RcLeftovers* rc_leftovers = nullptr;
    };

    // Errors: those of SlotTable::create().
    static Result<std::shared_ptr<VolumeSession>> create(const Place& place);

    const Place& place() const { return place_; }
    uint64_t id() const { return place_.session_id; }

    // ---- From connections ----

    // A request that is there in whole, checksum checked. `next`: what comes after it, if that is known already; nothing in
    // it is believed, but its memory is brought nearer meanwhile. Errors: eproto: the connection must end (counted);
    // estale: the path is not one of the session's any more, nothing was done.
    Result<void> handle_request(const std::shared_ptr<SessionPath>& path,
                                const wire::Request& request, ByteSpan payload,
                                const wire::Request* next = nullptr);
    // What its paths of datagrams have found: MessagePathStatistics::next_packet_bytes() of the way to the client.
    void set_known_packet_bytes(uint32_t bytes) { known_packet_bytes_.store(bytes); }
    uint32_t known_packet_bytes() const { return known_packet_bytes_.load(); }
    // Whether somebody waits for an answer of the session: the other side should be heard of, then.
    bool is_busy() const { return busy_count_.load(std::memory_order_relaxed) != 0; }
    void path_lost(const SessionPath& path);
    // Its process has said that it changes the memory by requests only from now on.
    void leave_memory() { has_left_memory_.store(true); }
    void heard(uint64_t now_ns) { last_heard_ns_.store(now_ns, std::memory_order_relaxed); }
    uint64_t last_heard_ns() const { return last_heard_ns_.load(std::memory_order_relaxed); }
    uint64_t silence_ns(uint64_t now_ns) const {
        const uint64_t heard_ns = last_heard_ns();
        return now_ns > heard_ns ? now_ns - heard_ns : 0;
    }

    // ---- From the volume, which serialises these ----

    // Whether nobody may change what it reads.
    bool reads_steadily() const { return place_.record->reads_steadily != 0 && !is_fenced(); }

    // Whether its client has shown a reader's key, or, after a restart, nothing yet.
    bool is_by_reader() const { return is_by_reader_; }
    void set_by_reader(bool is_by_reader) { is_by_reader_ = is_by_reader; }
    // What those are told that it stands in the way of.
    void set_holder_text(const char* text) { holder_text_ = text; }
    const std::string& holder_text() const { return holder_text_; }
    // Whose process can write to the data without this server (shm); nullptr: nobody's.
    void set_process(std::shared_ptr<PeerProcess> process) {
        process_ = std::move(process);
        has_left_memory_.store(false);
    }
    const std::shared_ptr<PeerProcess>& process() const { return process_; }
    // Whether that process may change the memory at this moment.
    bool may_change_memory() const {
        return process_ && !has_left_memory_.load() && !process_->is_gone();
    }
    void set_access(const SessionAccess& access);
    SessionAccess access() const;
    // After the process ended; before any connection comes.
    void recover();

    enum class OpenResult : uint8_t { opened, busy, stale, malformed, not_ended };
    // Opens an incarnation: earlier paths are ended first. busy: something of the old one is still being
    // executed; `path` is woken when it is over, and the caller tries again. not_ended: a device does not end a path.
    OpenResult open_incarnation(const wire::SessionOpen& open, ByteSpan entries,
                                const std::shared_ptr<SessionPath>& path, unsigned char* outcomes);
    // Another path of the present incarnation, beside the connection with that path id. False: not the present one, or fenced.
    bool join(uint32_t incarnation, const std::shared_ptr<SessionPath>& path, uint16_t path_id = 0);
    // A connection that wants to be one more. `secret`: its own; `proof`: see wire::PathProof. It is not the client's that
    // opened the incarnation: no_session.
    wire::RefusalReason join_stream(const wire::PathJoin& join, const Secret<kSealKeyBytes>& secret,
                                    const wire::PathProof& proof,
                                    const std::shared_ptr<SessionPath>& path);
    // The secret of the connection that opened the incarnation.
    void set_secret(uint32_t incarnation, const Secret<kSealKeyBytes>& secret);
    // A question that came on `path`: ends the path in question if that is asked for, sends the answers that there are on
    // `path`, where those that are not there yet will come, too, and fills in `outcomes`, one for each entry. Errors: eproto.
    Result<wire::RefusalReason> recover(const wire::PathRecover& question, ByteSpan entries,
                                        const std::shared_ptr<SessionPath>& path,
                                        unsigned char* outcomes);
    // Opens the windows of a path of rc, which takes the place of an earlier one: of any where `is_only`, else of one beside
    // `connection`, over which it was asked for. It ends with that, the incarnation and the session. Errors: estale (one
    // of them has ended), eio.
    Result<void> join_rc(uint32_t incarnation, const SessionPath& connection, bool is_only,
                         std::unique_ptr<RcPath> path, wire::RcPathAnswer& answer);
    bool has_rc_path() const;
    // From its return on nothing of this session changes the volume's memory, for good; but for paths among the volume's
    // RcLeftovers.
    void fence(const wire::Notice& notice);
    // Ends all paths and forgets the slots. False: something is being executed; `path` is woken later.
    // Its record and entries are not touched again after true.
    bool close(const std::shared_ptr<SessionPath>& path, const wire::Notice* notice);
    void notify(const wire::Notice& notice);

    bool has_paths() const { return path_count() != 0; }
    size_t path_count() const;
    bool is_fenced() const { return fenced_.load(std::memory_order_acquire); }
    uint32_t incarnation() const;
    SlotTable::Statistics statistics() const;

    // ---- From the flusher ----

    // `result`: ok; estale: the session was fenced, which is no error of the disk; eio.
    void finish_flush(const FlushJob& job, Result<void> result);
    // Copies memory out while nothing of this session is being applied: no write unit is torn in it. False: the
    // session is fenced, so that its lock protects nothing any more; nothing was copied.
    [[nodiscard]] bool copy_stable(unsigned char* destination, const unsigned char* source,
                                   size_t size_bytes);

  private:
    struct Waiting {
        wire::Request request{};
        std::vector<unsigned char> payload;
        std::shared_ptr<SessionPath> path;  // where it is answered
        std::shared_ptr<SessionPath>
            holder;  // of the payload: where it came; nullptr: that has gone

        void release();
    };

    explicit VolumeSession(const Place& place);
    void act(const std::shared_ptr<SessionPath>& path, const wire::Request& request,
             ByteSpan payload, const RequestDecision& decision) REQUIRES(mutex_);
    void execute(const std::shared_ptr<SessionPath>& path, const wire::Request& request,
                 ByteSpan payload) REQUIRES(mutex_);
    void start_flush(const std::shared_ptr<SessionPath>& path, const wire::Request& request,
                     ByteSpan payload) REQUIRES(mutex_);
    void serve_ready() REQUIRES(mutex_);
    void keep_waiting(const std::shared_ptr<SessionPath>& path, const wire::Request& request,
                      ByteSpan payload) REQUIRES(mutex_);
    void forget_waiting() REQUIRES(mutex_);
    bool takes_answer_over(const std::shared_ptr<SessionPath>& path, uint16_t slot)
        REQUIRES(mutex_);
    bool is_path(const std::shared_ptr<SessionPath>& path) const REQUIRES(mutex_);
    Result<void> end_paths_of(uint16_t path_id) REQUIRES(mutex_);
    void remove_path(const SessionPath& path) REQUIRES(mutex_);
    const std::shared_ptr<SessionPath>& living(const std::shared_ptr<SessionPath>& path) const
        REQUIRES(mutex_);
    void end_paths(const wire::Notice* notice) REQUIRES(mutex_);
    // nullptr: beside any connection.
    Result<void> end_rc_paths(const SessionPath* connection) REQUIRES(mutex_);
    bool wait_until_idle(const std::shared_ptr<SessionPath>& path) REQUIRES(mutex_);
    void prefetch(const wire::Request& request) const REQUIRES(mutex_);
    void count_response(const wire::Response& response);
    void update_busy() REQUIRES(mutex_);
    unsigned char* address(const wire::Request& request) const;

    const Place place_;
    std::string holder_text_;
    bool is_by_reader_ = true;
    std::shared_ptr<PeerProcess> process_;
    mutable host::Mutex mutex_{host::LockClass::object_state};
    std::unique_ptr<SlotTable> table_ GUARDED_BY(mutex_);
    struct JoinedPath {
        std::shared_ptr<SessionPath> path;
        uint16_t id = 0;  // of its connection, or of that beside which it is
    };
    static constexpr size_t kMaxPaths = 16;
    std::vector<JoinedPath> paths_ GUARDED_BY(mutex_);
    uint16_t last_path_id_ GUARDED_BY(mutex_) = 0;  // of this incarnation, that joined or was ended
    Secret<kSealKeyBytes> secret_ GUARDED_BY(mutex_);
    bool has_secret_ GUARDED_BY(mutex_) = false;
    struct JoinedRc {
        std::unique_ptr<RcPath> path;
        const SessionPath* connection = nullptr;  // only compared
    };
    std::vector<JoinedRc> rc_paths_ GUARDED_BY(mutex_);
    std::vector<Waiting> waiting_ GUARDED_BY(mutex_);  // by slot
    // By slot, of flushes: the path that asked for it last.
    std::vector<std::shared_ptr<SessionPath>> flush_paths_ GUARDED_BY(mutex_);
    std::shared_ptr<SessionPath> waits_for_idle_ GUARDED_BY(mutex_);
    bool closed_ GUARDED_BY(mutex_) = false;
    std::atomic<bool> fenced_{false};
    std::atomic<bool> has_left_memory_{false};
    std::atomic<uint64_t> last_heard_ns_{0};
    std::atomic<uint32_t> known_packet_bytes_{0};
    std::atomic<uint32_t> busy_count_{0};
};

}  // namespace tiffin::rdma_blk
