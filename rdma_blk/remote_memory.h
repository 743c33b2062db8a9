// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Remote memory: the memory of one volume on one memory server, as its user sees it. Every transport
// (shm, tcp, rc, sdr) implements RemoteMemory; volume/ makes a vfs::BlockDevice of one or several.
// docs/remote.md says why the contract is as it is; the words used here are explained there.
//
//     Operation data, journal;           // both OperationKind::write, with offset and buffers
//     journal.after_earlier = true;      // takes effect only once `data` has
//     data.next = &journal;
//     memory.submit(data);               // both, in one round trip
//     memory.wait(data);
//     memory.wait(journal);              // each is taken back once
//
// Nothing here throws. Unless a function says otherwise it may be called from any threads at once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "fs/vfs/result.h"
#include "fs/vfs/span.h"

namespace tiffin::rdma_blk {

// A volume has two address spaces, each from 0 up. `data` is the volume's content. `control` holds
// what servers and clients tell each other (docs/remote-format.md): leases, slots, logs, and words that
// are free for use.
enum class AddressSpace : uint8_t { data = 0, control = 1 };

// The numbers are those of the wire.
enum class OperationKind : uint8_t {
    read = 1,
    write = 2,
    compare_swap = 3,  // 8 bytes at a multiple of 8: if they equal `compare`, they become `operand`
    fetch_add = 4,     // 8 bytes at a multiple of 8: `operand` is added, modulo 2^64
    flush = 5,  // all operations on `ranges` that were complete before survive a power failure
};
// By number, of metrics and tables.
inline constexpr const char* kOperationNames[] = {"",          "read", "write", "compare_swap",
                                                  "fetch_add", "flush"};

// What is known at the completion. The numbers are those of the wire.
enum class Outcome : uint8_t {
    pending = 0,
    // It took effect exactly once. Data read and `old_value` are valid.
    executed = 1,
    // It had no effect and never will. `error` says why.
    not_executed = 2,
    // It may have had an effect, once or not at all. It can still take effect until any operation that
    // was submitted after this completion is executed, and not any more from then on: the connection on
    // which it was sent is destroyed by the server before a new one executes anything. What a
    // read put into the buffers is not valid.
    unknown = 3,
};

struct ByteRange {
    uint64_t offset_bytes = 0;
    uint64_t length_bytes = 0;
};

// How long an operation may be kept for what follows it, if nothing does; see Operation::more_follows.
inline constexpr uint32_t kMostGatherMs = 25;

// One asynchronous operation. The submitter owns it, its buffers and its ranges, leaves them alone from
// submit() to the completion, and gets them back by nothing else: whatever happens to the server, the
// network or the deadline, a completion comes exactly once, and nothing reads or writes the buffers
// afterwards. No memory is allocated for an operation.
struct Operation {
    // ---- Set by the submitter ----
    OperationKind kind = OperationKind::read;
    AddressSpace space = AddressSpace::data;
    // Takes effect only after all operations before it, in its batch or pending when it was submitted,
    // have taken theirs; if one of them does not, neither does this one (ecanceled). Without it,
    // operations take effect in any order. To rely on the second part, put the operation into one batch
    // with those it depends on: one of an earlier batch may have failed, unseen, just before submit().
    // Reads are among the earlier ones: none returns what a change that is ordered behind it has written, though it may be
    // done again after a broken connection. So such a change of the very bytes costs the round trip of the read.
    bool after_earlier = false;
    uint64_t offset_bytes = 0;  // flush: not used
    // read, write: pinned memory. Scattered or gathered in this order; at most Limits::buffer_count
    // pieces and Limits::transfer_bytes in total. Pieces within an arena (add_arena) are not copied.
    const vfs::IoVector* buffers = nullptr;
    size_t buffer_count = 0;
    // flush: what was changed since the last flush, at most Limits::flush_range_count. A server whose
    // CPU sees no writes (rc, shm) learns it from here. None: the whole address space. Of the control space
    // wire::kDurableWordsBytes, from where the words begin, become as durable as flushed data, and nothing else.
    const ByteRange* ranges = nullptr;
    size_t range_count = 0;
    uint64_t compare = 0;  // compare_swap
    uint64_t operand = 0;  // compare_swap: the new value; fetch_add: what is added
    // host::monotonic_ns() at which the submitter wants an answer; 0: it waits for as long as the
    // session lives. Not sent by then: not_executed. Else the connection is aborted, which delays all
    // operations on it, and this one completes as unknown as soon as nothing can touch its buffers any
    // more. For giving up, not for pacing. Error: etimedout.
    uint64_t deadline_ns = 0;
    // Of the first one of a batch: another submit() follows at once, and this batch may be sent together with that one. It
    // is sent at the latest when a batch without this is submitted, at a call of wait(), progress() or
    // send_gathered(), and after kMostGatherMs. A caller that refills a queue sets it for all but the last.
    bool more_follows = false;
    // Called once, from any thread, perhaps within submit(), and perhaps with the transport's locks held: it
    // must not block, take locks or call RemoteMemory. It may change atomic variables and post a
    // host::Semaphore. The operation is the submitter's again when it is called. nullptr: wait() is used.
    void (*complete)(Operation& operation) = nullptr;
    void* owner = nullptr;      // for the submitter
    Operation* next = nullptr;  // the next one of the batch; for the transport from submit() on

