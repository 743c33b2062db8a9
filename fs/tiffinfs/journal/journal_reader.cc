// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Reading the journal back. Whatever the device holds, this ends: every step either accepts a frame
// whose sequence is the next one, or is part of a single pass over the ring.
#include "fs/tiffinfs/journal/journal.h"

#include "fs/base/text.h"
#include "fs/vfs/numbers.h"

namespace tiffin::tiffinfs {
namespace {

// Any frame fits, wherever in its first block it starts.
constexpr uint64_t kWindowBytes = 2U << 20;
// After an orderly unmount only one header is looked at; where more is read, windows become larger.
constexpr uint64_t kFirstWindowBytes = 64U << 10;
static_assert(kBlockBytes + sizeof(FrameHeader) + kMaximumFramePayloadBytes + kBlockBytes <=
              kWindowBytes);

uint64_t used_bytes(const FrameHeader& header) {
    return sizeof(FrameHeader) + uint64_t{header.payload_bytes};
}

}  // namespace

JournalReader::JournalReader(vfs::BlockDevice& device) : device_(device) {}

JournalReader::~JournalReader() {
    if (window_ != nullptr) {
        host::release_pages(window_, window_capacity_);
    }
}

Result<void> JournalReader::start(const Superblock& superblock, const JournalPosition& position,
                                  bool unmounted) {
    TIFFIN_ASSERT(window_ == nullptr);
    const vfs::DeviceGeometry& geometry = device_.geometry();
    const uint64_t device_blocks = geometry.size_bytes / kBlockBytes;
    const uint64_t first_block = superblock.journal_first_block;
    const uint64_t block_count = superblock.journal_block_count;
    if (block_count < kMinimumJournalBytes / kBlockBytes || first_block > device_blocks ||
        block_count > device_blocks - first_block ||
        position.offset_bytes > block_count * kBlockBytes) {
        return Error::euclean;
    }
    capacity_ = block_count * kBlockBytes;
    first_byte_ = first_block * kBlockBytes;
    unit_ = geometry.write_unit_bytes < kFrameAlignmentBytes ? kFrameAlignmentBytes
                                                             : geometry.write_unit_bytes;
    volume_nonce_ = superblock.volume_nonce;
    incarnation_ = superblock.incarnation;
    next_ = position;
    looks_behind_end_ = !unmounted;
    window_capacity_ = capacity_ < kWindowBytes ? capacity_ : kWindowBytes;
    window_ = static_cast<unsigned char*>(host::allocate_pages(window_capacity_));
    if (window_ == nullptr) {
        return Error::enomem;
    }
    return {};
}

Result<ByteSpan> JournalReader::next(FrameHeader& header) {
    if (state_ == State::ended) {
        return ByteSpan();
    }
    if (state_ == State::damaged) {
        return Error::euclean;
    }
    // The writer rounded up to its device's write unit, which is not ours when the image has been
    // copied here from another device; so all units are tried. What is found in a wrong place is
    // not accepted, since a frame with the expected sequence exists only once.
    ByteSpan payload;
    uint64_t tried = capacity_;
    for (uint64_t unit = kFrameAlignmentBytes; unit <= kBlockBytes; unit *= 2) {
        const uint64_t offset = round_up(next_.offset_bytes, unit) % capacity_;
        if (offset != tried && TRY(read_frame_at(offset, header, payload))) {
            return payload;
        }
        tried = offset;
    }
    // It may not have fitted before the end of the ring.
    if (tried != 0 && TRY(read_frame_at(0, header, payload))) {
        return payload;
    }
    if (looks_behind_end_) {
        TRY(check_nothing_follows());
    }
    state_ = State::ended;
    return ByteSpan();
}

JournalPosition JournalReader::position() const {
    // Before the end the writer's unit counts, which may be smaller than ours; see next().
    const uint64_t unit = state_ == State::ended ? unit_ : kFrameAlignmentBytes;
    JournalPosition position = next_;
    position.offset_bytes = round_up(next_.offset_bytes, unit) % capacity_;
    return position;
}

Result<const unsigned char*> JournalReader::bytes_at(uint64_t offset, uint64_t size) {
    TIFFIN_ASSERT(offset <= capacity_ && size <= capacity_ - offset);
    if (offset < window_offset_ || offset + size > window_offset_ + window_size_) {
        const uint64_t start = offset / kBlockBytes * kBlockBytes;
        const uint64_t rest = capacity_ - start;
        const bool goes_on = start >= window_offset_ && start <= window_offset_ + window_size_;
        const uint64_t preferred =
            goes_on && window_size_ != 0 ? 2 * window_size_ : kFirstWindowBytes;
        const uint64_t needed = round_up(offset - start + size, kBlockBytes);
        uint64_t window_size = preferred < needed ? needed : preferred;
        window_size = window_size < window_capacity_ ? window_size : window_capacity_;
        window_size = window_size < rest ? window_size : rest;
        // Nothing is in the window while it is being filled, nor when that fails.
        window_size_ = 0;
        Result<void> read = device_.read(first_byte_ + start, window_, window_size);
        if (!read.ok() && needed < window_size) {
            // A block that cannot be read takes nothing along but itself.
            window_size = needed;
            read = device_.read(first_byte_ + start, window_, window_size);
        }
        TRY(read);
        window_offset_ = start;
        window_size_ = window_size;
        TIFFIN_ASSERT(offset + size <= window_offset_ + window_size_);
    }
    return static_cast<const unsigned char*>(window_ + (offset - window_offset_));
}

// Accepts the frame at `offset` if it is the expected one, or says false.
Result<bool> JournalReader::read_frame_at(uint64_t offset, FrameHeader& header, ByteSpan& payload) {
    FrameHeader found;
    if (capacity_ - offset < sizeof(found)) {
        return false;
    }
    __builtin_memcpy(&found, TRY(bytes_at(offset, sizeof(found))), sizeof(found));
    if (!is_expected(found) || !fits(offset, found) || !TRY(is_whole(offset, found))) {
        note_if_torn(offset, found);
        return false;
    }
    payload = ByteSpan(TRY(bytes_at(offset, used_bytes(found))), used_bytes(found))
                  .subspan(sizeof(FrameHeader));
    header = found;
    incarnation_ = found.incarnation;
    next_.offset_bytes = offset + used_bytes(found);
    next_.sequence = found.sequence + 1;
    next_.previous_checksum = found.checksum;
    torn_bytes_ = 0;
    looks_behind_end_ = true;
    return true;
}

bool JournalReader::is_expected(const FrameHeader& header) const {
    return header.magic == kFrameMagic && header.volume_nonce == volume_nonce_ &&
           header.incarnation >= incarnation_ && header.incarnation < kCounterLimit &&
           header.sequence == next_.sequence && header.previous_checksum == next_.previous_checksum;
}

// Whether there can be a frame with this header at `offset`. One without a transaction is never
// written.
bool JournalReader::fits(uint64_t offset, const FrameHeader& header) const {
    return header.payload_bytes != 0 && header.payload_bytes <= kMaximumFramePayloadBytes &&
           used_bytes(header) <= capacity_ - offset;
}

// Whether the checksum of the frame at `offset`, whose header this is, is right. Precondition:
// fits().
Result<bool> JournalReader::is_whole(uint64_t offset, const FrameHeader& header) {
    const unsigned char* bytes = TRY(bytes_at(offset, used_bytes(header)));
    FrameHeader unsummed = header;
    unsummed.checksum = 0;
    const uint32_t checksum = host::crc32c(0, &unsummed, sizeof(unsummed));
    return host::crc32c(checksum, bytes + sizeof(FrameHeader), header.payload_bytes) ==
           header.checksum;
}

// A frame that was cut off has the expected header unless just that is what was lost. One field may
// be wrong, so that a damaged last frame is seen too; a frame of an older lap differs in two.
void JournalReader::note_if_torn(uint64_t offset, const FrameHeader& header) {
    const int matches = (header.magic == kFrameMagic) + (header.volume_nonce == volume_nonce_) +
                        (header.incarnation >= incarnation_) + (header.sequence == next_.sequence) +
                        (header.previous_checksum == next_.previous_checksum);
    if (matches < 4) {
        return;
    }
    const uint64_t rest = capacity_ - offset;
    torn_bytes_ = used_bytes(header) < rest ? used_bytes(header) : rest;
}

// Since a frame is written only after the one before it is durable, a valid frame of the expected
// sequence or a later one means that the frame we expected had been acknowledged. Frames of older
// laps have smaller sequences; frames of a run that was given up have a smaller incarnation.
Result<void> JournalReader::check_nothing_follows() {
    // Frames do not overlap, so that more bytes than this mean a forgery that is made to be slow.
    uint64_t budget_bytes = 2 * capacity_;
    uint64_t newest = incarnation_;
    for (uint64_t offset = 0; offset < capacity_; offset += kFrameAlignmentBytes) {
        FrameHeader header;
        __builtin_memcpy(&header, TRY(bytes_at(offset, sizeof(header))), sizeof(header));
        if (header.magic != kFrameMagic || header.volume_nonce != volume_nonce_ ||
            header.incarnation < incarnation_ || header.sequence < next_.sequence ||
            !fits(offset, header)) {
            continue;
        }
        if (used_bytes(header) > budget_bytes) {
            ++cut_off_frames_;
            break;
        }
        budget_bytes -= used_bytes(header);
        if (TRY(is_whole(offset, header))) {
            ++cut_off_frames_;
            newest =
                header.incarnation < kCounterLimit ? greater(newest, header.incarnation) : newest;
        }
    }
    incarnation_ = newest;
    if (cut_off_frames_ == 0) {
        return {};
    }
    state_ = State::damaged;
    log_line(host::LogLevel::error, "journal: frame ", next_.sequence, " at byte ",
             first_byte_ + position().offset_bytes, " of the device is damaged, but ",
             cut_off_frames_,
             " whole frames are behind it: acknowledged changes cannot be replayed");
    return Error::euclean;
}

}  // namespace tiffin::tiffinfs
