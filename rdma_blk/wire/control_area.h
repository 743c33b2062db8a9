// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The bytes of a volume's control space. They lie in the server's memory beside the data, outlive the
// server's process with it, and can be read one-sidedly: by a server that starts again, by a client over
// another link, by a successor. docs/remote-format.md has the tables.
//
//   page 0                ControlHeader
//   page 1                LeaseRecord
//   words_offset          words that are free for clients, atomics included
//   sessions_offset       session_count times, session_stride_bytes apart:
//     page 0                SessionRecord
//     from page 1           slot_count SlotEntry                      written by the server only
//     client_offset         ClientRecord, CompletionLog; to whole pages   written by the client only
//
// What different parties write lies on different pages, so that each gets rights to its own only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/vfs/result.h"
#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk::wire {

inline constexpr uint64_t kControlMagic = 0x3145524f43524654;  // "TFRCORE1"
inline constexpr uint32_t kControlVersion = 1;
inline constexpr uint32_t kControlPageBytes = 4096;
inline constexpr uint64_t kLeaseOffset = kControlPageBytes;
inline constexpr uint32_t kMaxSessions = 4096;
// The first words: a flush of the control space makes them durable on a server with a backing.
inline constexpr uint32_t kDurableWordsBytes = 1024;

struct ControlHeader {
    uint64_t magic;
    uint32_t version;
    uint32_t checksum;  // CRC32C of bytes 0 to 127, this field as zero
    uint8_t server_uuid[16];
    uint8_t volume_uuid[16];
    uint64_t data_bytes;
    uint64_t control_bytes;
    uint64_t words_offset;
    uint64_t words_bytes;
    uint64_t sessions_offset;
    uint32_t session_count;
    uint32_t session_stride_bytes;
    uint32_t slot_count;       // of each session
    uint32_t log_entry_count;  // makes the client's part larger, and is not used
    uint32_t client_offset;    // of the client's part in a session's
    uint32_t write_unit_bytes;
    uint8_t atomics_executor;  // 0, as in SessionOpened
    uint8_t durability;
    uint8_t reserved0[6];
    // From here on things change; each has a cache line of its own. Not under the checksum.
    alignas(64) uint64_t epoch;
    uint64_t content_incarnation;
    uint64_t empty_since_incarnation;
    alignas(64) uint64_t server_heartbeat;  // rises while the server lives
    uint64_t server_start_count;            // rises with each start of its process
    uint8_t padding[kControlPageBytes - 128 - 64 - 16];
};
static_assert(sizeof(ControlHeader) == kControlPageBytes);
static_assert(offsetof(ControlHeader, epoch) == 128);

// The right to write. `epoch` is stored last when a lease is granted, and first (0) when it ends.
struct LeaseRecord {
    uint64_t epoch;  // 0: no holder
    uint64_t session_id;
    uint8_t client_uuid[16];
    int64_t granted_realtime_ns;
    char holder_text[kHolderTextBytes];
    // 1: the content is that of the backing, as the last writer flushed all before it gave the lease back, or
    // nothing was written since the backing was read. 0 from a grant on, before the writer hears of it.
    uint32_t is_flushed;
    uint8_t padding[kControlPageBytes - 108];
};
static_assert(sizeof(LeaseRecord) == kControlPageBytes);

// The aligned 64 bytes that a request is writing just now, where the processor has no store of that size: a server that
// starts again writes them once more, so that they are never half old and half new. Earlier versions know nothing of it.
struct UnitMark {
    uint64_t offset_bytes;
    uint32_t
        state;  // 0: nothing is being written. Else AddressSpace + 1; stored when the rest is there
    uint8_t reserved0[4];
    uint64_t server_start_count;  // of the process that wrote it: only the next one may believe it
    uint8_t reserved1[40];
    uint8_t bytes[64];
};
static_assert(sizeof(UnitMark) == 128);

enum class SessionState : uint32_t { free = 0, open = 1, fenced = 2 };

