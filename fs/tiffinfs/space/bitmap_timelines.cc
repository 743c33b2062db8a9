// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/tiffinfs/space/bitmap_timelines.h"

namespace tiffin::tiffinfs {

BitmapTimelines BitmapTimelines::from(const Superblock& superblock) {
    BitmapTimelines timelines;
    __builtin_memcpy(timelines.entries_, superblock.timelines, sizeof timelines.entries_);
    while (timelines.size_ < kCapacity &&
           timelines.entries_[timelines.size_].first_generation != 0) {
        ++timelines.size_;
    }
    return timelines;
}

void BitmapTimelines::store(Superblock& superblock) const {
    __builtin_memset(superblock.timelines, 0, sizeof entries_);
    __builtin_memcpy(superblock.timelines, entries_, size_ * sizeof(Entry));
}

bool BitmapTimelines::contains(uint64_t generation, uint64_t stamp) const {
    for (uint32_t i = size_; i-- > 0;) {
        if (generation >= entries_[i].first_generation) {
            return stamp == entries_[i].stamp;
        }
    }
    return true;
}

bool BitmapTimelines::add(uint64_t first_generation, uint64_t stamp) {
    while (size_ > 0 && entries_[size_ - 1].first_generation >= first_generation) {
        --size_;
    }
    if (size_ == kCapacity) {
        return false;
    }
    entries_[size_++] = Entry{first_generation, stamp};
    return true;
}

}  // namespace tiffin::tiffinfs
