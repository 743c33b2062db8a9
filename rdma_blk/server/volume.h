// SPDX-License-Identifier: MIT OR GPL-2.0-only
// One volume: its memory, the right to write it, its sessions, and what the server remembers of it for good.
// docs/remote.md, "Epochs, leases, fencing" and "Slots", say what happens here. Without sockets; the time
// comes from the caller (host::monotonic_ns()). Any threads; opening and leases may wait for the state file,
// requests never do (they go to the VolumeSession).
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fs/vfs/host.h"
#include "rdma_blk/server/counters.h"
#include "rdma_blk/server/memory_region.h"
#include "rdma_blk/server/volume_session.h"
#include "rdma_blk/server/volume_state.h"
#include "rdma_blk/wire/control_area.h"

namespace tiffin::rdma_blk {

// How many of so many places those may have that only read, and may not keep others out: a quarter is left, if there are
// several.
constexpr size_t most_of_readers(size_t places) {
    return places == 1 ? 1 : places - std::max<size_t>(places / 4, 1);
}

struct VolumeOptions {
    uint32_t session_count = 256;
    uint16_t slot_count = 64;  // of each session
    uint32_t probe_interval_ms = 1000;
    uint32_t lease_timeout_ms = 60000;
    bool offers_rc = false;  // there is an RDMA device
    // A holder whose process has the memory mapped is killed when its lease is taken over; else it cannot be.
    bool shm_kills = true;
    MemoryOptions memory;
};

// What a keeper has of a volume.
struct KeptMemory {
    UniqueDescriptor data;
    UniqueDescriptor control;
};

// Where flushed content lives. Calls come from one thread at a time.
// What a file or disk may have when it is opened as a backing.
enum class BackingContent : uint8_t {
    of_this_volume,     // it was made earlier: its content must be there
    tiffinfs_or_zeros,  // of a new volume
    anything,           // of a new volume, if somebody has insisted
};

class BackingStore {
  public:
    virtual ~BackingStore() = default;
    virtual uint32_t write_unit_bytes() const = 0;
    // Reads what it has from `begin` to `end` into memory at `begin`, in any thread. Errors: eio, enomem.
    virtual Result<void> read(unsigned char* memory, uint64_t begin, uint64_t end) = 0;
};

struct VolumeInfo {
    std::string name;
    std::string uuid;
    uint64_t data_bytes = 0;
    uint64_t memory_bytes = 0;  // control space included
    uint64_t words_bytes = 0;
    std::string backing;
    uint64_t epoch = 0;
    uint64_t content_incarnation = 0;
    uint64_t empty_since_incarnation = 0;
    size_t session_count = 0;
    size_t connected_session_count = 0;
    std::string holder;  // of the lease; empty: none
    uint64_t holder_silent_ms = 0;
    bool has_huge_pages = false;
    bool is_locked = false;
};

// One session of a volume, for people.
struct SessionInfo {
    std::string name;     // what its client calls itself; empty: it did not say
    bool writes = false;  // has the lease
    bool is_fenced = false;
    size_t path_count = 0;  // connections, and paths of datagrams; 0: it may come back
    uint64_t silent_ms = 0;
};

class Volume {
  public:
    // Brings a volume up from its state. With kept memory it goes on where it was; without, its content is
    // that of the backing store, or empty, and the incarnations in the state say so before this returns.
    // `is_new`: the state is saved for the first time, nothing was lost. `backing` (nullptr: none) and `flusher`
    // outlive the volume. Errors: those of memory and state; euclean (kept memory of another volume).
    static Result<std::unique_ptr<Volume>> start(const StateDirectory& directory,
                                                 const VolumeState& state, bool is_new,
                                                 KeptMemory kept, const VolumeOptions& options,
                                                 const unsigned char server_uuid[16],
                                                 BackingStore* backing, Flusher* flusher,
                                                 uint64_t now_ns);
    ~Volume();

    const std::string& name() const { return name_; }
    const Secret<kVolumeKeyBytes>& key() const { return key_; }
    int data_descriptor() const { return data_->descriptor(); }
    int control_descriptor() const { return control_->descriptor(); }
    uint64_t memory_bytes() const { return data_->size_bytes() + control_->size_bytes(); }
    const VolumeMemory& memory() const { return memory_; }
    VolumeCounters& counters() { return counters_; }
    VolumeInfo info(uint64_t now_ns) const;
    std::vector<SessionInfo> sessions(uint64_t now_ns) const;
    // Whether it goes on with kept memory.
    bool was_memory_kept() const { return was_memory_kept_; }

