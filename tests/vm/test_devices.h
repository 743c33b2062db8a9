// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The two devices that vm_verbs_test was told of.
#pragma once

#include <memory>

#include "rdma_blk/transport/verbs/verbs.h"

namespace tiffin::rdma_blk::test {

extern const char* device_addresses[2];  // IPv4

// nullptr: it cannot be opened, and the test has failed.
std::unique_ptr<verbs::Device> open_device(int index);

}  // namespace tiffin::rdma_blk::test
