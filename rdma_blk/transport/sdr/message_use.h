// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a message of a path of transport udp is for: its user immediate (docs/remote-format.md).
#pragma once

#include <cstdint>

namespace tiffin::rdma_blk {

enum class MessageUse : uint32_t {
    wire = 0,   // a request, or a response
    hello = 1,  // one byte; the server answers with another: messages pass in both directions
};

}  // namespace tiffin::rdma_blk
