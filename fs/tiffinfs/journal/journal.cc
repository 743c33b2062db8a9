// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The journal's writer: appending, group commit and the accounting of the ring.
#include "fs/tiffinfs/journal/journal.h"

#include <new>

#include "fs/base/race_point.h"
#include "fs/base/short_wait.h"
#include "fs/base/text.h"
#include "fs/vfs/numbers.h"

namespace tiffin::tiffinfs {
namespace {

constexpr bool is_power_of_two(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

// A frame is at most this part of the ring: the end of the ring that a wrap may waste is always
// kept free, and must not be most of a small journal.
constexpr uint64_t kFramesPerRing = 8;
// Room that a processor keeps for its next reservations, which are given back for the most part; less in a small ring,
// nothing in one where that would be too little.
constexpr uint64_t kBytesAtHand = 64U << 10;
constexpr uint64_t kLeastBytesAtHand = 16U << 10;
constexpr uint64_t kPartAtHand = 512;
static_assert(kMinimumJournalBytes / kFramesPerRing >= kBlockBytes);
static_assert(kMaximumFramePayloadBytes <= OpenBuffer::kMaximumBytes);
// The largest transaction takes the whole of a buffer, and no more.
static_assert(kBlockBytes % OpenBuffer::kUnitBytes == 0 &&
              sizeof(FrameHeader) % OpenBuffer::kUnitBytes == 0);
static_assert(kMaximumFramePayloadBytes / (sizeof(TransactionHeader) + sizeof(RecordHeader)) <=
              OpenBuffer::kMaximumTransactions);

}  // namespace

Journal::Journal(vfs::BlockDevice& device) : device_(device) {
    // Also of a journal that is never started, as that of a volume that is only read.
    first_ticket_[0].store(1, std::memory_order_relaxed);
}

Journal::~Journal() { release_buffers(); }

Result<void> Journal::start(const Superblock& superblock, const JournalPosition& position,
                            const JournalPosition& tail, uint64_t incarnation,
                            uint64_t generation) {
    TIFFIN_ASSERT(capacity_ == 0);
    const vfs::DeviceGeometry& geometry = device_.geometry();
    const uint64_t device_blocks = geometry.size_bytes / kBlockBytes;
    const uint64_t first_block = superblock.journal_first_block;
    const uint64_t block_count = superblock.journal_block_count;
    if (block_count < kMinimumJournalBytes / kBlockBytes || first_block > device_blocks ||
        block_count > device_blocks - first_block || !is_power_of_two(geometry.write_unit_bytes) ||
        geometry.write_unit_bytes > kBlockBytes) {
        return Error::einval;
    }
    const uint64_t capacity = block_count * kBlockBytes;
    if (position.offset_bytes > capacity || tail.offset_bytes >= capacity) {
        return Error::einval;
    }

    const uint64_t share = capacity / kFramesPerRing / kBlockBytes * kBlockBytes;
    volatile_cache_ = geometry.volatile_cache;
    maximum_frame_bytes_ = static_cast<uint32_t>(
        share < kMaximumFramePayloadBytes ? share : kMaximumFramePayloadBytes);
    const uint32_t maximum_payload_bytes = maximum_frame_bytes_ - sizeof(FrameHeader);
    maximum_transaction_bytes_ = maximum_payload_bytes < kMaximumTransactionBytes
                                     ? maximum_payload_bytes
                                     : kMaximumTransactionBytes;
    TRY(allocate_buffers());

    volume_nonce_ = superblock.volume_nonce;
    incarnation_ = incarnation;
    first_byte_ = first_block * kBlockBytes;
    capacity_ = capacity;
    unit_ = geometry.write_unit_bytes < kFrameAlignmentBytes ? kFrameAlignmentBytes
                                                             : geometry.write_unit_bytes;
    MutexLock lock(buffer_mutex_);
    generation_ = generation;
    head_ = position;
    head_.offset_bytes = round_up(position.offset_bytes, unit_) % capacity_;
    tail_ = tail;
    sealed_position_ = head_;
    const uint64_t taken = distance_to_head(tail_);
    taken_.store(taken, std::memory_order_relaxed);
    // Processors keep room at hand as long as a quarter of the ring is left, and then all of them together not
    // more than a part of that.
    const uint64_t part = capacity_ / kPartAtHand;
    const uint64_t batch = part < kLeastBytesAtHand ? 0 : part < kBytesAtHand ? part : kBytesAtHand;
    available_.start(static_cast<int64_t>(capacity_) - static_cast<int64_t>(taken) -
                         static_cast<int64_t>(maximum_frame_bytes_),
                     static_cast<int64_t>(batch), static_cast<int64_t>(capacity_ / 4));
    return {};
}

Result<void> Journal::allocate_buffers() {
    for (unsigned char*& memory : memory_) {
        memory = static_cast<unsigned char*>(host::allocate_pages(maximum_frame_bytes_));
        if (memory == nullptr) {
            release_buffers();
            return Error::enomem;
        }
    }
    return {};
}

void Journal::release_buffers() {
    for (unsigned char*& memory : memory_) {
        if (memory != nullptr) {
            host::release_pages(memory, maximum_frame_bytes_);
            memory = nullptr;
        }
    }
}

// ---- The ring -----------------------------------------------------------------------------------
// `taken` is what lies between the tail and the head, `promised` what the open reservations and the
// buffered transactions may need: for each its size, a frame header and less than one write unit of
// padding, as if it were alone in its frame. A reservation is accepted only while
//     taken + promised + maximum frame <= capacity.
// From then on, writing moves bytes from promised to taken, and at most once a frame does not fit
// before the end of the ring and wastes less than its own length there: a second wrap would need
// more than a whole ring of promised bytes. So the head never meets the tail.

uint64_t Journal::promise_of(uint32_t size_bytes) const {
    return uint64_t{size_bytes} + sizeof(FrameHeader) + unit_;
}

bool Journal::try_reserve(uint32_t size_bytes) {
    if (size_bytes > maximum_transaction_bytes_) {
        return false;
    }
    return available_.take(static_cast<int64_t>(promise_of(size_bytes)));
}

void Journal::unreserve(uint32_t size_bytes) {
    available_.give(static_cast<int64_t>(promise_of(size_bytes)));
}

uint64_t Journal::available_bytes() const {
    const int64_t available = available_.sum();
    return available > 0 ? static_cast<uint64_t>(available) : 0;
}

uint64_t Journal::distance_to_head(const JournalPosition& tail) const {
    if (tail.sequence == head_.sequence) {
        return 0;
    }
    const uint64_t distance = (head_.offset_bytes + capacity_ - tail.offset_bytes) % capacity_;
    return distance != 0 ? distance : capacity_;
}

void Journal::release_before(const JournalPosition& tail) {
    MutexLock lock(buffer_mutex_);
    TIFFIN_ASSERT(tail.offset_bytes < capacity_);
    TIFFIN_ASSERT(tail.sequence >= tail_.sequence && tail.sequence <= head_.sequence);
    tail_ = tail;
    const uint64_t taken = distance_to_head(tail);
    const uint64_t before = taken_.exchange(taken, std::memory_order_relaxed);
    TIFFIN_ASSERT(taken <= before);
    available_.give(static_cast<int64_t>(before - taken));
}

bool Journal::fuller_than(uint32_t percent) const {
    // Divided first: a ring of many exbibytes does not exist, but must not overflow either.
    return taken_.load(std::memory_order_relaxed) > capacity_ / 100 * percent;
}

// ---- Appending ----------------------------------------------------------------------------------

uint64_t Journal::append(ByteSpan records, uint32_t record_count, uint32_t reserved_bytes,
                         uint64_t* pending_bytes) {
    TIFFIN_ASSERT(record_count > 0 && records.size() >= sizeof(RecordHeader) &&
                  records.size() % 4 == 0);
    TIFFIN_ASSERT(records.size() <= reserved_bytes - sizeof(TransactionHeader) &&
                  reserved_bytes <= maximum_transaction_bytes_);
    const auto size_bytes = static_cast<uint32_t>(sizeof(TransactionHeader) + records.size());

    OpenBuffer::State before;
    do {
        if (dead()) [[unlikely]] {
            unreserve(reserved_bytes);
            if (pending_bytes != nullptr) {
                *pending_bytes = 0;
            }
            // Behind all others, which is all that it has to be: none of them becomes durable any more.
            return last_placed_ticket() + swallowed_.fetch_add(1, std::memory_order_relaxed) + 1;
        }
    } while (!take_place(size_bytes, before));

    const uint32_t slot = before.slot();
    unsigned char* const place = memory_[slot] + sizeof(FrameHeader) + before.bytes();
    const uint64_t ticket =
        first_ticket_[slot].load(std::memory_order_relaxed) + before.transaction_count();
    if (pending_bytes != nullptr) {
        *pending_bytes =
            closed_bytes_.load(std::memory_order_relaxed) + before.bytes() + size_bytes;
    }
    const TransactionHeader header{static_cast<uint32_t>(records.size()), record_count};
    race_point();
    __builtin_memcpy(place, &header, sizeof(header));
    __builtin_memcpy(place + sizeof(header), records.data(), records.size());
    race_point();
    // Releasing: the thread that writes the frame waits for this.
    ended_copies_[host::concurrency_hint() % kCopyStripes].count[slot].fetch_add(
        1, std::memory_order_release);
    // The reservation shrinks to what the transaction really needs.
    available_.give(static_cast<int64_t>(reserved_bytes - size_bytes));
    return ticket;
}

// A place in the open buffer. False: there was none, and it may be tried again.
bool Journal::take_place(uint32_t size_bytes, OpenBuffer::State& before) {
    const uint32_t capacity_bytes =
        maximum_frame_bytes_ - static_cast<uint32_t>(sizeof(FrameHeader));
    if (open_.take_place(size_bytes, capacity_bytes, before)) [[likely]] {
        return true;
    }
    MutexLock lock(buffer_mutex_);
    // Unless another thread has opened another one meanwhile.
    if (open_.look().bytes() + OpenBuffer::place_bytes(size_bytes) > capacity_bytes &&
        !close_open_buffer()) {
        wait_for_free_buffer();
    }
    return false;
}

uint64_t Journal::last_placed_ticket() const {
    for (;;) {
        const OpenBuffer::State state = open_.look();
        race_point();
        const uint64_t first = first_ticket_[state.slot()].load(std::memory_order_acquire);
        // Else it may be that of a later buffer in the same slot.
        if (open_.look().is_of_same_buffer(state)) {
            return first + state.transaction_count() - 1;
        }
    }
}

uint64_t Journal::last_ticket() const {
    return last_placed_ticket() + swallowed_.load(std::memory_order_relaxed);
}

// A copy takes less than a microsecond, unless the thread has lost its processor.
void Journal::wait_for_copies(const Buffer& closed, uint32_t slot) {
    ShortWait wait;
    for (;;) {
        uint64_t ended = 0;
        for (const EndedCopies& stripe : ended_copies_) {
            ended += stripe.count[slot].load(std::memory_order_acquire);
        }
        if (ended == closed.copies_begun) {
            return;
        }
        wait.once();
    }
}

bool Journal::close_open_buffer() {
    if (open_index_ + 1 - write_index_ == kBufferCount) {
        return false;
    }
    const auto slot = static_cast<uint32_t>(open_index_ % kBufferCount);
    const auto next_slot = static_cast<uint32_t>((open_index_ + 1) % kBufferCount);
    const uint64_t first_ticket = first_ticket_[slot].load(std::memory_order_relaxed);
    OpenBuffer::State state = open_.look();
    for (;; state = open_.look()) {
        // No thread looks there as long as that buffer is not the open one.
        first_ticket_[next_slot].store(first_ticket + state.transaction_count(),
                                       std::memory_order_release);
        race_point();
        if (open_.close(state, next_slot)) {
            break;
        }
    }
    ++open_index_;
    Buffer& closed = buffers_[slot];
    closed.bytes = state.bytes();
    closed.transaction_count = state.transaction_count();
    closed.generation = generation_;
    closed.last_ticket = first_ticket + state.transaction_count() - 1;
    closed.copies_begun += closed.transaction_count;
    // Changed under the lock only; a store is cheaper than an addition in one step.
    closed_bytes_.store(closed_bytes_.load(std::memory_order_relaxed) + closed.bytes,
                        std::memory_order_relaxed);
    return true;
}

void Journal::wait_for_free_buffer() {
    const uint64_t oldest_ticket = buffers_[write_index_ % kBufferCount].last_ticket;
    buffer_mutex_.unlock();
    // An error means that the journal is dead, which the caller sees for itself.
    (void)commit(oldest_ticket);
    buffer_mutex_.lock();
}

// ---- Group commit -------------------------------------------------------------------------------

Result<void> Journal::commit(uint64_t ticket) {
    if (durable_ticket() >= ticket) {
        return {};
    }
    TIFFIN_ASSERT(ticket <= last_ticket());
    commit_mutex_.lock();
    while (durable_ticket() < ticket && !dead()) {
        if (writing_) {
            ++waiters_;
            ++waits_;
            frame_done_.wait(commit_mutex_);
            --waiters_;
            continue;
        }
        writing_ = true;
        commit_mutex_.unlock();
        write_next_frame();
        commit_mutex_.lock();
        writing_ = false;
        if (waiters_ != 0) {
            frame_done_.notify_all();
        }
    }
    commit_mutex_.unlock();
    if (durable_ticket() >= ticket) {
        return {};
    }
    return Error::eio;
}

void Journal::write_next_frame() {
    Frame frame;
    if (!take_frame(frame)) {
        return;
    }
    wait_for_copies(frame.contents, frame.slot);
    close_gaps(frame);
    place_frame(frame);
    finish_header(frame);
    Result<void> written = write_frame(frame);
    if (written.ok()) {
        publish_frame(frame);
        return;
    }
    dead_.store(true, std::memory_order_release);
    log_line(host::LogLevel::error, "journal: frame ", frame.position.sequence, " of ",
             frame.frame_bytes, " bytes at byte ", first_byte_ + frame.position.offset_bytes,
             " of the device could not be written (error ", errno_value(written.error()),
             "); nothing will be written from now on");
}

// Closes the oldest buffer if it still takes transactions. Only the leader touches a closed buffer.
bool Journal::take_frame(Frame& frame) {
    MutexLock lock(buffer_mutex_);
    if (write_index_ == open_index_) {
        if (open_.look().transaction_count() == 0) {
            return false;
        }
        const bool closed = close_open_buffer();
        TIFFIN_ASSERT(closed);
    }
    frame.slot = static_cast<uint32_t>(write_index_ % kBufferCount);
    frame.contents = buffers_[frame.slot];
    frame.memory = memory_[frame.slot];
    return true;
}

// Brings the transactions together, which lie in places that begin at cache lines.
void Journal::close_gaps(Frame& frame) {
    unsigned char* const payload = frame.memory + sizeof(FrameHeader);
    uint32_t from = 0;
    for (uint32_t i = 0; i < frame.contents.transaction_count; ++i) {
        TransactionHeader header;
        __builtin_memcpy(&header, payload + from, sizeof(header));
        const auto size_bytes =
            static_cast<uint32_t>(sizeof(TransactionHeader)) + header.payload_bytes;
        if (frame.payload_bytes != from) {
            __builtin_memmove(payload + frame.payload_bytes, payload + from, size_bytes);
        }
        frame.payload_bytes += size_bytes;
        from += OpenBuffer::place_bytes(size_bytes);
    }
    TIFFIN_ASSERT(from == frame.contents.bytes);
    frame.promised_bytes = frame.payload_bytes + frame.contents.transaction_count * promise_of(0);
}

// Decides where it goes. Only the leader moves the head.
void Journal::place_frame(Frame& frame) {
    MutexLock lock(buffer_mutex_);
    frame.frame_bytes =
        static_cast<uint32_t>(round_up(sizeof(FrameHeader) + frame.payload_bytes, unit_));
    frame.position = head_;
    if (head_.offset_bytes + frame.frame_bytes > capacity_) {
        frame.skipped_bytes = capacity_ - head_.offset_bytes;
        frame.position.offset_bytes = 0;
    }
    TIFFIN_ASSERT(frame.frame_bytes <= frame.promised_bytes);
    TIFFIN_ASSERT(taken_.load(std::memory_order_relaxed) + frame.skipped_bytes +
                      frame.frame_bytes <=
                  capacity_);
}

void Journal::finish_header(Frame& frame) {
    const Buffer& contents = frame.contents;
    const uint32_t used_bytes = sizeof(FrameHeader) + frame.payload_bytes;
    // The buffer may hold an older frame's bytes there.
    __builtin_memset(frame.memory + used_bytes, 0, frame.frame_bytes - used_bytes);

    auto* header = new (frame.memory) FrameHeader{};
    header->magic = kFrameMagic;
    header->volume_nonce = volume_nonce_;
    header->incarnation = incarnation_;
    header->sequence = frame.position.sequence;
    header->generation = contents.generation;
    header->previous_checksum = frame.position.previous_checksum;
    header->payload_bytes = frame.payload_bytes;
    header->transaction_count = contents.transaction_count;
    header->checksum = host::crc32c(0, frame.memory, used_bytes);
}

// Data, frame and what makes them durable, in one go where the device can: a round trip of a network instead of
// three.
Result<void> Journal::write_frame_at_once(const Frame& frame) {
    if (dead()) {
        return Error::eio;
    }
    // What completes from here on is for the next frame to make durable.
    data_unflushed_.store(false, std::memory_order_release);
    if (device_.geometry().volatile_cache) {
        MutexLock lock(buffer_mutex_);
        ++counters_.flushes;
    }
    const vfs::IoVector bytes{frame.memory, frame.frame_bytes};
    return device_.write_ordered(
        {}, vfs::OrderedWrite{first_byte_ + frame.position.offset_bytes, &bytes, 1});
}

Result<void> Journal::write_frame(const Frame& frame) {
    if (device_.combines_ordered_writes()) {
        return write_frame_at_once(frame);
    }
    const bool volatile_cache = device_.geometry().volatile_cache;
    // The data that the frame names must not be lost when the frame is not.
    if (volatile_cache && data_unflushed_.exchange(false, std::memory_order_acq_rel)) {
        TRY(flush_device());
    }
    if (dead()) {
        return Error::eio;
    }
    TRY(device_.write(first_byte_ + frame.position.offset_bytes, frame.memory, frame.frame_bytes));
    if (volatile_cache) {
        // This flush is as good for data that has been written meanwhile.
        data_unflushed_.store(false, std::memory_order_release);
        TRY(flush_device());
    }
    return {};
}

Result<void> Journal::flush_device() {
    {
        MutexLock lock(buffer_mutex_);
        ++counters_.flushes;
    }
    return device_.flush();
}

void Journal::publish_frame(const Frame& frame) {
    const auto* header = reinterpret_cast<const FrameHeader*>(frame.memory);
    const uint32_t checksum = header->checksum;
    const uint64_t advance = frame.skipped_bytes + frame.frame_bytes;

    MutexLock lock(buffer_mutex_);
    head_.offset_bytes = (frame.position.offset_bytes + frame.frame_bytes) % capacity_;
    head_.sequence = frame.position.sequence + 1;
    head_.previous_checksum = checksum;
    ++write_index_;
    if (write_index_ == first_unsealed_index_) {
        sealed_position_ = head_;
    }
    ++counters_.frames;
    counters_.bytes += frame.frame_bytes;
    taken_.fetch_add(advance, std::memory_order_relaxed);
    available_.give(static_cast<int64_t>(frame.promised_bytes) - static_cast<int64_t>(advance));
    closed_bytes_.store(closed_bytes_.load(std::memory_order_relaxed) - frame.contents.bytes,
                        std::memory_order_relaxed);
    durable_ticket_.store(frame.contents.last_ticket, std::memory_order_release);
}

void Journal::kill() {
    dead_.store(true, std::memory_order_release);
    MutexLock lock(commit_mutex_);
    frame_done_.notify_all();
}

// ---- Generations --------------------------------------------------------------------------------

uint64_t Journal::seal(uint64_t next_generation) {
    MutexLock lock(buffer_mutex_);
    while (!dead() && open_.look().transaction_count() != 0) {
        if (!close_open_buffer()) {
            wait_for_free_buffer();
        }
    }
    generation_ = next_generation;
    first_unsealed_index_ = open_index_;
    if (write_index_ == open_index_) {
        sealed_position_ = head_;
    }
    return last_ticket();
}

JournalPosition Journal::sealed_position() const {
    MutexLock lock(buffer_mutex_);
    return sealed_position_;
}

Journal::Counters Journal::counters() const {
    MutexLock commit_lock(commit_mutex_);
    MutexLock lock(buffer_mutex_);
    Counters counters = counters_;
    counters.waits = waits_;
    return counters;
}

}  // namespace tiffin::tiffinfs
