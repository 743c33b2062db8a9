// SPDX-License-Identifier: MIT OR GPL-2.0-only
#pragma once

#include <chrono>
#include <string>
#include <thread>

#include "fs/vfs/host.h"

namespace tiffin::fuse {

// A mount has ended when umount returns, and its process a little later: after it has written what was left on a slow
// disk, or let go of its port, on a busy machine. So long the next mount tries again, from the creation of this on.
class ReleaseWait {
  public:
    // `poll`: between two tries. `usual`: so long the end of a mount takes without a reason to tell of it.
    explicit ReleaseWait(std::chrono::milliseconds poll,
                         std::chrono::milliseconds usual = std::chrono::seconds(1))
        : poll_(poll), usual_(usual) {}

    // Sleeps until the next try; false, at once: it has waited long enough. `reason`: why the last try failed, which is
    // logged when it takes longer than is usual.
    bool again(const std::string& reason) {
        const auto waited = std::chrono::steady_clock::now() - begin_;
        if (waited >= kMost) {
            return false;
        }
        if (!has_told_ && waited >= usual_) {
            has_told_ = true;
            host::log(host::LogLevel::warning,
                      (reason + ": waiting, 30 s at most, for a mount that may be ending").c_str());
        }
        std::this_thread::sleep_for(poll_);
        return true;
    }

  private:
    static constexpr auto kMost = std::chrono::seconds(30);

    std::chrono::milliseconds poll_;
    std::chrono::milliseconds usual_;
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
    bool has_told_ = false;
};

}  // namespace tiffin::fuse
