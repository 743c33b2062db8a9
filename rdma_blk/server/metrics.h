// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Metrics for Prometheus, over HTTP at /metrics. For an address of this host only: nobody is asked who they are.
#pragma once

#include <memory>
#include <string>

#include "rdma_blk/server/server.h"

namespace tiffin::rdma_blk {

class MetricsEndpoint {
  public:
    // `address`: "127.0.0.1:9847". The server outlives the endpoint. Errors: eio; `problem` says what.
    static Result<std::unique_ptr<MetricsEndpoint>> start(Server& server,
                                                          const std::string& address,
                                                          std::string& problem);
    ~MetricsEndpoint();
    MetricsEndpoint(const MetricsEndpoint&) = delete;
    MetricsEndpoint& operator=(const MetricsEndpoint&) = delete;

  private:
    struct Parts;

    MetricsEndpoint();
    std::unique_ptr<Parts> parts_;
};

// What the endpoint serves. Any thread.
std::string metrics_text(Server& server);

}  // namespace tiffin::rdma_blk
