// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Searching and changing the pages of tree nodes.
#include "fs/tiffinfs/tree/node.h"

#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {
namespace {

NodeHeader& header_of(unsigned char* page) { return *reinterpret_cast<NodeHeader*>(page); }
const NodeHeader& header_of(const unsigned char* page) {
    return *reinterpret_cast<const NodeHeader*>(page);
}
LeafSlot* slots(unsigned char* page) {
    return reinterpret_cast<LeafSlot*>(page + sizeof(NodeHeader));
}
const LeafSlot* slots(const unsigned char* page) {
    return reinterpret_cast<const LeafSlot*>(page + sizeof(NodeHeader));
}

// Words of inner nodes, see node.h.
uint64_t load_word(const uint64_t& word) {
    return std::atomic_ref<uint64_t>(const_cast<uint64_t&>(word)).load(std::memory_order_acquire);
}
void store_word(uint64_t& word, uint64_t value) {
    std::atomic_ref<uint64_t>(word).store(value, std::memory_order_release);
}
Key load_key(const Key& key) { return {load_word(key.node), load_word(key.kind_and_offset)}; }
void store_key(Key& key, Key value) {
    store_word(key.node, value.node);
    store_word(key.kind_and_offset, value.kind_and_offset);
}
void store_entry(InnerEntry& entry, const InnerEntry& value) {
    store_key(entry.key, value.key);
    store_word(entry.child_block, value.child_block);
    store_word(entry.child_generation, value.child_generation);
}
void store_count(unsigned char* page, uint32_t count) {
    std::atomic_ref<uint16_t>(header_of(page).count)
        .store(static_cast<uint16_t>(count), std::memory_order_release);
}

uint32_t page_checksum(const unsigned char* page) {
    NodeHeader header;
    __builtin_memcpy(&header, page, sizeof(header));
    header.checksum = 0;
    uint32_t checksum = host::crc32c(0, &header, sizeof(header));
    return host::crc32c(checksum, page + sizeof(header), kBlockBytes - sizeof(header));
}

// Whether the values, whose sizes add up to the heap's, fill it side by side: from its begin on each ends where another
// begins. Then no two overlap, since they would be more than the heap. Changing a leaf relies on that; an empty value
// has its place where another one begins.
bool values_fill_heap(const unsigned char* page) {
    const NodeHeader& header = header_of(page);
    constexpr uint32_t kBits = 64;
    uint64_t begins[kBlockBytes / kBits] = {};
    const auto is_bound = [&](uint32_t offset) {
        return offset == kBlockBytes || (begins[offset / kBits] >> offset % kBits & 1) != 0;
    };
    for (uint32_t i = 0; i < header.count; ++i) {
        const LeafSlot& slot = slots(page)[i];
        if (slot.value_bytes != 0) {
            begins[slot.value_offset / kBits] |= uint64_t{1} << slot.value_offset % kBits;
        }
    }
    for (uint32_t i = 0; i < header.count; ++i) {
        const LeafSlot& slot = slots(page)[i];
        if (!is_bound(slot.value_offset + uint32_t{slot.value_bytes})) {
            return false;
        }
    }
    return is_bound(header.values_begin);
}

bool check_leaf(const unsigned char* page, const char*& reason) {
    const NodeHeader& header = header_of(page);
    uint32_t slots_end = sizeof(NodeHeader) + header.count * sizeof(LeafSlot);
    if (slots_end > header.values_begin || header.values_begin > kBlockBytes ||
        header.values_bytes != kBlockBytes - header.values_begin) {
        reason = "a leaf whose slots and values overlap";
        return false;
    }
    uint32_t total_bytes = 0;
    for (uint32_t i = 0; i < header.count; ++i) {
        const LeafSlot& slot = slots(page)[i];
        if (slot.value_bytes > kMaximumValueBytes || slot.value_offset < header.values_begin ||
            slot.value_offset + uint32_t{slot.value_bytes} > kBlockBytes) {
            reason = "a value outside its leaf";
            return false;
        }
        if (i > 0 && !(Key(slots(page)[i - 1].key) < Key(slot.key))) {
            reason = "leaf keys out of order";
            return false;
        }
        total_bytes += slot.value_bytes;
    }
    if (total_bytes != header.values_bytes || !values_fill_heap(page)) {
        reason = "leaf values that do not fill their heap";
        return false;
    }
    return true;
}

bool check_inner(const unsigned char* page, uint64_t total_blocks, const char*& reason) {
    const NodeHeader& header = header_of(page);
    if (header.count == 0 || header.count > kInnerCapacity) {
        reason = "an inner node with an impossible number of entries";
        return false;
    }
    const InnerEntry* entries = inner_entries(page);
    for (uint32_t i = 0; i < header.count; ++i) {
        if (entries[i].child_block >= total_blocks ||
            entries[i].child_generation > header.generation) {
            reason = "an inner entry that points nowhere";
            return false;
        }
        if (i > 0 && !(entries[i - 1].key < entries[i].key)) {
            reason = "inner keys out of order";
            return false;
        }
    }
    return true;
}

// Takes the bytes of one value out of the heap and closes the gap.
void remove_value(unsigned char* page, uint32_t offset, uint32_t size) {
    NodeHeader& header = header_of(page);
    __builtin_memmove(page + header.values_begin + size, page + header.values_begin,
                      offset - header.values_begin);
    for (uint32_t i = 0; i < header.count; ++i) {
        LeafSlot& slot = slots(page)[i];
        // Equal: an empty value, which has its place where another one begins.
        if (slot.value_offset <= offset) {
            slot.value_offset = static_cast<uint16_t>(slot.value_offset + size);
        }
    }
    header.values_begin = static_cast<uint16_t>(header.values_begin + size);
    header.values_bytes = static_cast<uint16_t>(header.values_bytes - size);
}

// Adds a slot and its value behind all others.
void append(unsigned char* page, Key key, const unsigned char* value, uint32_t size) {
    NodeHeader& header = header_of(page);
    header.values_begin = static_cast<uint16_t>(header.values_begin - size);
    header.values_bytes = static_cast<uint16_t>(header.values_bytes + size);
    __builtin_memcpy(page + header.values_begin, value, size);
    slots(page)[header.count] = LeafSlot{key, header.values_begin, static_cast<uint16_t>(size)};
    header.count++;
}

// Leaves the first `count` slots and their values. The values go through `other`, which has as much room between its
// slots and its values.
void keep_first(unsigned char* page, uint32_t count, unsigned char* other) {
    NodeHeader& header = header_of(page);
    const auto* const begin =
        reinterpret_cast<unsigned char*>(slots(other) + header_of(other).count);
    unsigned char* const end = other + header_of(other).values_begin;
    unsigned char* place = end;
    for (uint32_t i = 0; i < count; ++i) {
        LeafSlot& slot = slots(page)[i];
        TIFFIN_ASSERT(place - begin >= slot.value_bytes);
        place -= slot.value_bytes;
        __builtin_memcpy(place, page + slot.value_offset, slot.value_bytes);
        slot.value_offset = static_cast<uint16_t>(kBlockBytes - (end - place));
    }
    const auto kept_bytes = static_cast<uint16_t>(end - place);
    header.count = static_cast<uint16_t>(count);
    header.values_bytes = kept_bytes;
    header.values_begin = static_cast<uint16_t>(kBlockBytes - kept_bytes);
    __builtin_memcpy(page + header.values_begin, place, kept_bytes);
}

// Where to split so that both sides fit with the new value, as evenly as possible.
uint32_t choose_split(const unsigned char* page, uint32_t position, uint32_t incoming_bytes) {
    const NodeHeader& header = header_of(page);
    uint32_t total = incoming_bytes;
    for (uint32_t i = 0; i < header.count; ++i) {
        total += sizeof(LeafSlot) + slots(page)[i].value_bytes;
    }
    uint32_t best = header.count;
    uint32_t best_difference = ~0U;
    uint32_t left = 0;
    for (uint32_t i = 1; i < header.count; ++i) {
        left += sizeof(LeafSlot) + slots(page)[i - 1].value_bytes;
        uint32_t left_total = left + (position <= i ? incoming_bytes : 0);
        uint32_t right_total = total - left_total;
        if (left_total > kNodeSpaceBytes || right_total > kNodeSpaceBytes) {
            continue;
        }
        uint32_t difference =
            left_total > right_total ? left_total - right_total : right_total - left_total;
        if (difference < best_difference) {
            best_difference = difference;
            best = i;
        }
    }
    return best;
}

}  // namespace

