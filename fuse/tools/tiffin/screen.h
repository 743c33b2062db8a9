// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Drawing on a terminal that afterwards is as it was.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fuse/host/problem.h"

namespace tiffin::fuse {

// A terminal in the hands of run_on_screen()'s function.
class Screen {
  public:
    // Draws from the top left corner; what does not fit is cut off. Bytes other than printable ASCII become '?'.
    void draw(const std::vector<std::string>& lines);
    // Waits for so long, or until 'q' is typed. False: 'q' was typed.
    bool wait(double seconds);

  private:
    bool reads_keys_ = true;
};

// Calls `draw` in a child process and waits for it; this process then restores the terminal, however the child has ended.
// So Ctrl-C works even while the child waits for a file system that does not answer. Returns what `draw` returns;
// nothing after Ctrl-C, 'q', or the signals TERM and HUP. Call before any thread is started.
std::optional<Problem> run_on_screen(const std::function<std::optional<Problem>(Screen&)>& draw);

}  // namespace tiffin::fuse
