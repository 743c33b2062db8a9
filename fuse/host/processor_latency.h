// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Asks the kernel that idle processors wake up within a given time, while requests come (PM QoS, /dev/cpu_dma_latency;
// Documentation/power/pm_qos_interface.rst). With 0 they do not sleep at all: in virtual machines, where to wake one
// costs the hypervisor 50 microseconds and more, an exchange between two processes takes a sixth of the time then. The price
// is paid by all processors that are idle meanwhile, so users must ask for it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "fs/vfs/host.h"

namespace tiffin::fuse {

inline constexpr uint32_t kMaxProcessorLatencyUs = 10'000;

// Threading: start() and stop() from one thread.
class ProcessorLatency {
  public:
    ProcessorLatency() = default;
    ~ProcessorLatency() { stop(); }
    ProcessorLatency(const ProcessorLatency&) = delete;
    ProcessorLatency& operator=(const ProcessorLatency&) = delete;

    // Absent: does nothing. `requests` says how many there were so far; from a thread of its own without a lock, until
    // stop(). What cannot be had (the device is root's, and not in every kernel) is said in the log as an option
    // cpu_latency_us without effect: requests only wait longer then.
    void start(const std::optional<uint32_t>& latency_us, std::function<uint64_t()> requests);
    // Takes the wish back.
    void stop() EXCLUDES(mutex_);

  private:
    Result<void> open_device();
    static void run_thread(void* self);
    void run() EXCLUDES(mutex_);
    bool stops_within(uint64_t time_us) EXCLUDES(mutex_);
    void wish(uint32_t latency_us);

    int device_ = -1;
    uint32_t latency_us_ = 0;
    std::function<uint64_t()> requests_;
    host::Thread thread_;
    host::Mutex mutex_{host::LockClass::leaf};
    host::Condition stops_;
    bool is_stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace tiffin::fuse
