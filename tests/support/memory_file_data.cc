// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The data of MemoryFileSystem's files: blocks by number, absent ones are holes.
#include <algorithm>
#include <cstring>
#include <mutex>

#include "fs/vfs/host.h"
#include "tests/support/memory_file_system.h"
#include "tests/support/units.h"

namespace tiffin::testing {
namespace {

namespace flag = vfs::allocate_flag;

constexpr int64_t kDaySeconds = 86'400;

}  // namespace

MemoryFileSystem::Block* MemoryFileSystem::block_for_writing(Node& node, uint64_t number) {
    std::unique_ptr<Block>& block = node.blocks[number];
    if (block == nullptr) {
        if (used_blocks_ >= options_.capacity_bytes / kBlock) {
            node.blocks.erase(number);
            return nullptr;
        }
        block = std::make_unique<Block>();
        ++used_blocks_;
    }
    return block.get();
}

void MemoryFileSystem::free_blocks(Node& node, uint64_t first, uint64_t end) {
    if (first >= end) {
        return;
    }
    if (first >= end) {
        return;  // a range inside one block
    }
    auto from = node.blocks.lower_bound(first);
    auto to = node.blocks.lower_bound(end);
    used_blocks_ -= static_cast<uint64_t>(std::distance(from, to));
    node.blocks.erase(from, to);
}

size_t MemoryFileSystem::put_bytes(Node& node, uint64_t offset, const unsigned char* data,
                                   size_t size) {
    size_t done = 0;
    while (done < size) {
        Block* block = block_for_writing(node, (offset + done) / kBlock);
        if (block == nullptr) {
            break;
        }
        uint64_t inside = (offset + done) % kBlock;
        size_t piece = std::min<size_t>(size - done, kBlock - inside);
        std::memcpy(block->data() + inside, data + done, piece);
        done += piece;
    }
    if (done > 0) {
        node.attributes.size_bytes = std::max(node.attributes.size_bytes, offset + done);
    }
    return done;
}

void MemoryFileSystem::get_bytes(const Node& node, uint64_t offset, unsigned char* data,
                                 size_t size) {
    while (size > 0) {
        uint64_t inside = offset % kBlock;
        size_t piece = std::min<size_t>(size, kBlock - inside);
        auto found = node.blocks.find(offset / kBlock);
        if (found == node.blocks.end()) {
            std::memset(data, 0, piece);
        } else {
            std::memcpy(data, found->second->data() + inside, piece);
        }
        offset += piece;
        data += piece;
        size -= piece;
    }
}

// Zeros in [offset, end): whole blocks become holes.
void MemoryFileSystem::zero_range(Node& node, uint64_t offset, uint64_t end) {
    free_blocks(node, (offset + kBlock - 1) / kBlock, end / kBlock);
    auto zero_inside = [&](uint64_t from, uint64_t to) {
        auto found = node.blocks.find(from / kBlock);
        if (from < to && found != node.blocks.end()) {
            std::memset(found->second->data() + from % kBlock, 0, to - from);
        }
    };
    uint64_t first_end = std::min(end, (offset / kBlock + 1) * kBlock);
    zero_inside(offset, first_end);
    zero_inside(std::max(end / kBlock * kBlock, first_end), end);
}

void MemoryFileSystem::set_size(Node& node, uint64_t size) {
    if (size <= node.attributes.size_bytes) {
        zero_range(node, size, (node.attributes.size_bytes + kBlock - 1) / kBlock * kBlock);
        free_blocks(node, (size + kBlock - 1) / kBlock, UINT64_MAX);
    }
    node.attributes.size_bytes = size;
}

void MemoryFileSystem::touch_access(Node& node) const {
    vfs::Attributes& attributes = node.attributes;
    int64_t second = host::realtime_ns() / 1'000'000'000;
    bool is_old = attributes.access_time.seconds + kDaySeconds <= second ||
                  !(attributes.modification_time < attributes.access_time);
    if (options_.update_access_times && !options_.read_only && is_old &&
        (attributes.flags & vfs::file_flag::no_atime) == 0) {
        attributes.access_time = {second, 0};
    }
}

Result<size_t> MemoryFileSystem::read(vfs::NodeId id, vfs::Handle /*handle*/, uint64_t offset_bytes,
                                      Span<const vfs::IoVector> buffers) {
    {
        std::unique_lock lock(mutex_);
        touch_access(*TRY(find_file(id)));
    }
    std::shared_lock lock(mutex_);
    Node* node = TRY(find_file(id));
    size_t total = 0;
    for (const vfs::IoVector& buffer : buffers) {
        uint64_t at = offset_bytes + total;
        uint64_t size = node->attributes.size_bytes;
        size_t piece = at >= size ? 0 : std::min<uint64_t>(buffer.size_bytes, size - at);
        get_bytes(*node, at, static_cast<unsigned char*>(buffer.data), piece);
        total += piece;
        if (piece < buffer.size_bytes) {
            break;
        }
    }
    return total;
}

Result<size_t> MemoryFileSystem::write(vfs::NodeId id, vfs::Handle /*handle*/,
                                       uint64_t offset_bytes, Span<const vfs::IoVector> buffers,
                                       uint32_t flags) {
    std::unique_lock lock(mutex_);
    TRY(check_writable());
    Node* node = TRY(find_file(id));
    if ((flags & vfs::write_flag::append) != 0) {
        offset_bytes = node->attributes.size_bytes;
    }
    // What is written back from a cache was permitted when it came there.
    bool cached = (flags & vfs::write_flag::write_back) != 0;
    bool overwrites = offset_bytes < node->attributes.size_bytes;
    if (!cached && ((node->attributes.flags & vfs::file_flag::immutable) != 0 ||
                    (overwrites && (node->attributes.flags & vfs::file_flag::append_only) != 0))) {
        return Error::eperm;
    }
    size_t asked = 0;
    for (const vfs::IoVector& buffer : buffers) {
        asked += buffer.size_bytes;
    }
    if (offset_bytes > kMaxFileBytes || asked > kMaxFileBytes - offset_bytes) {
        return Error::efbig;
    }
    size_t total = 0;
    for (const vfs::IoVector& buffer : buffers) {
        size_t written =
            put_bytes(*node, offset_bytes + total, static_cast<const unsigned char*>(buffer.data),
                      buffer.size_bytes);
        total += written;
        if (written < buffer.size_bytes) {
            break;
        }
    }
    if (total == 0 && asked != 0) {
        return Error::enospc;
    }
    if ((flags & vfs::write_flag::kill_privileges) != 0) {
        kill_privileges(*node);
    }
    if ((flags & vfs::write_flag::keep_times) == 0) {
        touch_data(*node);
    }
    return total;
}

Result<void> MemoryFileSystem::fsync(vfs::NodeId id, bool /*data_only*/) {
    std::shared_lock lock(mutex_);
    TRY(find(id));
    return {};
}

// Collapse (insert false) or insert whole blocks.
Result<void> MemoryFileSystem::shift_range(Node& node, uint64_t offset, uint64_t length,
                                           bool insert) {
    uint64_t size = node.attributes.size_bytes;
    if (offset % kBlock != 0 || length % kBlock != 0 || length == 0 || offset >= size ||
        (!insert && length >= size - offset)) {
        return Error::einval;
    }
    if (insert && size > kMaxFileBytes - length) {
        return Error::efbig;
    }
    if (!insert) {
        free_blocks(node, offset / kBlock, (offset + length) / kBlock);
    }
    std::map<uint64_t, std::unique_ptr<Block>> moved;
    for (auto at = node.blocks.lower_bound(offset / kBlock); at != node.blocks.end();) {
        uint64_t number = insert ? at->first + length / kBlock : at->first - length / kBlock;
        moved[number] = std::move(at->second);
        at = node.blocks.erase(at);
    }
    node.blocks.merge(moved);
    node.attributes.size_bytes = insert ? size + length : size - length;
    return {};
}

Result<void> MemoryFileSystem::allocate(vfs::NodeId id, uint32_t mode, uint64_t offset_bytes,
                                        uint64_t length_bytes) {
    std::unique_lock lock(mutex_);
    TRY(check_writable());
    Node* node = TRY(find(id));
    if (!vfs::mode::is_regular(node->attributes.mode)) {
        return Error::enodev;
    }
    if ((node->attributes.flags & vfs::file_flag::immutable) != 0 ||
        ((mode & ~flag::keep_size) != 0 &&
         (node->attributes.flags & vfs::file_flag::append_only) != 0)) {
        return Error::eperm;
    }
    if (length_bytes == 0) {
        return Error::einval;
    }
    if (offset_bytes > kMaxFileBytes || length_bytes > kMaxFileBytes - offset_bytes) {
        return Error::efbig;
    }
    uint64_t end = offset_bytes + length_bytes;
    if (mode == flag::collapse_range || mode == flag::insert_range) {
        TRY(shift_range(*node, offset_bytes, length_bytes, mode == flag::insert_range));
        touch_data(*node);
        return {};
    }
    if (mode == (flag::punch_hole | flag::keep_size)) {
        zero_range(*node, offset_bytes, end);
        touch_data(*node);
        return {};
    }
    if ((mode & ~(flag::keep_size | flag::zero_range)) != 0) {
        return Error::eopnotsupp;
    }
    uint64_t missing = 0;
    for (uint64_t number = offset_bytes / kBlock; number * kBlock < end; ++number) {
        missing += node->blocks.contains(number) ? 0 : 1;
        if (missing > options_.capacity_bytes / kBlock - used_blocks_) {
            return Error::enospc;
        }
    }
    if ((mode & flag::zero_range) != 0) {
        zero_range(*node, offset_bytes, end);
    }
    for (uint64_t number = offset_bytes / kBlock; number * kBlock < end; ++number) {
        Block* block = block_for_writing(*node, number);
        TIFFIN_ASSERT(block != nullptr);
    }
    if ((mode & flag::keep_size) == 0) {
        node->attributes.size_bytes = std::max(node->attributes.size_bytes, end);
    }
    touch_data(*node);
    return {};
}

Result<uint64_t> MemoryFileSystem::seek(vfs::NodeId id, uint64_t offset_bytes,
                                        vfs::SeekTarget target) {
    std::shared_lock lock(mutex_);
    Node* node = TRY(find_file(id));
    uint64_t size = node->attributes.size_bytes;
    if (offset_bytes >= size) {
        return Error::enxio;
    }
    uint64_t number = offset_bytes / kBlock;
    auto at = node->blocks.lower_bound(number);
    if (target == vfs::SeekTarget::data) {
        if (at == node->blocks.end() || at->first * kBlock >= size) {
            return Error::enxio;
        }
        return std::max(offset_bytes, at->first * kBlock);
    }
    while (at != node->blocks.end() && at->first == number) {
        ++number;
        ++at;
    }
    return std::min(std::max(offset_bytes, number * kBlock), size);
}

Result<uint64_t> MemoryFileSystem::copy_range(vfs::NodeId source, uint64_t source_offset_bytes,
                                              vfs::NodeId destination,
                                              uint64_t destination_offset_bytes,
                                              uint64_t length_bytes) {
    std::unique_lock lock(mutex_);
    TRY(check_writable());
    Node* from = TRY(find_file(source));
    Node* to = TRY(find_file(destination));
    if (destination_offset_bytes < to->attributes.size_bytes ||
        (to->attributes.flags & vfs::file_flag::append_only) == 0) {
        TRY(check_changeable(*to));
    }
    uint64_t size = from->attributes.size_bytes;
    if (source_offset_bytes >= size) {
        return uint64_t{0};
    }
    length_bytes = std::min(length_bytes, size - source_offset_bytes);
    if (from == to && source_offset_bytes < destination_offset_bytes + length_bytes &&
        destination_offset_bytes < source_offset_bytes + length_bytes) {
        return Error::einval;
    }
    uint64_t copied = 0;
    Block piece;
    while (copied < length_bytes) {
        size_t count = std::min<uint64_t>(kBlock, length_bytes - copied);
        get_bytes(*from, source_offset_bytes + copied, piece.data(), count);
        size_t written = put_bytes(*to, destination_offset_bytes + copied, piece.data(), count);
        copied += written;
        if (written < count) {
            break;
        }
    }
    if (copied == 0 && length_bytes != 0) {
        return Error::enospc;
    }
    touch_access(*from);
    touch_data(*to);
    return copied;
}

}  // namespace tiffin::testing