    struct OpenAnswer {
        enum class Kind : uint8_t { opened, refused, try_again } kind = Kind::try_again;
        wire::SessionOpened opened{};
        std::vector<unsigned char> outcomes;
        wire::SessionRefused refused{};
        std::shared_ptr<VolumeSession> session;  // opened, or try_again while that one is busy
        // try_again: whose end the lease waits for; it is on its way.
        std::shared_ptr<PeerProcess> ending;
    };
    // A parsed session_open of a connection of HandshakeServer::owner() `client_uuid`, from process `asking` (nullptr: it
    // is not known). `is_reader`: with a reader's key, which takes nothing from a writer, not even from a silent one. try_again: `path` is woken, or, with `ending`, the caller tries again when that process is gone.
    OpenAnswer open_session(const wire::SessionOpen& open, ByteSpan entries,
                            const unsigned char client_uuid[16], bool is_reader,
                            const std::shared_ptr<SessionPath>& path, uint64_t now_ns,
                            const PeerProcess* asking = nullptr);
    // Whether that client's session is there and has a path.
    bool is_connected(uint64_t session_id, const unsigned char client_uuid[16]) const;
    // Sessions by a reader's key that have no connection and may come back for one.
    size_t absent_readers(uint64_t now_ns) const;
    // nullptr: `reason` says why.
    std::shared_ptr<VolumeSession> join(const wire::PathJoin& join,
                                        const unsigned char client_uuid[16],
                                        const Secret<kSealKeyBytes>& secret,
                                        const wire::PathProof& proof,
                                        const std::shared_ptr<SessionPath>& path,
                                        wire::RefusalReason& reason);
    // A queue pair for a session of `connection`, whose end here has `address`. May take as long as registering the
    // volume's memory does. Not refused: RefusalReason 0.
    wire::RefusalReason join_rc(const std::shared_ptr<VolumeSession>& session, uint32_t incarnation,
                                const SessionPath& connection, bool is_only,
                                const wire::RcPathOffer& offer, const uint8_t address[16],
                                wire::RcPathAnswer& answer);
    // The memory itself, for the process of a session on this host (shm): for writing when the session has
    // the lease, which that process then loses with its life only. refused: `reason` says why.
    struct Mapping {
        bool is_granted = false;
        wire::RefusalReason reason = wire::RefusalReason::no_transport;
        wire::ShmParameters parameters{};
        UniqueDescriptor data;
        UniqueDescriptor control;  // for reading only: the server believes what is in it
    };
    Mapping map(const std::shared_ptr<VolumeSession>& session, uint32_t incarnation,
                const std::shared_ptr<PeerProcess>& process);
    // A reader becomes the writer. With `ending`, the answer means nothing: the lease waits for the end of
    // that process, and the caller tries again.
    struct LeaseAnswer {
        wire::LeaseReply reply{};
        std::shared_ptr<PeerProcess> ending;
    };
    LeaseAnswer request_lease(const std::shared_ptr<VolumeSession>& session, uint8_t flags,
                              uint64_t now_ns, const PeerProcess* asking = nullptr);
    // Gives lease and slots back. `all_flushed`: what the writer says. False: try again when `path` is woken.
    bool close_session(const std::shared_ptr<VolumeSession>& session,
                       const std::shared_ptr<SessionPath>& path, bool all_flushed = false);

    // The durable words, as they are now, go to the state file if they are not there yet. Waits for the disk.
    // Errors: those of the state file.
    Result<void> save_words();
    // Larger only. Errors: einval, enomem, efbig, those of the state file.
    // The backing is there for data_bytes, and has had content up to present_bytes before. One call at a time.
    Result<void> resize(uint64_t data_bytes, BackingStore* backing = nullptr,
                        uint64_t present_bytes = 0);
    // From now on nothing is opened; all are told. The memory stays until the volume is destroyed.
    void stop();
    // Whether a process of this host may change the memory without a request. After stop() it leaves that, if it lives.
    bool may_be_changed_by_processes() const;
    // After stop(), when nothing serves the volume any more: whether the memory may be ahead of the backing, and, when that
    // has been mended, what the next start shall know. Errors: those of the state file.
    bool needs_last_flush() const;
    Result<void> note_last_flush();
    // The same as stop() before the volume is deleted: sessions end at once. When it is in use and not `force`, nothing is done, and
    // the users are returned, for people.
    std::string end_for_good(bool force, uint64_t now_ns);
    // Every probe_interval_ms: shows that the server lives, and looks for heartbeats that clients write
    // one-sidedly. A time without ticks is one in which the server did not listen: it counts as no client's silence.
    void tick(uint64_t now_ns);

    uint64_t epoch() const { return __atomic_load_n(&header_->epoch, __ATOMIC_ACQUIRE); }
    uint64_t content_incarnation() const { return content_incarnation_.load(); }

  private:
    using SessionPointer = std::shared_ptr<VolumeSession>;

