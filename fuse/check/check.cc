// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The order of a check: superblocks, which generation to start from, tree, journal, objects and links
// (again and again while repairs change keys), space, data, and at last writing what was repaired.
#include "fuse/check/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "fs/tiffinfs/volume/choose_generation.h"
#include "fs/tiffinfs/volume/extents.h"
#include "fs/tiffinfs/volume/superblock.h"
#include "fuse/check/block_io.h"
#include "fuse/check/context.h"
#include "fuse/check/data_check.h"
#include "fuse/check/extent_edit.h"
#include "fuse/check/journal_replay.h"
#include "fuse/check/key_space.h"
#include "fuse/check/links.h"
#include "fuse/check/lost_content.h"
#include "fuse/check/objects.h"
#include "fuse/check/rebuild.h"
#include "fuse/check/repairs.h"
#include "fuse/check/shared_blocks.h"
#include "fuse/check/space_check.h"
#include "fuse/check/superblocks.h"
#include "fuse/check/text.h"
#include "fuse/check/tree_walk.h"

namespace tiffin::check {

using tiffinfs::Key;
using tiffinfs::Superblock;

namespace {

// One generation of the volume: its tree, and the keys with the journal applied.
struct State {
    State(Context& context, const Superblock& superblock)
        : base(superblock),
          nodes(context.layout),
          walk(walk_tree(context, superblock, nodes)),
          keys(context.device(), superblock, std::move(walk.leaves)) {}

    const Superblock& base;
    SpaceMap nodes;
    TreeWalk walk;
    KeySpace keys;
    JournalReplay journal;
    std::set<tiffinfs::Key> brought_back;  // what no search found
    std::unique_ptr<Objects> objects;
    // What the tree on the device uses, without the journal.
    std::unique_ptr<SpaceMap> old_blocks;
    uint64_t old_inodes = 0;
    uint64_t bitmap_groups = 0;  // that have bitmaps worth keeping
    uint64_t old_greatest_node = 0;
};

class Checker {
  public:
    explicit Checker(Context& context) : context_(context) {}

    void run() {
        context_.progress(Phase::superblocks, 0);
        const SuperblockCopies copies = read_superblock_copies(context_.device());
        if (!check_superblocks(context_, copies)) {
            return;
        }
        context_.report().is_volume = true;
        const Superblock& base = choose_generation(copies);
        use(base);
        if (context_.cancelled()) {
            return;
        }
        State state(context_, base);
        if (!check_state(state).ok()) {
            context_.found_for_good(Code::node_unreadable, "volume",
                                    "a part of the tree became unreadable during the check");
            context_.nothing_repaired();
            return;
        }
        if (context_.options().repair && !context_.cancelled() && has_reason_to_write(state)) {
            write_repairs(state, copies.generations.front());
        }
    }

  private:
    bool has_reason_to_write(const State& state) const {
        const bool unclean = (state.base.state & tiffinfs::superblock_state::clean) == 0;
        return context_.repair_wanted() || unclean || state.journal.frames != 0;
    }

    void use(const Superblock& superblock) {
        context_.superblock = superblock;
        // It was checked when the copies were read.
        context_.layout = MUST(tiffinfs::Layout::from(superblock));
        context_.report().statistics.total_blocks = superblock.total_blocks;
    }

    // The newest generation, unless parts of its tree are missing, and nothing or less of the older one.
    // With its journal that describes the same state.
    const Superblock& choose_generation(const SuperblockCopies& copies) {
        const Superblock& newest = copies.generations.front();
        if (copies.generations.size() < 2 || tree_is_whole(newest) || context_.cancelled()) {
            return newest;
        }
        const Superblock& older = copies.generations[1];
        context_.checkpoint_sequence = newest.journal_sequence;
        const std::optional<Trial> old_trial = try_generation(older);
        if (!old_trial.has_value()) {
            return newest;
        }
        const bool whole = old_trial->missing_parts == 0;
        if (!whole) {
            const std::optional<Trial> new_trial = try_generation(newest);
            if (new_trial.has_value() && old_trial->keys <= new_trial->keys) {
                return newest;
            }
        }
        const bool go_back = context_.found(
            Code::superblock_older, fmt::format("generation {}", newest.generation),
            fmt::format("its tree is damaged; generation {} {}", older.generation,
                        whole ? "and its journal are whole, so that nothing is lost"
                              : "or its journal is damaged too, but more is left there"));
        // A check that repairs nothing shows what a mount, or the repair that it proposes, would.
        return go_back || (whole && !context_.options().repair) ? older : newest;
    }

