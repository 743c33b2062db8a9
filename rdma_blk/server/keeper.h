// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Memory that outlives the server: a process that does nothing but keep descriptors of it, starts the server
// as its child, and starts it again when it ends by accident. It talks to nobody but that child.
#pragma once

#include <functional>

#include "rdma_blk/server/server.h"

namespace tiffin::rdma_blk {

// Runs `worker` in a child process until it ends on purpose; returns the status to exit with. SIGTERM and SIGINT
// end both, SIGHUP goes to the child; when the keeper dies, the child gets SIGTERM. The child's first start
// may fail with a status of its own, which is returned. Precondition: the process has one thread.
int run_with_keeper(const std::function<int(MemoryKeeper& keeper)>& worker);

}  // namespace tiffin::rdma_blk
