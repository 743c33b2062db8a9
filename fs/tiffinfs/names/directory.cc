// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/tiffinfs/names/directory.h"

#include "fs/base/siphash.h"
#include "fs/tiffinfs/volume/volume.h"
#include "fs/vfs/numbers.h"

namespace tiffin::tiffinfs {
namespace {

constexpr uint64_t kHashMask = (uint64_t{1} << (kKeyOffsetBits - kEntrySlotBits)) - 1;

constexpr size_t kNameAlignBytes = 8;

constexpr bool is_type(uint32_t type_mode) {
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

// What a host could have given as a name; anything else would confuse programs, or the kernel.
bool is_name(vfs::Name name) {
    for (size_t i = 0; i < name.size_bytes; ++i) {
        if (name.data[i] == '\0' || name.data[i] == '/') {
            return false;
        }
    }
    return !is_dot(name) && !is_dot_dot(name);
}

}  // namespace

uint64_t entry_hash(const uint8_t hash_key[16], vfs::Name name) {
    const uint64_t hash = siphash24(hash_key, name.data, name.size_bytes) & kHashMask;
    return hash == 0 ? 1 : hash;
}

bool is_dot(vfs::Name name) { return name == vfs::Name("."); }
bool is_dot_dot(vfs::Name name) { return name == vfs::Name(".."); }

bool parse_entry(Key key, ByteSpan value, EntryView& entry) {
    EntryValue header;
    if (value.size() <= sizeof(header)) {
        return false;
    }
    __builtin_memcpy(&header, value.data(), sizeof(header));
    entry.offset = key.offset();
    entry.node = header.node;
    entry.type_mode = uint32_t{header.type} << 12;
    entry.name =
        vfs::Name(reinterpret_cast<const char*>(value.data() + sizeof(header)), header.name_bytes);
    return header.name_bytes == value.size() - sizeof(header) && header.node != kVolumeNode &&
           is_type(entry.type_mode) && entry.offset >= kEntrySlots && is_name(entry.name);
}

bool EntrySearch::visit(Key key, ByteSpan value) {
    EntryView entry;
    if (!parse_entry(key, value, entry)) {
        damaged_ = true;
        return false;
    }
    if (entry.offset == free_offset()) {
        ++free_slot_;
    }
    if (entry.name == name_) {
        found_ = true;
        offset_ = entry.offset;
        node_ = entry.node;
        type_mode_ = entry.type_mode;
        return false;
    }
    return true;
}

Result<EntryPlace> find_entry(Volume& volume, uint64_t directory, vfs::Name name,
                              bool for_insertion) {
    return find_entry(volume, directory, name, entry_hash(volume.superblock().hash_key, name),
                      for_insertion);
}

Result<EntryPlace> find_entry(Volume& volume, uint64_t directory, vfs::Name name, uint64_t hash,
                              bool for_insertion) {
    if (for_insertion && !is_name(name)) {
        return Error::einval;  // what would be taken for damage later
    }
    EntrySearch search(directory, hash, name);
    TRY(volume.tree().scan(search.first(), search.end(), search));
    if (search.damaged()) {
        return volume.report_damage("a directory entry is malformed", directory,
                                    search.first().offset());
    }
    if (search.found()) {
        if (search.node() == directory || search.node() == vfs::kRootNode) {
            return volume.report_damage("a directory entry makes a loop", directory,
                                        search.offset());
        }
        return EntryPlace{true, search.offset(), search.node(), search.type_mode()};
    }
    if (for_insertion && !search.has_free_slot()) {
        return Error::enospc;
    }
    return EntryPlace{false, search.free_offset(), 0, 0};
}

Result<void> stage_entry(Transaction& transaction, uint64_t directory, uint64_t offset,
                         uint64_t node, uint32_t type_mode, vfs::Name name) {
    const EntryValue value{node, static_cast<uint8_t>((type_mode & vfs::mode::type_mask) >> 12),
                           static_cast<uint8_t>(name.size_bytes)};
    return transaction.put(
        make_key(directory, Kind::entry, offset),
        ByteSpan(reinterpret_cast<const unsigned char*>(&value), sizeof(value)),
        ByteSpan(reinterpret_cast<const unsigned char*>(name.data), name.size_bytes));
}

Result<void> stage_entry_removal(Transaction& transaction, uint64_t directory, uint64_t offset) {
    return transaction.erase(make_key(directory, Kind::entry, offset));
}

namespace {

class AnyKey final : public TreeVisitor {
  public:
    bool visit(Key /*key*/, ByteSpan /*value*/) override {
        found_ = true;
        return false;
    }
    bool found() const { return found_; }

  private:
    bool found_ = false;
};

}  // namespace

Result<void> check_empty(Volume& volume, uint64_t directory, uint64_t size_bytes) {
    if (size_bytes != 0) {
        return Error::enotempty;
    }
    AnyKey any;
    TRY(volume.tree().scan(make_key(directory, Kind::entry, 0),
                           next_key(make_key(directory, Kind::entry, kKeyOffsetMask)), any));
    if (any.found()) {
        return volume.report_damage("a directory has entries, but its inode says that it has none",
                                    directory, 0);
    }
    return {};
}

Result<void> EntryBatch::fill(Volume& volume, uint64_t directory, uint64_t offset) {
    used_ = 0;
    count_ = 0;
    at_end_ = true;  // until an entry finds no room
    if (offset > kKeyOffsetMask) {
        return {};
    }
    TRY(volume.tree().scan(make_key(directory, Kind::entry, offset),
                           next_key(make_key(directory, Kind::entry, kKeyOffsetMask)), *this));
    if (damaged_) {
        return volume.report_damage("a directory entry is malformed", directory, offset);
    }
    return {};
}

bool EntryBatch::visit(Key key, ByteSpan value) {
    EntryView entry;
    if (!parse_entry(key, value, entry)) {
        damaged_ = true;
        return false;
    }
    const size_t needed = sizeof(Header) + round_up(entry.name.size_bytes, kNameAlignBytes);
    if (count_ == maximum_entries_ || needed > capacity_ - used_) {
        at_end_ = false;
        return false;
    }
    const Header header{entry.offset, entry.node, entry.type_mode,
                        static_cast<uint32_t>(entry.name.size_bytes)};
    __builtin_memcpy(memory_ + used_, &header, sizeof(header));
    __builtin_memcpy(memory_ + used_ + sizeof(header), entry.name.data, entry.name.size_bytes);
    used_ += needed;
    ++count_;
    return true;
}

EntryView EntryBatch::next(size_t& position) const {
    TIFFIN_ASSERT(position < used_);
    Header header;
    __builtin_memcpy(&header, memory_ + position, sizeof(header));
    const EntryView entry{
        header.offset, header.node, header.type_mode,
        vfs::Name(reinterpret_cast<const char*>(memory_ + position + sizeof(header)),
                  header.name_bytes)};
    position += sizeof(header) + round_up(header.name_bytes, kNameAlignBytes);
    return entry;
}

}  // namespace tiffin::tiffinfs
