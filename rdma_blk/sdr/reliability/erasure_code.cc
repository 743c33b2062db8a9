// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/sdr/reliability/erasure_code.h"

#include <isa-l/erasure_code.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

namespace tiffin::rdma_blk::sdr {
namespace {

constexpr size_t kMaxGroupChunks = kMaxDataChunks + kMaxParityChunks;

uint64_t all_data(const GroupShape& shape) { return ~uint64_t{0} >> (64 - shape.data_chunks); }

// to ^= from
void add_bytes(unsigned char* to, const unsigned char* from, size_t size_bytes) {
    size_t index = 0;
    for (; index + sizeof(uint64_t) <= size_bytes; index += sizeof(uint64_t)) {
        uint64_t left;
        uint64_t right;
        std::memcpy(&left, to + index, sizeof(left));
        std::memcpy(&right, from + index, sizeof(right));
        left ^= right;
        std::memcpy(to + index, &left, sizeof(left));
    }
    for (; index < size_bytes; index++) {
        to[index] ^= from[index];
    }
}

void encode_xor(const GroupShape& shape, size_t chunk_bytes, const unsigned char* const* data,
                unsigned char* const* parity) {
    for (uint32_t chunk = 0; chunk < shape.data_chunks; chunk++) {
        unsigned char* sum = parity[chunk % shape.parity_chunks];
        if (chunk < shape.parity_chunks) {
            std::memcpy(sum, data[chunk], chunk_bytes);
        } else {
            add_bytes(sum, data[chunk], chunk_bytes);
        }
    }
}

void decode_xor(const GroupShape& shape, size_t chunk_bytes, uint64_t wanted,
                unsigned char* const* data, const unsigned char* const* parity) {
    for (; wanted != 0; wanted &= wanted - 1) {
        const auto missing = static_cast<uint32_t>(std::countr_zero(wanted));
        const uint32_t member = missing % shape.parity_chunks;
        std::memcpy(data[missing], parity[member], chunk_bytes);
        for (uint32_t chunk = member; chunk < shape.data_chunks; chunk += shape.parity_chunks) {
            if (chunk != missing) {
                add_bytes(data[missing], data[chunk], chunk_bytes);
            }
        }
    }
}

}  // namespace

GroupShape group_shape(const SchemeChoice& scheme, uint32_t message_chunks, uint32_t group) {
    GroupShape shape;
    shape.first_chunk = group * scheme.data_chunks;
    shape.data_chunks = std::min<uint32_t>(scheme.data_chunks, message_chunks - shape.first_chunk);
    shape.parity_chunks =
        (shape.data_chunks * scheme.parity_chunks + scheme.data_chunks - 1) / scheme.data_chunks;
    return shape;
}

uint64_t restorable_chunks(SchemeKind kind, const GroupShape& shape, const GroupState& state) {
    const uint64_t missing = all_data(shape) & ~state.data;
    const auto parity_count = static_cast<uint32_t>(std::popcount(state.parity));
    if (kind == SchemeKind::erasure_mds) {
        const auto missing_count = static_cast<uint32_t>(std::popcount(missing));
        return missing_count <= parity_count ? missing : 0;
    }
    uint64_t restorable = 0;
    for (uint32_t member = 0; member < shape.parity_chunks; member++) {
        uint64_t class_missing = 0;
        for (uint32_t chunk = member; chunk < shape.data_chunks; chunk += shape.parity_chunks) {
            class_missing |= missing & (uint64_t{1} << chunk);
        }
        if (std::has_single_bit(class_missing) && (state.parity >> member & 1) != 0) {
            restorable |= class_missing;
        }
    }
    return restorable;
}

// The matrix of a code, k + m rows of k, and its parity rows expanded for ISA-L.
struct CodeTables {
    uint32_t data_chunks = 0;
    uint32_t parity_chunks = 0;
    unsigned char matrix[kMaxGroupChunks * kMaxDataChunks];
    unsigned char expanded[32 * kMaxDataChunks * kMaxParityChunks];
};

struct ErasureCode::Tables {
    CodeTables codes[2];  // of full groups, and of the last group of messages
    uint32_t next = 0;    // to be replaced
    unsigned char part[kMaxDataChunks * kMaxDataChunks];
    unsigned char inverse[kMaxDataChunks * kMaxDataChunks];
    unsigned char rows[kMaxParityChunks * kMaxDataChunks];
    unsigned char expanded[32 * kMaxDataChunks * kMaxParityChunks];

