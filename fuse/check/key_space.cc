// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/check/key_space.h"

#include <algorithm>
#include <iterator>
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
    std::unique_ptr<CachedLeaf>& place = cache_[leaf.block % kCachedLeaves];
    if (place == nullptr) {
        place = std::make_unique<CachedLeaf>();
    }
    CachedLeaf& cached = *place;
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
    const auto change = changes_.lower_bound(first);
    const bool changed = change != changes_.end() && change->first < end;
    if (TRY(find_first_on_device(first, changed ? change->first : end, found))) {
        return true;
    }
    if (changed) {
        found.key = change->first;
        found.value = change->second;
    }
    return changed;
}

Result<bool> KeySpace::find_first_on_device(Key first, Key end, KeyValue& found) {
    while (first < end) {
        ++steps_;
        if (const auto gone = gone_range(first); gone != gone_.end()) {
            first = gone->second;
            continue;
        }
        const size_t i = find_leaf(first);
        if (i == leaves_.size()) {
            return false;
        }
        const LeafRef& leaf = leaves_[i];
        first = std::max(first, leaf.lower);
        const unsigned char* page = TRY(load(leaf));
        const uint32_t slot = tiffinfs::leaf_lower_bound(page, first);
        const Key key = slot < key_count(page) ? tiffinfs::leaf_key(page, slot) : leaf.upper;
        if (leaf.upper <= key) {
            if (first == leaf.lower) {
                hide(leaf.lower, leaf.upper);  // it is empty: no need to look again
            }
            first = leaf.upper;
        } else if (is_gone(key)) {
            first = key;
        } else if (end <= key) {
            return false;
        } else {
            copy_to(found, key, tiffinfs::leaf_value(page, slot));
            return true;
        }
    }
    return false;
}

Result<bool> KeySpace::find_last(Key at_or_before, Key not_before, KeyValue& found) {
    auto change = changes_.upper_bound(at_or_before);
    const bool changed = change != changes_.begin() && not_before <= (--change)->first;
    // The change hides what the device has at its key.
    if (changed && change->first == at_or_before) {
        found.key = change->first;
        found.value = change->second;
        return true;
    }
    if (TRY(find_last_on_device(at_or_before,
                                changed ? tiffinfs::next_key(change->first) : not_before, found))) {
        return true;
    }
    if (changed) {
        found.key = change->first;
        found.value = change->second;
    }
    return changed;
}

Result<bool> KeySpace::find_last_on_device(Key at_or_before, Key not_before, KeyValue& found) {
    // Everything from this key on has been looked at; what is left ends before it.
    Key end = at_or_before;
    while (not_before <= at_or_before) {
        ++steps_;
        if (const auto gone = gone_range(at_or_before); gone != gone_.end()) {
            end = gone->first;
        } else {
            size_t i = find_leaf(at_or_before);
            if (i == leaves_.size() || at_or_before < leaves_[i].lower) {
                // A gap, where a leaf was cut out.
                if (i == 0) {
                    return false;
                }
                end = leaves_[--i].upper;
            } else {
                const LeafRef& leaf = leaves_[i];
                const unsigned char* page = TRY(load(leaf));
                uint32_t slot = tiffinfs::leaf_lower_bound(page, at_or_before);
                slot += slot < key_count(page) && tiffinfs::leaf_key(page, slot) == at_or_before;
                const Key key = slot == 0 ? leaf.lower : tiffinfs::leaf_key(page, slot - 1);
                if (slot == 0 || key < leaf.lower) {
                    end = leaf.lower;
                } else if (key < not_before) {
                    return false;
                } else if (is_gone(key)) {
                    at_or_before = key;
                    continue;
                } else {
                    copy_to(found, key, tiffinfs::leaf_value(page, slot - 1));
                    return true;
                }
            }
        }
        if (end <= tiffinfs::kMinimumKey) {
            return false;
        }
        at_or_before = tiffinfs::previous_key(end);
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
            go_on = visitor(change->first, ByteSpan(change->second.data(), change->second.size()));
            ++change;
        }
    };
    TRY(scan_device([&](Key key, ByteSpan value) {
        visit_changes(&key);
        const bool is_changed = change != changes_.cend() && change->first == key;
        // What is changed is visited before the next key.
        if (go_on && !is_changed && !is_gone(key)) {
            go_on = visitor(key, value);
        }
        return go_on;
    }));
    visit_changes(nullptr);
    return {};
}

void KeySpace::put(Key key, ByteSpan value) {
    changes_[key] = std::vector<unsigned char>(value.begin(), value.end());
}

void KeySpace::erase(Key key) {
    changes_.erase(key);
    const size_t i = find_leaf(key);
    if (i == leaves_.size() || key < leaves_[i].lower || is_gone(key)) {
        return;
    }
    const Result<const unsigned char*> page = load(leaves_[i]);
    if (!page.ok()) {
        hide(key, tiffinfs::next_key(key));
        return;
    }
    const uint32_t slot = tiffinfs::leaf_lower_bound(page.value(), key);
    const uint32_t count = key_count(page.value());
    if (slot < count && tiffinfs::leaf_key(page.value(), slot) == key) {
        // Up to the next one, so that neighbours that are removed become one range.
        const Key next = slot + 1 < count ? tiffinfs::leaf_key(page.value(), slot + 1) : key;
        hide(key, key < next && next < leaves_[i].upper ? next : leaves_[i].upper);
    }
}

void KeySpace::erase_range(Key first, Key end) {
    if (first < end) {
        changes_.erase(changes_.lower_bound(first), changes_.lower_bound(end));
        hide(first, end);
    }
}

void KeySpace::hide(Key first, Key end) {
    auto range = gone_.upper_bound(first);
    if (range != gone_.begin() && first <= std::prev(range)->second) {
        --range;
        first = range->first;
    }
    while (range != gone_.end() && range->first <= end) {
        end = std::max(end, range->second);
        range = gone_.erase(range);
    }
    gone_.emplace_hint(range, first, end);
}

KeySpace::Ranges::const_iterator KeySpace::gone_range(Key key) const {
    auto range = gone_.upper_bound(key);
    return range != gone_.begin() && key < (--range)->second ? range : gone_.end();
}

Result<bool> KeySpace::leaf_loses_keys(const LeafRef& leaf) {
    const auto next = gone_.lower_bound(leaf.lower);
    if (!is_gone(leaf.lower) && (next == gone_.end() || leaf.upper <= next->first)) {
        return false;
    }
    bool loses = false;
    TRY(scan_leaf(leaf, [&](Key key, ByteSpan) {
        loses = is_gone(key);
        return !loses;
    }));
    return loses;
}

}  // namespace tiffin::check
