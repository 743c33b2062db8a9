// SPDX-License-Identifier: MIT OR GPL-2.0-only
// In this order: new nodes into free blocks; the base is marked unclean; the newest superblock goes if another one is the base;
// new bitmaps into slots that the old state does not use, a flush, the superblock of the next generation, a flush, and the one
// after it, so that the old state is nowhere left to fall back to. An interruption before the first of these two leaves the old
// state in force, with all its bitmaps, or with damaged ones still damaged.
#include "fuse/check/rebuild.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "fs/tiffinfs/volume/superblock.h"
#include "fs/vfs/host.h"
#include "fuse/check/space_check.h"
#include "fuse/check/tree_writer.h"

namespace tiffin::check {

using tiffinfs::BitmapBlock;
using tiffinfs::BitmapSlots;
using tiffinfs::kBlockBytes;
using tiffinfs::Key;
using tiffinfs::Superblock;
using tiffinfs::TwoBitmaps;

namespace {

class Rebuild {
  public:
    Rebuild(Context& context, const RebuildInput& input)
        : context_(context),
          input_(input),
          device_(context.device()),
          layout_(context.layout),
          final_(context.layout),
          avoid_(context.layout),
          prefer_(context.layout),
          bitmaps_(std::make_unique<TwoBitmaps>()) {
        // One more when a slot may hold a superblock that cannot be read: its number is not known.
        generation_ = input.newest.generation + 3;
        if (generation_ % 2 == input.base.generation % 2) {
            ++generation_;  // the slot of the base is written last
        }
    }

    Result<void> run(std::string& problem) {
        problem = "the tree could not be written";
        context_.progress(Phase::repair, 0);
        final_.merge(input_.objects.data_blocks);
        avoid_.merge(input_.old_blocks);
        avoid_.merge(final_);
        read_bitmaps(device_, input_.base, context_.layout, prefer_);
        if (input_.gives_newest_up() && input_.newest.total_blocks == input_.base.total_blocks) {
            read_bitmaps(device_, input_.newest, TRY(tiffinfs::Layout::from(input_.newest)),
                         prefer_);
        }
        const Result<TreeRootRef> root = write_tree();
        if (!root.ok()) {
            if (root.error() == Error::enospc) {
                problem =
                    "there is not enough free space to write the repaired tree; nothing "
                    "was changed";
            }
            return root.error();
        }
        context_.progress(Phase::repair, 0.7);
        if (context_.cancelled()) {
            return Error::eintr;
        }
        problem = "the superblock could not be marked";
        TRY(mark_unclean());
        if (input_.gives_newest_up()) {
            problem = "the superblock of the damaged tree could not be removed";
            TRY(drop_newest_superblock());
        }
        problem = "the bitmaps could not be written";
        TRY(start_timeline());
        TRY(keep_damaged_groups_damaged());
        TRY(write_bitmaps());
        context_.progress(Phase::repair, 0.9);
        problem = "the superblocks could not be written";
        TRY(write_superblocks(root.value()));
        problem = "damaged bitmaps could not be written anew";
        TRY(write_damaged_slots());
        clear_journal();
        context_.progress(Phase::repair, 1);
        return {};
    }

  private:
    // Not while there is a newer superblock than the base: what it takes for lost may be that one's.
    // A mount that was interrupted may have left bitmaps of generations that never were. As every mount
    // that recovers a volume, a repair starts a timeline, so that they do not count.
    Result<void> start_timeline() {
        uint64_t stamp = 0;
        host::random_bytes(&stamp, sizeof stamp);
        const uint64_t first_generation = input_.base.generation + 1;
        if (!layout_.timelines.add(first_generation, stamp)) {
            TRY(tiffinfs::replace_lost_bitmaps(device_, context_.layout, input_.bitmap_groups,
                                               input_.base.generation));
            layout_.timelines.clear();
            (void)layout_.timelines.add(first_generation, stamp);
        }
        return {};
    }

