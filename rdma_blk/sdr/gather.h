// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A message's bytes that lie in several pieces, to be sent from where they are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fs/vfs/span.h"

namespace tiffin::rdma_blk::sdr {

// A head, and what follows it: the caller's, as are the bytes, for as long as the message is sent.
struct GatherList {
    ByteSpan head;
    const vfs::IoVector* pieces = nullptr;
    size_t piece_count = 0;

    uint64_t size_bytes() const {
        uint64_t sum = head.size();
        for (size_t index = 0; index < piece_count; index++) {
            sum += pieces[index].size_bytes;
        }
        return sum;
    }
    // Calls visit(bytes, size) for each part of [offset_bytes, offset_bytes + count_bytes), in order, until it returns
    // false. True: all of them. Precondition: within size_bytes().
    template <typename Visit>
    bool visit(uint64_t offset_bytes, uint64_t count_bytes, Visit visit) const {
        ByteSpan part = head;
        for (size_t next = 0; count_bytes > 0; next++) {
            if (offset_bytes < part.size()) {
                const uint64_t size = std::min<uint64_t>(count_bytes, part.size() - offset_bytes);
                if (!visit(part.data() + offset_bytes, size)) {
                    return false;
                }
                count_bytes -= size;
                offset_bytes = 0;
            } else {
                offset_bytes -= part.size();
            }
            if (count_bytes > 0) {
                part = ByteSpan(static_cast<const unsigned char*>(pieces[next].data),
                                pieces[next].size_bytes);
            }
        }
        return true;
    }
    // Copies a part. Precondition: likewise.
    void copy(uint64_t offset_bytes, uint64_t count_bytes, unsigned char* out) const {
        visit(offset_bytes, count_bytes, [&out](const unsigned char* bytes, uint64_t size) {
            std::memcpy(out, bytes, size);
            out += size;
            return true;
        });
    }
};

}  // namespace tiffin::rdma_blk::sdr