void format_page(unsigned char* page, uint64_t volume_nonce, uint64_t block, uint64_t generation,
                 uint8_t level) {
    __builtin_memset(page, 0, kBlockBytes);
    NodeHeader& header = header_of(page);
    header.magic = kNodeMagic;
    header.volume_nonce = volume_nonce;
    header.block = block;
    header.generation = generation;
    header.level = level;
    header.values_begin = kBlockBytes;
}

void seal_page(unsigned char* page) { header_of(page).checksum = page_checksum(page); }

bool check_page(const unsigned char* page, uint64_t volume_nonce, uint64_t block,
                uint64_t generation, uint8_t level, uint64_t total_blocks, const char*& reason) {
    const NodeHeader& header = header_of(page);
    if (header.magic != kNodeMagic) {
        reason = "not a tree node";
        return false;
    }
    if (header.checksum != page_checksum(page)) {
        reason = "a wrong checksum";
        return false;
    }
    if (header.volume_nonce != volume_nonce || header.block != block ||
        header.generation != generation) {
        reason = "a node of another place or time (a lost or misdirected write)";
        return false;
    }
    if (header.level != level) {
        reason = "a node of another level";
        return false;
    }
    return level == 0 ? check_leaf(page, reason) : check_inner(page, total_blocks, reason);
}