    // Nothing of it counts any more; and what could not be read can be, once it has been written. Where a block cannot be
    // written, the volume is repaired all the same, but mounts and commits fail that come to it.
    void clear_journal() {
        if (!input_.journal_is_damaged) {
            return;
        }
        constexpr uint64_t kBlocksAtOnce = 256;
        constexpr uint64_t kMostFailures = 1000;
        const std::vector<Block> zeros(kBlocksAtOnce);
        const uint64_t count = context_.layout.journal_block_count;
        const auto write = [&](uint64_t first, uint64_t blocks) {
            return device_
                .write((context_.layout.journal_first_block + first) * tiffinfs::kBlockBytes,
                       zeros.data(), blocks * tiffinfs::kBlockBytes)
                .ok();
        };
        uint64_t failures = 0;
        for (uint64_t done = 0; done < count && failures < kMostFailures; done += kBlocksAtOnce) {
            const uint64_t blocks = std::min(kBlocksAtOnce, count - done);
            if (write(done, blocks)) {
                continue;
            }
            for (uint64_t one = 0; one < blocks && failures < kMostFailures; ++one) {
                failures += write(done + one, 1) ? 0 : 1;
            }
        }
        // The superblocks are durable. Files tell only now what could not be written.
        const bool is_flushed = device_.flush().ok();
        if (failures != 0 || !is_flushed) {
            context_.found_for_good(
                Code::journal_damaged, "journal, when it was to be emptied",
                fmt::format(
                    "{} of it cannot be written, so a mount that needs {} fails or turns "
                    "read-only: copy the volume to another device",
                    failures == 0
                        ? "parts"
                        : fmt::format("{}{} block{}", failures == kMostFailures ? "at least " : "",
                                      failures, failures == 1 ? "" : "s"),
                    failures == 1 ? "it" : "them"));
        }
    }

    uint64_t take_block() {
        // First where nothing is that might still be of interest.
        uint64_t block = avoid_.layout().total_blocks;
        if (prefer_cursor_ < block) {
            block = prefer_cursor_ = avoid_.next_free(prefer_cursor_, &prefer_);
        }
        if (block == avoid_.layout().total_blocks) {
            block = any_cursor_ = avoid_.next_free(any_cursor_, nullptr);
        }
        if (block == avoid_.layout().total_blocks) {
            return 0;
        }
        avoid_.mark({block, 1});
        final_.mark({block, 1});
        return block;
    }

    Result<bool> tree_stays() const {
        if (input_.tree_is_damaged || !input_.keys.changes().empty()) {
            return false;
        }
        for (const LeafRef& leaf : input_.keys.leaves()) {
            if (leaf.must_rewrite || TRY(input_.keys.leaf_loses_keys(leaf))) {
                return false;
            }
        }
        return true;
    }

    // Leaves whose keys do not change stay where they are; and so does the whole tree.
    Result<TreeRootRef> write_tree() {
        if (TRY(tree_stays())) {
            final_.merge(input_.nodes);
            return TreeRootRef{input_.base.root_block, input_.base.root_generation,
                               input_.base.root_level, 0};
        }
        TreeWriter writer(device_, input_.base.volume_nonce, generation_,
                          [this] { return take_block(); });
        const auto& leaves = input_.keys.leaves();
        change_ = input_.keys.changes().cbegin();
        for (size_t i = 0; i < leaves.size(); ++i) {
            const LeafRef& leaf = leaves[i];
            // Keys in a gap, where a leaf was cut out, go along with the leaf before it.
            const Key end = i + 1 < leaves.size() ? leaves[i + 1].lower : tiffinfs::kMaximumKey;
            TRY(add_changes(writer, leaf.lower));
            const bool changed = change_ != input_.keys.changes().cend() && change_->first < end;
            if (changed || leaf.must_rewrite || TRY(input_.keys.leaf_loses_keys(leaf))) {
                TRY(rewrite_leaf(writer, leaf));
                TRY(add_changes(writer, end));
            } else {
                TRY(writer.add_leaf(leaf));
                final_.mark({leaf.block, 1});
            }
            context_.progress(Phase::repair,
                              0.6 * static_cast<double>(i) / static_cast<double>(leaves.size()));
        }
        TRY(add_changes(writer, tiffinfs::kMaximumKey));
        return writer.finish();
    }

