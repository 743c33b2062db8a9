// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/volume/transfer.h"

#include <algorithm>

namespace tiffin::rdma_blk {

void PieceCutter::cut(const StripeMap& stripe, const PieceLimits& limits, Piece& piece) {
    const StripeMap::Place place = stripe.find(offset_bytes_);
    uint64_t length_bytes = std::min<uint64_t>(cursor_.remaining(), place.contiguous_bytes);
    length_bytes = std::min(length_bytes, limits.transfer_bytes);

    piece.operation.reset();
    piece.operation.kind = kind_;
    piece.operation.offset_bytes = place.offset_bytes;
    piece.server = place.server;
    piece.is_copied = false;
    BufferCursor behind = cursor_;
    VectorList list(piece.vectors, limits.vector_count);
    if (!behind.slice(length_bytes, list)) {
        uint64_t found_bytes = 0;
        for (const vfs::IoVector& vector : list.span()) {
            found_bytes += vector.size_bytes;
        }
        length_bytes = found_bytes / limits.write_unit_bytes * limits.write_unit_bytes;
        if (length_bytes == 0) {
            return copy_unit(limits, piece);
        }
        behind = cursor_;
        list.clear();
        const bool fits = behind.slice(length_bytes, list);
        TIFFIN_ASSERT(fits);
    }
    cursor_ = behind;
    offset_bytes_ += length_bytes;
    piece.length_bytes = length_bytes;
    piece.operation.buffers = piece.vectors;
    piece.operation.buffer_count = list.size();
}

void PieceCutter::copy_unit(const PieceLimits& limits, Piece& piece) {
    TIFFIN_ASSERT(piece.copy != nullptr);
    piece.is_copied = true;
    piece.length_bytes = limits.write_unit_bytes;
    piece.copied_place = cursor_;
    if (kind_ == OperationKind::write) {
        cursor_.copy_to(piece.copy, piece.length_bytes);
    } else {
        cursor_.skip(piece.length_bytes);
    }
    offset_bytes_ += piece.length_bytes;
    piece.vectors[0] = {piece.copy, piece.length_bytes};
    piece.operation.buffers = piece.vectors;
    piece.operation.buffer_count = 1;
}

void finish_read(Piece& piece) {
    if (piece.is_copied) {
        piece.copied_place.copy_from(piece.copy, piece.length_bytes);
    }
}

Error device_error(const Operation& operation) {
    switch (operation.error) {
        case Error::erofs:
        case Error::etimedout:
            return operation.error;
        default:
            return Error::eio;
    }
}

}  // namespace tiffin::rdma_blk
