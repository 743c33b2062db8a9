// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/check/journal_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "fs/tiffinfs/volume/extents.h"
#include "fuse/check/extent_edit.h"
#include "fuse/check/text.h"

namespace tiffin::check {
namespace {

using tiffinfs::FrameHeader;
using tiffinfs::JournalReader;
using tiffinfs::Key;
using tiffinfs::Kind;
using tiffinfs::RecordIterator;
using tiffinfs::RecordType;

constexpr std::string_view kWhere = "journal";

// What is wrong with a record, or nullptr.
const char* find_record_problem(const RecordIterator::Record& record, uint64_t total_blocks) {
    if (record.key.node > tiffinfs::kMaximumNode) {
        return "an impossible node";
    }
    tiffinfs::MappedExtent extent;
    switch (record.type) {
        case RecordType::put:
            return record.key.kind() != Kind::extent ||
                           tiffinfs::parse_extent(record.key, record.value, total_blocks, extent)
                       ? nullptr
                       : "an impossible extent";
        case RecordType::write_extent:
            return tiffinfs::parse_extent(record.key, record.value, total_blocks, extent) &&
                           !extent.lost()
                       ? nullptr
                       : "an impossible extent";
        case RecordType::unmap: {
            uint64_t count = 0;
            std::memcpy(&count, record.value.data(), sizeof count);
            return record.key.kind() == Kind::extent && count != 0 &&
                           record.key.offset() < tiffinfs::kMaximumFileBlocks &&
                           count <= tiffinfs::kMaximumFileBlocks - record.key.offset()
                       ? nullptr
                       : "an impossible range of blocks";
        }
        case RecordType::erase:
        case RecordType::erase_range:
            return nullptr;
    }
    return "an unknown type";
}

class Replay {
  public:
    Replay(Context& context, const tiffinfs::Superblock& superblock, KeySpace& keys)
        : context_(context), superblock_(superblock), keys_(keys), reader_(context.device()) {}

    JournalReplay run() {
        result_.end = journal_start(superblock_);
        if (!reader_.start(superblock_, result_.end).ok()) {
            stop(Code::journal_damaged, "it is not where the superblock says");
            return result_;
        }
        const double capacity =
            static_cast<double>(superblock_.journal_block_count) * tiffinfs::kBlockBytes;
        double bytes = 0;
        while (!context_.cancelled()) {
            context_.progress(Phase::journal, bytes / capacity);
            FrameHeader header;
            const Result<ByteSpan> payload = reader_.next(header);
            if (!payload.ok()) {
                stop(Code::journal_damaged,
                     payload.error() == Error::euclean
                         ? fmt::format(
                               "frame {} is damaged, and {} whole frames behind it cannot be "
                               "replayed without it: their changes were acknowledged",
                               reader_.position().sequence, reader_.cut_off_frames())
                         : std::string("the device cannot read it"));
                break;
            }
            if (payload.value().empty()) {
                break;
            }
            bytes += static_cast<double>(payload.value().size());
            if (!apply_frame(header, payload.value())) {
                break;
            }
            result_.end = reader_.position();
        }
        finish();
        return result_;
    }

  private:
    void finish() {
        result_.greatest_incarnation = reader_.newest_incarnation();
        if (!result_.damaged) {
            result_.end = reader_.position();
        }
        if (!result_.damaged && !context_.cancelled() &&
            result_.end.sequence < context_.checkpoint_sequence) {
            // What was committed for a checkpoint is no frame that was cut off.
            stop(Code::journal_damaged,
                 fmt::format(
                     "frames {} to {} are not there, whose changes were acknowledged and are "
                     "in the newest generation",
                     result_.end.sequence, context_.checkpoint_sequence - 1));
        }
        result_.torn_bytes = result_.damaged ? 0 : reader_.torn_bytes();
        if (result_.frames > 0) {
            context_.note(
                Code::journal_pending, kWhere,
                fmt::format("{} frames with {} transactions {}", result_.frames,
                            result_.transactions,
                            is_to_be_written() ? "are replayed" : "wait for the next mount"));
        }
        // Behind a clean end lies what an interrupted mount before it has left.
        const bool clean = (superblock_.state & tiffinfs::superblock_state::clean) != 0;
        if (result_.torn_bytes > 0 && !clean) {
            context_.note(Code::journal_torn, kWhere,
                          "its last frame was cut off, as a power failure does: nothing in it was "
                          "acknowledged then");
        }
    }

    bool is_to_be_written() const {
        return context_.options().repair && !context_.must_not_write();
    }

    void stop(Code code, std::string_view what) {
        result_.damaged = true;
        (void)context_.found(code, kWhere, what);
    }

    // A frame is looked through before any of it is applied. False: replay ends here.
    bool apply_frame(const FrameHeader& header, ByteSpan payload) {
        RecordIterator checking(payload);
        RecordIterator::Record record;
        while (!context_.cancelled()) {
            const Result<bool> more = checking.next(record);
            if (!more.ok()) {
                stop(Code::journal_record, fmt::format("frame {} is malformed", header.sequence));
                return false;
            }
            if (!more.value()) {
                break;
            }
            if (const char* problem = find_record_problem(record, superblock_.total_blocks);
                problem != nullptr) {
                stop(Code::journal_record, fmt::format("frame {}: {} at {}", header.sequence,
                                                       problem, key_text(record.key)));
                return false;
            }
        }
        RecordIterator applying(payload);
        while (!context_.cancelled()) {
            const Result<bool> more = applying.next(record);
            if (!more.ok() || !more.value()) {
                break;
            }
            if (!apply(record).ok()) {
                stop(Code::node_unreadable, "a part of the tree has become unreadable");
                return false;
            }
            ++result_.records;
            result_.transactions += record.ends_transaction ? 1 : 0;
        }
        ++result_.frames;
        return true;
    }

    Result<void> apply(const RecordIterator::Record& record) {
        switch (record.type) {
            case RecordType::put:
                if (record.key.kind() == Kind::inode) {
                    result_.greatest_node = std::max(result_.greatest_node, record.key.node);
                }
                keys_.put(record.key, record.value);
                break;
            case RecordType::erase:
                keys_.erase(record.key);
                break;
            case RecordType::write_extent:
                TRY(map_extent(keys_, superblock_.total_blocks, record.key, record.value));
                break;
            case RecordType::unmap: {
                uint64_t count = 0;
                std::memcpy(&count, record.value.data(), sizeof count);
                TRY(unmap_range(keys_, superblock_.total_blocks, record.key.node,
                                record.key.offset(), record.key.offset() + count));
                break;
            }
            case RecordType::erase_range: {
                Key end;
                std::memcpy(&end, record.value.data(), sizeof end);
                keys_.erase_range(record.key, end);
                break;
            }
        }
        return {};
    }

    Context& context_;
    const tiffinfs::Superblock& superblock_;
    KeySpace& keys_;
    JournalReader reader_;
    JournalReplay result_;
};

}  // namespace

tiffinfs::JournalPosition journal_start(const tiffinfs::Superblock& superblock) {
    return {superblock.journal_position, superblock.journal_sequence,
            superblock.journal_previous_checksum};
}

JournalReplay replay_journal(Context& context, const tiffinfs::Superblock& superblock,
                             KeySpace& keys) {
    return Replay(context, superblock, keys).run();
}

}  // namespace tiffin::check
