// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Where keys may be missing: what was cut out of the tree because a node is damaged, and what repairs have
// removed. A hole of a file there may have been content.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <unordered_set>

#include "fs/tiffinfs/format.h"

namespace tiffin::check {

class MissingKeys {
  public:
    // [first, end); an empty range is ignored.
    void add(tiffinfs::Key first, tiffinfs::Key end);
    // The content of `node` is gone, whatever its inode counts.
    void add_content_of(uint64_t node);

    bool contains(tiffinfs::Key key) const;
    // Calls visit(first, end) for each range that meets [first, end), in order, cut to it.
    void visit(tiffinfs::Key first, tiffinfs::Key end,
               const std::function<void(tiffinfs::Key, tiffinfs::Key)>& visit) const;
    bool has_content_of(uint64_t node) const { return lost_nodes_.count(node) != 0; }
    // By their first keys; disjoint.
    const std::map<tiffinfs::Key, tiffinfs::Key>& ranges() const { return ranges_; }

  private:
    std::map<tiffinfs::Key, tiffinfs::Key> ranges_;
    std::unordered_set<uint64_t> lost_nodes_;
};

}  // namespace tiffin::check
