// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Lines that strangers cause: one in ten seconds, which says how many more there were.
#pragma once

#include <string>

#include "fs/vfs/host.h"

namespace tiffin::rdma_blk {

class SparseLog {
  public:
    // Any thread. True: it was written.
    bool write(const std::string& line, uint64_t now_ns) {
        constexpr uint64_t kIntervalNs = 10'000'000'000;
        uint64_t left_out = 0;
        {
            MutexLock lock(mutex_);
            if (written_ns_ != 0 && now_ns - written_ns_ < kIntervalNs) {
                left_out_++;
                return false;
            }
            written_ns_ = now_ns;
            left_out = left_out_;
            left_out_ = 0;
        }
        const std::string more =
            left_out == 0 ? ""
                          : " (and " + std::to_string(left_out) + " more since the line before)";
        host::log(host::LogLevel::warning, (line + more).c_str());
        return true;
    }

  private:
    host::Mutex mutex_{host::LockClass::leaf};
    uint64_t written_ns_ GUARDED_BY(mutex_) = 0;  // 0: never
    uint64_t left_out_ GUARDED_BY(mutex_) = 0;
};

}  // namespace tiffin::rdma_blk
