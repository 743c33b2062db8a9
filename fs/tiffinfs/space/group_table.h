// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Finds the BlockGroup of a number among up to 2^34 without reserving memory for all of them: a
// tree of pages that are made when they are first needed and stay. Beside the groups there are a
// few bits for each, so that a search passes over 64 groups at a time.
//
// Threading: everything is lock-free; start() and grow() are for one thread at a time, destruction alone.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

#include "fs/base/relaxed_number.h"
#include "fs/vfs/host.h"
#include "fs/vfs/result.h"

namespace tiffin::tiffinfs {

class BlockGroup;

// What is known about a group without its lock. Bits change under the group's lock, together with
// what they stand for.
enum class GroupBit : uint8_t {
    full,           // nothing can be allocated from it (no free block, or damaged)
    changed,        // since the last seal
    data_deferred,  // has freed data that waits
    node_deferred,  // has freed nodes that wait
    guarded,        // has blocks kept back for replay
};
inline constexpr uint32_t kGroupBits = 5;

struct GroupPage {
    static constexpr uint32_t kWords = 7;
    static constexpr uint32_t kGroups = kWords * 64;

    std::atomic<BlockGroup*> groups[kGroups];
    std::atomic<uint64_t> bits[kGroupBits][kWords];
};
static_assert(sizeof(GroupPage) <= 4096);

class GroupTable {
  public:
    GroupTable() = default;
    // Destroys pages and groups.
    ~GroupTable();
    GroupTable(const GroupTable&) = delete;
    GroupTable& operator=(const GroupTable&) = delete;

    // Once, before anything else. Errors: enomem.
    Result<void> start(uint64_t group_count);
    // Makes room for `group_count` groups; fewer than before change nothing. Errors: enomem.
    Result<void> grow(uint64_t group_count);

    // nullptr when the group has not been made yet.
    BlockGroup* find(uint64_t index) const;
    // The page in which `index` is, made when it is missing; nullptr when there is no memory.
    GroupPage* make_page(uint64_t index);
    // Puts `group` in its place and returns it; when another thread was faster, destroys it and
    // returns the other one. The page must exist.
    BlockGroup* insert(BlockGroup* group);

    // The first group in [first, end) whose full bit is clear, or `end`. Groups that were never
    // touched count as having room.
    uint64_t next_with_room(uint64_t first, uint64_t end) const;

    void set_bit(uint64_t index, GroupBit bit);
    void clear_bit(uint64_t index, GroupBit bit);

    // Calls visit(BlockGroup&) for every group that has `bit`, in ascending order. Groups that get
    // the bit meanwhile may be missed.
    template <typename Visit>
    void for_each(GroupBit bit, Visit visit) const {
        for (uint64_t page_index = 0;; ++page_index) {
            const GroupPage* page = next_page(page_index);
            if (page == nullptr) {
                return;
            }
            for (uint32_t word = 0; word < GroupPage::kWords; ++word) {
                const auto& source = page->bits[static_cast<uint32_t>(bit)][word];
                for (uint64_t bits = source.load(std::memory_order_acquire); bits != 0;
                     bits &= bits - 1) {
                    const auto slot = word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
                    visit(*page->groups[slot].load(std::memory_order_acquire));
                }
            }
        }
    }

  private:
    static constexpr uint32_t kFanout = 512;
    struct Directory {
        std::atomic<void*> entries[kFanout];
    };
    static_assert(sizeof(Directory) <= 4096);

    // The directory at the top, which is on a page, with its depth in the low bits: how many directories, with
    // itself, are above a page.
    static constexpr uintptr_t kDepthMask = 4095;
    struct Top {
        void* node;
        uint32_t depth;
    };
    Top top() const {
        const uintptr_t packed = top_.load(std::memory_order_acquire);
        return {reinterpret_cast<void*>(packed & ~kDepthMask),
                static_cast<uint32_t>(packed & kDepthMask)};
    }
    static uintptr_t pack(void* node, uint32_t depth) {
        return reinterpret_cast<uintptr_t>(node) | depth;
    }

    GroupPage* find_page(uint64_t page_index) const;
    // The first page that exists at or after `page_index`, which is set to its number.
    const GroupPage* next_page(uint64_t& page_index) const;
    void destroy(void* node, uint32_t depth);

    RelaxedNumber page_count_;
    std::atomic<uintptr_t> top_{0};
};

}  // namespace tiffin::tiffinfs