    // Adds the changed keys below `end`.
    Result<void> add_changes(TreeWriter& writer, Key end) {
        for (; change_ != input_.keys.changes().cend() && change_->first < end; ++change_) {
            TRY(add_change(writer));
        }
        return {};
    }

    Result<void> add_change(TreeWriter& writer) {
        const auto& [key, value] = *change_;
        return writer.add_key(key, ByteSpan(value.data(), value.size()));
    }

    Result<void> rewrite_leaf(TreeWriter& writer, const LeafRef& leaf) {
        Error error{};
        bool failed = false;
        TRY(input_.keys.scan_leaf(leaf, [&](Key key, ByteSpan value) {
            const Result<void> result = add_key(writer, key, value);
            failed = !result.ok();
            error = result.error();
            return !failed;
        }));
        if (failed) {
            return error;
        }
        return {};
    }

    Result<void> add_key(TreeWriter& writer, Key key, ByteSpan value) {
        TRY(add_changes(writer, key));
        if (change_ != input_.keys.changes().cend() && change_->first == key) {
            TRY(add_change(writer));
            ++change_;
            return {};
        }
        return input_.keys.is_gone(key) ? Result<void>() : writer.add_key(key, value);
    }

    bool read_slots(uint64_t group, BitmapSlots& slots) {
        return tiffinfs::read_bitmap_slots(device_, context_.layout, group, input_.base.generation,
                                           bitmaps_->blocks, slots)
            .ok();
    }

    // Where the bitmap that counts is damaged, the other slot may have an older one that is not. It would count if this was
    // interrupted after the damaged one had been overwritten: so it goes first.
    Result<void> keep_damaged_groups_damaged() {
        const uint64_t groups =
            std::min<uint64_t>(std::max(input_.bitmap_groups, final_.end_of_touched_groups()),
                               input_.base.initialized_groups);
        const Block zeros{};
        for (uint64_t group = 0; group < groups; ++group) {
            BitmapSlots slots;
            if (!read_slots(group, slots)) {
                TRY(write_block(device_, tiffinfs::bitmap_block(group, 1), zeros));
                damaged_groups_.push_back(group);
            }
        }
        return damaged_groups_.empty() ? Result<void>() : device_.flush();
    }

    // Writes the bitmaps that differ from those of the base, each into the slot that does not count.
    Result<void> write_bitmaps() {
        groups_ = std::max(input_.bitmap_groups, final_.end_of_touched_groups());
        for (uint64_t group = 0; group < groups_; ++group) {
            context_.progress(Phase::repair, 0.7 + 0.2 * static_cast<double>(group) /
                                                       static_cast<double>(groups_));
            // Once the newest superblock is dropped there is no state to go back to but the base.
            if (!input_.gives_newest_up() && context_.cancelled()) {
                return Error::eintr;
            }
            const bool is_new = group >= input_.base.initialized_groups;
            BitmapSlots slots;
            const bool usable = !is_new && read_slots(group, slots);
            if (usable && std::memcmp(bitmaps_->blocks[slots.newest].bits, final_.words(group),
                                      tiffinfs::kBitmapBytes) == 0) {
                continue;
            }
            const uint64_t slot = usable ? 1 - slots.newest : 0;
            TRY(write_bitmap(group, slot));
            if (is_new) {
                TRY(write_bitmap(group, 1));
            }
        }
        return device_.flush();
    }

    Result<void> write_bitmap(uint64_t group, uint64_t slot) {
        BitmapBlock& block = bitmaps_->blocks[0];
        tiffinfs::make_bitmap_block(layout_, group, generation_, final_.words(group), block);
        return device_.write(tiffinfs::bitmap_block(group, slot) * kBlockBytes, &block,
                             sizeof block);
    }

