// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Ranges of chunks in the order of time: what was sent, or asked for, and when. Whoever waits for answers
// looks at the front only. Consecutive ranges of the same moment become one.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <new>

#include "fs/vfs/result.h"

namespace tiffin::rdma_blk::sdr {

struct LoggedRange {
    uint64_t message_number = 0;
    uint64_t time_ns = 0;
    uint32_t first_chunk = 0;
    uint32_t chunk_count = 0;
};

class RangeLog {
  public:
    // Room for at least `capacity` ranges. Errors: enomem.
    Result<void> allocate(uint32_t capacity) {
        capacity_ = std::bit_ceil(capacity);
        ranges_.reset(new (std::nothrow) LoggedRange[capacity_]);
        return ranges_ == nullptr ? Result<void>(Error::enomem) : Result<void>();
    }

    bool full() const { return count_ == capacity_; }
    bool empty() const { return count_ == 0; }
    const LoggedRange* front() const { return count_ == 0 ? nullptr : &ranges_[first_]; }
    void pop() {
        first_ = (first_ + 1) & (capacity_ - 1);
        count_--;
    }
    // False: full, nothing was written down. Times ascend.
    bool push(const LoggedRange& range) {
        if (count_ > 0) {
            LoggedRange& last = ranges_[(first_ + count_ - 1) & (capacity_ - 1)];
            if (last.message_number == range.message_number && last.time_ns == range.time_ns &&
                last.first_chunk + last.chunk_count == range.first_chunk) {
                last.chunk_count += range.chunk_count;
                return true;
            }
        }
        if (full()) {
            return false;
        }
        ranges_[(first_ + count_) & (capacity_ - 1)] = range;
        count_++;
        return true;
    }

  private:
    std::unique_ptr<LoggedRange[]> ranges_;
    uint32_t capacity_ = 0;
    uint32_t first_ = 0;
    uint32_t count_ = 0;
};

}  // namespace tiffin::rdma_blk::sdr