    // ---- Valid at the completion ----
    Outcome outcome = Outcome::pending;
    // executed: no meaning. Otherwise: einval, eio (beyond the end; a backing disk that fails), erofs (no
    // write lease), ecanceled (an operation it had to follow failed), etimedout (the deadline), estale
    // (fenced, or the server lost its memory), enodev (closed).
    Error error = Error::eio;
    uint64_t old_value = 0;  // compare_swap, fetch_add: what was there before
    // flush, executed: what the server called its content then. See ConnectionInfo.
    uint64_t content_incarnation = 0;

    // ---- For the transport ----
    std::atomic<uint32_t> finished{0};  // 1: the completion is there; set last, for wait()
    uint64_t submit_number = 0;         // 1, 2, ... in the order of submission
    void* transport_data = nullptr;
    Operation* next_batch = nullptr;

    Operation() = default;
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

    // Clears the results, so that it can be submitted again. Precondition: not pending.
    void reset();
};

// What an executed flush survives. The numbers are those of the wire.
enum class Durability : uint8_t {
    process =
        0,      // the end of the server's process; not that of its machine (memory, with a keeper)
    power = 1,  // a power failure (a backing file or disk)
};

// The volume; fixed while the session lives, but for the sizes, which grow when it is resized.
struct Geometry {
    uint64_t data_bytes = 0;
    uint64_t control_bytes = 0;
    // An aligned write of this size is applied whole or not at all, and survives a power failure so. When the server's process
    // is killed in the middle of one that is not repeated, or over rc and shm the client's, that holds for aligned 64
    // bytes only. A power of two.
    uint32_t write_unit_bytes = 64;
    Durability durability = Durability::process;
    bool read_only = false;
    uint8_t server_uuid[16] = {};
    uint8_t volume_uuid[16] = {};
};

// What one operation may ask for; larger ones are einval. Fixed while the session lives.
struct Limits {
    uint32_t transfer_bytes = 0;     // of one read or write
    uint32_t eager_bytes = 0;        // up to here a write costs one round trip on every transport
    uint32_t inline_bytes = 0;       // up to here memory outside of arenas costs nothing extra
    uint32_t buffer_count = 0;       // pieces of one read or write
    uint32_t flush_range_count = 0;  // of one flush
    uint32_t operations_in_flight = 0;  // more can be submitted: they wait here, not on the network
};

enum class ConnectionState : uint8_t {
    connecting,  // for the first time
    ready,
    reconnecting,  // operations wait and are completed exactly once afterwards
    fenced,        // final: another client has taken the volume; all operations end as estale
    memory_lost,   // final: the server no longer has the content this session wrote; estale
    closed,        // final: by close(), or after OpenOptions::reconnect_timeout_ms; enodev
};

// For `tiffin status`, and for the volume to decide what a reconnection means.
struct ConnectionInfo {
    ConnectionState state = ConnectionState::connecting;
    const char* transport_name = "";    // "shm", "tcp", "rc", "sdr", "sdr-uc"; static
    const char* transport_reason = "";  // why this one; likewise
    uint64_t session_id = 0;
    uint32_t incarnation = 0;  // of the session: raised by every reconnection
    uint64_t epoch = 0;        // of the volume: raised by every change of writer
    // Raised by the server whenever content that was not flushed may have been lost.
    uint64_t content_incarnation = 0;
    // The content incarnation since whose beginning even flushed content is missing.
    uint64_t empty_since_incarnation = 0;
    // The lease came with content that an earlier writer may not have flushed. It is counted as a change of this
    // session's: only a flush of all the data covers it. Never changes after the lease was granted.
    bool inherits_unflushed = false;
    // The server has kept the content, and not what a flush of the control space was to make durable: it is of an earlier
    // version that could not.
    bool words_unknown = false;
};

// One of several links, for `tiffin status`.
struct PathStatus {
    char address[80] = {};  // HOST:PORT; a longer one is cut
    // "active" (it takes requests), "ready", "suspect", "joining", "down", "removed"; static
    const char* state = "";
    // Why the last attempt to make it failed; empty: it did not. A longer one is cut.
    char problem[120] = {};
    const char* transport = "";  // that requests take on it, "tcp" or "sdr"; static
    uint32_t delay_us = 0;       // of probes, smoothed
    uint64_t bytes_sent = 0;
    uint64_t bytes_received = 0;
    uint64_t suspicions = 0;
    uint64_t failures = 0;
    // How often requests left it because it was suspected or failed, and what became of those that were on their way then.
    uint64_t failovers = 0;
    uint64_t resent_operations = 0;  // over another link
    uint64_t resent_bytes = 0;
    uint64_t recovered_operations = 0;  // the server had them
    // host::monotonic_ns() of the last time that it was suspected, and that the server had said what it had; 0: never.
    uint64_t suspected_ns = 0;
    uint64_t settled_ns = 0;
};

// Counters since the opening; each is exact, together they are no snapshot.
struct Statistics {
    uint64_t operations[6] = {};  // by OperationKind
    uint64_t bytes_read = 0;
    uint64_t bytes_written = 0;
    uint64_t outcomes[4] = {};  // by Outcome
    // Answers to what was sent after the answer before this one had been counted: how often something had to
    // wait for the network, whatever was sent together and in how many parts the answers came.
    uint64_t round_trips = 0;
    uint64_t copied_bytes = 0;  // through bounce buffers
    uint64_t reconnections = 0;
    uint64_t replayed_operations = 0;
    uint64_t aborts = 0;  // by deadlines
    // Of the data path. All polls before one sleep count as one.
    uint64_t system_calls = 0;
    // sdr: what docs/sdr.md calls datagrams, chunks (of them a message consists) and blocks (of an erasure code).
    uint64_t datagrams_sent = 0;
    uint64_t datagrams_received = 0;
    uint64_t datagrams_refused = 0;  // with a wrong tag, not as they should be, or twice
    uint64_t datagrams_dropped = 0;  // by this host
    uint64_t chunks_lost = 0;        // that this end had to decode or to ask for
    uint64_t chunks_repeated = 0;    // by this end
    uint64_t blocks_decoded = 0;
    uint64_t blocks_failed = 0;  // whose parity was not enough
    uint32_t round_trip_us = 0;  // of the network, smoothed; 0: not measured
    // What gets through to the server, which `auto` reckons with; 0: nothing has filled the path yet.
    uint64_t path_rate_bytes_per_s = 0;
    // Of sessions with several links: how often requests left a link, what they had to send again, and what the server had
    // executed of that which was pending then.
    uint64_t failovers = 0;
    uint64_t resent_operations = 0;
    uint64_t resent_bytes = 0;
    uint64_t recovered_operations = 0;
    uint32_t path_count = 0;  // 0: there is one link
    PathStatus paths[8];
};

// Longer than an answer takes on a fast network; where waking a thread takes long, more is better, which programs measure
// (fuse/host/wake_cost.h).
inline constexpr uint32_t kDefaultBusyPollUs = 50;

// How to open a region; the address and the choice of transport come with the transport's own open
// function. All are copied.
struct OpenOptions {
    // read_steady: content that does not change meanwhile. Refused (ebusy) while a client has the lease; while the session
    // has a connection, the lease is granted by force only. Then, or if the volume was written while it had none, the
    // session is fenced. With start_writing() it becomes a writer like any other.
    enum class Mode : uint8_t { read = 0, write = 1, read_steady = 2 };

