// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Mounting, groups coming into memory, and the totals.
#include "fs/tiffinfs/space/allocator.h"

#include "fs/base/text.h"
#include "fs/tiffinfs/space/allocator_parts.h"
#include "fs/tiffinfs/space/block_group.h"
#include "fs/vfs/numbers.h"

namespace tiffin::tiffinfs {
namespace {

// What replay may open; see kGroupsOpenedAhead.
constexpr uint64_t kGroupsOpenedByReplay = 4 * kGroupsOpenedAhead;

constexpr uint64_t kReserveDivisor = 64;
// The half of it that is for deleting is enough for unlinking in a tree of three levels (36 nodes), as a
// small volume has at most.
constexpr uint64_t kReserveMinimum = 128;
constexpr uint32_t kReserveMaximum = 8192;
// More than the reserves of any volume, so that it need not change when one grows.
constexpr int64_t kPlentyBlocks = 2 * int64_t{kReserveMaximum} + 8192;

struct Pages {
    explicit Pages(size_t bytes) : memory(host::allocate_pages(bytes)), size_bytes(bytes) {}
    ~Pages() {
        if (memory != nullptr) {
            host::release_pages(memory, size_bytes);
        }
    }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;

    void* memory;
    size_t size_bytes;
};

using TwoBlocks = BitmapBlock[2];

}  // namespace

Allocator::Allocator(vfs::BlockDevice& device, ReaderEpochs& readers, DamageListener* listener)
    : device_(device), readers_(readers), listener_(listener) {}

Allocator::~Allocator() { drop_list(sealed_); }

Result<void> Allocator::start(const Superblock& superblock) {
    Result<Layout> layout = Layout::from(superblock);
    if (!layout.ok()) {
        log_line(host::LogLevel::error, "superblock: impossible layout (", superblock.total_blocks,
                 " blocks, journal at ", superblock.journal_first_block, " of ",
                 superblock.journal_block_count, " blocks)");
        return layout.error();
    }
    layout_ = *layout;
    usable_groups_ = layout_.groups();
    if (superblock.used_blocks > total_blocks() ||
        superblock.initialized_groups > layout_.groups()) {
        log_line(host::LogLevel::error, "superblock: impossible counts (", superblock.used_blocks,
                 " used of ", total_blocks(), " blocks, ", superblock.initialized_groups,
                 " groups in use)");
        return Error::euclean;
    }
    TRY(table_.start(layout_.groups()));
    choose_reserves();
    start_counts(superblock.used_blocks);
    open_groups_ = superblock.initialized_groups;
    sealed_groups_ = superblock.initialized_groups;
    sealed_used_blocks_ = superblock.used_blocks;
    mounted_generation_ = superblock.generation;
    // mkfs starts without a superblock on the device.
    durable_generation_ = superblock.initialized_groups == 0 ? 0 : superblock.generation;
    for (uint32_t i = 0; i < kCursors; ++i) {
        cursors_[i].group = superblock.initialized_groups * i / kCursors;
    }
    return {};
}

Result<void> Allocator::format_fixed_blocks(const Superblock& superblock) {
    TIFFIN_ASSERT(open_groups_ == 0 && superblock.total_blocks == total_blocks());
    TRY(open_groups(1, 1));
    const uint64_t fixed = layout_.fixed_blocks(0, layout_.groups());
    start_counts(fixed);
    return {};
}

void Allocator::choose_reserves() {
    const uint64_t part = smaller(total_blocks() / kReserveDivisor, kReserveMaximum);
    reserve_blocks_ = part < kReserveMinimum ? kReserveMinimum : part;
    write_back_reserve_blocks_ = part;
}

void Allocator::start_counts(uint64_t used_blocks) {
    used_blocks_.reset(static_cast<int64_t>(used_blocks));
    free_blocks_.start(static_cast<int64_t>(total_blocks() - used_blocks), kBlocksAtHand,
                       kPlentyBlocks);
}

bool Allocator::replaces_lost_bitmaps(const Superblock& superblock) const {
    BitmapTimelines timelines = layout_.timelines;
    return (superblock.state & superblock_state::clean) == 0 &&
           !timelines.add(mounted_generation_ + 1, 0);
}

Result<void> Allocator::begin_timeline(Superblock& superblock) {
    if ((superblock.state & superblock_state::clean) != 0) {
        return {};
    }
    uint64_t stamp = 0;
    host::random_bytes(&stamp, sizeof stamp);
    BitmapTimelines timelines = layout_.timelines;
    if (!timelines.add(mounted_generation_ + 1, stamp)) {
        log_line(host::LogLevel::info, "looking through all bitmaps after ",
                 BitmapTimelines::kCapacity, " recoveries");
        TRY(replace_lost_bitmaps(device_, layout_, sealed_initialized_groups(),
                                 mounted_generation_));
        timelines.clear();
        TIFFIN_ASSERT(timelines.add(mounted_generation_ + 1, stamp));
    }
    layout_.timelines = timelines;
    timelines.store(superblock);
    return {};
}

uint64_t Allocator::free_blocks() const {
    const int64_t count = free_blocks_.sum();
    return count > 0 ? static_cast<uint64_t>(count) : 0;
}

uint64_t Allocator::deferred_blocks() const {
    const int64_t count = deferred_blocks_.sum();
    return count > 0 ? static_cast<uint64_t>(count) : 0;
}

// ---- Groups in memory ---------------------------------------------------------------------------

Result<BlockGroup*> Allocator::make_group(uint64_t index) {
    if (BlockGroup* group = table_.find(index); group != nullptr) {
        return group;
    }
    if (table_.make_page(index) == nullptr) {
        return Error::enomem;
    }
    BlockGroup* group = BlockGroup::create(index);
    if (group == nullptr) {
        return Error::enomem;
    }
    return table_.insert(group);
}

Result<void> Allocator::load_group(BlockGroup& group) {
    if (group.load() == BlockGroup::Load::loaded) [[likely]] {
        return {};
    }
    if (group.load() == BlockGroup::Load::damaged) {
        return Error::euclean;
    }
    Pages pages(sizeof(TwoBlocks));
    if (pages.memory == nullptr) {
        return Error::enomem;
    }
    auto& blocks = *static_cast<TwoBlocks*>(pages.memory);
    BitmapSlots slots;
    Result<void> read =
        read_bitmap_slots(device_, layout_, group.index(), mounted_generation_, blocks, slots);
    // Not during replay: what that marks as used would be free in a bitmap that can be read again later.
    if (!read.ok() && read.error() == Error::eio && !replaying_.load(std::memory_order_relaxed)) {
        read = read_bitmap_slots_apart(device_, layout_, group.index(), mounted_generation_, blocks,
                                       slots);
    }
    if (read.ok()) {
        const auto* words = reinterpret_cast<const uint64_t*>(blocks[slots.newest].bits);
        group.fill(words, layout_.blocks_in_group(group.index()), true);
        group.slot_generation[0] = slots.generation[0];
        group.slot_generation[1] = slots.generation[1];
    } else if (read.error() == Error::euclean) {
        log_line(host::LogLevel::error, "bitmap of group ", group.index(),
                 " is damaged: ", slots.damage,
                 "; its free space is not used until fsck.tiffin has repaired it");
        group.set_damaged();
        // They were counted at mount, and none of them will be found. Where it is not known how many, no promise may rest on
        // them, and what deletes keeps its reserve.
        uint64_t unusable = slots.free_blocks;
        if (slots.may_have_less_free) {
            const uint64_t free = free_blocks();
            const uint64_t kept = kept_blocks(SpacePriority::normal);
            unusable = smaller(unusable, free - smaller(free, kept));
        }
        free_blocks_.give(-static_cast<int64_t>(unusable));
        if (listener_ != nullptr) {
            listener_->damage_avoided();
        }
    } else if (!group.read_failed) {
        group.read_failed = true;
        log_line(host::LogLevel::error, "bitmap of group ", group.index(),
                 " cannot be read (error ", errno_value(read.error()), ")");
    }
    update_bits(group);
    return read;
}

BlockGroup* Allocator::group_to_mark(uint64_t index) {
    BlockGroup* group = table_.find(index);
    TIFFIN_ASSERT(group != nullptr);
    const BlockGroup::Load load = group->load();
    TIFFIN_ASSERT(load == BlockGroup::Load::loaded || load == BlockGroup::Load::damaged);
    return load == BlockGroup::Load::loaded ? group : nullptr;
}

Result<BlockGroup*> Allocator::make_unused_group(uint64_t index) const {
    static_assert(kBitmapBytes <= kBlockBytes);
    Pages pages(kBlockBytes);
    BlockGroup* group = pages.memory == nullptr ? nullptr : BlockGroup::create(index);
    if (group == nullptr) {
        return Error::enomem;
    }
    auto* words = static_cast<uint64_t*>(pages.memory);
    __builtin_memset(words, 0, kBitmapBytes);
    layout_.set_fixed_bits(index, words);
    MutexLock lock(group->mutex);
    group->fill(words, layout_.blocks_in_group(index), false);
    return group;
}

Result<void> Allocator::open_group(uint64_t index) {
    if (table_.make_page(index) == nullptr) {
        return Error::enomem;
    }
    const uint64_t total = total_blocks();
    BlockGroup* group = TRY(make_unused_group(index));
    bool full;
    {
        // No other thread knows the group yet; its lock comes before the other one in their order.
        MutexLock lock(group->mutex);
        full = group->free_blocks() == 0;
        group->full_bit = full;
        group->changed_bit = true;
    }
    openers_.fetch_add(1, std::memory_order_relaxed);
    MutexLock lock(open_mutex_);
    openers_.fetch_sub(1, std::memory_order_relaxed);
    if (open_groups_.load(std::memory_order_relaxed) != index || total != total_blocks()) {
        BlockGroup::destroy(group);  // another thread was faster, or the volume has grown
        return {};
    }
    if (index >= usable_groups_) {
        BlockGroup::destroy(group);
        return Error::enospc;
    }
    TIFFIN_ASSERT(table_.insert(group) == group);
    if (full) {
        table_.set_bit(index, GroupBit::full);
    }
    table_.set_bit(index, GroupBit::changed);
    changed_groups_.fetch_add(1, std::memory_order_relaxed);
    open_groups_.store(index + 1, std::memory_order_release);
    return {};
}

Result<void> Allocator::open_groups(uint64_t end, uint64_t limit) {
    for (;;) {
        const uint64_t open = open_groups_.load(std::memory_order_acquire);
        if (open >= end) {
            return {};
        }
        if (open >= limit) {
            return Error::enospc;
        }
        TRY(open_group(open));
    }
}

Result<void> Allocator::load_checked(BlockRange range) {
    if (range.block_count == 0) {
        return {};
    }
    if (!layout_.contains(range.first_block, range.block_count) ||
        layout_.touches_fixed_blocks(range.first_block, range.block_count)) {
        log_line(host::LogLevel::error, "blocks ", range.first_block, " to ",
                 range.first_block + range.block_count - 1,
                 " are named as file data or tree nodes, which they cannot be: run fsck.tiffin");
        return Error::euclean;
    }
    // Such a range lies in one group.
    const uint64_t index = group_of(range.first_block);
    BlockGroup* group = table_.find(index);
    if (group != nullptr && group->load() == BlockGroup::Load::loaded) [[likely]] {
        return {};
    }
    if (index >= open_groups_.load(std::memory_order_acquire)) {
        const uint64_t limit =
            sealed_groups_.load(std::memory_order_relaxed) + kGroupsOpenedByReplay;
        if (index >= limit) {
            log_line(host::LogLevel::error, "group ", index,
                     " is named but cannot be in use yet: run fsck.tiffin");
            return Error::euclean;
        }
        return open_groups(index + 1, limit);
    }
    group = TRY(make_group(index));
    MutexLock lock(group->mutex);
    Result<void> loaded = load_group(*group);
    // A damaged bitmap does not change which file owns a block: only its space cannot be used, and
    // what is freed there is lost, until fsck.tiffin makes it anew.
    return group->load() == BlockGroup::Load::damaged ? Result<void>() : loaded;
}

Result<void> Allocator::load(BlockRange range) { return load_checked(range); }

// ---- Counts -------------------------------------------------------------------------------------

void Allocator::update_bits(BlockGroup& group) {
    const bool loaded = group.load() == BlockGroup::Load::loaded;
    const bool full =
        group.load() == BlockGroup::Load::damaged || (loaded && group.free_blocks() == 0);
    if (full != group.full_bit) {
        group.full_bit = full;
        full ? table_.set_bit(group.index(), GroupBit::full)
             : table_.clear_bit(group.index(), GroupBit::full);
    }
    if (group.data_deferred() != group.data_deferred_bit) {
        group.data_deferred_bit = !group.data_deferred_bit;
        if (group.data_deferred_bit) {
            table_.set_bit(group.index(), GroupBit::data_deferred);
            data_deferred_groups_.fetch_add(1, std::memory_order_relaxed);
        } else {
            table_.clear_bit(group.index(), GroupBit::data_deferred);
            data_deferred_groups_.fetch_sub(1, std::memory_order_relaxed);
        }
    }
    if (group.nodes_deferred() != group.node_deferred_bit) {
        group.node_deferred_bit = !group.node_deferred_bit;
        group.node_deferred_bit ? table_.set_bit(group.index(), GroupBit::node_deferred)
                                : table_.clear_bit(group.index(), GroupBit::node_deferred);
    }
}

void Allocator::set_changed(BlockGroup& group) {
    if (!group.changed_bit) {
        group.changed_bit = true;
        table_.set_bit(group.index(), GroupBit::changed);
        changed_groups_.fetch_add(1, std::memory_order_relaxed);
    }
}

void Allocator::apply(const SpaceChange& change) {
    if (change.used_blocks != 0) {
        used_blocks_.add(change.used_blocks);
    }
    if (change.deferred_blocks != 0) {
        deferred_blocks_.add(change.deferred_blocks);
    }
    if (change.free_blocks != 0) {
        free_blocks_.give(change.free_blocks);
    }
}

void Allocator::cancel(BlockRange range, uint64_t* claimed_blocks) {
    if (claimed_blocks != nullptr) {
        // First, so that no thread comes between.
        free_blocks_.give(-static_cast<int64_t>(range.block_count));
        *claimed_blocks += range.block_count;
    }
    while (range.block_count != 0) {
        const Piece piece = Piece::cut_from(range);
        BlockGroup* found = table_.find(piece.group);
        TIFFIN_ASSERT(found != nullptr && found->load() == BlockGroup::Load::loaded);
        BlockGroup& group = *found;
        SpaceChange change;
        {
            MutexLock lock(group.mutex);
            change = group.give_back(piece.run);
            update_bits(group);
        }
        apply(change);
    }
}

Result<void> Allocator::read_bitmap(vfs::BlockDevice& device, const Superblock& superblock,
                                    uint64_t group, uint64_t generation, BitmapBlock& bitmap) {
    const Layout layout = TRY(Layout::from(superblock));
    TIFFIN_ASSERT(group < layout.groups());
    Pages pages(sizeof(TwoBlocks));
    if (pages.memory == nullptr) {
        return Error::enomem;
    }
    auto& blocks = *static_cast<TwoBlocks*>(pages.memory);
    BitmapSlots slots;
    TRY(read_bitmap_slots(device, layout, group, generation, blocks, slots));
    __builtin_memcpy(&bitmap, &blocks[slots.newest], sizeof bitmap);
    return {};
}

}  // namespace tiffin::tiffinfs
