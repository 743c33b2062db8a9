// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Where objects go that no path leads to: /lost+found, as "#NODE".
#pragma once

#include <cstdint>
#include <vector>

#include "fs/tiffinfs/format.h"
#include "fuse/check/repairs.h"

namespace tiffin::check {

class LostAndFound {
  public:
    // Ids for what has to be made are taken from `next_node` on.
    explicit LostAndFound(uint64_t next_node) : next_node_(next_node) {}

    // Asks for an empty root directory in place of what is there.
    void make_root() { make_root_ = true; }
    // Asks for a name for `node`.
    void add(uint64_t node, uint32_t mode) { lost_.push_back({node, mode}); }

    // Stages all of it.
    void stage(const tiffinfs::Superblock& superblock, Repairs& repairs);

  private:
    struct Lost {
        uint64_t node;
        uint32_t mode;
    };

    uint64_t next_node_;
    bool make_root_ = false;
    std::vector<Lost> lost_;
};

}  // namespace tiffin::check