    // See keep_damaged_groups_damaged(): both slots of a damaged group get the same.
    Result<void> write_damaged_slots() {
        for (const uint64_t group : damaged_groups_) {
            TRY(write_bitmap(group, 1));
        }
        return device_.flush();
    }

    // A mount of a clean volume counts on and starts no timeline, so that bitmaps of this repair, if it is interrupted, would
    // come to count.
    Result<void> mark_unclean() {
        if ((input_.base.state & tiffinfs::superblock_state::clean) != 0) {
            Superblock marked = input_.base;
            marked.state &= ~tiffinfs::superblock_state::clean;
            TRY(tiffinfs::write_superblock(device_, marked));
        }
        return device_.flush();
    }

    // With it gone, a repair that is interrupted leaves the base as the newest state, whose bitmaps
    // stay in place; with it, the bitmaps written here could be taken for older than they are.
    Result<void> drop_newest_superblock() {
        Block zeros{};
        for (uint32_t copy = 0; copy < 2; ++copy) {
            TRY(write_block(device_,
                            tiffinfs::superblock_block(context_.layout.total_blocks,
                                                       input_.newest.generation, copy),
                            zeros));
        }
        return device_.flush();
    }

    Result<void> write_superblocks(const TreeRootRef& root) {
        Superblock next = input_.base;
        next.incarnation = std::max(input_.base.incarnation, input_.greatest_incarnation) + 1;
        next.state = tiffinfs::superblock_state::clean |
                     (input_.problems_left ? tiffinfs::superblock_state::errors : 0);
        next.root_block = root.block;
        next.root_generation = root.generation;
        next.root_level = root.level;
        next.next_node =
            std::max({input_.base.next_node, input_.next_node, input_.objects.greatest_node + 1});
        next.node_count = input_.objects.statistics.inodes;
        next.used_blocks = final_.used_blocks(0, context_.layout.groups());
        next.initialized_groups = groups_;
        next.journal_position = input_.journal_end.offset_bytes;
        // A chain of its own: nothing that the journal still holds can be taken for a part of it.
        next.journal_sequence = input_.journal_end.sequence + 1;
        host::random_bytes(&next.journal_previous_checksum, sizeof next.journal_previous_checksum);
        next.written_ns = host::realtime_ns();
        next.incompat_features &= ~tiffinfs::incompat_feature::lost_extents;
        if (input_.objects.has_lost_extents) {
            next.incompat_features |= tiffinfs::incompat_feature::lost_extents;
        }
        layout_.timelines.store(next);
        context_.report().changed = true;
        for (uint64_t generation = generation_; generation <= generation_ + 1; ++generation) {
            next.generation = generation;
            TRY(tiffinfs::write_superblock(device_, next));
            TRY(device_.flush());
        }
        return {};
    }

    Context& context_;
    const RebuildInput& input_;
    vfs::BlockDevice& device_;
    tiffinfs::Layout layout_;  // with the timeline of the repair
    SpaceMap final_;           // what is in use when all is done
    SpaceMap avoid_;           // what must not be overwritten now
    SpaceMap
        prefer_;  // what the old bitmaps call used: overwritten only when there is no other room
    uint64_t prefer_cursor_ = 0;
    uint64_t any_cursor_ = 0;
    uint64_t generation_ = 0;
    uint64_t groups_ = 0;
    std::unique_ptr<TwoBitmaps> bitmaps_;
    std::vector<uint64_t> damaged_groups_;
    KeySpace::Changes::const_iterator change_;  // the next one to be written
};

}  // namespace

Result<void> rebuild(Context& context, const RebuildInput& input, std::string& problem) {
    if (context.device().geometry().read_only) {
        problem = "the device is read-only";
        return Error::erofs;
    }
    return Rebuild(context, input).run(problem);
}

}  // namespace tiffin::check