    bool tree_is_whole(const Superblock& superblock) {
        use(superblock);
        context_.begin_trial();
        SpaceMap nodes(context_.layout);
        (void)walk_tree(context_, superblock, nodes);
        return context_.end_trial() == 0;
    }

    // What there would be if a generation was chosen.
    struct Trial {
        uint64_t missing_parts = 0;  // of the tree and the journal
        uint64_t keys = 0;
    };

    // nullopt: it cannot be looked through.
    std::optional<Trial> try_generation(const Superblock& superblock) {
        use(superblock);
        context_.begin_trial();
        State state(context_, superblock);
        const bool finished = check_keys(state).ok();
        Trial trial{context_.end_trial(), 0};
        if (!finished || context_.cancelled()) {
            return std::nullopt;
        }
        trial.keys = state.objects->statistics.keys;
        return trial;
    }

    // Everything that is seen from the keys, once.
    Result<void> check_keys(State& state) {
        replay(state);
        Repairs ignored;
        return scan(state, ignored);
    }

    void replay(State& state) { state.journal = replay_journal(context_, state.base, state.keys); }

    Result<void> check_state(State& state) {
        count_tree(state);
        const bool tree_is_final = journal_is_empty(state) && state.walk.strays.empty();
        if (!tree_is_final) {
            TRY(scan_old_state(state));
        }
        // First: what the journal has changed or erased of them is newer.
        TRY(bring_back_strays(state));
        replay(state);
        TRY(check_objects(state, tree_is_final));
        if (context_.cancelled()) {
            return {};
        }
        state.bitmap_groups = check_space(
            context_, state.base,
            {*state.old_blocks, state.old_inodes, state.old_greatest_node, !state.walk.damaged});
        const uint64_t verify_from_bytes =
            context_.options().verify_data ? 0 : context_.options().verify_from_bytes;
        if (!context_.cancelled()) {
            TRY(check_data(context_, state.keys, *state.objects, verify_from_bytes));
        }
        return {};
    }

    void count_tree(const State& state) {
        Statistics& statistics = context_.report().statistics;
        statistics.tree_nodes = state.walk.nodes;
        statistics.tree_levels = state.base.root_level + 1;
    }

    bool journal_is_empty(const State& state) {
        tiffinfs::JournalReader reader(context_.device());
        tiffinfs::FrameHeader header;
        if (!reader.start(state.base, journal_start(state.base)).ok()) {
            return true;
        }
        const Result<ByteSpan> first = reader.next(header);
        return !first.ok() || first.value().empty();
    }

    // The bitmaps on the device belong to the tree before replay.
    Result<void> scan_old_state(State& state) {
        state.old_blocks = std::make_unique<SpaceMap>(context_.layout);
        state.old_blocks->merge(state.nodes);
        return state.keys.scan_device([&](Key key, ByteSpan value) {
            tiffinfs::MappedExtent extent;
            if (key.node == tiffinfs::kVolumeNode || key.node > tiffinfs::kMaximumNode) {
                return true;
            }
            state.old_greatest_node = key.node;
            if (key.kind() == tiffinfs::Kind::inode) {
                ++state.old_inodes;
            } else if (tiffinfs::parse_extent(key, value, context_.layout.total_blocks, extent) &&
                       !extent.lost() &&
                       !context_.layout.touches_fixed_blocks(extent.physical_block,
                                                             extent.block_count)) {
                state.old_blocks->mark({extent.physical_block, extent.block_count});
            }
            return !context_.cancelled();
        });
    }