    Mode mode = Mode::read;
    bool force = false;  // not mode read: fence the present holder or readers
    // Seal requests and answers, not only what sets sessions up; what sdr's packets say of themselves stays in clear. tcp and
    // sdr do; rc is not taken, or refuses (einval); shm has no network.
    bool encrypt = false;
    uint8_t client_uuid[16] =
        {};  // identifies this client to all servers of a volume: random for each opening
    uint8_t key[32] =
        {};  // the volume's, or with has_reader_key its reader key, which allows only to read over a network
    bool has_reader_key = false;
    const char* volume_name = "";  // at most 63 bytes
    const char* holder_text = "";  // what a second writer is told, such as "host7, process 4711"
    uint16_t slot_count = 64;      // 1 to 1024: how many operations may be in flight
    uint32_t reconnect_timeout_ms = 60000;  // 0: for ever. Then all operations fail, and `closed`
    // How long a waiting thread polls for an answer before it sleeps, while answers come that fast (tcp); rc: 200 at
    // least. 0: not at all.
    uint32_t busy_poll_us = kDefaultBusyPollUs;
};

// The holder of the write lease that was asked for: its OpenOptions::holder_text.
struct Holder {
    char text[64] = {};  // terminated; control characters were replaced
    bool reads =
        false;  // it has no lease, and reads content that must not change (OpenOptions::Mode::read_steady)
};

// What a session tells its owner about itself.
class ConnectionListener {
  public:
    // After each change of ConnectionInfo, and before any operation completes because of it. From any
    // thread, with the transport's locks held: the rules of Operation::complete apply.
    virtual void connection_changed(const ConnectionInfo& info) = 0;

