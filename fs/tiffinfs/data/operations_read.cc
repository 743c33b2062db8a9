// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Reading: where data is, reading it, verifying it.
#include "fs/tiffinfs/data/extent_walk.h"
#include "fs/tiffinfs/data/file_data.h"
#include "fs/tiffinfs/objects/operations.h"
#include "fs/vfs/buffer_cursor.h"

namespace tiffin::tiffinfs {
namespace {

// Fills a mapping from extents that come in order.
class MappingBuilder final : public ExtentVisitor {
  public:
    MappingBuilder(vfs::ReadMapping& mapping, uint64_t first_block, uint64_t end_block)
        : mapping_(mapping), next_(first_block), end_(end_block) {}

    bool visit(const MappedExtent& extent) override {
        uint64_t first = extent.file_block > next_ ? extent.file_block : next_;
        uint64_t end = extent.end_block() < end_ ? extent.end_block() : end_;
        if (!add_hole(first)) {
            return false;
        }
        if (extent.lost()) [[unlikely]] {
            full_ = true;
            meets_lost_ = true;
            return false;
        }
        if (extent.unwritten()) {
            return add_zeros(vfs::SegmentKind::unwritten, end,
                             extent.physical_of(next_) * kBlockBytes);
        }
        return add_mapped(extent, end);
    }

    // After the last extent: the rest is a hole.
    void finish() {
        if (!full_) {
            add_hole(end_);
        }
    }
    uint64_t covered_end() const { return next_; }
    // The mapping ends where the content is lost.
    bool meets_lost() const { return meets_lost_; }

  private:
    // The last segment, if this goes on with it, or a new one; nullptr when there is no room for one.
    vfs::ReadSegment* segment_for(vfs::SegmentKind kind, uint64_t device_offset) {
        if (mapping_.segment_count > 0) {
            vfs::ReadSegment& last = mapping_.segments[mapping_.segment_count - 1];
            if (last.kind == kind &&
                (kind == vfs::SegmentKind::zeros ||
                 last.device_offset_bytes + last.length_bytes == device_offset)) {
                return &last;
            }
        }
        if (mapping_.segment_count == vfs::ReadMapping::kMaxSegments) {
            full_ = true;
            return nullptr;
        }
        vfs::ReadSegment& segment = mapping_.segments[mapping_.segment_count++];
        segment = {};
        segment.kind = kind;
        segment.file_offset_bytes = next_ * kBlockBytes;
        segment.device_offset_bytes = device_offset;
        segment.first_checksum = checksum_count_;
        return &segment;
    }

    bool add_zeros(vfs::SegmentKind kind, uint64_t end, uint64_t device_offset) {
        if (end <= next_) {
            return true;
        }
        vfs::ReadSegment* segment = segment_for(kind, device_offset);
        if (segment == nullptr) {
            return false;
        }
        segment->length_bytes += (end - next_) * kBlockBytes;
        next_ = end;
        return true;
    }
    bool add_hole(uint64_t end) { return add_zeros(vfs::SegmentKind::zeros, end, 0); }

    bool add_mapped(const MappedExtent& extent, uint64_t end) {
        uint64_t room = vfs::ReadMapping::kMaxBlocks - checksum_count_;
        uint64_t count = end - next_ < room ? end - next_ : room;
        full_ = full_ || count < end - next_;
        if (count == 0) {
            return !full_;
        }
        vfs::ReadSegment* segment =
            segment_for(vfs::SegmentKind::device, extent.physical_of(next_) * kBlockBytes);
        if (segment == nullptr) {
            return false;
        }
        segment->length_bytes += count * kBlockBytes;
        __builtin_memcpy(mapping_.checksums + checksum_count_,
                         extent.checksums + (next_ - extent.file_block) * sizeof(uint32_t),
                         count * sizeof(uint32_t));
        checksum_count_ += static_cast<uint32_t>(count);
        next_ += count;
        return !full_;
    }

