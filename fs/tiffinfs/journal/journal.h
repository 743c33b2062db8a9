// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The journal: makes transactions durable in the order in which they were appended (format.h has
// the bytes). Appending is a copy into memory; commit() writes everything that has been appended, for all
// threads that wait at the same time (group commit), and the caller that comes first does the work itself:
// no hand-over to another thread.
//
// A frame is submitted only after the data that its transactions name has been written
// (transactions are appended after their data writes completed; commit() flushes a volatile device
// cache before and after the frame, all in one round trip where the device can). At most one frame is under way: so a
// valid frame behind an invalid one proves that an acknowledged frame is damaged, while an invalid last one is what a
// power failure leaves.
//
// After a failed write the journal is dead: every later commit fails with eio, nothing is written
// again, and what was durable stays so.
//
// Threading: append, commit and the queries from any thread; lock classes journal_commit (the right
// to write), journal_buffer (opening and closing buffers; an append that finds room takes no lock).
#pragma once

#include <atomic>
#include <cstdint>

#include "fs/base/striped_budget.h"
#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/journal/open_buffer.h"
#include "fs/vfs/block_device.h"
#include "fs/vfs/host.h"
#include "fs/vfs/result.h"
#include "fs/vfs/span.h"

namespace tiffin::tiffinfs {

// Frames start at multiples of at least this, even on devices with smaller write units.
inline constexpr uint32_t kFrameAlignmentBytes = 64;
inline constexpr uint64_t kMinimumJournalBytes = 64U << 10;

// The place of a frame in the ring.
struct JournalPosition {
    uint64_t offset_bytes = 0;       // in the journal
    uint64_t sequence = 1;           // of the frame there
    uint32_t previous_checksum = 0;  // of the frame before it
};

class Journal {
  public:
    explicit Journal(vfs::BlockDevice& device);
    ~Journal();

    // Allocates the buffers and begins to write at `position`, rounded up to the device's write
    // unit. `tail` is the oldest frame that must be kept (same ring); frames carry `incarnation`
    // and `generation`. Once, before anything else. Errors: enomem; einval (the superblock's journal
    // is not inside the device, or smaller than kMinimumJournalBytes).
    Result<void> start(const Superblock& superblock, const JournalPosition& position,
                       const JournalPosition& tail, uint64_t incarnation, uint64_t generation);

    // The largest transaction (payload and TransactionHeader) that this journal takes: a small ring
    // has small frames, so that one wrap does not waste much of it.
    uint32_t maximum_transaction_bytes() const { return maximum_transaction_bytes_; }

    // Promises room in the ring for one transaction of `size_bytes` (payload and TransactionHeader),
    // counting frame headers and padding. False: a checkpoint must free the ring first, or the
    // transaction is larger than maximum_transaction_bytes() allows. Sleeps for moments at most, and
    // only when there seems to be no room. Each reservation is given back as a whole, by one
    // append() or one unreserve() with the same size.
    [[nodiscard]] bool try_reserve(uint32_t size_bytes);
    void unreserve(uint32_t size_bytes);

    // Appends one transaction (at least one record, without its TransactionHeader), using up a
    // reservation of `reserved_bytes`, and returns its ticket: tickets rise by one from 1. May
    // sleep for the journal's own I/O when all buffers are full; cannot fail (a dead journal
    // swallows it). `pending_bytes`, unless nullptr, is what pending_bytes() was then: asking afterwards
    // would be another look at what other processors are changing.
    uint64_t append(ByteSpan records, uint32_t record_count, uint32_t reserved_bytes,
                    uint64_t* pending_bytes = nullptr);

    // Makes all transactions up to `ticket` (one that append() has returned, or 0) durable. Errors:
    // eio (dead). Returns at once when they already are.
    Result<void> commit(uint64_t ticket);