    // What a stray key has still to say: a file may have been cut where no search found the key.
    Result<std::optional<std::vector<unsigned char>>> without_cut_off(State& state,
                                                                      const KeyValue& stray) {
        KeyValue found;
        tiffinfs::MappedExtent extent;
        if (stray.key.kind() != tiffinfs::Kind::extent ||
            !tiffinfs::parse_extent(stray.key, stray.bytes(), context_.layout.total_blocks,
                                    extent) ||
            !extent.has_checksums() ||
            !TRY(state.keys.get(tiffinfs::make_key(stray.key.node, tiffinfs::Kind::inode, 0),
                                found)) ||
            found.value.size() != sizeof(tiffinfs::InodeValue)) {
            return std::optional(stray.value);
        }
        tiffinfs::InodeValue inode;
        std::memcpy(&inode, found.value.data(), sizeof inode);
        // What unfinished work is to move lies behind the end, too.
        if ((inode.inode_flags & tiffinfs::inode_flag::has_intent) != 0) {
            return std::optional(stray.value);
        }
        const uint64_t last_bytes = inode.size_bytes % tiffinfs::kBlockBytes;
        uint64_t end = inode.size_bytes / tiffinfs::kBlockBytes;
        if (last_bytes != 0 && extent.file_block <= end && end < extent.end_block()) {
            if (may_be_zero_behind(extent.physical_of(end), last_bytes)) {
                end++;
            } else {
                // Of this block no copy has zeros behind the end, as it would have if it had been found when the file was cut.
                // What has been written there since stays.
                tiffinfs::MappedExtent lost;
                lost.file_block = end;
                lost.birth_generation = extent.birth_generation;
                lost.block_count = 1;
                lost.flags = tiffinfs::extent_flag::lost;
                TRY(fill_gaps(state.keys, context_.layout.total_blocks, stray.key.node, lost, end));
            }
        }
        if (extent.file_block >= end) {
            return std::optional<std::vector<unsigned char>>();
        }
        return std::optional(
            slice_extent(extent, extent.file_block, std::min(end, extent.end_block())));
    }

    // Also where that cannot be read, which shows elsewhere.
    bool may_be_zero_behind(uint64_t block, uint64_t offset_bytes) {
        const auto content = std::make_unique<Block>();
        return !read_block(context_.device(), block, *content) ||
               std::all_of(content->bytes + offset_bytes, std::end(content->bytes),
                           [](unsigned char byte) { return byte == 0; });
    }

    // Keys found where no search looks go to their place, if it is empty.
    Result<void> bring_back_strays(State& state) {
        KeyValue found;
        for (const KeyValue& stray : state.walk.strays) {
            if (context_.options().repair && !context_.must_not_write() &&
                !TRY(state.keys.get(stray.key, found))) {
                if (const std::optional<std::vector<unsigned char>> value =
                        TRY(without_cut_off(state, stray))) {
                    state.keys.put(stray.key, ByteSpan(value->data(), value->size()));
                    state.brought_back.insert(stray.key);
                }
            }
        }
        return {};
    }

    // One pass: objects, shared blocks, links.
    Result<void> scan(State& state, Repairs& repairs) {
        state.objects = std::make_unique<Objects>(context_.layout);
        state.objects->strays = state.brought_back;
        TRY(scan_objects(context_, state.keys, state.nodes, state.walk.missing, *state.objects,
                         repairs));
        if (context_.cancelled()) {
            return {};
        }
        TRY(resolve_shared_blocks(context_, state.keys, state.nodes, state.walk.missing,
                                  *state.objects, repairs));
        const uint64_t next_node = std::max({state.base.next_node, state.objects->greatest_node + 1,
                                             state.journal.greatest_node + 1});
        check_links(context_, state.keys, *state.objects, next_node, repairs);
        if (context_.cancelled()) {
            return {};
        }
        report_lost_content(context_, state.keys, *state.objects, repairs);
        return {};
    }

    Result<void> check_objects(State& state, bool tree_is_final) {
        for (int pass = 0; pass < context_.options().maximum_passes; ++pass) {
            Repairs repairs;
            TRY(scan(state, repairs));
            if (pass == 0) {
                note_first_pass(state, tree_is_final);
            }
            if (repairs.empty() || context_.cancelled()) {
                return {};
            }
            TRY(repairs.apply(state.keys));
        }
        Repairs left;
        TRY(scan(state, left));
        if (!left.empty()) {
            context_.found_for_good(Code::repair_unfinished, "volume",
                                    "repairs went on uncovering problems: run the check again");
        }
        return {};
    }

