// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Files that come and go through a host with write-back, on a volume that is nearly full.
#pragma once

#include <cstdint>
#include <string>

#include "tests/support/choices.h"

namespace tiffin::test {

struct WriteBackResult {
    std::string failure;   // empty when all was well
    uint64_t refused = 0;  // fsyncs, for want of space
    uint64_t kept = 0;     // and those that succeeded
};

// Does `steps` things, or fewer when there is nothing left to choose from, then fails the power. Everything that
// an fsync has said to be there is there, nothing was answered short, and the checker finds nothing.
WriteBackResult run_write_back(Choices& choices, uint64_t volume_bytes, uint64_t steps);

}  // namespace tiffin::test