    // The last ticket given out, and the last durable one.
    uint64_t last_ticket() const;
    uint64_t durable_ticket() const { return durable_ticket_.load(std::memory_order_acquire); }
    // What the transactions take in memory that are not durable yet: a background commit is due beyond a limit. Exact
    // when no thread appends or commits meanwhile.
    uint64_t pending_bytes() const {
        return closed_bytes_.load(std::memory_order_relaxed) + open_.look().bytes();
    }
    // The next commit is to flush the device's cache (data was written outside of the journal, and those
    // writes have completed).
    void data_written() {
        if (volatile_cache_) {
            data_unflushed_.store(true, std::memory_order_release);
        }
    }

    // With no transaction open: all appended so far belongs to the sealed generation, all that
    // comes belongs to `next_generation`. Returns the last ticket of the sealed generation; once
    // that is committed, sealed_position() is where the next generation's frames begin.
    uint64_t seal(uint64_t next_generation);
    JournalPosition sealed_position() const;
    // Frames before `tail` (a position between the present tail and the next frame) may be
    // overwritten.
    void release_before(const JournalPosition& tail);

    // More than `percent` of the ring is taken by frames that are not released yet.
    bool fuller_than(uint32_t percent) const;
    uint64_t capacity_bytes() const { return capacity_; }
    // Room for reservations, as try_reserve() counts it; 0 when there is none.
    uint64_t available_bytes() const;
    bool dead() const { return dead_.load(std::memory_order_acquire); }
    // Stops writing for good (shutdown, fencing): as after a failed write. Waiting commits return
    // at once; a frame that is under way may still become durable. The caller holds no lock of
    // class journal_commit or above.
    void kill();

    // What has been done since start, for statistics and cost tests.
    struct Counters {
        uint64_t frames = 0;  // written
        uint64_t bytes = 0;   // of these
        uint64_t flushes = 0;
        uint64_t waits = 0;  // how often a commit waited while another one was writing
    };
    Counters counters() const;

  private:
    // One is written while another takes transactions; the third lets appending go on when that one
    // is full before the device is done.
    static constexpr uint32_t kBufferCount = 3;

    // A frame in the making: room for the FrameHeader, then the payload, so that it is written from
    // where it was built. Set when the buffer is closed; until then open_ says how full it is.
    struct Buffer {
        uint32_t bytes = 0;  // with what lies between the transactions
        uint32_t transaction_count = 0;
        uint64_t generation = 0;
        uint64_t last_ticket = 0;
        uint64_t copies_begun = 0;  // into this memory, since start()
    };
    // Transactions get their places in the open buffer in one atomic step and are copied there afterwards. Each
    // processor counts the copies that have ended, by buffer.
    struct alignas(64) EndedCopies {
        std::atomic<uint64_t> count[kBufferCount]{};
    };
    static constexpr uint32_t kCopyStripes = 8;

    // What the leader of a group commit carries from taking a buffer to publishing its frame.
    struct Frame {
        Buffer contents;                  // a copy
        unsigned char* memory = nullptr;  // belongs to the leader while it writes
        uint32_t slot = 0;                // which of the buffers it is
        uint32_t payload_bytes = 0;
        uint64_t promised_bytes = 0;  // what its transactions count for in available_
        JournalPosition position;     // of this frame, once it has been placed
        uint64_t skipped_bytes = 0;   // at the end of the ring, because the frame did not fit there
        uint32_t frame_bytes = 0;     // with header and padding
    };

    Result<void> allocate_buffers();
    void release_buffers();
    // What a transaction may take of the ring if it is alone in its frame.
    uint64_t promise_of(uint32_t size_bytes) const;
    uint64_t distance_to_head(const JournalPosition& tail) const REQUIRES(buffer_mutex_);

