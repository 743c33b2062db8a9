// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The parity that a receiver keeps: of groups that are not complete yet, in a bounded pool. What finds no room is
// dropped, and the group is repeated instead if it needs it. Not for several threads at once.
#pragma once

#include <cstdint>
#include <memory>

#include "fs/vfs/result.h"
#include "rdma_blk/sdr/tunables.h"

namespace tiffin::rdma_blk::sdr {

class ParityStore {
  public:
    static constexpr uint32_t kNone = ~uint32_t{0};

    struct Group {
        uint32_t group = 0;
        uint32_t next = kNone;           // of the same message, or free
        unsigned char* bytes = nullptr;  // chunks behind each other; nullptr: without bytes
        uint64_t packets[kMaxParityPackets / 64] = {};
    };

    // `group_chunks` chunks of `chunk_bytes` for each group. Errors: enomem.
    Result<void> allocate(uint32_t groups, uint32_t group_chunks, uint64_t chunk_bytes,
                          bool without_bytes);
    uint32_t group_chunks() const { return group_chunks_; }

    // `list` is the first group of a message, kNone at first.
    Group* find(uint32_t list, uint32_t group);
    // nullptr: no room.
    Group* add(uint32_t& list, uint32_t group);
    void remove(uint32_t& list, uint32_t group);
    void remove_all(uint32_t& list);

  private:
    std::unique_ptr<Group[]> groups_;
    std::unique_ptr<unsigned char[]> bytes_;
    uint32_t free_ = kNone;
    uint32_t group_chunks_ = 0;
};

}  // namespace tiffin::rdma_blk::sdr