    const CodeTables& code_for(const GroupShape& shape) {
        for (uint32_t index = 0; index < 2; index++) {
            CodeTables& code = codes[index];
            if (code.data_chunks == shape.data_chunks &&
                code.parity_chunks == shape.parity_chunks) {
                next = 1 - index;
                return code;
            }
        }
        CodeTables& code = codes[next];
        next = 1 - next;
        code.data_chunks = shape.data_chunks;
        code.parity_chunks = shape.parity_chunks;
        const auto k = static_cast<int>(shape.data_chunks);
        const auto m = static_cast<int>(shape.parity_chunks);
        gf_gen_cauchy1_matrix(code.matrix, k + m, k);
        ec_init_tables(k, m, code.matrix + size_t{shape.data_chunks} * shape.data_chunks,
                       code.expanded);
        return code;
    }
};

ErasureCode::ErasureCode() = default;
ErasureCode::~ErasureCode() = default;

Result<void> ErasureCode::allocate() {
    tables_.reset(new (std::nothrow) Tables);
    return tables_ == nullptr ? Result<void>(Error::enomem) : Result<void>();
}

void ErasureCode::encode(SchemeKind kind, const GroupShape& shape, size_t chunk_bytes,
                         const unsigned char* const* data, unsigned char* const* parity) {
    if (kind == SchemeKind::erasure_mds) {
        encode_mds(shape, chunk_bytes, data, parity);
    } else {
        encode_xor(shape, chunk_bytes, data, parity);
    }
}

void ErasureCode::decode(SchemeKind kind, const GroupShape& shape, size_t chunk_bytes,
                         const GroupState& state, uint64_t wanted, unsigned char* const* data,
                         const unsigned char* const* parity) {
    if (kind == SchemeKind::erasure_mds) {
        decode_mds(shape, chunk_bytes, state, wanted, data, parity);
    } else {
        decode_xor(shape, chunk_bytes, wanted, data, parity);
    }
}

void ErasureCode::encode_mds(const GroupShape& shape, size_t chunk_bytes,
                             const unsigned char* const* data, unsigned char* const* parity) {
    const CodeTables& code = tables_->code_for(shape);
    // ISA-L reads through these pointers only, but does not say so in its types.
    ec_encode_data(static_cast<int>(chunk_bytes), static_cast<int>(shape.data_chunks),
                   static_cast<int>(shape.parity_chunks), const_cast<unsigned char*>(code.expanded),
                   const_cast<unsigned char**>(data), const_cast<unsigned char**>(parity));
}

// The rows of the matrix that belong to k chunks that are there, inverted, give each missing chunk as a sum of
// these. Missing ones are at most m.
void ErasureCode::decode_mds(const GroupShape& shape, size_t chunk_bytes, const GroupState& state,
                             uint64_t wanted, unsigned char* const* data,
                             const unsigned char* const* parity) {
    const CodeTables& code = tables_->code_for(shape);
    const size_t k = shape.data_chunks;
    unsigned char* sources[kMaxDataChunks];
    uint32_t next_parity = 0;
    for (uint32_t row = 0; row < k; row++) {
        size_t chunk = row;
        if ((state.data >> row & 1) != 0) {
            sources[row] = data[row];
        } else {
            while ((state.parity >> next_parity & 1) == 0) {
                next_parity++;
            }
            chunk = k + next_parity;
            sources[row] = const_cast<unsigned char*>(parity[next_parity]);
            next_parity++;
        }
        std::memcpy(tables_->part + row * k, code.matrix + chunk * k, k);
    }
    // Cannot fail: every such part of a Cauchy matrix below a unit matrix is invertible.
    (void)gf_invert_matrix(tables_->part, tables_->inverse, static_cast<int>(k));
    unsigned char* targets[kMaxParityChunks];
    uint32_t count = 0;
    for (; wanted != 0; wanted &= wanted - 1) {
        const auto missing = static_cast<uint32_t>(std::countr_zero(wanted));
        std::memcpy(tables_->rows + count * k, tables_->inverse + missing * k, k);
        targets[count++] = data[missing];
    }
    ec_init_tables(static_cast<int>(k), static_cast<int>(count), tables_->rows, tables_->expanded);
    ec_encode_data(static_cast<int>(chunk_bytes), static_cast<int>(k), static_cast<int>(count),
                   tables_->expanded, sources, targets);
}

}  // namespace tiffin::rdma_blk::sdr
