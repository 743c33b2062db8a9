// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/cost/tree_on_device.h"

#include <cstring>

#include "fs/base/siphash.h"
#include "fs/tiffinfs/names/directory.h"
#include "fs/tiffinfs/tiffinfs.h"
#include "fs/vfs/host.h"

namespace tiffin::test {

using tiffinfs::Key;
using tiffinfs::Kind;

// ---- Pages --------------------------------------------------------------------------------------

const tiffinfs::NodeHeader& TreeOnDevice::Page::header() const {
    return *reinterpret_cast<const tiffinfs::NodeHeader*>(bytes);
}

const tiffinfs::InnerEntry& TreeOnDevice::Page::child(size_t index) const {
    return reinterpret_cast<const tiffinfs::InnerEntry*>(bytes +
                                                         sizeof(tiffinfs::NodeHeader))[index];
}

const tiffinfs::LeafSlot& TreeOnDevice::Page::slot(size_t index) const {
    return reinterpret_cast<const tiffinfs::LeafSlot*>(bytes + sizeof(tiffinfs::NodeHeader))[index];
}

// ---- Ways through the tree ------------------------------------------------------------------------

tiffinfs::Superblock TreeOnDevice::superblock() const {
    tiffinfs::Superblock superblock{};
    TIFFIN_ASSERT(tiffinfs::read_superblock(device_, superblock).ok());
    return superblock;
}

void TreeOnDevice::walk(uint64_t block, Key lower, const KeyRange& range,
                        const Visit& visit) const {
    Page page;
    TIFFIN_ASSERT(device_.read(block * tiffinfs::kBlockBytes, page.bytes, sizeof page.bytes).ok());
    TIFFIN_ASSERT(page.header().magic == tiffinfs::kNodeMagic);
    visit(block, page, lower);
    const size_t count = page.header().count;
    for (size_t i = 0; page.header().level > 0 && i < count; ++i) {
        const bool ends_before = i + 1 < count && page.child(i + 1).key <= range.first;
        if (!ends_before && page.child(i).key <= range.last) {
            walk(page.child(i).child_block, page.child(i).key, range, visit);
        }
    }
}

void TreeOnDevice::walk(const KeyRange& range, const Visit& visit) const {
    walk(superblock().root_block, tiffinfs::kMinimumKey, range, visit);
}

void TreeOnDevice::add_nodes(const KeyRange& range, std::set<uint64_t>& blocks) const {
    walk(range, [&](uint64_t block, const Page&, Key) { blocks.insert(block); });
}

bool TreeOnDevice::is_first_in_leaf(Key key) const {
    bool first = false;
    walk(key, [&](uint64_t, const Page& page, Key) {
        first = page.header().level == 0 && page.header().count > 0 && page.slot(0).key == key;
    });
    return first;
}

KeyRange TreeOnDevice::erased(Key key) const {
    Key lower = key;
    walk(key, [&](uint64_t, const Page&, Key leaf_lower) { lower = leaf_lower; });
    return is_first_in_leaf(key) && tiffinfs::kMinimumKey < lower
               ? KeyRange(tiffinfs::previous_key(lower), key)
               : KeyRange(key);
}

// ---- Keys ---------------------------------------------------------------------------------------

Key TreeOnDevice::entry(uint64_t directory, std::string_view name) const {
    const uint64_t hash =
        tiffinfs::entry_hash(superblock().hash_key, vfs::Name(name.data(), name.size()));
    return tiffinfs::make_key(directory, Kind::entry, hash << tiffinfs::kEntrySlotBits);
}

Key TreeOnDevice::xattr(uint64_t node, std::string_view name) const {
    // 44 bits of hash, then slot and chunk: format.h.
    constexpr uint32_t kHashShift = 16;
    const uint64_t hash = siphash24(superblock().hash_key, name.data(), name.size());
    return tiffinfs::make_key(node, Kind::xattr, hash << kHashShift);
}

uint64_t TreeOnDevice::node_of(uint64_t directory, std::string_view name) const {
    const Key key = entry(directory, name);
    tiffinfs::EntryValue value{};
    walk(key, [&](uint64_t, const Page& page, Key) {
        for (size_t i = 0; page.header().level == 0 && i < page.header().count; ++i) {
            if (page.slot(i).key == key) {
                std::memcpy(&value, page.bytes + page.slot(i).value_offset, sizeof value);
            }
        }
    });
    TIFFIN_ASSERT(value.node != 0);
    return value.node;
}

}  // namespace tiffin::test
