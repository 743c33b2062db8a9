// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/fsck_tiffin/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "fuse/tools/common/output.h"

namespace tiffin::fuse {
namespace {

constexpr size_t kBarWidth = 40;
constexpr int kTotal = 1000;

}  // namespace

FsckProgress::FsckProgress(bool bar, std::optional<int> descriptor, std::string device)
    : bar_(bar && isatty(STDOUT_FILENO) != 0),
      descriptor_(descriptor),
      device_(std::move(device)) {}

void FsckProgress::show(const check::Progress& progress) {
    const double fraction = std::clamp(progress.fraction, 0.0, 1.0);
    if (descriptor_.has_value()) {
        const std::string line = fmt::format("{} {} {} {}\n", static_cast<int>(progress.phase) + 1,
                                             static_cast<int>(fraction * kTotal), kTotal, device_);
        // Its reader may have gone away; that is no reason to stop checking.
        if (write(*descriptor_, line.data(), line.size()) < 0) {
            descriptor_.reset();
        }
    }
    if (bar_) {
        const auto filled = static_cast<size_t>(fraction * kBarWidth);
        print_text("\r\x1b[K{:<12}[{}{}] {:3.0f}%", check::phase_name(progress.phase),
                   std::string(filled, '='), std::string(kBarWidth - filled, ' '), fraction * 100);
        std::fflush(stdout);
        drawn_ = true;
    }
}

void FsckProgress::clear() {
    if (drawn_) {
        print_text("\r\x1b[K");
        std::fflush(stdout);
        drawn_ = false;
    }
}

}  // namespace tiffin::fuse
