// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Changes an unmounted volume behind the back of everybody, with right checksums: the damage that only
// a checker sees.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/space/bitmap_block.h"
#include "fuse/check/block_io.h"
#include "tests/support/crash_device.h"

namespace tiffin::check {

using Bytes = std::vector<unsigned char>;

template <typename T>
Bytes bytes_of(const T& value) {
    const auto* begin = reinterpret_cast<const unsigned char*>(&value);
    return {begin, begin + sizeof(T)};
}

// The volume is one that is sound so far; what makes no sense stops the test.
class ImageEditor {
  public:
    explicit ImageEditor(test::CrashDevice& device);

    const tiffinfs::Superblock& superblock() const { return superblock_; }
    // Writes both copies of the newest superblock; the checksum is filled in.
    void write_superblock(const tiffinfs::Superblock& superblock);
    // Destroys a copy of a superblock slot.
    void destroy_superblock(uint64_t slot, uint32_t copy);

    // ---- Keys, in the leaf where a search looks for them ----
    bool has(tiffinfs::Key key);
    Bytes get(tiffinfs::Key key);
    // The leaf must have room.
    void put(tiffinfs::Key key, const Bytes& value);
    void erase(tiffinfs::Key key);
    // Adds a key to the leaf of another one, wherever it belongs.
    void put_into_leaf_of(tiffinfs::Key neighbour, tiffinfs::Key key, const Bytes& value);
    template <typename Change>
    void change_inode(uint64_t node, Change change) {
        const tiffinfs::Key key = tiffinfs::make_key(node, tiffinfs::Kind::inode, 0);
        tiffinfs::InodeValue inode = value<tiffinfs::InodeValue>(key);
        change(inode);
        put(key, bytes_of(inode));
    }
    template <typename T>
    T value(tiffinfs::Key key) {
        T result;
        const Bytes bytes = get(key);
        __builtin_memcpy(&result, bytes.data(), sizeof result);
        return result;
    }

    // ---- Names ----
    uint64_t node_of(const std::string& path);
    tiffinfs::Key entry_key(const std::string& path);
    // The value of an entry.
    static Bytes entry(uint64_t node, uint32_t mode, std::string_view name);
    // Where an entry of this name belongs, in slot 0.
    tiffinfs::Key place_of(uint64_t directory, std::string_view name);
    // The first extent of a file.
    tiffinfs::Key extent_key(uint64_t node);

    // ---- Blocks ----
    uint64_t leaf_block(tiffinfs::Key key);
    void flip_bit(uint64_t block, uint32_t byte, uint32_t bit);
    void read(uint64_t block, Block& page);
    void write(uint64_t block, const Block& page);
    // Seals a tree node and writes it.
    void write_node(uint64_t block, Block& page);
    // The bitmap of a group as it counts, with the bit of `block` set or cleared.
    void set_used(uint64_t block, bool used);
    uint64_t bitmap_slot_block(uint64_t group);

    // Appends a frame with one transaction to the empty journal. `records` is its payload.
    void append_frame(const Bytes& records, uint32_t record_count);
    static Bytes record(tiffinfs::RecordType type, tiffinfs::Key key, const Bytes& value);

  private:
    tiffinfs::BitmapSlots read_slots(uint64_t group, tiffinfs::BitmapBlock (&blocks)[2]);

    test::CrashDevice& device_;
    tiffinfs::Superblock superblock_{};
    tiffinfs::Layout layout_;
};

}  // namespace tiffin::check
