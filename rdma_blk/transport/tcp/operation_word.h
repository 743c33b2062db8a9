// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A TcpMemory's word in an operation (Operation::transport_data): of a write the checksum of its data, once it is
// known; of a flush how many changes it covers.
#pragma once

#include <cstdint>

#include "rdma_blk/remote_memory.h"
#include "rdma_blk/transport/pieces_checksum.h"

namespace tiffin::rdma_blk {

inline uint64_t word_of(const Operation& operation) {
    return reinterpret_cast<uint64_t>(operation.transport_data);
}
inline void set_word(Operation& operation, uint64_t word) {
    operation.transport_data = reinterpret_cast<void*>(word);
}

// A write's word is 0 before its data have been summed up.
inline bool is_checksum(uint64_t word) { return (word >> 32) != 0; }
inline uint64_t checksum_word(const Operation& operation) {
    return uint64_t{1} << 32 | pieces_checksum(operation.buffers, operation.buffer_count);
}

}  // namespace tiffin::rdma_blk
