// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Datagrams that wait for the time at which they arrive at the other end of an emulated link.
//
// Memory is bounded, and taken once: blocks of 64 KiB, each of which is received into and then shared by the datagrams
// that came in it. The pages of blocks that were never used are never touched.
//
// Sans I/O; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <queue>
#include <vector>

namespace tiffin::rdma_blk::simulation {

class DelayStore {
  public:
    static constexpr size_t kBlockBytes = 65536;
    using Block = uint32_t;
    static constexpr Block kNoBlock = ~Block{0};

    struct Datagram {
        uint64_t due_ns = 0;
        uint32_t way = 0;  // the caller's: where it goes
        Block block = kNoBlock;
        uint32_t offset = 0;
        uint32_t size_bytes = 0;
    };

    // At most that many datagrams wait, in at most that many blocks; both at least 1.
    DelayStore(uint32_t most_datagrams, uint32_t block_count);

    // A block to receive into, held once; kNoBlock: all are in use.
    Block take_block();
    [[nodiscard]] unsigned char* bytes(Block block) {
        return memory_.get() + size_t{block} * kBlockBytes;
    }
    // Lets go of one hold; who holds last gives the block back.
    void release(Block block);

    // Keeps the datagram and one hold more of its block. False: full, and nothing was kept.
    [[nodiscard]] bool put(const Datagram& datagram);
    [[nodiscard]] bool empty() const { return waiting_.empty(); }
    // Of the next one; ~0: none waits.
    [[nodiscard]] uint64_t next_ns() const {
        return waiting_.empty() ? ~uint64_t{0} : waiting_.top().datagram.due_ns;
    }
    // The next one, which stays until take(). Not when empty(). Those of one time come in the order of put().
    [[nodiscard]] const Datagram& next() const { return waiting_.top().datagram; }
    // The next one, and with it one hold of its block, which the caller releases.
    Datagram take();

  private:
    struct Entry {
        Datagram datagram;
        uint64_t sequence = 0;
        bool operator<(const Entry& other) const {
            return datagram.due_ns != other.datagram.due_ns
                       ? datagram.due_ns > other.datagram.due_ns
                       : sequence > other.sequence;
        }
    };

    uint32_t most_datagrams_;
    std::unique_ptr<unsigned char[]> memory_;
    std::vector<uint32_t> holds_;  // of each block
    std::vector<Block> free_;
    std::priority_queue<Entry> waiting_;
    uint64_t next_sequence_ = 0;
};

}  // namespace tiffin::rdma_blk::simulation
