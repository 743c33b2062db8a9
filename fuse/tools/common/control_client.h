// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Talking to a mounted file system: the sending side of control_commands.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fuse/host/problem.h"
#include "fuse/session/control_commands.h"
#include "fuse/session/statistics.h"

namespace tiffin::fuse {

struct NamedTotals {
    std::string name;
    OperationTotals totals;
};

class ControlClient {
  public:
    // `path` is any directory or file of a mount.
    static OrProblem<ControlClient> open(const std::string& path);
    ~ControlClient();
    ControlClient(ControlClient&& other) noexcept;
    ControlClient(const ControlClient&) = delete;
    ControlClient& operator=(const ControlClient&) = delete;
    ControlClient& operator=(ControlClient&&) = delete;

    OrProblem<std::string> text(TextKind kind);
    OrProblem<std::vector<NamedTotals>> statistics();
    OrProblem<GrowCommand> grow();
    // `link`: HOST or HOST:PORT.
    std::optional<Problem> change_link(bool adds, const std::string& link);
    // Goes on with a scrub.
    std::optional<Problem> scrub(ScrubCommand& progress);

  private:
    ControlClient(std::string path, int file) : path_(std::move(path)), file_(file) {}
    std::optional<Problem> send(unsigned long command, void* argument);

    std::string path_;
    int file_;
};

}  // namespace tiffin::fuse
