// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a device holds and what of it would survive a power failure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/support/sparse_image.h"

namespace tiffin::test {

// What becomes of the writes that were not flushed when the power failed. Every outcome is one that
// a real device with a volatile cache may show.
enum class CrashOutcome : uint8_t {
    drop_unflushed,      // none of them happened
    keep_completed,      // all that had completed happened
    keep_prefix,         // a random number of the oldest happened, the last of them torn
    keep_suffix,         // a random number of the newest happened: strongly reordered
    keep_random_writes,  // each happened or not
    keep_random_units,   // each write unit of each happened or not: reordered and torn
};
inline constexpr CrashOutcome kCrashOutcomes[] = {
    CrashOutcome::drop_unflushed, CrashOutcome::keep_completed,     CrashOutcome::keep_prefix,
    CrashOutcome::keep_suffix,    CrashOutcome::keep_random_writes, CrashOutcome::keep_random_units,
};

// Not thread-safe.
class WriteHistory {
  public:
    // With `volatile_cache` false, completed writes are durable at once.
    WriteHistory(SparseImage durable, uint32_t write_unit_bytes, bool volatile_cache);

    // A write that completed.
    void write(uint64_t offset_bytes, std::vector<unsigned char> data);
    // The write that was under way when the power failed: it did not complete, but any part of it
    // may have reached the device.
    void write_under_way(uint64_t offset_bytes, std::vector<unsigned char> data);
    void drop_write_under_way();
    void flush();

    // What a reader sees while the power is on.
    const SparseImage& current() const { return current_; }

    // Damage for good: flushes, then changes what is durable.
    void overwrite(uint64_t offset_bytes, const std::vector<unsigned char>& data);
    void flip_bit(uint64_t offset_bytes, unsigned bit);

    size_t unflushed_writes() const { return pending_.size(); }

    // What would be found after a power failure now. The same seed gives the same image.
    SparseImage crash_image(CrashOutcome outcome, uint64_t seed);

  private:
    struct Write {
        uint64_t offset_bytes = 0;
        std::vector<unsigned char> data;
        bool completed = true;
    };

    SparseImage durable_;
    SparseImage current_;
    uint32_t write_unit_bytes_;
    bool volatile_cache_;
    std::vector<Write> pending_;
};

}  // namespace tiffin::test
