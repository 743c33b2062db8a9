// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Whether a name or address is that of the machine this process runs on.
#pragma once

#include <string>

namespace tiffin::rdma_blk {

// A loopback address, or one of its interfaces has it. Names are looked up; one that cannot be is not.
bool is_this_host(const std::string& host);

}  // namespace tiffin::rdma_blk