    vfs::ReadMapping& mapping_;
    uint64_t next_;
    uint64_t end_;
    uint32_t checksum_count_ = 0;
    bool full_ = false;
    bool meets_lost_ = false;
};

// Small files: the content, then zeros to the end of the block.
Result<void> map_inline(Volume& volume, const Object& object, vfs::ReadMapping& mapping)
    REQUIRES_SHARED(object.state) {
    TRY(load_inline(volume, object, mapping.inline_data));
    uint64_t size_bytes = object.inode.size_bytes;
    mapping.length_bytes = kBlockBytes;
    mapping.segments[0] = {};
    mapping.segments[0].kind = vfs::SegmentKind::memory;
    mapping.segments[0].length_bytes = size_bytes;
    mapping.segments[0].memory = mapping.inline_data;
    mapping.segments[1] = {};
    mapping.segments[1].file_offset_bytes = size_bytes;
    mapping.segments[1].length_bytes = kBlockBytes - size_bytes;
    mapping.segment_count = 2;
    return {};
}

Result<void> fill_mapping(Volume& volume, const Object& object, uint64_t length_bytes,
                          vfs::ReadMapping& mapping) REQUIRES_SHARED(object.state) {
    uint64_t size_bytes = object.inode.size_bytes;
    mapping.file_size_bytes = size_bytes;
    const bool in_inode = is_inline(object.inode);
    const uint64_t limit_bytes =
        mapping.includes_behind_end && !in_inode ? kMaximumFileBytes : size_bytes;
    if (mapping.offset_bytes >= limit_bytes) {
        return {};
    }
    if (in_inode) {
        return map_inline(volume, object, mapping);
    }
    uint64_t first = block_at(mapping.offset_bytes);
    uint64_t end = blocks_for(limit_bytes);
    uint64_t wanted = blocks_for(length_bytes);
    end = wanted < end - first ? first + wanted : end;
    MappingBuilder builder(mapping, first, end);
    TRY(walk_extents(volume, object.node, first, end, builder));
    builder.finish();
    if (builder.meets_lost() && builder.covered_end() == first) [[unlikely]] {
        return report_lost_block(object.node, first);
    }
    mapping.length_bytes = (builder.covered_end() - first) * kBlockBytes;
    return {};
}

// Starts a mapping: the epoch before the look at the map, so that no block that is seen is used again.
Result<void> map_object(TiffinFileSystem& file_system, Object& object, uint64_t offset_bytes,
                        uint64_t length_bytes, vfs::ReadMapping& mapping) {
    Volume& volume = file_system.volume();
    mapping.node = object.node;
    mapping.offset_bytes = offset_bytes / kBlockBytes * kBlockBytes;
    length_bytes += offset_bytes - mapping.offset_bytes;
    bool finished_intent = false;
    while (true) {
        mapping.file_size_bytes = 0;
        mapping.length_bytes = 0;
        mapping.segment_count = 0;
        bool intent = false;
        Result<void> result;
        {
            BiasedSharedLock lock(object.state, object.node);
            mapping.reader_token = volume.readers().enter();
            result = check_regular(object);
            if (result.ok() && (object.inode.inode_flags & inode_flag::has_intent) != 0)
                [[unlikely]] {
                Result<bool> blocked = intent_blocks_reading(volume, object);
                result = blocked.ok() ? Result<void>() : Result<void>(blocked.error());
                intent = blocked.ok() && blocked.value();
            }
            if (result.ok() && !intent) {
                result = fill_mapping(volume, object, length_bytes, mapping);
            }
        }
        if (result.ok() && !intent) {
            mapping.active = true;
            return {};
        }
        volume.readers().leave(mapping.reader_token);
        if (!result.ok()) {
            return result;
        }
        if (finished_intent) {
            return Error::eio;
        }
        if (mapping.follows_another) {
            // Who holds the claim that would be waited for may wait for the other mapping.
            return Error::eagain;
        }
        TRY(finish_intent_unlocked(file_system, object));
        finished_intent = true;
    }
}

}  // namespace

vfs::BlockDevice* TiffinFileSystem::device() { return &volume_->device(); }

Result<void> TiffinFileSystem::map_read(vfs::NodeId node, uint64_t offset_bytes,
                                        uint64_t length_bytes, vfs::ReadMapping& mapping) {
    mapping.active = false;
    TRY(volume_->check_running());
    ObjectPin object = TRY(objects_.get(node));
    if (length_bytes > kMaximumFileBytes) {
        length_bytes = kMaximumFileBytes;
    }
    return map_object(*this, *object, offset_bytes, length_bytes, mapping);
}

void TiffinFileSystem::release_read(vfs::ReadMapping& mapping) {
    if (mapping.active) {
        mapping.active = false;
        volume_->readers().leave(mapping.reader_token);
    }
}

void TiffinFileSystem::note_read(vfs::NodeId node) {
    // Most mounts with noatime read a lot: not even a look at the object.
    if (options_.access_time == AccessTimePolicy::noatime || volume_->is_shut_down()) {
        return;
    }
    Result<ObjectPin> object = objects_.get(node);
    if (object.ok()) {
        touch_access_time(*this, **object);
    }
}

Result<void> TiffinFileSystem::verify_read(const vfs::ReadMapping& mapping, uint32_t segment_index,
                                           Span<const vfs::IoVector> buffers, bool reports_damage) {
    if (segment_index >= mapping.segment_count ||
        mapping.segments[segment_index].kind != vfs::SegmentKind::device) {
        return Error::einval;
    }
    const vfs::ReadSegment& segment = mapping.segments[segment_index];
    BufferCursor cursor(buffers);
    if (cursor.remaining() < segment.length_bytes) {
        return Error::einval;
    }
    uint64_t count = segment.length_bytes / kBlockBytes;
    for (uint64_t i = 0; i < count; ++i) {
        if (cursor.checksum(kBlockBytes) != mapping.checksums[segment.first_checksum + i])
            [[unlikely]] {
            if (!reports_damage) {
                return Error::eio;
            }
            return report_bad_block(mapping.node, block_at(segment.file_offset_bytes) + i,
                                    block_at(segment.device_offset_bytes) + i);
        }
    }
    return {};
}

namespace {

// Finds the first block at or after `next` that is data, or that is none.
class SeekVisitor final : public ExtentVisitor {
  public:
    SeekVisitor(uint64_t first_block, vfs::SeekTarget target)
        : next_(first_block), target_(target) {}

