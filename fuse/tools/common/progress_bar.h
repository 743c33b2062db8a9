// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A line on a terminal that shows how far something is.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace tiffin::fuse {

// "checking  [=======>        ]  43%  1.2 GiB of 2.8 GiB". Draws only when `stream` is a terminal,
// a few times a second, and removes the line at the end. One thread.
class ProgressBar {
  public:
    ProgressBar(FILE* stream, std::string title);
    ~ProgressBar();
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;

    // `total` may grow while work goes on; 0 when it is not known.
    void show(uint64_t done_bytes, uint64_t total_bytes);
    // Removes the line, so that something else can be printed.
    void clear();

  private:
    FILE* stream_;
    std::string title_;
    bool is_terminal_;
    bool drawn_ = false;
    std::chrono::steady_clock::time_point last_drawn_;
};

// The line without the title, for a terminal of this width.
std::string progress_text(uint64_t done_bytes, uint64_t total_bytes, size_t width);

}  // namespace tiffin::fuse
