// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/simulation/emulator/delay_store.h"

namespace tiffin::rdma_blk::simulation {

DelayStore::DelayStore(uint32_t most_datagrams, uint32_t block_count)
    : most_datagrams_(most_datagrams),
      memory_(new unsigned char[size_t{block_count} * kBlockBytes]),
      holds_(block_count) {
    for (Block block = block_count; block > 0; block--) {
        free_.push_back(block - 1);
    }
}

DelayStore::Block DelayStore::take_block() {
    if (free_.empty()) {
        return kNoBlock;
    }
    const Block block = free_.back();
    free_.pop_back();
    holds_[block] = 1;
    return block;
}

void DelayStore::release(Block block) {
    if (--holds_[block] == 0) {
        free_.push_back(block);
    }
}

bool DelayStore::put(const Datagram& datagram) {
    if (waiting_.size() == most_datagrams_) {
        return false;
    }
    holds_[datagram.block]++;
    waiting_.push({datagram, next_sequence_++});
    return true;
}

DelayStore::Datagram DelayStore::take() {
    const Datagram datagram = waiting_.top().datagram;
    waiting_.pop();
    return datagram;
}

}  // namespace tiffin::rdma_blk::simulation
