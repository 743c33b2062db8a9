// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Which blocks of a volume are in use, as the checker has worked it out.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/space/allocator.h"
#include "fs/tiffinfs/space/bitmap_block.h"

namespace tiffin::check {

// A bit for each block; untouched groups take no memory, fixed blocks (and those beyond
// the end of the volume) are set in all groups from the start.
class SpaceMap {
  public:
    explicit SpaceMap(const tiffinfs::Layout& layout) : layout_(layout) {}
    SpaceMap(const SpaceMap&) = delete;
    SpaceMap& operator=(const SpaceMap&) = delete;

    // Marks blocks that lie inside the volume. Ranges that were marked before are added to
    // `conflicts`, if there is one; returns true when there was none.
    bool mark(tiffinfs::BlockRange range, std::vector<tiffinfs::BlockRange>* conflicts = nullptr);
    void unmark(tiffinfs::BlockRange range);
    // Adds what is marked of `range`, which lies in one group, to `found`.
    void find_marked(tiffinfs::BlockRange range, std::vector<tiffinfs::BlockRange>& found) const;
    bool is_marked(uint64_t block) const;
    // Marks all that `other`, a map of the same volume, has marked.
    void merge(const SpaceMap& other);
    // Marks what is set in kBitmapWords words of a group.
    void merge_words(uint64_t group_index, const uint64_t* words);

    // The bits of a group, kBitmapWords words; valid until the map changes.
    const uint64_t* words(uint64_t group) const;
    // Groups in which something beside fixed blocks was marked end here.
    uint64_t end_of_touched_groups() const {
        return groups_.empty() ? 0 : groups_.rbegin()->first + 1;
    }
    // The first of them at or after `group`; end_of_touched_groups() when there is none.
    uint64_t next_touched_group(uint64_t group) const {
        const auto next = groups_.lower_bound(group);
        return next == groups_.end() ? end_of_touched_groups() : next->first;
    }
    // Used blocks in [first_group, end_group), those beyond the end of the volume left out.
    uint64_t used_blocks(uint64_t first_group, uint64_t end_group) const;

    // The next block at or after `from` that is marked neither here nor in `other` (may be nullptr);
    // total_blocks when there is none.
    uint64_t next_free(uint64_t from, const SpaceMap* other) const;

    const tiffinfs::Layout& layout() const { return layout_; }

  private:
    struct Group {
        uint64_t words[tiffinfs::kBitmapWords] = {};
    };
    Group& group(uint64_t index);

    tiffinfs::Layout layout_;
    std::map<uint64_t, std::unique_ptr<Group>> groups_;
    uint64_t last_index_ = ~uint64_t{0};
    Group* last_group_ = nullptr;
    mutable Group scratch_;
};

}  // namespace tiffin::check