bool keys_are_within(const unsigned char* page, uint8_t level, Key lower, Key upper) {
    if (level > 0) {
        const InnerEntry* entries = inner_entries(page);
        const uint32_t count = inner_count(page);
        return count < 2 ||
               (lower <= load_key(entries[1].key) && load_key(entries[count - 1].key) < upper);
    }
    const uint32_t count = header_of(page).count;
    return count == 0 || (lower <= leaf_key(page, 0) && leaf_key(page, count - 1) < upper);
}

uint32_t leaf_lower_bound(const unsigned char* page, Key key) {
    uint32_t low = 0;
    uint32_t high = header_of(page).count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (Key(slots(page)[middle].key) < key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

Key leaf_key(const unsigned char* page, uint32_t index) { return slots(page)[index].key; }

ByteSpan leaf_value(const unsigned char* page, uint32_t index) {
    const LeafSlot& slot = slots(page)[index];
    return ByteSpan(page + slot.value_offset, slot.value_bytes);
}

uint32_t leaf_free_bytes(const unsigned char* page) {
    const NodeHeader& header = header_of(page);
    return header.values_begin -
           (static_cast<uint32_t>(sizeof(NodeHeader)) + header.count * sizeof(LeafSlot));
}

void leaf_put(unsigned char* page, uint32_t index, Key key, ByteSpan value) {
    NodeHeader& header = header_of(page);
    if (index < header.count && leaf_key(page, index) == key) {
        LeafSlot& slot = slots(page)[index];
        if (slot.value_bytes == value.size()) {
            __builtin_memcpy(page + slot.value_offset, value.data(), value.size());
            return;
        }
        leaf_erase(page, index);
    }
    TIFFIN_ASSERT(leaf_free_bytes(page) >= sizeof(LeafSlot) + value.size());
    __builtin_memmove(slots(page) + index + 1, slots(page) + index,
                      (header.count - index) * sizeof(LeafSlot));
    header.values_begin = static_cast<uint16_t>(header.values_begin - value.size());
    header.values_bytes = static_cast<uint16_t>(header.values_bytes + value.size());
    if (!value.empty()) {
        __builtin_memcpy(page + header.values_begin, value.data(), value.size());
    }
    slots(page)[index] = LeafSlot{key, header.values_begin, static_cast<uint16_t>(value.size())};
    header.count++;
}

void leaf_erase(unsigned char* page, uint32_t index) {
    NodeHeader& header = header_of(page);
    LeafSlot slot = slots(page)[index];
    __builtin_memmove(slots(page) + index, slots(page) + index + 1,
                      (header.count - index - 1) * sizeof(LeafSlot));
    header.count--;
    remove_value(page, slot.value_offset, slot.value_bytes);
}

Key leaf_split(unsigned char* page, unsigned char* right, Key incoming, uint32_t incoming_bytes) {
    NodeHeader& header = header_of(page);
    uint32_t position = leaf_lower_bound(page, incoming);
    if (position == header.count) {
        return incoming;  // the greatest goes to the right side alone
    }
    // Three of the largest values fit a leaf: so there is a place where both sides have room.
    uint32_t split = choose_split(page, position, incoming_bytes + sizeof(LeafSlot));
    TIFFIN_ASSERT(split < header.count);
    uint32_t count = header.count;
    for (uint32_t i = split; i < count; ++i) {
        ByteSpan value = leaf_value(page, i);
        append(right, leaf_key(page, i), value.data(), static_cast<uint32_t>(value.size()));
    }
    // All that the page had fits one page, so what stays fits beside what has moved.
    keep_first(page, split, right);
    return leaf_key(right, 0);
}

void leaf_merge(unsigned char* page, const unsigned char* right) {
    uint32_t count = header_of(right).count;
    for (uint32_t i = 0; i < count; ++i) {
        ByteSpan value = leaf_value(right, i);
        append(page, leaf_key(right, i), value.data(), static_cast<uint32_t>(value.size()));
    }
}

uint32_t inner_count(const unsigned char* page) {
    auto& count = const_cast<uint16_t&>(header_of(page).count);
    return std::atomic_ref<uint16_t>(count).load(std::memory_order_acquire);
}

InnerEntry inner_entry(const unsigned char* page, uint32_t index) {
    const InnerEntry& entry = inner_entries(page)[index];
    return {load_key(entry.key), load_word(entry.child_block), load_word(entry.child_generation)};
}

uint32_t inner_find(const unsigned char* page, Key key) {
    const InnerEntry* entries = inner_entries(page);
    uint32_t low = 1;
    uint32_t high = inner_count(page);
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (key < load_key(entries[middle].key)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low - 1;
}

void inner_set_child(unsigned char* page, uint32_t index, uint64_t block, uint64_t generation) {
    InnerEntry& entry = inner_entries(page)[index];
    store_word(entry.child_block, block);
    store_word(entry.child_generation, generation);
}

void inner_insert(unsigned char* page, uint32_t index, const InnerEntry& entry) {
    const uint32_t count = header_of(page).count;
    TIFFIN_ASSERT(count < kInnerCapacity && index <= count);
    InnerEntry* entries = inner_entries(page);
    for (uint32_t i = count; i > index; --i) {
        store_entry(entries[i], entries[i - 1]);
    }
    store_entry(entries[index], entry);
    store_count(page, count + 1);
}

void inner_erase(unsigned char* page, uint32_t index) {
    const uint32_t count = header_of(page).count - 1U;
    InnerEntry* entries = inner_entries(page);
    const Key first = entries[0].key;
    for (uint32_t i = index; i < count; ++i) {
        store_entry(entries[i], entries[i + 1]);
    }
    store_count(page, count);
    if (index == 0 && count > 0) {
        store_key(entries[0].key, first);
    }
}

Key inner_split(unsigned char* page, unsigned char* right, uint32_t first) {
    uint32_t moved = header_of(page).count - first;
    __builtin_memcpy(inner_entries(right), inner_entries(page) + first, moved * sizeof(InnerEntry));
    header_of(right).count = static_cast<uint16_t>(moved);
    store_count(page, first);
    return inner_entries(right)[0].key;
}

}  // namespace tiffin::tiffinfs
