// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Addresses to listen on, as people write them: the one parser of all programs.
#pragma once

#include <cstdint>
#include <string>

namespace tiffin::rdma_blk {

struct ListenAddress {
    std::string host;  // numeric, without brackets
    uint16_t port = 0;

    bool operator==(const ListenAddress&) const = default;
};

// "[::1]:4847" or "127.0.0.1:4847".
bool parse_listen_address(const std::string& text, ListenAddress& address);

}  // namespace tiffin::rdma_blk
