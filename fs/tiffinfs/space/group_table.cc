// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/tiffinfs/space/group_table.h"

#include <new>

#include "fs/tiffinfs/space/block_group.h"

namespace tiffin::tiffinfs {
namespace {

// Pages and directories are atomics that all start as zero.
template <typename T>
T* make_zeroed_page() {
    static_assert(sizeof(T) <= 4096);
    void* memory = host::allocate_pages(4096);
    return memory == nullptr ? nullptr : new (memory) T();
}

}  // namespace

GroupTable::~GroupTable() {
    if (const Top all = top(); all.node != nullptr) {
        destroy(all.node, all.depth);
    }
}

void GroupTable::destroy(void* node, uint32_t depth) {
    // At most four levels deep.
    if (depth == 0) {
        auto* page = static_cast<GroupPage*>(node);
        for (auto& group : page->groups) {
            BlockGroup::destroy(group.load(std::memory_order_relaxed));
        }
    } else {
        auto* directory = static_cast<Directory*>(node);
        for (auto& entry : directory->entries) {
            if (void* child = entry.load(std::memory_order_relaxed); child != nullptr) {
                destroy(child, depth - 1);
            }
        }
    }
    host::release_pages(node, 4096);
}

Result<void> GroupTable::start(uint64_t group_count) {
    TIFFIN_ASSERT(top().node == nullptr);
    auto* root = make_zeroed_page<Directory>();
    if (root == nullptr) {
        return Error::enomem;
    }
    top_.store(pack(root, 1), std::memory_order_release);
    return grow(group_count);
}

Result<void> GroupTable::grow(uint64_t group_count) {
    const uint64_t page_count = (group_count + GroupPage::kGroups - 1) / GroupPage::kGroups;
    for (;;) {
        const Top now = top();
        uint64_t capacity = 1;
        for (uint32_t level = 0; level < now.depth; ++level) {
            capacity *= kFanout;
        }
        if (page_count <= capacity) {
            break;
        }
        // All there is lies below the first entry of a directory above.
        auto* above = make_zeroed_page<Directory>();
        if (above == nullptr) {
            return Error::enomem;
        }
        above->entries[0].store(now.node, std::memory_order_relaxed);
        top_.store(pack(above, now.depth + 1), std::memory_order_release);
    }
    if (page_count > page_count_) {
        page_count_ = page_count;
    }
    return {};
}

GroupPage* GroupTable::find_page(uint64_t page_index) const {
    const Top all = top();
    void* node = all.node;
    for (uint32_t level = all.depth; level > 0 && node != nullptr; --level) {
        const uint64_t entry = (page_index >> (9 * (level - 1))) % kFanout;
        node = static_cast<Directory*>(node)->entries[entry].load(std::memory_order_acquire);
    }
    return static_cast<GroupPage*>(node);
}

GroupPage* GroupTable::make_page(uint64_t index) {
    const uint64_t page_index = index / GroupPage::kGroups;
    TIFFIN_ASSERT(page_index < page_count_);
    const Top all = top();
    void* node = all.node;
    for (uint32_t level = all.depth; level > 0; --level) {
        const uint64_t number = (page_index >> (9 * (level - 1))) % kFanout;
        std::atomic<void*>& entry = static_cast<Directory*>(node)->entries[number];
        void* child = entry.load(std::memory_order_acquire);
        if (child == nullptr) {
            void* made = level > 1 ? static_cast<void*>(make_zeroed_page<Directory>())
                                   : static_cast<void*>(make_zeroed_page<GroupPage>());
            if (made == nullptr) {
                return nullptr;
            }
            if (entry.compare_exchange_strong(child, made, std::memory_order_acq_rel)) {
                child = made;
            } else {
                host::release_pages(made, 4096);
            }
        }
        node = child;
    }
    return static_cast<GroupPage*>(node);
}

const GroupPage* GroupTable::next_page(uint64_t& page_index) const {
    while (page_index < page_count_) {
        // Descends; where a directory is missing, goes on behind all that it would cover.
        const Top all = top();
        void* node = all.node;
        uint64_t missing = 0;
        for (uint32_t level = all.depth; level > 0; --level) {
            const uint32_t shift = 9 * (level - 1);
            const uint64_t entry = (page_index >> shift) % kFanout;
            node = static_cast<Directory*>(node)->entries[entry].load(std::memory_order_acquire);
            if (node == nullptr) {
                missing = uint64_t{1} << shift;
                break;
            }
        }
        if (node != nullptr) {
            return static_cast<const GroupPage*>(node);
        }
        page_index = (page_index / missing + 1) * missing;
    }
    return nullptr;
}

BlockGroup* GroupTable::find(uint64_t index) const {
    const GroupPage* page = find_page(index / GroupPage::kGroups);
    return page == nullptr
               ? nullptr
               : page->groups[index % GroupPage::kGroups].load(std::memory_order_acquire);
}

BlockGroup* GroupTable::insert(BlockGroup* group) {
    const uint64_t index = group->index();
    GroupPage* page = find_page(index / GroupPage::kGroups);
    TIFFIN_ASSERT(page != nullptr);
    BlockGroup* expected = nullptr;
    if (page->groups[index % GroupPage::kGroups].compare_exchange_strong(
            expected, group, std::memory_order_acq_rel)) {
        return group;
    }
    BlockGroup::destroy(group);
    return expected;
}

uint64_t GroupTable::next_with_room(uint64_t first, uint64_t end) const {
    while (first < end) {
        const GroupPage* page = find_page(first / GroupPage::kGroups);
        if (page == nullptr) {
            return first;
        }
        const auto slot = static_cast<uint32_t>(first % GroupPage::kGroups);
        const auto& full = page->bits[static_cast<uint32_t>(GroupBit::full)][slot / 64];
        const uint64_t room = ~full.load(std::memory_order_relaxed) >> slot % 64;
        if (room != 0) {
            first += static_cast<uint64_t>(std::countr_zero(room));
            return first < end ? first : end;
        }
        first += 64 - slot % 64;
    }
    return end;
}

void GroupTable::set_bit(uint64_t index, GroupBit bit) {
    const auto slot = static_cast<uint32_t>(index % GroupPage::kGroups);
    GroupPage* page = find_page(index / GroupPage::kGroups);
    page->bits[static_cast<uint32_t>(bit)][slot / 64].fetch_or(uint64_t{1} << slot % 64,
                                                               std::memory_order_release);
}

void GroupTable::clear_bit(uint64_t index, GroupBit bit) {
    const auto slot = static_cast<uint32_t>(index % GroupPage::kGroups);
    GroupPage* page = find_page(index / GroupPage::kGroups);
    page->bits[static_cast<uint32_t>(bit)][slot / 64].fetch_and(~(uint64_t{1} << slot % 64),
                                                                std::memory_order_release);
}

}  // namespace tiffin::tiffinfs
