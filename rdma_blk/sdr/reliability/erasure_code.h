// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Erasure codes over the chunks of a group, by ISA-L: parity from data, and missing data from the others.
//
// MDS is Reed-Solomon with a Cauchy matrix, of which every square part is invertible (a Vandermonde matrix, which
// ISA-L has, too, is not safe for all k and m). XOR: parity i is the sum of the data chunks j with j mod m = i;
// one missing chunk of each such class can be restored.
//
// The last group of a message may have fewer chunks; group_shape() says how many, for both ends. Its code is one
// of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fs/vfs/result.h"
#include "rdma_blk/sdr/endpoint.h"
#include "rdma_blk/sdr/tunables.h"

namespace tiffin::rdma_blk::sdr {

struct GroupShape {
    uint32_t first_chunk = 0;    // of the message
    uint32_t data_chunks = 0;    // 1 to k
    uint32_t parity_chunks = 0;  // m, or as many as are the same share of fewer chunks, rounded up
};

// Preconditions: scheme.is_erasure(); the group has at least one chunk.
GroupShape group_shape(const SchemeChoice& scheme, uint32_t message_chunks, uint32_t group);
inline uint32_t group_count(const SchemeChoice& scheme, uint32_t message_chunks) {
    return (message_chunks + scheme.data_chunks - 1) / scheme.data_chunks;
}

// Which chunks of a group are there, as bits.
struct GroupState {
    uint64_t data = 0;
    uint32_t parity = 0;
};

// The data chunks that are missing and can be restored from what is there: for MDS all or none, for XOR those
// of the classes with one missing chunk whose parity is there.
uint64_t restorable_chunks(SchemeKind kind, const GroupShape& shape, const GroupState& state);

// One object serves one connection: it keeps the tables of the codes used last, and scratch memory. Not for
// several threads at once.
class ErasureCode {
  public:
    ErasureCode();
    ~ErasureCode();

    // Errors: enomem.
    Result<void> allocate();

    // parity[i], all of `chunk_bytes`, from data[j]. The pointers may have any alignment.
    void encode(SchemeKind kind, const GroupShape& shape, size_t chunk_bytes,
                const unsigned char* const* data, unsigned char* const* parity);
    // Writes the chunks of `wanted` (a result of restorable_chunks()) to data[j], from all that are there.
    void decode(SchemeKind kind, const GroupShape& shape, size_t chunk_bytes,
                const GroupState& state, uint64_t wanted, unsigned char* const* data,
                const unsigned char* const* parity);

  private:
    struct Tables;

    void encode_mds(const GroupShape& shape, size_t chunk_bytes, const unsigned char* const* data,
                    unsigned char* const* parity);
    void decode_mds(const GroupShape& shape, size_t chunk_bytes, const GroupState& state,
                    uint64_t wanted, unsigned char* const* data,
                    const unsigned char* const* parity);

    std::unique_ptr<Tables> tables_;
};

}  // namespace tiffin::rdma_blk::sdr
