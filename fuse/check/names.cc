// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/check/names.h"

#include <cstring>
#include <vector>

#include "fs/base/siphash.h"
#include "fs/vfs/types.h"
#include "fuse/check/text.h"

namespace tiffin::check {

using tiffinfs::EntryValue;
using tiffinfs::kEntrySlotBits;
using tiffinfs::kEntrySlots;
using tiffinfs::Kind;
using tiffinfs::make_key;

namespace {

constexpr uint32_t kEntryHashBits = tiffinfs::kKeyOffsetBits - kEntrySlotBits;
constexpr uint32_t kXattrHashBits = tiffinfs::kKeyOffsetBits - 16;

}  // namespace

bool is_legal_name(std::string_view name) {
    return !name.empty() && name.size() <= vfs::kNameMaxBytes && name != "." && name != ".." &&
           name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

bool is_type_mode(uint32_t type_mode) {
    switch (type_mode) {
        case vfs::mode::regular:
        case vfs::mode::directory:
        case vfs::mode::symlink:
        case vfs::mode::socket:
        case vfs::mode::fifo:
        case vfs::mode::block_device:
        case vfs::mode::character_device:
            return true;
        default:
            return false;
    }
}

uint64_t name_hash(const tiffinfs::Superblock& superblock, std::string_view name) {
    const uint64_t hash = siphash24(superblock.hash_key, name.data(), name.size()) &
                          ((uint64_t{1} << kEntryHashBits) - 1);
    return hash == 0 ? 1 : hash;
}

uint64_t xattr_hash(const tiffinfs::Superblock& superblock, std::string_view name) {
    return siphash24(superblock.hash_key, name.data(), name.size()) &
           ((uint64_t{1} << kXattrHashBits) - 1);
}

Result<EntryPlace> find_entry(KeySpace& keys, uint64_t directory, uint64_t hash,
                              std::string_view name) {
    EntryPlace place;
    uint64_t free_offset = hash << kEntrySlotBits;
    const uint64_t end = (hash << kEntrySlotBits) + kEntrySlots;
    uint64_t cursor = free_offset;
    KeyValue found;
    // The hash may be the greatest one, whose end is not an offset any more.
    const tiffinfs::Key last = make_key(directory, Kind::entry, end - 1);
    while (cursor < end && TRY(keys.find_first(make_key(directory, Kind::entry, cursor),
                                               tiffinfs::next_key(last), found))) {
        const uint64_t offset = found.key.offset();
        if (offset == free_offset) {
            ++free_offset;
        }
        EntryValue entry;
        if (found.value.size() > sizeof entry &&
            as_text(found.bytes()).substr(sizeof entry) == name) {
            std::memcpy(&entry, found.value.data(), sizeof entry);
            place.exists = true;
            place.offset = offset;
            place.node = entry.node;
            return place;
        }
        cursor = offset + 1;
    }
    place.has_free_slot = free_offset < end;
    place.offset = free_offset;
    return place;
}

Result<bool> add_entry(KeySpace& keys, const tiffinfs::Superblock& superblock, uint64_t directory,
                       std::string_view name, uint64_t node, uint32_t mode) {
    const EntryPlace place = TRY(find_entry(keys, directory, name_hash(superblock, name), name));
    if (place.exists || !place.has_free_slot) {
        return false;
    }
    const EntryValue entry{node, static_cast<uint8_t>((mode & vfs::mode::type_mask) >> 12),
                           static_cast<uint8_t>(name.size())};
    std::vector<unsigned char> value(sizeof entry + name.size());
    std::memcpy(value.data(), &entry, sizeof entry);
    std::memcpy(value.data() + sizeof entry, name.data(), name.size());
    keys.put(make_key(directory, Kind::entry, place.offset), ByteSpan(value.data(), value.size()));
    return true;
}

}  // namespace tiffin::check