    bool visit(const MappedExtent& extent) override {
        uint64_t first = extent.file_block > next_ ? extent.file_block : next_;
        if (target_ == vfs::SeekTarget::data) {
            if (extent.unwritten()) {
                return true;
            }
            next_ = first;
            found_ = true;
            return false;
        }
        // Looking for a hole: everything up to `next_` is data.
        if (extent.file_block > next_ || extent.unwritten()) {
            return false;
        }
        next_ = extent.end_block();
        return true;
    }

    bool found_data() const { return found_; }
    uint64_t block() const { return next_; }

  private:
    uint64_t next_;
    vfs::SeekTarget target_;
    bool found_ = false;
};

Result<uint64_t> seek_in(Volume& volume, const Object& object, uint64_t offset_bytes,
                         vfs::SeekTarget target) REQUIRES_SHARED(object.state) {
    uint64_t size_bytes = object.inode.size_bytes;
    if (offset_bytes >= size_bytes) {
        return Error::enxio;
    }
    if (is_inline(object.inode)) {
        return target == vfs::SeekTarget::data ? offset_bytes : size_bytes;
    }
    SeekVisitor visitor(block_at(offset_bytes), target);
    TRY(walk_extents(volume, object.node, block_at(offset_bytes), blocks_for(size_bytes), visitor));
    if (target == vfs::SeekTarget::data && !visitor.found_data()) {
        return Error::enxio;
    }
    uint64_t found = visitor.block() * kBlockBytes;
    found = found > offset_bytes ? found : offset_bytes;
    return found < size_bytes ? found : size_bytes;
}

}  // namespace

Result<uint64_t> TiffinFileSystem::seek(vfs::NodeId node, uint64_t offset_bytes,
                                        vfs::SeekTarget target) {
    uint64_t size_bytes = 0;
    return seek_with_size(*this, node, offset_bytes, target, size_bytes);
}

Result<uint64_t> seek_with_size(TiffinFileSystem& file_system, vfs::NodeId node,
                                uint64_t offset_bytes, vfs::SeekTarget target,
                                uint64_t& size_bytes) {
    Volume& volume = file_system.volume();
    TRY(volume.check_running());
    ObjectPin object = TRY(file_system.objects().get(node));
    bool finished_intent = false;
    while (true) {
        {
            BiasedSharedLock lock(object->state, object->node);
            TRY(check_regular(*object));
            if ((object->inode.inode_flags & inode_flag::has_intent) == 0 ||
                !TRY(intent_blocks_reading(volume, *object))) {
                size_bytes = object->inode.size_bytes;
                return seek_in(volume, *object, offset_bytes, target);
            }
        }
        if (finished_intent) {
            return Error::eio;
        }
        TRY(finish_intent_unlocked(file_system, *object));
        finished_intent = true;
    }
}

}  // namespace tiffin::tiffinfs
