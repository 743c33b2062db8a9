// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/support/write_history.h"

#include <algorithm>
#include <random>
#include <utility>

namespace tiffin::test {
namespace {

// std::uniform_int_distribution differs between libraries; seeds must mean the same everywhere.
// The bias of the remainder does not matter here.
uint64_t below(std::mt19937_64& random, uint64_t limit) { return random() % limit; }

bool coin(std::mt19937_64& random) { return (random() >> 32 & 1) != 0; }

}  // namespace

WriteHistory::WriteHistory(SparseImage durable, uint32_t write_unit_bytes, bool volatile_cache)
    : durable_(std::move(durable)),
      current_(durable_.copy()),
      write_unit_bytes_(write_unit_bytes),
      volatile_cache_(volatile_cache) {}

void WriteHistory::write(uint64_t offset_bytes, std::vector<unsigned char> data) {
    current_.write(offset_bytes, data.data(), data.size());
    if (volatile_cache_) {
        pending_.push_back({offset_bytes, std::move(data), true});
    } else {
        durable_.write(offset_bytes, data.data(), data.size());
    }
}

void WriteHistory::write_under_way(uint64_t offset_bytes, std::vector<unsigned char> data) {
    pending_.push_back({offset_bytes, std::move(data), false});
}

void WriteHistory::drop_write_under_way() {
    if (!pending_.empty() && !pending_.back().completed) {
        pending_.pop_back();
    }
}

void WriteHistory::flush() {
    drop_write_under_way();
    for (const Write& write : pending_) {
        durable_.write(write.offset_bytes, write.data.data(), write.data.size());
    }
    pending_.clear();
}

void WriteHistory::overwrite(uint64_t offset_bytes, const std::vector<unsigned char>& data) {
    // Unflushed writes must not bring the old content back.
    flush();
    current_.write(offset_bytes, data.data(), data.size());
    durable_.write(offset_bytes, data.data(), data.size());
}

void WriteHistory::flip_bit(uint64_t offset_bytes, unsigned bit) {
    unsigned char byte = 0;
    current_.read(offset_bytes, &byte, 1);
    overwrite(offset_bytes, {static_cast<unsigned char>(byte ^ (1U << bit))});
}

SparseImage WriteHistory::crash_image(CrashOutcome outcome, uint64_t seed) {
    std::mt19937_64 random(seed);
    SparseImage image = durable_.copy();
    const size_t count = pending_.size();

    const auto apply = [&](const Write& write) {
        image.write(write.offset_bytes, write.data.data(), write.data.size());
    };
    const auto apply_torn = [&](const Write& write) {
        for (size_t at = 0; at < write.data.size(); at += write_unit_bytes_) {
            if (coin(random)) {
                image.write(write.offset_bytes + at, write.data.data() + at,
                            std::min<size_t>(write_unit_bytes_, write.data.size() - at));
            }
        }
    };

    switch (outcome) {
        case CrashOutcome::drop_unflushed:
            break;
        case CrashOutcome::keep_completed:
            for (const Write& write : pending_) {
                if (write.completed) {
                    apply(write);
                }
            }
            break;
        case CrashOutcome::keep_prefix: {
            const size_t kept = below(random, count + 1);
            for (size_t i = 0; i < kept; ++i) {
                apply(pending_[i]);
            }
            if (kept < count) {
                apply_torn(pending_[kept]);
            }
            break;
        }
        case CrashOutcome::keep_suffix:
            for (size_t i = below(random, count + 1); i < count; ++i) {
                apply(pending_[i]);
            }
            break;
        case CrashOutcome::keep_random_writes:
            for (const Write& write : pending_) {
                if (coin(random)) {
                    apply(write);
                }
            }
            break;
        case CrashOutcome::keep_random_units:
            for (const Write& write : pending_) {
                apply_torn(write);
            }
            break;
    }
    return image;
}

}  // namespace tiffin::test