struct SessionRecord {
    uint64_t session_id;
    uint8_t client_uuid[16];
    uint64_t epoch;  // under which it may write; 0: a reader
    uint32_t state;  // SessionState, stored last when a session opens
    uint32_t incarnation;
    uint32_t slot_count;
    // Of the client whose process has the data mapped for writing (shm), else 0; set before it gets the memory. A
    // server that starts again finds the process by both, as numbers are used again.
    uint32_t process_id;
    uint64_t process_start_ticks;  // since the machine's start, as in /proc/PID/stat
    uint32_t reads_steadily;       // 1: SessionMode::read_steady, and has not got the lease since
    char holder_text[kHolderTextBytes];
    uint8_t reserved[4];
    UnitMark unit;
    uint8_t padding[kControlPageBytes - 256];
};
static_assert(sizeof(SessionRecord) == kControlPageBytes);
static_assert(offsetof(SessionRecord, unit) == 128);

enum class SlotState : uint8_t {
    free = 0,
    done = 1,      // outcome, error and value are the reply to `sequence`
    prepared = 2,  // an atomic: `offset_bytes` held `value` and is about to become `new_value`
};

// The last request of a slot but reads, and its reply. Written in an order that a process may end in at any
// point: `sequence` becomes 0, then the rest changes, then it is set; a prepared one becomes done in place.
struct SlotEntry {
    uint64_t sequence;
    uint64_t value;
    uint64_t new_value;
    uint64_t offset_bytes;
    uint32_t incarnation;
    uint16_t error;
    uint8_t outcome;    // Outcome
    uint8_t state;      // SlotState
    uint8_t operation;  // OperationKind
    uint8_t space;      // AddressSpace
    uint8_t reserved[22];
};
static_assert(sizeof(SlotEntry) == 64);

struct ClientRecord {
    uint64_t heartbeat;  // rises while the client lives; written one-sidedly
    uint8_t reserved[56];
};
static_assert(sizeof(ClientRecord) == 64);

// The completion log of a client that writes one-sidedly (rc), right behind its ClientRecord. The client writes it on the
// queue pair that carried the writes, behind them: a queue pair executes writes in order, so all writes up to that number
// have been executed. A session begins with 0, which the client writes before any other write; the number only grows.
// After Varuna (arXiv:2603.28001).
struct CompletionLog {
    uint64_t number;  // Operation::submit_number
    uint8_t reserved[56];
};
static_assert(sizeof(CompletionLog) == 64);
inline constexpr uint32_t kCompletionLogOffset = sizeof(ClientRecord);  // from client_offset on
// Earlier versions reserved so much for each entry of another log, which was never written.
inline constexpr uint32_t kLogEntryBytes = 32;

// Where everything lies.
struct ControlLayout {
    uint64_t words_offset = 0;
    uint64_t words_bytes = 0;
    uint64_t sessions_offset = 0;
    uint32_t session_count = 0;
    uint32_t session_stride_bytes = 0;
    uint32_t slot_count = 0;
    uint32_t log_entry_count = 0;
    uint32_t client_offset = 0;
    uint64_t control_bytes = 0;

    uint64_t session_offset(uint32_t session) const {
        return sessions_offset + static_cast<uint64_t>(session) * session_stride_bytes;
    }
};

// Lays a control space out. Errors: einval (a count is 0 or above its bound, words_bytes is no multiple
// of the page or above 2^40).
Result<ControlLayout> make_control_layout(uint32_t session_count, uint32_t slot_count,
                                          uint32_t log_entry_count, uint64_t words_bytes);

// The layout that the header of a control space describes. Errors: eproto (not a header,
// or damaged, or not of `control_bytes`).
Result<ControlLayout> check_control_header(const ControlHeader& header, uint64_t control_bytes);

// Sets the checksum of a header whose fixed fields are set.
void seal_control_header(ControlHeader& header);

}  // namespace tiffin::rdma_blk::wire
