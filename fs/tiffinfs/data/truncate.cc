// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Changing the size of files, and taking away what deleted ones hold.
#include "fs/base/text.h"
#include "fs/tiffinfs/data/extent_walk.h"
#include "fs/tiffinfs/data/file_data.h"

namespace tiffin::tiffinfs {
namespace {

// What the data path alone decides about an inode.
constexpr uint32_t kMapFlags = inode_flag::inline_data | inode_flag::has_intent;

// A full volume may not have the nodes for freeing many extents (or keys) at once, but it has them for
// fewer. True: to be tried again with a quarter of them.
template <typename T>
bool try_fewer(const Result<T>& result, uint32_t& maximum) {
    if (result.ok() || result.error() != Error::enospc || maximum == 1) {
        return false;
    }
    maximum /= 4;
    return true;
}

// The block that is written anew is one extent cut in two.
void add_usage(MapUsage& usage, const OldBlock& block) {
    constexpr uint32_t kLargestExtentBytes =
        sizeof(LeafSlot) + sizeof(ExtentValue) + sizeof(uint32_t) * kWrittenExtentMaximumBlocks;
    if (block.written) {
        usage.extent_bytes += kLargestExtentBytes;
        usage.cut_bytes += kLargestExtentBytes;
    }
}

Key inode_key(const Object& object) { return make_key(object.node, Kind::inode, 0); }

// A small file that stays one.
Result<void> change_inline_size(Volume& volume, Object& object, const InodeValue& inode,
                                DataScratch& scratch) REQUIRES(object.state) {
    uint32_t stored_bytes = TRY(load_inline(volume, object, scratch.inline_bytes));
    Transaction transaction(volume);
    TRY(transaction.begin(SpacePriority::privileged, {.scattered = 2}));
    TRY(transaction.put_value(inode_key(object), inode));
    if (inode.size_bytes < stored_bytes) {
        // What is cut off must be gone: when the file grows again, zeros are there.
        Key key = make_key(object.node, Kind::inline_data, 0);
        if (inode.size_bytes == 0) {
            TRY(transaction.erase(key));
        } else {
            TRY(transaction.put(key, ByteSpan(scratch.inline_bytes, inode.size_bytes)));
        }
    }
    TRY(transaction.prepare());
    raise_ticket(object, transaction.commit());
    object.inode = inode;
    return {};
}

// The first transaction of a cut: the new size, the copy of the last block, and as many of the blocks
// behind as `maximum_extents` allows; the others are left to an intent.
Result<void> commit_cut(Volume& volume, Object& object, InodeValue inode,
                        const OldBlock& last_block, uint32_t maximum_extents)
    REQUIRES(object.state) {
    uint64_t first_freed = blocks_for(inode.size_bytes);
    CountedRange counted =
        TRY(count_extents(volume, object.node, first_freed, kMaximumFileBlocks, maximum_extents));
    bool more = counted.counted_end < kMaximumFileBlocks;
    subtract_blocks(inode, counted.usage.mapped_blocks);
    if (more) {
        inode.inode_flags |= inode_flag::has_intent;
    } else if (inode.size_bytes == 0) {
        inode.inode_flags |= inode_flag::inline_data;
    }
    add_usage(counted.usage, last_block);
    Transaction transaction(volume);
    TRY(transaction.begin(SpacePriority::privileged,
                          extent_change_size(counted.usage, last_block.written ? 1 : 0,
                                             last_block.written ? 1 : 0, more ? 2 : 1)));
    if (last_block.written) {
        TRY(transaction.write_extent(object.node, block_at(inode.size_bytes),
                                     last_block.physical_block, 1, 0,
                                     Span<const uint32_t>(&last_block.checksum, 1)));
    }
    if (counted.usage.extent_count > 0) {
        TRY(transaction.unmap(object.node, first_freed, counted.counted_end - first_freed));
    }
    if (more) {
        IntentValue intent{IntentType::truncate, 0, first_freed, 0, 0};
        TRY(transaction.put_value(make_key(kVolumeNode, Kind::intent, object.node), intent));
    }
    TRY(transaction.put_value(inode_key(object), inode));
    TRY(transaction.prepare());
    raise_ticket(object, transaction.commit());
    object.inode = inode;
    return {};
}

// Cuts a file that has blocks to the size in `inode`.
Result<void> cut_blocks(TiffinFileSystem& file_system, Object& object, const InodeValue& inode,
                        DataScratch& scratch) REQUIRES(object.claims, object.state) {
    Volume& volume = file_system.volume();
    OldBlock last_block;
    auto last_bytes = static_cast<uint32_t>(inode.size_bytes % kBlockBytes);
    if (last_bytes != 0) {
        last_block = TRY(copy_with_zeros(volume, object, block_at(inode.size_bytes), last_bytes,
                                         kBlockBytes, scratch));
    }
    AllocatedBlocks allocated(volume.allocator(),
                              {last_block.physical_block, last_block.written ? 1U : 0U});
    uint32_t maximum_extents = kStepExtents;
    Result<void> cut;
    do {
        cut = commit_cut(volume, object, inode, last_block, maximum_extents);
    } while (try_fewer(cut, maximum_extents));
    TRY(cut);
    allocated.keep();
    if ((object.inode.inode_flags & inode_flag::has_intent) != 0 &&
        !finish_intent(file_system, object, scratch).ok()) {
        // The file has its new size; the intent sees to the rest before the file grows again.
        log_line(host::LogLevel::warning, "truncate: node ", object.node,
                 ": some blocks are not free yet");
    }
    return {};
}

}  // namespace

Result<void> TiffinFileSystem::change_size(Object& object, const InodeValue& new_inode,
                                           uint64_t new_size_bytes) {
    if (new_size_bytes > kMaximumFileBytes) {
        return Error::efbig;
    }
    TRY(volume_->check_writable());
    TRY(check_regular(object));
    DataScratchLease scratch = TRY(data_scratch_.take());
    // Operations that make intents claim the end of the file, too.
    TIFFIN_EXPECT(*volume_, (object.inode.inode_flags & inode_flag::has_intent) == 0);
    if (is_inline(object.inode) && new_size_bytes > kInlineDataMaximumBytes &&
        TRY(load_inline(*volume_, object, scratch->inline_bytes)) > 0) {
        TRY(leave_inline(*this, object, *scratch));
    }
    InodeValue inode = new_inode;
    inode.size_bytes = new_size_bytes;
    inode.allocated_blocks = object.inode.allocated_blocks;
    inode.inode_flags =
        (new_inode.inode_flags & ~kMapFlags) | (object.inode.inode_flags & kMapFlags);
    if (is_inline(inode)) {
        if (new_size_bytes <= kInlineDataMaximumBytes) {
            return change_inline_size(*volume_, object, inode, *scratch);
        }
        // Nothing is stored: the file is one hole.
        inode.inode_flags &= ~inode_flag::inline_data;
    }
    bool cuts = new_size_bytes < object.inode.size_bytes;
    if (new_size_bytes == object.inode.size_bytes) {
        // What was allocated behind the end is given back, as other file systems do.
        const CountedRange behind = TRY(count_extents(
            *volume_, object.node, blocks_for(new_size_bytes), kMaximumFileBlocks, 1));
        cuts = behind.usage.extent_count > 0;
    }
    return cuts ? cut_blocks(*this, object, inode, *scratch) : commit_inode(*this, object, inode);
}

namespace {

void advance(DiskTime& time, vfs::Timestamp now) {
    // The tick of a coarse clock, in the slowest kernels.
    constexpr int64_t kTickNs = 10'000'000;
    constexpr int64_t kSecondNs = 1'000'000'000;
    // Owners set any time: the difference must not overflow.
    const bool is_close =
        static_cast<uint64_t>(time.seconds) - static_cast<uint64_t>(now.seconds) <= 1;
    const int64_t ahead_ns =
        is_close ? (time.seconds - now.seconds) * kSecondNs + time.nanoseconds - now.nanoseconds
                 : 0;
    if (ahead_ns <= 0 || ahead_ns >= kTickNs) {
        set_time(time, now);
    }
}

}  // namespace

// A kernel that keeps the times itself reads a clock that may be a part of a tick ahead of ours. A time that it has
// told us stays then: it would not tell it again.
void touch_content(InodeValue& inode) {
    const vfs::Timestamp now = Volume::now();
    advance(inode.modification_time, now);
    advance(inode.change_time, now);
    count_change(inode);
}

Result<void> commit_inode(TiffinFileSystem& file_system, Object& object, const InodeValue& inode) {
    Transaction transaction(file_system.volume());
    TRY(transaction.begin(SpacePriority::overwriting, {.scattered = 1}));
    TRY(transaction.put_value(inode_key(object), inode));
    TRY(transaction.prepare());
    raise_ticket(object, transaction.commit());
    object.inode = inode;
    return {};
}

namespace {

Result<uint64_t> free_extents(Volume& volume, Object& object, uint64_t first_block,
                              uint64_t end_block, uint32_t maximum_extents, ContentTimes times)
    REQUIRES(object.state) {
    CountedRange counted =
        TRY(count_extents(volume, object.node, first_block, end_block, maximum_extents));
    if (counted.usage.extent_count == 0) {
        return end_block;
    }
    InodeValue inode = object.inode;
    subtract_blocks(inode, counted.usage.mapped_blocks);
    if (times == ContentTimes::touch) {
        touch_content(inode);
    }
    Transaction transaction(volume);
    TRY(transaction.begin(SpacePriority::privileged, extent_change_size(counted.usage, 0, 0, 1)));
    TRY(transaction.unmap(object.node, first_block, counted.counted_end - first_block));
    TRY(transaction.put_value(inode_key(object), inode));
    TRY(transaction.prepare());
    raise_ticket(object, transaction.commit());
    object.inode = inode;
    return counted.counted_end;
}

}  // namespace

Result<uint64_t> free_blocks_step(TiffinFileSystem& file_system, Object& object,
                                  uint64_t first_block, uint64_t end_block, ContentTimes times) {
    uint32_t maximum_extents = kStepExtents;
    while (true) {
        Result<uint64_t> freed = free_extents(file_system.volume(), object, first_block, end_block,
                                              maximum_extents, times);
        if (!try_fewer(freed, maximum_extents)) {
            return freed;
        }
    }
}

namespace {

// Counts keys, up to `maximum`.
class KeyCounter final : public TreeVisitor {
  public:
    explicit KeyCounter(uint32_t maximum) : maximum_(maximum) {}

