// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a keeper and its server say to each other, over a socket pair. The two may be of different versions: see
// kKeeperSocketOption.
#pragma once

#include <string>

#include "rdma_blk/server/volume.h"

namespace tiffin::rdma_blk::keeper {

constexpr int kDescriptors = 2;  // data, control

enum class MessageKind : uint32_t {
    find = 1,
    keep = 2,
    forget = 3,
    found = 4,
    not_found = 5,
    ready = 6,
    kept = 7,
    not_kept = 8,
};

struct Message {
    MessageKind kind = MessageKind::find;
    char volume_name[wire::kMaxVolumeNameBytes + 1] = {};
};

Message make_message(MessageKind kind, const std::string& volume_name);
// `descriptors`: kDescriptors, or null.
bool send_message(int socket, const Message& message, const int* descriptors);
// False: the other one is gone. `memory` gets what came along.
bool receive_message(int socket, Message& message, KeptMemory& memory);

}  // namespace tiffin::rdma_blk::keeper
