// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The web server is civetweb, which prometheus-cpp brings along. Its own exporter serves metrics only.
#include "rdma_blk/metrics/http_endpoint.h"

#include <civetweb.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

#include "rdma_blk/wire/listen_address.h"

namespace tiffin::metrics {

struct HttpEndpoint::Parts {
    std::vector<Page> pages;
    mg_context* context = nullptr;

    static int serve(mg_connection* connection);
};

namespace {

// While this thread starts an endpoint: where the first complaint goes.
thread_local std::string* complaint_of_start = nullptr;

int note_complaint(const mg_connection* /*connection*/, const char* message) {
    if (complaint_of_start != nullptr && complaint_of_start->empty()) {
        *complaint_of_start = message;
    }
    return 1;  // civetweb need not log it
}

int send(mg_connection* connection, const char* status, const std::string& content_type,
         const std::string& body) {
    const bool is_head = std::strcmp(mg_get_request_info(connection)->request_method, "HEAD") == 0;
    // A page shows texts of clients: it may not run or load anything.
    mg_printf(connection,
              "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n"
              "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
              "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; "
              "frame-ancestors 'none'\r\n\r\n",
              status, content_type.c_str(), body.size());
    if (!is_head) {
        mg_write(connection, body.data(), body.size());
    }
    return std::atoi(status);
}

int send_error(mg_connection* connection, const char* status) {
    return send(connection, status, "text/plain", std::string(status) + "\n");
}

}  // namespace

// For every request, so that civetweb looks for no files.
int HttpEndpoint::Parts::serve(mg_connection* connection) {
    const mg_request_info* request = mg_get_request_info(connection);
    const auto* parts = static_cast<const Parts*>(request->user_data);
    if (std::strcmp(request->request_method, "GET") != 0 &&
        std::strcmp(request->request_method, "HEAD") != 0) {
        return send_error(connection, "405 Method Not Allowed");
    }
    for (const Page& page : parts->pages) {
        if (request->local_uri != nullptr && page.path == request->local_uri) {
            try {
                return send(connection, "200 OK", page.content_type, page.text());
            } catch (const std::exception&) {  // above is C
                return send_error(connection, "500 Internal Server Error");
            }
        }
    }
    return send_error(connection, "404 Not Found");
}

HttpEndpoint::HttpEndpoint() = default;

HttpEndpoint::~HttpEndpoint() {
    if (parts_ && parts_->context != nullptr) {
        mg_stop(parts_->context);
    }
}

Result<std::unique_ptr<HttpEndpoint>> HttpEndpoint::start(const std::string& address,
                                                          std::vector<Page> pages,
                                                          std::string& problem) {
    rdma_blk::ListenAddress parsed;
    if (!rdma_blk::parse_listen_address(address, parsed)) {
        problem = "metrics: \"" + address + "\" is not ADDRESS:PORT";
        return Error::einval;
    }
    std::unique_ptr<HttpEndpoint> endpoint(new HttpEndpoint());
    endpoint->parts_ = std::make_unique<Parts>();
    Parts& parts = *endpoint->parts_;
    parts.pages = std::move(pages);
    // Two threads: one that waits for a slow reader does not keep Prometheus away.
    const char* options[] = {"listening_ports",    address.c_str(), "num_threads", "2",
                             "request_timeout_ms", "5000",          nullptr};
    mg_callbacks callbacks{};
    callbacks.begin_request = Parts::serve;
    callbacks.log_message = note_complaint;
    std::string complaint;
    complaint_of_start = &complaint;
    parts.context = mg_start(&callbacks, &parts, options);
    complaint_of_start = nullptr;
    if (parts.context == nullptr) {
        problem =
            "metrics cannot be served at " + address + (complaint.empty() ? "" : ": " + complaint);
        const bool is_in_use = complaint.find(std::strerror(EADDRINUSE)) != std::string::npos;
        return is_in_use ? Error::ebusy : Error::eio;
    }
    return endpoint;
}

}  // namespace tiffin::metrics
