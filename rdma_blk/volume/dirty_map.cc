// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/volume/dirty_map.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>

namespace tiffin::rdma_blk {
namespace {

constexpr uint64_t kWordBits = 64;

constexpr uint64_t words_for(uint64_t bits) { return (bits + kWordBits - 1) / kWordBits; }
constexpr uint64_t bit_of(uint64_t index) { return uint64_t{1} << (index % kWordBits); }

constexpr uint64_t chunks_for(uint64_t size_bytes) {
    return (size_bytes + DirtyMap::kChunkBytes - 1) / DirtyMap::kChunkBytes;
}

// Zeros, which take no memory until they are written. nullptr: there is no room for them.
template <typename Word>
std::atomic<Word>* map_zeros(uint64_t count) {
    static_assert(sizeof(std::atomic<Word>) == sizeof(Word));
    void* place = mmap(nullptr, count * sizeof(Word), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return place == MAP_FAILED ? nullptr : static_cast<std::atomic<Word>*>(place);
}

template <typename Word>
void unmap(std::atomic<Word>* words, uint64_t count) {
    if (words != nullptr) {
        munmap(static_cast<void*>(words), count * sizeof(Word));
    }
}

}  // namespace

DirtyMap::~DirtyMap() {
    unmap(users_, capacity_chunks_);
    unmap(dirty_, words_for(capacity_chunks_));
    unmap(summary_, words_for(words_for(capacity_chunks_)));
}

Result<void> DirtyMap::create(uint64_t size_bytes) {
    size_bytes_ = size_bytes;
    chunk_count_ = chunks_for(size_bytes);
    capacity_chunks_ = kMostGrowth * chunk_count_;
    users_ = map_zeros<uint32_t>(capacity_chunks_);
    dirty_ = map_zeros<uint64_t>(words_for(capacity_chunks_));
    summary_ = map_zeros<uint64_t>(words_for(words_for(capacity_chunks_)));
    if (users_ == nullptr || dirty_ == nullptr || summary_ == nullptr) {
        return Error::enomem;
    }
    return {};
}

Result<void> DirtyMap::grow(uint64_t size_bytes) {
    TIFFIN_ASSERT(size_bytes >= size_bytes_);
    if (chunks_for(size_bytes) > capacity_chunks_) {
        return Error::efbig;
    }
    size_bytes_ = size_bytes;
    chunk_count_ = chunks_for(size_bytes);
    return {};
}

uint64_t DirtyMap::chunk_end_bytes(uint64_t chunk) const {
    return std::min<uint64_t>((chunk + 1) * kChunkBytes, size_bytes_);
}

// All accesses are sequentially consistent. A writer counts itself, then looks at the dirty bit; a flush
// takes the bit, then looks at the count: so either the flush waits for the writer, or the bit is set
// after the flush has taken it. Bit and summary are kept together in the same way.
void DirtyMap::set_dirty(uint64_t chunk) {
    const uint64_t word = chunk / kWordBits;
    if ((dirty_[word].load() & bit_of(chunk)) == 0) {
        dirty_[word].fetch_or(bit_of(chunk));
    }
    if ((summary_[word / kWordBits].load() & bit_of(word)) == 0) {
        summary_[word / kWordBits].fetch_or(bit_of(word));
    }
}

void DirtyMap::set_all_dirty() {
    for (uint64_t chunk = 0; chunk < chunk_count_; ++chunk) {
        set_dirty(chunk);
    }
}

bool DirtyMap::add_user(uint64_t chunk) {
    uint32_t users = users_[chunk].load();
    while ((users & kFlushing) == 0) {
        if (users_[chunk].compare_exchange_weak(users, users + 1)) {
            return true;
        }
    }
    return false;
}

bool DirtyMap::begin_write(uint64_t offset_bytes, uint64_t length_bytes) {
    TIFFIN_ASSERT(length_bytes > 0 && offset_bytes + length_bytes <= size_bytes_);
    const uint64_t first = offset_bytes / kChunkBytes;
    const uint64_t last = (offset_bytes + length_bytes - 1) / kChunkBytes;
    for (uint64_t chunk = first; chunk <= last; ++chunk) {
        if (!add_user(chunk)) {
            if (chunk > first) {
                end_write(first * kChunkBytes, (chunk - first) * kChunkBytes);
            }
            return false;
        }
    }
    for (uint64_t chunk = first; chunk <= last; ++chunk) {
        set_dirty(chunk);
    }
    return true;
}

void DirtyMap::end_write(uint64_t offset_bytes, uint64_t length_bytes) {
    const uint64_t last = (offset_bytes + length_bytes - 1) / kChunkBytes;
    for (uint64_t chunk = offset_bytes / kChunkBytes; chunk <= last; ++chunk) {
        const uint32_t before = users_[chunk].fetch_sub(1);
        TIFFIN_ASSERT((before & ~kFlushing) > 0);
        if (before == (kFlushing | 1)) {
            drained_.post();
        }
    }
}

bool DirtyMap::start_chunk(uint64_t chunk) {
    const uint32_t before = users_[chunk].fetch_or(kFlushing);
    TIFFIN_ASSERT((before & kFlushing) == 0);
    return before != 0;
}

size_t DirtyMap::take(ByteRange* ranges, size_t capacity) {
    size_t count = 0;
    uint64_t chunks = 0;
    bool full = false;
    while (cursor_ < chunk_count_ && !full) {
        const uint64_t word = cursor_ / kWordBits;
        if (summary_[word / kWordBits].load() == 0) {
            cursor_ = (word / kWordBits + 1) * kWordBits * kWordBits;
            continue;
        }
        if ((summary_[word / kWordBits].fetch_and(~bit_of(word)) & bit_of(word)) == 0) {
            cursor_ = (word + 1) * kWordBits;
            continue;
        }
        uint64_t left = dirty_[word].exchange(0);
        uint64_t wanted = left & ~(bit_of(cursor_) - 1);
        cursor_ = (word + 1) * kWordBits;
        while (wanted != 0) {
            const uint64_t chunk = word * kWordBits + std::countr_zero(wanted);
            const bool joins =
                count > 0 && ranges[count - 1].offset_bytes + ranges[count - 1].length_bytes ==
                                 chunk * kChunkBytes;
            if ((!joins && count == capacity) || chunks == kRoundBytes / kChunkBytes) {
                cursor_ = chunk;
                full = true;
                break;
            }
            if (!joins) {
                ranges[count++] = {chunk * kChunkBytes, 0};
            }
            ranges[count - 1].length_bytes =
                chunk_end_bytes(chunk) - ranges[count - 1].offset_bytes;
            wanted &= wanted - 1;
            left &= ~bit_of(chunk);
            ++chunks;
        }
        if (left != 0) {
            dirty_[word].fetch_or(left);
            summary_[word / kWordBits].fetch_or(bit_of(word));
        }
    }
    for (size_t i = 0; i < count; ++i) {
        const uint64_t end = ranges[i].offset_bytes + ranges[i].length_bytes;
        for (uint64_t at = ranges[i].offset_bytes; at < end; at += kChunkBytes) {
            if (start_chunk(at / kChunkBytes)) {
                drained_.wait();
            }
        }
    }
    return count;
}

void DirtyMap::put(const ByteRange* ranges, size_t count, bool flushed) {
    for (size_t i = 0; i < count; ++i) {
        const uint64_t end = ranges[i].offset_bytes + ranges[i].length_bytes;
        for (uint64_t at = ranges[i].offset_bytes; at < end; at += kChunkBytes) {
            if (!flushed) {
                set_dirty(at / kChunkBytes);
            }
            users_[at / kChunkBytes].fetch_and(~kFlushing);
        }
    }
}

uint64_t DirtyMap::dirty_bytes() const {
    uint64_t chunks = 0;
    for (uint64_t word = 0; word < words_for(chunk_count_); ++word) {
        chunks +=
            static_cast<uint64_t>(std::popcount(dirty_[word].load(std::memory_order_relaxed)));
    }
    return std::min<uint64_t>(chunks * kChunkBytes, size_bytes_);
}

}  // namespace tiffin::rdma_blk
