// SPDX-License-Identifier: MIT OR GPL-2.0-only
#pragma once

#include <chrono>
#include <thread>

namespace tiffin::fuse {

// A mount has ended when umount returns, and its process a little later: after it has written what was left on a slow
// disk, or let go of its port, on a busy machine. So long the next mount tries again, from the creation of this on.
class ReleaseWait {
  public:
    // `poll`: between two tries.
    explicit ReleaseWait(std::chrono::milliseconds poll) : poll_(poll) {}

    // Sleeps until the next try; false, at once: it has waited long enough.
    bool again() const {
        if (waited() >= kMost) {
            return false;
        }
        std::this_thread::sleep_for(poll_);
        return true;
    }
    std::chrono::steady_clock::duration waited() const {
        return std::chrono::steady_clock::now() - begin_;
    }

  private:
    static constexpr auto kMost = std::chrono::seconds(30);

    std::chrono::milliseconds poll_;
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace tiffin::fuse
