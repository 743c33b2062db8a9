// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/check/space_map.h"

#include <bit>

namespace tiffin::check {

using tiffinfs::BlockRange;
using tiffinfs::kBitmapWords;
using tiffinfs::kBlocksPerGroup;

SpaceMap::Group& SpaceMap::group(uint64_t index) {
    if (index == last_index_) {
        return *last_group_;
    }
    std::unique_ptr<Group>& found = groups_[index];
    if (found == nullptr) {
        found = std::make_unique<Group>();
        layout_.set_fixed_bits(index, found->words);
    }
    last_index_ = index;
    last_group_ = found.get();
    return *found;
}

namespace {

void add_block(std::vector<BlockRange>& ranges, uint64_t block) {
    if (!ranges.empty() && ranges.back().first_block + ranges.back().block_count == block) {
        ++ranges.back().block_count;
    } else {
        ranges.push_back({block, 1});
    }
}

}  // namespace

bool SpaceMap::mark(BlockRange range, std::vector<BlockRange>* conflicts) {
    bool free = true;
    for (uint64_t block = range.first_block; block < range.first_block + range.block_count;
         ++block) {
        const uint64_t bit = block % kBlocksPerGroup;
        uint64_t& word = group(block / kBlocksPerGroup).words[bit / 64];
        const uint64_t mask = uint64_t{1} << bit % 64;
        if ((word & mask) == 0) {
            word |= mask;
            continue;
        }
        free = false;
        if (conflicts != nullptr) {
            add_block(*conflicts, block);
        }
    }
    return free;
}

void SpaceMap::find_marked(BlockRange range, std::vector<BlockRange>& found) const {
    const uint64_t* bits = words(range.first_block / kBlocksPerGroup);
    for (uint64_t block = range.first_block; block < range.first_block + range.block_count;
         ++block) {
        const uint64_t bit = block % kBlocksPerGroup;
        if ((bits[bit / 64] >> bit % 64 & 1) != 0) {
            add_block(found, block);
        }
    }
}

void SpaceMap::unmark(BlockRange range) {
    for (uint64_t block = range.first_block; block < range.first_block + range.block_count;
         ++block) {
        const uint64_t bit = block % kBlocksPerGroup;
        group(block / kBlocksPerGroup).words[bit / 64] &= ~(uint64_t{1} << bit % 64);
    }
}

void SpaceMap::merge(const SpaceMap& other) {
    for (const auto& [index, theirs] : other.groups_) {
        merge_words(index, theirs->words);
    }
}

void SpaceMap::merge_words(uint64_t group_index, const uint64_t* other_words) {
    Group& mine = group(group_index);
    for (uint32_t i = 0; i < kBitmapWords; ++i) {
        mine.words[i] |= other_words[i];
    }
}

const uint64_t* SpaceMap::words(uint64_t index) const {
    const auto found = groups_.find(index);
    if (found != groups_.end()) {
        return found->second->words;
    }
    scratch_ = Group();
    layout_.set_fixed_bits(index, scratch_.words);
    return scratch_.words;
}

bool SpaceMap::is_marked(uint64_t block) const {
    const uint64_t bit = block % kBlocksPerGroup;
    return (words(block / kBlocksPerGroup)[bit / 64] >> bit % 64 & 1) != 0;
}

uint64_t SpaceMap::used_blocks(uint64_t first_group, uint64_t end_group) const {
    uint64_t total = layout_.fixed_blocks(first_group, end_group);
    for (auto it = groups_.lower_bound(first_group); it != groups_.end() && it->first < end_group;
         ++it) {
        uint64_t set = 0;
        for (const uint64_t word : it->second->words) {
            set += static_cast<uint64_t>(std::popcount(word));
        }
        const uint64_t beyond_end = kBlocksPerGroup - layout_.blocks_in_group(it->first);
        total += set - beyond_end - layout_.fixed_blocks(it->first, it->first + 1);
    }
    return total;
}

uint64_t SpaceMap::next_free(uint64_t from, const SpaceMap* other) const {
    uint64_t block = from;
    while (block < layout_.total_blocks) {
        const uint64_t index = block / kBlocksPerGroup;
        const uint64_t* mine = words(index);
        const uint64_t* theirs = other == nullptr ? nullptr : other->words(index);
        const uint64_t end = layout_.blocks_in_group(index);
        for (uint64_t bit = block % kBlocksPerGroup; bit < end;) {
            uint64_t used = mine[bit / 64] | (theirs == nullptr ? 0 : theirs[bit / 64]);
            used |= (uint64_t{1} << bit % 64) - 1;  // what lies before `bit`
            if (used != ~uint64_t{0}) {
                const uint64_t free = bit / 64 * 64 + static_cast<uint64_t>(std::countr_one(used));
                if (free < end) {
                    return index * kBlocksPerGroup + free;
                }
                break;
            }
            bit = (bit / 64 + 1) * 64;
        }
        block = (index + 1) * kBlocksPerGroup;
    }
    return layout_.total_blocks;
}

}  // namespace tiffin::check
