// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Online scrub: reading and verifying everything that is stored, in bounded steps, while the file system
// is in use.
//
// Three phases: superblocks and bitmaps; the tree of the newest durable checkpoint, read afresh from the
// device, past the cache; and the data of every file. Checkpoints and writers go on meanwhile: what looks
// damaged is looked at a second time, and counts only when it has not been replaced.
#pragma once

#include <cstdint>

#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/objects/file_system.h"
#include "fs/tiffinfs/tree/tree.h"
#include "fs/tiffinfs/volume/superblock.h"
#include "fs/vfs/result.h"
#include "fs/vfs/types.h"

namespace tiffin::tiffinfs {

// One step of a scrub. The memory it needs comes from the host for that step.
class Scrub {
  public:
    Scrub(Volume& volume, vfs::ScrubProgress& progress) : volume_(volume), progress_(progress) {}
    ~Scrub();
    Scrub(const Scrub&) = delete;
    Scrub& operator=(const Scrub&) = delete;

    // Does a bounded part of the work and moves the progress on. Damage is logged and counted; errors:
    // enomem, and eio when the volume has been shut down.
    Result<void> step();

  private:
    // How often something is looked at again while checkpoints replace it.
    static constexpr uint32_t kMaximumLooks = 4;
    enum class Phase : uint64_t { fixed_blocks, tree, data, finished };
    // What happened to one look at the tree on the device.
    enum class Look : uint8_t { done, damaged, outdated };

    Phase phase() const { return static_cast<Phase>(progress_.cursor[0]); }
    void enter_phase(Phase phase);
    void count_error() { ++progress_.errors_found; }
    void count_bytes(uint64_t bytes) { progress_.checked_bytes += bytes; }

    // scrub.cc
    Result<void> load_superblocks();
    bool superblock_is_newest();
    Result<void> check_fixed_blocks();
    bool check_bitmap(uint64_t group);

    // scrub_tree.cc
    Result<void> check_tree();
    bool read_node(const InnerEntry& entry, uint8_t level, unsigned char* page);
    Look check_part(Key first, Key& next);
    Look check_leaves(const unsigned char* parent, Key first);

    // scrub_data.cc
    Result<void> check_data();
    Result<Key> check_next_key(Key first);
    Key skip_damage(Key first);
    void check_extent_data(const MappedExtent& extent, Key key);
    bool read_and_compare(const MappedExtent& extent, uint64_t first, uint64_t count,
                          uint64_t& bad_block);
    bool still_mapped(const MappedExtent& extent, Key key);

    // Blocks that are read at a time.
    static constexpr uint32_t kBufferBlocks = 64;

    Volume& volume_;
    vfs::ScrubProgress& progress_;
    SuperblockSet* superblocks_ = nullptr;
    KeyAndValue* found_ = nullptr;
    KeyAndValue* second_look_ = nullptr;
    unsigned char* buffer_ = nullptr;
};

}  // namespace tiffin::tiffinfs
