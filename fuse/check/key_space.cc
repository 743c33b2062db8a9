// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/check/key_space.h"

#include <algorithm>
#include <utility>

#include "fs/tiffinfs/tree/node.h"

namespace tiffin::check {

using tiffinfs::Key;

namespace {

uint32_t key_count(const unsigned char* page) {
    tiffinfs::NodeHeader header;
    __builtin_memcpy(&header, page, sizeof header);
    return header.count;
}

void copy_to(KeyValue& found, Key key, ByteSpan value) {
    found.key = key;
    found.value.assign(value.begin(), value.end());
}

}  // namespace

KeySpace::KeySpace(vfs::BlockDevice& device, const tiffinfs::Superblock& superblock,
                   std::vector<LeafRef> leaves)
    : device_(device),
      volume_nonce_(superblock.volume_nonce),
      total_blocks_(superblock.total_blocks),
      leaves_(std::move(leaves)),
      cache_(kCachedLeaves) {}

Result<const unsigned char*> KeySpace::load(const LeafRef& leaf) {
    CachedLeaf& cached = cache_[leaf.block % kCachedLeaves];
    if (cached.block == leaf.block) {
        return static_cast<const unsigned char*>(cached.page.bytes);
    }
    cached.block = 0;
    const char* reason = nullptr;
    if (!read_block(device_, leaf.block, cached.page) ||
        !tiffinfs::check_page(cached.page.bytes, volume_nonce_, leaf.block, leaf.generation, 0,
                              total_blocks_, reason)) {
        return Error::eio;
    }
    cached.block = leaf.block;
    return static_cast<const unsigned char*>(cached.page.bytes);
}

size_t KeySpace::find_leaf(Key key) const {
    const auto after = std::upper_bound(
        leaves_.begin(), leaves_.end(), key,
        [](const Key& wanted, const LeafRef& leaf) { return wanted < leaf.upper; });
    return static_cast<size_t>(after - leaves_.begin());
}

Result<bool> KeySpace::get(Key key, KeyValue& found) {
    const Result<bool> result = find_last(key, key, found);
    if (!result.ok()) {
        return result.error();
    }
    return result.value();
}

Result<bool> KeySpace::find_first(Key first, Key end, KeyValue& found) {
    if (!(first < end)) {
        return false;
    }
    auto change = changes_.lower_bound(first);
    for (size_t i = find_leaf(first); i <= leaves_.size(); ++i) {
        const bool is_leaf = i < leaves_.size() && leaves_[i].lower < end;
        const unsigned char* page = is_leaf ? TRY(load(leaves_[i])) : nullptr;
        const uint32_t count = is_leaf ? key_count(page) : 0;
        uint32_t slot = is_leaf ? tiffinfs::leaf_lower_bound(
                                      page, first < leaves_[i].lower ? leaves_[i].lower : first)
                                : 0;
        while (true) {
            Key key = slot < count ? tiffinfs::leaf_key(page, slot) : end;
            const bool on_device = slot < count && key < leaves_[i].upper && key < end;
            // Changes up to this key come first; without a key here, those within the leaf's range.
            const Key limit = on_device ? key : (is_leaf ? leaves_[i].upper : end);
            while (change != changes_.end() && change->first < limit && change->first < end) {
                if (change->second.has_value()) {
                    found.key = change->first;
                    found.value = *change->second;
                    return true;
                }
                ++change;
            }
            if (!on_device) {
                break;
            }
            if (change != changes_.end() && change->first == key) {
                if (change->second.has_value()) {
                    found.key = key;
                    found.value = *change->second;
                    return true;
                }
                ++change;
                ++slot;
                continue;
            }
            copy_to(found, key, tiffinfs::leaf_value(page, slot));
            return true;
        }
        if (!is_leaf) {
            break;
        }
    }
    return false;
}

Result<bool> KeySpace::find_last_on_device(Key at_or_before, Key not_before, KeyValue& found) {
    size_t i = std::min(find_leaf(at_or_before) + 1, leaves_.size());
    while (i > 0) {
        const LeafRef& leaf = leaves_[--i];
        if (at_or_before < leaf.lower) {
            continue;
        }
        if (leaf.upper <= not_before) {
            return false;
        }
        const unsigned char* page = TRY(load(leaf));
        uint32_t slot = key_count(page);
        // Keys outside of the bounds are at the ends; a search cannot find them.
        while (slot > 0 && !(tiffinfs::leaf_key(page, slot - 1) <= at_or_before &&
                             tiffinfs::leaf_key(page, slot - 1) < leaf.upper)) {
            --slot;
        }
        if (slot == 0) {
            continue;
        }
        const Key key = tiffinfs::leaf_key(page, slot - 1);
        if (key < leaf.lower) {
            continue;
        }
        if (key < not_before) {
            return false;
        }
        copy_to(found, key, tiffinfs::leaf_value(page, slot - 1));
        return true;
    }
    return false;
}

Result<bool> KeySpace::find_last(Key at_or_before, Key not_before, KeyValue& found) {
    while (not_before <= at_or_before) {
        const bool on_device = TRY(find_last_on_device(at_or_before, not_before, found));
        auto change = changes_.upper_bound(at_or_before);
        const bool changed = change != changes_.begin() && not_before <= (--change)->first;
        if (!changed || (on_device && change->first < found.key)) {
            return on_device;
        }
        if (change->second.has_value()) {
            found.key = change->first;
            found.value = *change->second;
            return true;
        }
        if (change->first == tiffinfs::kMinimumKey) {
            return false;
        }
        at_or_before = tiffinfs::previous_key(change->first);
    }
    return false;
}

Result<void> KeySpace::scan_leaf(const LeafRef& leaf, const Visitor& visitor) {
    // A copy: the visitor may look other keys up.
    Block page;
    __builtin_memcpy(page.bytes, TRY(load(leaf)), sizeof page.bytes);
    const uint32_t count = key_count(page.bytes);
    for (uint32_t slot = tiffinfs::leaf_lower_bound(page.bytes, leaf.lower); slot < count; ++slot) {
        const Key key = tiffinfs::leaf_key(page.bytes, slot);
        if (!(key < leaf.upper) || !visitor(key, tiffinfs::leaf_value(page.bytes, slot))) {
            break;
        }
    }
    return {};
}

Result<void> KeySpace::scan_device(const Visitor& visitor) {
    bool go_on = true;
    for (const LeafRef& leaf : leaves_) {
        TRY(scan_leaf(leaf, [&](Key key, ByteSpan value) { return go_on = visitor(key, value); }));
        if (!go_on) {
            break;
        }
    }
    return {};
}

Result<void> KeySpace::scan(const Visitor& visitor) {
    auto change = changes_.cbegin();
    bool go_on = true;
    // Visits changes before `end`.
    const auto visit_changes = [&](const Key* end) {
        while (go_on && change != changes_.cend() && (end == nullptr || change->first < *end)) {
            if (change->second.has_value()) {
                go_on = visitor(change->first,
                                ByteSpan(change->second->data(), change->second->size()));
            }
            ++change;
        }
    };
    TRY(scan_device([&](Key key, ByteSpan value) {
        visit_changes(&key);
        if (!go_on) {
            return false;
        }
        if (change != changes_.cend() && change->first == key) {
            if (change->second.has_value()) {
                go_on = visitor(key, ByteSpan(change->second->data(), change->second->size()));
            }
            ++change;
            return go_on;
        }
        go_on = visitor(key, value);
        return go_on;
    }));
    visit_changes(nullptr);
    return {};
}

void KeySpace::put(Key key, ByteSpan value) {
    changes_[key] = std::vector<unsigned char>(value.begin(), value.end());
}

}  // namespace tiffin::check
