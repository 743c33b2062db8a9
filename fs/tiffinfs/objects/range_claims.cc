// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/tiffinfs/objects/range_claims.h"

namespace tiffin::tiffinfs {

void RangeClaims::acquire(RangeClaim& claim, uint64_t first_block, uint64_t end_block) {
    uint32_t obstacles = 0;
    {
        MutexLock lock(lock_);
        obstacles = append(claim, first_block, end_block);
    }
    if (obstacles > 0) {
        claim.granted_.wait();
    }
}

bool RangeClaims::try_acquire(RangeClaim& claim, uint64_t first_block, uint64_t end_block) {
    MutexLock lock(lock_);
    if (append(claim, first_block, end_block) == 0) {
        return true;
    }
    remove(claim);
    return false;
}

void RangeClaims::release(RangeClaim& claim) {
    MutexLock lock(lock_);
    // All that still waits for this one was made after it.
    for (RangeClaim* later = claim.next_; later != nullptr; later = later->next_) {
        // Once posted, a claim belongs to its waiter, but the list keeps it in place until this lock is free.
        if (later->overlaps(claim) && --later->obstacles_ == 0) {
            later->granted_.post();
        }
    }
    remove(claim);
}

uint32_t RangeClaims::append(RangeClaim& claim, uint64_t first_block, uint64_t end_block) {
    TIFFIN_ASSERT(first_block <= end_block);
    claim.first_block_ = first_block;
    claim.end_block_ = end_block;
    claim.obstacles_ = 0;
    for (const RangeClaim* earlier = first_; earlier != nullptr; earlier = earlier->next_) {
        claim.obstacles_ += earlier->overlaps(claim) ? 1 : 0;
    }
    claim.next_ = nullptr;
    claim.previous_ = last_;
    (last_ == nullptr ? first_ : last_->next_) = &claim;
    last_ = &claim;
    return claim.obstacles_;
}

void RangeClaims::remove(RangeClaim& claim) {
    (claim.previous_ == nullptr ? first_ : claim.previous_->next_) = claim.next_;
    (claim.next_ == nullptr ? last_ : claim.next_->previous_) = claim.previous_;
}

}  // namespace tiffin::tiffinfs
