// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A few pages over HTTP, for metrics and for people. Without authentication: for addresses that only clients with the
// right to read the pages can reach.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fs/vfs/result.h"

namespace tiffin::metrics {

struct Page {
    std::string path;  // such as "/metrics"; exactly this
    std::string content_type;
    // What is served. From the endpoint's threads, two at once at most.
    std::function<std::string()> text;
};

class HttpEndpoint {
  public:
    // Listens on `address` ("127.0.0.1:9847") and starts the threads: fork() before it. What the pages use outlives the
    // endpoint. Errors: einval; ebusy, the address is in use; eio. `problem` then has a line
    // for people.
    static Result<std::unique_ptr<HttpEndpoint>> start(const std::string& address,
                                                       std::vector<Page> pages,
                                                       std::string& problem);
    // Takes two seconds, as civetweb looks that often; answers under way are waited for, some seconds at most.
    ~HttpEndpoint();
    HttpEndpoint(const HttpEndpoint&) = delete;
    HttpEndpoint& operator=(const HttpEndpoint&) = delete;

  private:
    struct Parts;

    HttpEndpoint();
    std::unique_ptr<Parts> parts_;
};

}  // namespace tiffin::metrics
