// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/unit/check/image_editor.h"

#include <algorithm>
#include <cstring>

#include "fs/tiffinfs/journal/journal.h"
#include "fs/tiffinfs/tiffinfs.h"
#include "fs/tiffinfs/tree/node.h"
#include "fs/tiffinfs/volume/superblock.h"
#include "fuse/check/names.h"
#include "fuse/check/superblocks.h"

namespace tiffin::check {

using tiffinfs::kBlockBytes;
using tiffinfs::Key;
using tiffinfs::Kind;
using tiffinfs::make_key;
using tiffinfs::NodeHeader;
using tiffinfs::Superblock;

namespace {

NodeHeader header_of(const Block& page) {
    NodeHeader header;
    std::memcpy(&header, page.bytes, sizeof header);
    return header;
}

bool is_at(const Block& leaf, uint32_t index, Key key) {
    return index < header_of(leaf).count && tiffinfs::leaf_key(leaf.bytes, index) == key;
}

}  // namespace

ImageEditor::ImageEditor(test::CrashDevice& device) : device_(device) {
    MUST(tiffinfs::read_superblock(device, superblock_));
    layout_ = MUST(tiffinfs::Layout::from(superblock_));
}

void ImageEditor::write_superblock(const Superblock& superblock) {
    superblock_ = superblock;
    superblock_.checksum = superblock_checksum(superblock_);
    for (uint32_t copy = 0; copy < 2; ++copy) {
        const uint64_t block =
            tiffinfs::superblock_block(superblock_.total_blocks, superblock_.generation, copy);
        device_.overwrite(block * kBlockBytes, &superblock_, sizeof superblock_);
    }
}

void ImageEditor::destroy_superblock(uint64_t slot, uint32_t copy) {
    flip_bit(tiffinfs::superblock_block(superblock_.total_blocks, slot, copy), 100, 3);
}

// ---- Keys ---------------------------------------------------------------------------------------

uint64_t ImageEditor::leaf_block(Key key) {
    uint64_t block = superblock_.root_block;
    for (uint32_t level = superblock_.root_level; level > 0; --level) {
        Block page;
        read(block, page);
        block =
            tiffinfs::inner_entries(page.bytes)[tiffinfs::inner_find(page.bytes, key)].child_block;
    }
    return block;
}

bool ImageEditor::has(Key key) {
    Block leaf;
    read(leaf_block(key), leaf);
    return is_at(leaf, tiffinfs::leaf_lower_bound(leaf.bytes, key), key);
}

Bytes ImageEditor::get(Key key) {
    Block leaf;
    read(leaf_block(key), leaf);
    const uint32_t index = tiffinfs::leaf_lower_bound(leaf.bytes, key);
    TIFFIN_ASSERT(is_at(leaf, index, key));
    const ByteSpan value = tiffinfs::leaf_value(leaf.bytes, index);
    return {value.begin(), value.end()};
}

void ImageEditor::put(Key key, const Bytes& value) { put_into_leaf_of(key, key, value); }

void ImageEditor::put_into_leaf_of(Key neighbour, Key key, const Bytes& value) {
    const uint64_t block = leaf_block(neighbour);
    Block leaf;
    read(block, leaf);
    tiffinfs::leaf_put(leaf.bytes, tiffinfs::leaf_lower_bound(leaf.bytes, key), key,
                       ByteSpan(value.data(), value.size()));
    write_node(block, leaf);
}

void ImageEditor::erase(Key key) {
    const uint64_t block = leaf_block(key);
    Block leaf;
    read(block, leaf);
    const uint32_t index = tiffinfs::leaf_lower_bound(leaf.bytes, key);
    TIFFIN_ASSERT(is_at(leaf, index, key));
    tiffinfs::leaf_erase(leaf.bytes, index);
    write_node(block, leaf);
}

// ---- Names --------------------------------------------------------------------------------------

Key ImageEditor::place_of(uint64_t directory, std::string_view name) {
    return make_key(directory, Kind::entry,
                    name_hash(superblock_, name) << tiffinfs::kEntrySlotBits);
}

Key ImageEditor::entry_key(const std::string& path) {
    const size_t slash = path.rfind('/');
    return place_of(node_of(path.substr(0, slash)), path.substr(slash + 1));
}

uint64_t ImageEditor::node_of(const std::string& path) {
    return path.empty() ? vfs::kRootNode : value<tiffinfs::EntryValue>(entry_key(path)).node;
}

Bytes ImageEditor::entry(uint64_t node, uint32_t mode, std::string_view name) {
    const tiffinfs::EntryValue value{node,
                                     static_cast<uint8_t>((mode & vfs::mode::type_mask) >> 12),
                                     static_cast<uint8_t>(name.size())};
    Bytes bytes(sizeof value + name.size());
    std::memcpy(bytes.data(), &value, sizeof value);
    std::copy(name.begin(), name.end(), bytes.begin() + sizeof value);
    return bytes;
}

Key ImageEditor::extent_key(uint64_t node) {
    const Key first = make_key(node, Kind::extent, 0);
    Block leaf;
    read(leaf_block(first), leaf);
    const uint32_t index = tiffinfs::leaf_lower_bound(leaf.bytes, first);
    TIFFIN_ASSERT(index < header_of(leaf).count);
    const Key found = tiffinfs::leaf_key(leaf.bytes, index);
    TIFFIN_ASSERT(found.node == node && found.kind() == Kind::extent);
    return found;
}

// ---- Blocks -------------------------------------------------------------------------------------

void ImageEditor::flip_bit(uint64_t block, uint32_t byte, uint32_t bit) {
    device_.flip_bit(block * kBlockBytes + byte, bit);
}

void ImageEditor::read(uint64_t block, Block& page) {
    TIFFIN_ASSERT(read_block(device_, block, page));
}

void ImageEditor::write(uint64_t block, const Block& page) {
    device_.overwrite(block * kBlockBytes, page.bytes, sizeof page.bytes);
}

void ImageEditor::write_node(uint64_t block, Block& page) {
    tiffinfs::seal_page(page.bytes);
    write(block, page);
}

tiffinfs::BitmapSlots ImageEditor::read_slots(uint64_t group, tiffinfs::BitmapBlock (&blocks)[2]) {
    tiffinfs::BitmapSlots slots;
    MUST(tiffinfs::read_bitmap_slots(device_, layout_, group, superblock_.generation, blocks,
                                     slots));
    return slots;
}

void ImageEditor::set_used(uint64_t block, bool used) {
    const uint64_t group = tiffinfs::group_of(block);
    alignas(4096) tiffinfs::BitmapBlock blocks[2];
    const tiffinfs::BitmapSlots slots = read_slots(group, blocks);
    tiffinfs::BitmapBlock& bitmap = blocks[slots.newest];
    const uint64_t bit = block % tiffinfs::kBlocksPerGroup;
    const auto mask = static_cast<uint8_t>(1U << bit % 8);
    TIFFIN_ASSERT(((bitmap.bits[bit / 8] & mask) != 0) != used);
    bitmap.bits[bit / 8] ^= mask;
    bitmap.used_blocks += used ? 1U : ~0U;
    tiffinfs::finish_bitmap_block(bitmap);
    device_.overwrite(tiffinfs::bitmap_block(group, slots.newest) * kBlockBytes, &bitmap,
                      sizeof bitmap);
}

uint64_t ImageEditor::bitmap_slot_block(uint64_t group) {
    alignas(4096) tiffinfs::BitmapBlock blocks[2];
    return tiffinfs::bitmap_block(group, read_slots(group, blocks).newest);
}

// ---- Journal ------------------------------------------------------------------------------------

Bytes ImageEditor::record(tiffinfs::RecordType type, Key key, const Bytes& value) {
    tiffinfs::RecordHeader header{};
    header.type = type;
    header.value_bytes = static_cast<uint16_t>(value.size());
    header.key = key;
    Bytes bytes((sizeof header + value.size() + 3) / 4 * 4);
    std::memcpy(bytes.data(), &header, sizeof header);
    std::copy(value.begin(), value.end(), bytes.begin() + sizeof header);
    return bytes;
}

void ImageEditor::append_frame(const Bytes& records, uint32_t record_count) {
    const tiffinfs::TransactionHeader transaction{static_cast<uint32_t>(records.size()),
                                                  record_count};
    Bytes payload(sizeof transaction + records.size());
    std::memcpy(payload.data(), &transaction, sizeof transaction);
    std::copy(records.begin(), records.end(), payload.begin() + sizeof transaction);
    tiffinfs::FrameHeader header{};
    header.magic = tiffinfs::kFrameMagic;
    header.volume_nonce = superblock_.volume_nonce;
    header.incarnation = superblock_.incarnation;
    header.sequence = superblock_.journal_sequence;
    header.generation = superblock_.generation + 1;
    header.previous_checksum = superblock_.journal_previous_checksum;
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    header.transaction_count = 1;
    header.checksum =
        host::crc32c(host::crc32c(0, &header, sizeof header), payload.data(), payload.size());
    Bytes frame(sizeof header + payload.size());
    std::memcpy(frame.data(), &header, sizeof header);
    std::copy(payload.begin(), payload.end(), frame.begin() + sizeof header);
    device_.overwrite(superblock_.journal_first_block * kBlockBytes + superblock_.journal_position,
                      frame.data(), frame.size());
}

}  // namespace tiffin::check