    bool visit(Key key, ByteSpan value) override {
        if (count_ == maximum_) {
            more_ = true;
            return false;
        }
        ++count_;
        bytes_ += static_cast<uint32_t>(sizeof(LeafSlot) + value.size());
        has_extents_ = has_extents_ || key.kind() == Kind::extent;
        last_ = key;
        return true;
    }
    uint32_t count() const { return count_; }
    uint32_t bytes() const { return bytes_; }
    bool more() const { return more_; }
    Key last() const { return last_; }
    bool has_extents() const { return has_extents_; }

  private:
    uint32_t maximum_;
    uint32_t count_ = 0;
    uint32_t bytes_ = 0;
    bool more_ = false;
    bool has_extents_ = false;
    Key last_{};
};

// What an erase_range record takes in the journal.
constexpr uint32_t kEraseRangeBytes = sizeof(RecordHeader) + sizeof(Key);

// Erases up to `maximum` keys of [first, end), none of them an extent, in one transaction. Returns true
// when no more are left.
Result<bool> erase_keys(Volume& volume, Object& object, Key first, Key end, uint32_t maximum)
    REQUIRES(object.state) {
    KeyCounter counter(maximum);
    TRY(volume.tree().scan(first, end, counter));
    if (counter.count() > 0) {
        Transaction transaction(volume);
        TRY(transaction.begin(
            SpacePriority::privileged,
            {.scattered = 0, .contiguous_bytes = counter.bytes() + kEraseRangeBytes}));
        TRY(transaction.erase_range(first, next_key(counter.last())));
        TRY(transaction.prepare());
        raise_ticket(object, transaction.commit());
    }
    return !counter.more();
}

}  // namespace

Result<bool> TiffinFileSystem::free_some_data(Object& object) {
    const uint64_t stopped_at =
        TRY(free_blocks_step(*this, object, 0, kMaximumFileBlocks, ContentTimes::keep));
    if (stopped_at < kMaximumFileBlocks) {
        return false;
    }
    if ((object.inode.inode_flags & inode_flag::has_intent) != 0) {
        TRY(end_intent(*this, object));
    }
    // No extents are left, so this is all that lies between the inode and the next node.
    uint32_t maximum_keys = kStepExtents;
    while (true) {
        Result<bool> erased = erase_keys(*volume_, object, make_key(object.node, Kind::entry, 0),
                                         make_key(object.node, Kind::orphan, 0), maximum_keys);
        if (!try_fewer(erased, maximum_keys)) {
            return erased;
        }
    }
}

Result<bool> TiffinFileSystem::erase_small_object(Object& object) {
    constexpr uint32_t kFewKeys = 8;
    if ((object.inode.inode_flags & inode_flag::has_intent) != 0) {
        return false;
    }
    KeyCounter counter(kFewKeys);
    TRY(volume_->tree().scan(inode_key(object), make_key(object.node, Kind::orphan, 0), counter));
    if (counter.count() == 0 || counter.more() || counter.has_extents()) {
        return false;
    }
    Transaction transaction(*volume_);
    Result<void> begun =
        transaction.begin(SpacePriority::privileged,
                          {.scattered = 2, .contiguous_bytes = counter.bytes() + kEraseRangeBytes});
    if (!begun.ok()) {
        return begun.error() == Error::enospc ? Result<bool>(false) : begun.error();
    }
    TRY(transaction.erase_range(inode_key(object), next_key(counter.last())));
    TRY(transaction.erase(make_key(kVolumeNode, Kind::orphan, object.node)));
    TRY(transaction.prepare());
    raise_ticket(object, transaction.commit());
    return true;
}

}  // namespace tiffin::tiffinfs