    void note_first_pass(State& state, bool tree_is_final) {
        const Objects& objects = *state.objects;
        Statistics& statistics = context_.report().statistics;
        statistics.inodes = objects.statistics.inodes;
        statistics.directories = objects.statistics.directories;
        statistics.entries = objects.statistics.entries;
        statistics.extents = objects.statistics.extents;
        statistics.keys = objects.statistics.keys;
        statistics.orphans = objects.orphans.size();
        statistics.intents = objects.intents.size();
        SpaceMap used(context_.layout);
        used.merge(state.nodes);
        used.merge(objects.data_blocks);
        statistics.used_blocks = used.used_blocks(0, context_.layout.groups());
        if (tree_is_final) {
            state.old_blocks = std::make_unique<SpaceMap>(context_.layout);
            state.old_blocks->merge(used);
            state.old_inodes = objects.statistics.inode_keys;
            state.old_greatest_node = objects.greatest_node;
        }
    }

    void write_repairs(State& state, const Superblock& newest) {
        if (context_.must_not_write()) {
            context_.nothing_repaired();
            context_.note(Code::repair_withheld, "volume",
                          "nothing was changed: other repairs can only be written together with "
                          "those of the tree and the journal, which were declined");
            return;
        }
        const bool problems_left = problems_are_left();
        if (problems_left) {
            context_.take_back(Code::errors_flag);
        }
        std::string problem;
        const RebuildInput input{
            .base = state.base,
            .newest = newest,
            .keys = state.keys,
            .objects = *state.objects,
            .nodes = state.nodes,
            .old_blocks = *state.old_blocks,
            .bitmap_groups = state.bitmap_groups,
            .tree_is_damaged = state.walk.damaged,
            .journal_end = state.journal.end,
            .journal_is_damaged = state.journal.damaged,
            .greatest_incarnation =
                std::max<uint64_t>(newest.incarnation, state.journal.greatest_incarnation),
            .next_node = state.journal.greatest_node + 1,
            .problems_left = problems_left,
        };
        const Result<void> written = rebuild(context_, input, problem);
        if (written.ok()) {
            return;
        }
        if (written.error() == Error::eintr) {
            context_.nothing_repaired();
        } else if (written.error() == Error::enospc && !context_.repair_wanted()) {
            // Nothing is wrong, and a mount needs less space for it. Only free blocks were written.
            context_.note(Code::journal_pending, "volume",
                          "there is too little space to write the tree anew: the next mount "
                          "replays the journal");
        } else {
            context_.repair_failed(problem);
        }
    }

    // Damaged and lost file data do not count: no further check could do anything about them.
    bool problems_are_left() const {
        const Report& report = context_.report();
        return report.not_repaired > report.count(Code::data_unreadable) +
                                         report.count(Code::data_checksum) +
                                         report.count(Code::content_lost);
    }

    Context& context_;
};

// Whether a mount would start from the newest generation, and take it for whole.
bool mounts_as_left(vfs::BlockDevice& device) {
    const auto set = std::make_unique<tiffinfs::SuperblockSet>();
    if (!tiffinfs::read_superblocks(device, *set).ok() || set->count == 0) {
        return false;
    }
    auto choice = tiffinfs::choose_generation(device, *set, true);
    return choice.ok() && choice->index == 0 && !choice->damaged;
}

}  // namespace

bool is_marked_clean(vfs::BlockDevice& device, Superblock& superblock) {
    Report report;
    const CheckOptions options;
    Context context(device, options, report);
    const SuperblockCopies copies = read_superblock_copies(device);
    if (!check_superblocks(context, copies) ||
        report.harmless + report.damage + report.notes != 0) {
        return false;
    }
    superblock = copies.generations.front();
    return superblock.state == tiffinfs::superblock_state::clean && mounts_as_left(device);
}

Report check_file_system(vfs::BlockDevice& device, const CheckOptions& options) {
    Report report;
    Context context(device, options, report);
    Checker(context).run();
    return report;
}

}  // namespace tiffin::check
