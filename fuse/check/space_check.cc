// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/check/space_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <vector>

#include "fs/tiffinfs/space/bitmap_block.h"

namespace tiffin::check {

using tiffinfs::BitmapSlots;
using tiffinfs::kBitmapWords;
using tiffinfs::Superblock;
using tiffinfs::TwoBitmaps;

namespace {

// A made-up superblock may promise billions of bitmaps that do not exist: after so many bad ones in a
// row where nothing is in use, the rest is taken for bad as well.
constexpr uint64_t kMaximumBadGroups = 1024;

std::string group_text(uint64_t group) { return fmt::format("group {}", group); }

class SpaceCheck {
  public:
    SpaceCheck(Context& context, const Superblock& superblock, const TreeUsage& usage)
        : context_(context),
          superblock_(superblock),
          usage_(usage),
          bitmaps_(std::make_unique<TwoBitmaps>()) {}

    uint64_t run() {
        const uint64_t groups = superblock_.initialized_groups;
        uint64_t kept_groups = groups;
        uint64_t bad_in_a_row = 0;
        for (uint64_t group = 0; group < groups && !context_.cancelled(); ++group) {
            context_.progress(Phase::space,
                              static_cast<double>(group) / static_cast<double>(groups));
            bad_in_a_row = check_group(group) ? 0 : bad_in_a_row + 1;
            if (bad_in_a_row >= kMaximumBadGroups &&
                group >= usage_.blocks.end_of_touched_groups()) {
                (void)context_.found(Code::bitmap_invalid,
                                     fmt::format("groups {} to {}", group + 1, groups - 1),
                                     "not looked at, after so many damaged bitmaps");
                kept_groups = usage_.blocks.end_of_touched_groups();
                break;
            }
        }
        if (usage_.complete) {
            check_groups_without_bitmap();
            check_totals();
        }
        return kept_groups;
    }

  private:
    bool check_group(uint64_t group) {
        BitmapSlots slots;
        const Result<void> read =
            tiffinfs::read_bitmap_slots(context_.device(), context_.layout, group,
                                        superblock_.generation, bitmaps_->blocks, slots);
        if (!read.ok()) {
            (void)context_.found(
                Code::bitmap_invalid, group_text(group),
                slots.damage != nullptr ? slots.damage : "the device cannot read its bitmap");
            return false;
        }
        if (usage_.complete) {
            uint64_t on_device[kBitmapWords];
            std::memcpy(on_device, bitmaps_->blocks[slots.newest].bits, sizeof on_device);
            compare(group, on_device, usage_.blocks.words(group));
        }
        return true;
    }

    void compare(uint64_t group, const uint64_t* on_device, const uint64_t* expected) {
        Difference missing;
        Difference leaked;
        for (uint32_t i = 0; i < kBitmapWords; ++i) {
            missing.add(i, expected[i] & ~on_device[i]);
            leaked.add(i, on_device[i] & ~expected[i]);
        }
        if (missing.blocks != 0) {
            (void)context_.found(Code::bitmap_wrong, group_text(group),
                                 missing.text(group, "in use are marked free"));
        }
        if (leaked.blocks != 0) {
            (void)context_.found(Code::bitmap_leak, group_text(group),
                                 leaked.text(group, "are marked used and nothing uses them"));
        }
    }

    struct Difference {
        uint64_t blocks = 0;
        uint64_t first = 0;

        void add(uint32_t word, uint64_t bits) {
            if (bits == 0) {
                return;
            }
            if (blocks == 0) {
                first = uint64_t{word} * 64 + static_cast<uint64_t>(std::countr_zero(bits));
            }
            blocks += static_cast<uint64_t>(std::popcount(bits));
        }
        std::string text(uint64_t group, std::string_view what) const {
            return fmt::format("{} blocks {}, the first is block {}", blocks, what,
                               group * tiffinfs::kBlocksPerGroup + first);
        }
    };

    void check_groups_without_bitmap() {
        const SpaceMap& blocks = usage_.blocks;
        for (uint64_t group = blocks.next_touched_group(superblock_.initialized_groups);
             group < blocks.end_of_touched_groups() && !context_.cancelled();
             group = blocks.next_touched_group(group + 1)) {
            const uint64_t used = usage_.blocks.used_blocks(group, group + 1) -
                                  context_.layout.fixed_blocks(group, group + 1);
            if (used != 0) {
                (void)context_.found(
                    Code::bitmap_wrong, group_text(group),
                    fmt::format("{} blocks are in use, but it has no bitmap yet", used));
            }
        }
    }

    void check_totals() {
        const uint64_t used = usage_.blocks.used_blocks(0, context_.layout.groups());
        check_total("used blocks", superblock_.used_blocks, used);
        check_total("objects", superblock_.node_count, usage_.inodes);
        if (superblock_.next_node <= usage_.greatest_node) {
            (void)context_.found(Code::counter, "superblock, next node id",
                                 fmt::format("{} is in use already", superblock_.next_node));
        }
    }

    void check_total(std::string_view name, uint64_t stored, uint64_t counted) {
        if (stored != counted) {
            (void)context_.found(Code::counter, fmt::format("superblock, {}", name),
                                 fmt::format("it says {}, there are {}", stored, counted));
        }
    }

    Context& context_;
    const Superblock& superblock_;
    const TreeUsage& usage_;
    std::unique_ptr<TwoBitmaps> bitmaps_;
};

}  // namespace

uint64_t check_space(Context& context, const Superblock& superblock, const TreeUsage& usage) {
    context.progress(Phase::space, 0);
    const uint64_t kept_groups = SpaceCheck(context, superblock, usage).run();
    context.progress(Phase::space, 1);
    return kept_groups;
}

void read_bitmaps(vfs::BlockDevice& device, const Superblock& superblock,
                  const tiffinfs::Layout& layout, SpaceMap& used) {
    auto bitmaps = std::make_unique<TwoBitmaps>();
    uint64_t bad_in_a_row = 0;
    for (uint64_t group = 0;
         group < superblock.initialized_groups && bad_in_a_row < kMaximumBadGroups; ++group) {
        BitmapSlots slots;
        if (!tiffinfs::read_bitmap_slots(device, layout, group, superblock.generation,
                                         bitmaps->blocks, slots)
                 .ok()) {
            ++bad_in_a_row;
            continue;
        }
        bad_in_a_row = 0;
        uint64_t words[kBitmapWords];
        std::memcpy(words, bitmaps->blocks[slots.newest].bits, sizeof words);
        used.merge_words(group, words);
    }
}

}  // namespace tiffin::check