    // The ticket of the last transaction in the open buffer.
    uint64_t last_placed_ticket() const;
    // A place for a transaction of `size_bytes`, with its header: at the end of what `before` says. False: the open
    // buffer was full, and another one has been opened, or the journal is dead.
    bool take_place(uint32_t size_bytes, OpenBuffer::State& before) EXCLUDES(buffer_mutex_);
    // Makes the next buffer the open one; false when all are in use.
    bool close_open_buffer() REQUIRES(buffer_mutex_);
    // Has a buffer written, so that one becomes free; gives up the mutex meanwhile.
    void wait_for_free_buffer() REQUIRES(buffer_mutex_);
    // Until all copies to the memory of a closed buffer have ended.
    void wait_for_copies(const Buffer& closed, uint32_t slot) EXCLUDES(buffer_mutex_);

    // The leader's steps. Only the thread that has set `writing_` calls them.
    void write_next_frame();
    bool take_frame(Frame& frame);
    void close_gaps(Frame& frame);
    void place_frame(Frame& frame) EXCLUDES(buffer_mutex_);
    void finish_header(Frame& frame);
    Result<void> write_frame(const Frame& frame);
    Result<void> write_frame_at_once(const Frame& frame);
    Result<void> flush_device();
    void publish_frame(const Frame& frame);

    vfs::BlockDevice& device_;

    // Fixed from start() on.
    uint64_t volume_nonce_ = 0;
    uint64_t incarnation_ = 0;
    uint64_t first_byte_ = 0;  // of the ring, on the device
    uint64_t capacity_ = 0;
    uint32_t unit_ = 0;  // frames start and end at multiples of it
    uint32_t maximum_frame_bytes_ = 0;
    uint32_t maximum_transaction_bytes_ = 0;
    bool volatile_cache_ = false;

    mutable host::Mutex commit_mutex_{host::LockClass::journal_commit};
    host::Condition frame_done_;
    bool writing_ GUARDED_BY(commit_mutex_) = false;  // a thread leads a group commit
    uint32_t waiters_ GUARDED_BY(commit_mutex_) = 0;
    uint64_t waits_ GUARDED_BY(commit_mutex_) = 0;

    // What each transaction changes, in a cache line of its own. Changed with buffer_mutex_ when the buffer is closed.
    alignas(64) OpenBuffer open_;

    // What each transaction reads, apart from that. Those of the open buffer and of its closed predecessors stay as
    // they are until the buffer has been written.
    alignas(64) unsigned char* memory_[kBufferCount]{};
    std::atomic<uint64_t> first_ticket_[kBufferCount]{};
    // Waiting in closed buffers. Changed under buffer_mutex_, read without it.
    std::atomic<uint64_t> closed_bytes_{0};
    // Tickets given out without a place, since the journal was dead.
    std::atomic<uint64_t> swallowed_{0};
    std::atomic<bool> dead_{false};

    alignas(64) mutable host::Mutex buffer_mutex_{host::LockClass::journal_buffer};
    // Buffers are used in turn: those from write_index_ on wait to be written (or are being
    // written), open_index_ is the one that takes transactions. Both only rise.
    uint64_t open_index_ GUARDED_BY(buffer_mutex_) = 0;
    uint64_t write_index_ GUARDED_BY(buffer_mutex_) = 0;
    uint64_t generation_ GUARDED_BY(buffer_mutex_) = 0;
    Buffer buffers_[kBufferCount] GUARDED_BY(buffer_mutex_);

    JournalPosition head_ GUARDED_BY(buffer_mutex_);  // where the next frame goes
    JournalPosition tail_ GUARDED_BY(buffer_mutex_);
    uint64_t first_unsealed_index_ GUARDED_BY(buffer_mutex_) = 0;  // buffers of the new generation
    JournalPosition sealed_position_ GUARDED_BY(buffer_mutex_);
    Counters counters_ GUARDED_BY(buffer_mutex_);

