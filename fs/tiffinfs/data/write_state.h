// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What tiffinfs keeps in a vfs::WriteGrant, from begin_write() to end_write().
#pragma once

#include <cstdint>
#include <new>
#include <utility>

#include "fs/tiffinfs/data/write_plan.h"
#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/objects/object.h"
#include "fs/tiffinfs/objects/range_claims.h"
#include "fs/tiffinfs/volume/transaction.h"
#include "fs/tiffinfs/volume/volume.h"
#include "fs/vfs/types.h"

namespace tiffin::tiffinfs {

struct WriteState {
    explicit WriteState(ObjectPin pin) : object(std::move(pin)) {}
    static WriteState& of(vfs::WriteGrant& grant) {
        return *std::launder(reinterpret_cast<WriteState*>(grant.state));
    }

    // After enospc: makes room, and when that helps no more leaves it as it is. False: to be given up. Each overwritten
    // part frees blocks, so that room can be made again; but it takes checkpoints, so the whole request has a limit.
    bool try_again(Volume& volume, uint32_t flags) {
        if (room == RoomPolicy::as_it_is) {
            return false;
        }
        if (room_attempts_left-- == 1 ||
            !volume.make_room(room_attempt++, new_block_priority(flags), RoomWait::others)) {
            room = RoomPolicy::as_it_is;
        }
        return true;
    }
    // When that has been in vain, a program's only copy waits for the writes that have what is left of the room: until one
    // has ended since `refused_at`. Nothing of this write is granted.
    bool wait_for_others(Volume& volume, uint32_t flags) {
        if ((flags & vfs::write_flag::write_back) == 0 || waits_left == 0 ||
            !volume.wait_for_part(refused_at)) {
            return false;
        }
        refused_at = volume.parts_ended();
        --waits_left;
        room_attempt = 0;
        room_attempts_left = kRoomAttempts;
        room = RoomPolicy::make;
        return true;
    }
    void part_committed() {
        room_attempt = 0;
        room = room_attempts_left > 0 ? RoomPolicy::make : RoomPolicy::as_it_is;
    }

    void enter_epoch(Volume& volume) {
        epoch = volume.readers().enter();
        is_in_epoch = true;
    }
    void leave_epoch(Volume& volume) {
        if (is_in_epoch) {
            volume.readers().leave(epoch);
            is_in_epoch = false;
        }
    }

    ObjectPin object;
    RangeClaim claim;
    uint64_t ticket = 0;  // of the last transaction of this write

    RoomPolicy room = RoomPolicy::make;
    uint32_t room_attempt = 0;
    static constexpr uint32_t kRoomAttempts = 64;
    uint32_t room_attempts_left = kRoomAttempts;
    uint32_t waits_left = 1000;
    // What Volume::parts_ended() was when this part found no room; or -1.
    int64_t refused_at = -1;

    // With write_flag::promised: on how many blocks this write has a claim.
    uint64_t claimed_blocks = 0;
    uint64_t* claims(uint32_t flags) {
        return (flags & vfs::write_flag::promised) != 0 ? &claimed_blocks : nullptr;
    }

    // The part that is granted. Unwritten blocks that are written in place must not be used again meanwhile, even if the
    // file is deleted: a read epoch keeps them.
    uint32_t epoch = 0;
    bool is_in_epoch = false;
    bool all_mapped = false;
    uint16_t in_place = 0;  // a bit for each segment
    uint32_t mapped_prefix_blocks = 0;
    MapUsage usage;
    static constexpr uint64_t kNotCounted = ~uint64_t{0};
    uint64_t seen_ticket = kNotCounted;  // of the object, when `usage` was counted
};

static_assert(sizeof(WriteState) <= vfs::WriteGrant::kStateBytes);
static_assert(alignof(WriteState) <= 16);
static_assert(WritePlan::kMaximumRuns == vfs::WriteGrant::kMaxSegments);
static_assert(kWrittenExtentMaximumBlocks == vfs::WriteGrant::kMaxBlocks);
static_assert(kInlineDataMaximumBytes <= vfs::WriteGrant::kMaxContentBytes);

}  // namespace tiffin::tiffinfs
