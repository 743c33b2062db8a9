// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/check/missing_keys.h"

#include <algorithm>

namespace tiffin::check {

using tiffinfs::Key;
using tiffinfs::Kind;
using tiffinfs::make_key;

void MissingKeys::add(Key first, Key end) {
    if (!(first < end)) {
        return;
    }
    auto next = ranges_.upper_bound(first);
    if (next != ranges_.begin() && first <= std::prev(next)->second) {
        --next;
        first = next->first;
    }
    while (next != ranges_.end() && next->first <= end) {
        end = std::max(end, next->second);
        next = ranges_.erase(next);
    }
    ranges_.emplace(first, end);
}

void MissingKeys::add_content_of(uint64_t node) {
    add(make_key(node, Kind::extent, 0), make_key(node, Kind::xattr, 0));
    lost_nodes_.insert(node);
}

bool MissingKeys::contains(Key key) const {
    const auto next = ranges_.upper_bound(key);
    return next != ranges_.begin() && key < std::prev(next)->second;
}

void MissingKeys::visit(Key first, Key end, const std::function<void(Key, Key)>& visit) const {
    auto range = ranges_.upper_bound(first);
    if (range != ranges_.begin() && first < std::prev(range)->second) {
        --range;
    }
    for (; range != ranges_.end() && range->first < end; ++range) {
        visit(std::max(first, range->first), std::min(end, range->second));
    }
}

}  // namespace tiffin::check
