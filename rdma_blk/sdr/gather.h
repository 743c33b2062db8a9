// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A message's bytes that lie in several pieces, to be sent from where they are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fs/vfs/span.h"

namespace tiffin::rdma_blk::sdr {

// A head, and what follows it: the caller's, as are the bytes, for as long as the message is sent. One thread at a time: a
// list remembers where the last look at it was, since packet follows packet, and each begins to look from there.
class GatherList {
  public:
    GatherList() = default;
    GatherList(ByteSpan head, const vfs::IoVector* pieces, size_t piece_count)
        : head_(head), pieces_(pieces), piece_count_(piece_count) {}

    uint64_t size_bytes() const {
        uint64_t sum = head_.size();
        for (size_t index = 0; index < piece_count_; index++) {
            sum += pieces_[index].size_bytes;
        }
        return sum;
    }
    // Calls visit(bytes, size) for each part of [offset_bytes, offset_bytes + count_bytes), in order, until it returns
    // false. True: all of them. Precondition: within size_bytes().
    template <typename Visit>
    bool visit(uint64_t offset_bytes, uint64_t count_bytes, Visit visit) const {
        if (count_bytes == 0) {
            return true;
        }
        look_for(offset_bytes);
        uint64_t into_part = offset_bytes - seen_begin_;
        for (size_t next = seen_part_; count_bytes > 0; next++) {
            const ByteSpan part = part_at(next);
            const uint64_t size = std::min<uint64_t>(count_bytes, part.size() - into_part);
            if (size > 0 && !visit(part.data() + into_part, size)) {
                return false;
            }
            count_bytes -= size;
            into_part = 0;
        }
        return true;
    }
    // Copies a part. Precondition: likewise.
    void copy(uint64_t offset_bytes, uint64_t count_bytes, unsigned char* out) const {
        visit(offset_bytes, count_bytes, [&out](const unsigned char* bytes, uint64_t size) {
            std::memcpy(out, bytes, size);
            out += size;
            return true;
        });
    }
    // How many parts were walked over by all visits to find where they begin: for tests.
    uint64_t steps() const { return steps_; }

  private:
    // The head is part 0.
    ByteSpan part_at(size_t index) const {
        return index == 0 ? head_
                          : ByteSpan(static_cast<const unsigned char*>(pieces_[index - 1].data),
                                     pieces_[index - 1].size_bytes);
    }
    // To the part with this byte, forwards or, for what is sent again, backwards.
    void look_for(uint64_t offset_bytes) const {
        while (offset_bytes < seen_begin_) {
            seen_part_--;
            seen_begin_ -= part_at(seen_part_).size();
            steps_++;
        }
        while (offset_bytes - seen_begin_ >= part_at(seen_part_).size()) {
            seen_begin_ += part_at(seen_part_).size();
            seen_part_++;
            steps_++;
        }
    }

    ByteSpan head_;
    const vfs::IoVector* pieces_ = nullptr;
    size_t piece_count_ = 0;
    mutable size_t seen_part_ = 0;     // where the last visit began
    mutable uint64_t seen_begin_ = 0;  // of that part, in the message
    mutable uint64_t steps_ = 0;
};

}  // namespace tiffin::rdma_blk::sdr