    // capacity - taken - promised - one frame for the wrap; see try_reserve(). May be negative.
    StripedBudget available_;
    EndedCopies ended_copies_[kCopyStripes];
    // Changed under buffer_mutex_, read without it.
    std::atomic<uint64_t> taken_{0};  // from the tail to the head
    std::atomic<uint64_t> durable_ticket_{0};
    std::atomic<bool> data_unflushed_{false};
};

// Reads frames back, for replay and for the checker.
class JournalReader {
  public:
    explicit JournalReader(vfs::BlockDevice& device);
    ~JournalReader();

    // Starts at `position`, accepting frames of `superblock`'s nonce. Frames of the incarnation of
    // the superblock or of a greater one (each mount raises it) are accepted, never a smaller one
    // after a greater one. `unmounted`: no frame is expected, so that without one the search for later
    // ones, which reads the whole ring, is left out. Errors: enomem; euclean (the journal is not inside
    // the device, or the position not inside the journal).
    Result<void> start(const Superblock& superblock, const JournalPosition& position,
                       bool unmounted = false);

    // The next valid frame's payload, valid until the next call; an empty span at the end of the
    // journal. Errors: eio (the device); euclean when an acknowledged frame is damaged (a later
    // valid frame of the same chain exists), with a log line. Once the end or damage has been
    // reported, further calls report it again.
    Result<ByteSpan> next(FrameHeader& header);
    // Between frames: where another reader can go on. After the end: where the next frame would be
    // written, rounded up to the device's write unit. After euclean: where the damaged frame should
    // be.
    JournalPosition position() const;
    // After euclean: whole frames behind the damaged one, which cannot be replayed without it.
    uint64_t cut_off_frames() const { return cut_off_frames_; }
    // After the end: bytes that look like a frame that was cut off (0: a clean end).
    uint64_t torn_bytes() const { return torn_bytes_; }
    // Of the superblock and of the frames so far; after euclean, also of those that were cut off.
    uint64_t newest_incarnation() const { return incarnation_; }

  private:
    enum class State : uint8_t { reading, ended, damaged };

    // The bytes [offset, offset + size) of the ring, valid until the next call.
    Result<const unsigned char*> bytes_at(uint64_t offset, uint64_t size);
    Result<bool> read_frame_at(uint64_t offset, FrameHeader& header, ByteSpan& payload);
    bool is_expected(const FrameHeader& header) const;
    bool fits(uint64_t offset, const FrameHeader& header) const;
    Result<bool> is_whole(uint64_t offset, const FrameHeader& header);
    void note_if_torn(uint64_t offset, const FrameHeader& header);
    Result<void> check_nothing_follows();

    vfs::BlockDevice& device_;
    uint64_t first_byte_ = 0;  // of the ring, on the device
    uint64_t capacity_ = 0;
    uint32_t unit_ = 0;
    uint64_t volume_nonce_ = 0;
    uint64_t incarnation_ = 0;  // the greatest one seen; frames of smaller ones are stale

    // What is expected next; the offset is right behind the last frame, without its padding.
    JournalPosition next_;
    State state_ = State::reading;
    bool looks_behind_end_ = true;
    uint64_t torn_bytes_ = 0;
    uint64_t cut_off_frames_ = 0;

    // A piece of the ring in memory, larger than any frame.
    unsigned char* window_ = nullptr;
    uint64_t window_capacity_ = 0;
    uint64_t window_offset_ = 0;
    uint64_t window_size_ = 0;
};

// Splits a frame's payload into transactions and records, checking every bound.
class RecordIterator {
  public:
    explicit RecordIterator(ByteSpan payload) : payload_(payload) {}

    struct Record {
        RecordType type;
        Key key;
        ByteSpan value;
        bool ends_transaction;  // the last record of its transaction
    };
    // False at the end. Errors: euclean (malformed).
    Result<bool> next(Record& record);

  private:
    ByteSpan payload_;
    size_t offset_ = 0;
    size_t transaction_end_ = 0;
    uint32_t records_left_ = 0;
};

}  // namespace tiffin::tiffinfs