    Volume(const StateDirectory& directory, const VolumeState& state, const VolumeOptions& options);
    Result<void> bring_up(KeptMemory kept, bool is_new, const unsigned char server_uuid[16],
                          BackingStore* backing, uint64_t now_ns);
    Result<bool> adopt_memory(KeptMemory& kept) REQUIRES(mutex_);
    Result<void> make_memory(bool is_new, BackingStore* backing) REQUIRES(mutex_);
    // Of resize(): the memory is there.
    Result<void> take_growth(uint64_t old_bytes, uint64_t data_bytes, BackingStore* backing,
                             uint64_t present_bytes) EXCLUDES(mutex_);
    VolumeState state_with_words() const REQUIRES(mutex_);
    void write_header(const unsigned char server_uuid[16], uint32_t write_unit_bytes,
                      bool is_backed) REQUIRES(mutex_);
    Result<void> recover_sessions(uint64_t now_ns) REQUIRES(mutex_);
    Result<SessionPointer> make_session(uint32_t index, uint64_t session_id,
                                        const unsigned char client_uuid[16]);
    OpenAnswer open_new(const wire::SessionOpen& open, const unsigned char client_uuid[16],
                        bool is_reader, const std::shared_ptr<SessionPath>& path, uint64_t now_ns,
                        const PeerProcess* asking) REQUIRES(mutex_);
    OpenAnswer resume(const wire::SessionOpen& open, ByteSpan entries,
                      const unsigned char client_uuid[16], const std::shared_ptr<SessionPath>& path)
        REQUIRES(mutex_);
    OpenAnswer refuse(wire::RefusalReason reason, uint64_t now_ns) REQUIRES(mutex_);
    wire::SessionOpened describe(const VolumeSession& session, uint32_t incarnation) const
        REQUIRES(mutex_);
    enum class LeaseTurn : uint8_t {
        yes,
        held,
        held_by_reader,
        cannot_be_granted,
        when_process_is_gone
    };
    void forgive_own_pause(uint64_t now_ns) REQUIRES(mutex_);
    LeaseTurn may_take_lease(const VolumeSession* asker, const PeerProcess* asking, bool force,
                             uint64_t now_ns, std::shared_ptr<PeerProcess>& ending)
        REQUIRES(mutex_);
    LeaseTurn may_open(wire::SessionMode mode, const PeerProcess* asking, bool force,
                       uint64_t now_ns, std::shared_ptr<PeerProcess>& ending) REQUIRES(mutex_);
    SessionPointer find_reader(const VolumeSession* asker) const REQUIRES(mutex_);
    // `owner`: the client that gets the next one; nullptr: none does.
    Result<void> end_lease(const unsigned char* owner, bool raises_epoch = true) REQUIRES(mutex_);
    Result<void> grant_lease(VolumeSession& session, const char* holder_text,
                             bool raises_epoch = true) REQUIRES(mutex_);
    bool may_hold_memory(const VolumeSession& session,
                         const std::shared_ptr<PeerProcess>& process) const REQUIRES(mutex_);
    Result<void> find_process_again(VolumeSession& session) const;
    bool may_be_unflushed() const REQUIRES(mutex_);
    void fence(VolumeSession& session) REQUIRES(mutex_);
    void fence_readers(const VolumeSession& writer) REQUIRES(mutex_);
    void clear_lease() REQUIRES(mutex_);
    bool find_place(uint32_t& index, bool is_reader, uint64_t now_ns) REQUIRES(mutex_);
    // For longer than a lease lasts.
    bool is_silent(const VolumeSession& session, uint64_t now_ns) const;
    bool may_come_back(const VolumeSession& session, uint64_t now_ns) const;
    bool may_steady_reader_return(uint64_t now_ns) const REQUIRES(mutex_);
    void free_record(const SessionPointer& session) REQUIRES(mutex_);
    void update_access(VolumeSession& session) REQUIRES(mutex_);
    Result<std::shared_ptr<RcRegion>> find_rc_region(const uint8_t address[16])
        EXCLUDES(mutex_, rc_mutex_);
    SessionPointer find(uint64_t session_id) const REQUIRES(mutex_);
    SessionPointer find_holder() const REQUIRES(mutex_);
    std::string users(uint64_t now_ns) const REQUIRES(mutex_);
    wire::SessionRecord* record_at(uint32_t index) const;
    wire::LeaseRecord& lease() const;

    const StateDirectory& directory_;
    const std::string name_;
    const Secret<kVolumeKeyBytes> key_;
    const VolumeOptions options_;
    Flusher* flusher_ = nullptr;
    // The class is for its place in the order only.
    mutable host::Mutex mutex_{host::LockClass::entry_name};
    VolumeState state_ GUARDED_BY(mutex_);
    std::unique_ptr<MemoryRegion> data_;
    std::unique_ptr<MemoryRegion> control_;
    VolumeMemory memory_;
    wire::ControlHeader* header_ = nullptr;
    wire::ControlLayout layout_;
    bool was_memory_kept_ = false;
    std::atomic<uint64_t> content_incarnation_{0};
    RcLeftovers rc_leftovers_;
    std::map<uint64_t, SessionPointer> sessions_ GUARDED_BY(mutex_);
    std::vector<uint64_t> heartbeats_ GUARDED_BY(mutex_);  // last seen, by record
    uint64_t ticked_ns_ GUARDED_BY(mutex_) = 0;            // 0: not yet
    bool stopping_ GUARDED_BY(mutex_) = false;
    // The memory as devices know it, by the address of their port; of the size at that time.
    host::Mutex rc_mutex_{host::LockClass::leaf};
    std::map<std::array<uint8_t, 16>, std::shared_ptr<RcRegion>> rc_regions_ GUARDED_BY(rc_mutex_);
    VolumeCounters counters_;
};

}  // namespace tiffin::rdma_blk