  protected:
    ~ConnectionListener() = default;
};

class RemoteMemory {
  public:
    // Precondition: close() has returned.
    virtual ~RemoteMemory() = default;

    virtual const Geometry& geometry() const = 0;
    virtual const Limits& limits() const = 0;
    virtual ConnectionInfo connection() const = 0;
    virtual Statistics statistics() const = 0;

    // Starts `first` and the operations linked behind it by `next`, in this order and at once: they are
    // put on the network together. Never blocks and never fails: errors come with the completions.
    virtual void submit(Operation& first) = 0;

    // Sends what is kept for what follows it (Operation::more_follows). Cheap when there is nothing.
    virtual void send_gathered() {}

    // Returns once `operation` has completed. Precondition: it has no `complete` function, and no other
    // thread waits for it. The caller helps: one of all waiting threads polls the network for all,
    // the others sleep. It may look at Operation::finished itself instead, if another thread polls.
    virtual void wait(Operation& operation) = 0;

    // The same for a thread that waits for operations with `complete` functions, which change `count`: see
    // vfs::BlockDevice::help(). While threads come back for it, what they leave is found by the session's thread within
    // two milliseconds, and each look for answers may take 20 ms, if others complete what they wait for.
    virtual bool help(const std::atomic<uint32_t>& count, uint32_t seen) {
        (void)count;
        (void)seen;
        return false;
    }

    // Does what can be done without sleeping; returns how many operations completed. For callers that
    // poll several regions. Calls are optional: a thread of the session polls when no other thread waits.
    virtual size_t progress() = 0;

    // Memory that buffers will come from, so that the device can read and write it directly. It stays
    // registered, and must stay allocated, until close(). Errors: enomem, enospc (too many arenas).
    virtual Result<void> add_arena(MutableByteSpan memory) = 0;

    // A session that was opened to read becomes the writer. Blocks. Errors: ebusy (another client has the
    // lease: `holder` names it), erofs, estale, etimedout.
    virtual Result<void> start_writing(bool force, Holder& holder) = 0;

    // What a server that has lost its memory has lost of ours is known by counting: how many writes and
    // atomics were executed, and how many of these were flushed. A flush of the whole address space counts
    // by itself. Only a caller that flushes by ranges knows when they are all: it takes the mark before it
    // begins to collect them, and gives it back when the last of them has been flushed.
    virtual uint64_t change_mark() const = 0;
    virtual void changes_flushed(uint64_t mark) = 0;

    // The address of a range of the data when it is memory of this process (shm), else nullptr; valid
    // until close(). Only for reading.
    virtual const void* direct_address(uint64_t offset_bytes, uint64_t size_bytes) {
        (void)offset_bytes;
        (void)size_bytes;
        return nullptr;
    }

    // One more link, which joins soon, or is tried again and again (its state is in statistics()); and one less, which carries
    // no new operations, and ends when those on it have been answered. Nothing is sent again for it. Removing waits for that.
    // A session with one link, over tcp or sdr, resumes once to get a second one; one of transport=auto stays with tcp then.
    // Errors: eopnotsupp (shm, rc that began with one link, or the server knows no further links), eagain (there is no connection at present), eexist
    // (add: it is there), enospc (add: there are 8), enoent (remove: it is not there), ebusy (remove: no other link is ready),
    // etimedout (remove: it goes on without the caller), enomem.
    virtual Result<void> add_link(const char* host, uint16_t port) {
        (void)host;
        (void)port;
        return Error::eopnotsupp;
    }
    virtual Result<void> remove_link(const char* host, uint16_t port) {
        (void)host;
        (void)port;
        return Error::eopnotsupp;
    }

    // Ends the session: gives the lease back, completes what is pending (as unknown or not_executed,
    // enodev) and stops all threads. A caller that wants its operations executed waits for them first.
    // No other call may be running or follow, but for the destructor.
    virtual void close() = 0;
};

inline void Operation::reset() {
    next = nullptr;
    outcome = Outcome::pending;
    old_value = 0;
    content_incarnation = 0;
    finished.store(0, std::memory_order_relaxed);
}

// For transports: hands an operation back. The results other than the outcome are in it already.
// Nothing may touch the operation after this call.
inline void complete_operation(Operation& operation, Outcome outcome) {
    operation.outcome = outcome;
    operation.next = nullptr;
    if (operation.complete != nullptr) {
        operation.complete(operation);
    } else {
        operation.finished.store(1, std::memory_order_release);
    }
}

}  // namespace tiffin::rdma_blk
