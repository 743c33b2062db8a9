// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Administration over a Unix socket, for users that may open it: a line of JSON asks, a line answers.
//
//   {"command": "create", "name": N, "size_bytes": S, "words_bytes": W, "backing": PATH}   -> "key": 64 digits
//   {"command": "delete", "name": N, "force": true}    without "force" not while it is in use, or could not be brought up
//   {"command": "resize", "name": N, "size_bytes": S}
//   {"command": "list"}                -> "volumes": [...]; of one that is not served "name" and "problem" only
//   {"command": "info", "name": N}     -> "volume": {...}, and with "with_key": true "key" and "reader_key"
//   {"command": "status"}              -> counters of the server
//
// Answers have "ok": true, or "ok": false and "error".
#pragma once

#include <memory>
#include <string>

#include "rdma_blk/server/server.h"

namespace tiffin::rdma_blk {

// Answers one line; both without the newline. Any thread.
std::string answer_administration(Server& server, const std::string& line);

class AdministrationSocket {
  public:
    explicit AdministrationSocket(Server& server) : server_(server) {}
    ~AdministrationSocket() { stop(); }

    // Makes the socket (mode 600) and serves it, one connection after the other. A socket without a listener is
    // replaced. Errors: those of the system; ebusy: another process listens.
    Result<void> start(const std::string& path);
    void stop();

  private:
    void run();
    void serve(int connection);

    Server& server_;
    std::string path_;
    UniqueDescriptor listener_;
    UniqueDescriptor stop_event_;
    host::Thread thread_;
};

}  // namespace tiffin::rdma_blk
