// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What each type of message may weigh, and whether it is sealed. For parse*.cc only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tiffin::rdma_blk::wire {

enum class Sealing : uint8_t { never, always, by_session };

struct MessageSizes {
    size_t fixed_bytes = 0;  // 0: no such type
    size_t max_payload_bytes = 0;
    Sealing sealing = Sealing::never;
};

MessageSizes message_sizes(uint8_t type);

}  // namespace tiffin::rdma_blk::wire
