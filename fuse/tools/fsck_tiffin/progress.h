// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How far a check is: a line on a terminal, or lines for another program.
#pragma once

#include <optional>
#include <string>

#include "fuse/check/report.h"

namespace tiffin::fuse {

// One thread. Draws to standard output if that is a terminal and `bar` is true; and writes
// "PHASE DONE TOTAL DEVICE" to the descriptor, as e2fsck does, if there is one.
class FsckProgress {
  public:
    FsckProgress(bool bar, std::optional<int> descriptor, std::string device);
    ~FsckProgress() { clear(); }
    FsckProgress(const FsckProgress&) = delete;
    FsckProgress& operator=(const FsckProgress&) = delete;

    void show(const check::Progress& progress);
    // Removes the line, so that something else can be printed.
    void clear();

  private:
    bool bar_;
    std::optional<int> descriptor_;
    std::string device_;
    bool drawn_ = false;
};

}  // namespace tiffin::fuse
