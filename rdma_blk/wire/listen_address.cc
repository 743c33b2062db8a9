// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/wire/listen_address.h"

#include <arpa/inet.h>

#include <charconv>

namespace tiffin::rdma_blk {

bool parse_listen_address(const std::string& text, ListenAddress& address) {
    const size_t colon = text.rfind(':');
    if (colon == std::string::npos) {
        return false;
    }
    std::string host = text.substr(0, colon);
    const bool has_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (has_brackets) {
        host = host.substr(1, host.size() - 2);
    }
    unsigned char binary[16];
    if (inet_pton(has_brackets ? AF_INET6 : AF_INET, host.c_str(), binary) != 1) {
        return false;
    }
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data() + colon + 1, end, address.port);
    address.host = host;
    return parsed.ec == std::errc() && parsed.ptr == end;
}

}  // namespace tiffin::rdma_blk
