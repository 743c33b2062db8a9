// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Tells bitmaps that belong to the volume's history from those of checkpoints that never became it.
//
// A checkpoint writes bitmaps before its superblock. When power fails in between, bitmaps of a
// generation that never was are left on the device, and nothing says which groups have them. The
// next mount ignores them, since they are newer than its superblock; but it counts on from the same
// generation, and soon they would look like bitmaps of its own past. So every mount that recovers a
// volume starts a timeline: a random number that is stamped on all bitmaps from then on. The
// superblock keeps the list of timelines, with the generation each one began with; a bitmap counts
// only when its stamp is that of the timeline its generation lies in.
//
// A mount of a cleanly unmounted volume goes on with the last timeline. When the list is full, all
// groups are looked through for such leftovers once, and the list starts over.
#pragma once

#include <cstdint>

#include "fs/tiffinfs/format.h"

namespace tiffin::tiffinfs {

class BitmapTimelines {
  public:
    static constexpr uint32_t kCapacity =
        sizeof(Superblock::timelines) / sizeof(Superblock::Timeline);

    // All zero means none.
    static BitmapTimelines from(const Superblock& superblock);
    void store(Superblock& superblock) const;

    // Whether a bitmap with these numbers belongs to the volume's history. Generations before the
    // first timeline may carry any stamp.
    bool contains(uint64_t generation, uint64_t stamp) const;
    // What bitmaps are stamped with now.
    uint64_t current_stamp() const { return size_ == 0 ? 0 : entries_[size_ - 1].stamp; }
    uint32_t size() const { return size_; }

    // Starts a timeline; later ones are forgotten, as what they wrote never counted. Returns false
    // when the list is full.
    [[nodiscard]] bool add(uint64_t first_generation, uint64_t stamp);
    void clear() { size_ = 0; }

  private:
    using Entry = Superblock::Timeline;

    Entry entries_[kCapacity] = {};
    uint32_t size_ = 0;
};

}  // namespace tiffin::tiffinfs
