// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The server's metrics for Prometheus.
#pragma once

#include <string>

#include "rdma_blk/server/server.h"

namespace tiffin::rdma_blk {

// In Prometheus' text format. Any thread.
std::string metrics_text(Server& server);

}  // namespace tiffin::rdma_blk
