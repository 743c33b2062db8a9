// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Asks the kernel that idle processors wake up within a given time, while requests come (PM QoS, /dev/cpu_dma_latency;
// Documentation/power/pm_qos_interface.rst). With 0 they do not sleep at all: in virtual machines, where waking one
// costs the hypervisor 50 microseconds and more, an exchange between two processes takes a sixth of the time then. All
// processors that are idle meanwhile pay the price, so the wish ends 50 ms after the last requests.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "fs/vfs/host.h"

namespace tiffin::fuse {

inline constexpr uint32_t kMaxProcessorLatencyUs = 10'000;
// No wish (PM_QOS_CPU_LATENCY_DEFAULT_VALUE).
inline constexpr uint32_t kNoProcessorLatencyUs = 2'000'000'000;

// 0 where waking is so expensive that it pays (wake_cost.h), else kNoProcessorLatencyUs.
uint32_t default_processor_latency_us();

// Threading: start() and stop() from one thread, note_burst() from any between them.
class ProcessorLatency {
  public:
    enum class Bursts : uint8_t {
        noted,     // by note_burst(): the thread sleeps until then
        searched,  // the thread looks for them ten times a second
    };
    struct Options {
        uint32_t latency_us = kNoProcessorLatencyUs;  // with this one nothing is done
        Bursts bursts = Bursts::searched;
        bool is_default =
            false;  // the user has not asked for it: that it cannot be had is not worth a message
    };

    ProcessorLatency() = default;
    ~ProcessorLatency() { stop(); }
    ProcessorLatency(const ProcessorLatency&) = delete;
    ProcessorLatency& operator=(const ProcessorLatency&) = delete;

    // `requests` says how many there were so far; it is called in a thread of its own without a lock, until stop(), and a
    // hundred times a second while they come. What cannot be had (the device is root's, and not in every kernel) is
    // said in the log as an option cpu_latency_us without effect: requests only wait longer then.
    void start(const Options& options, std::function<uint64_t()> requests);
    // Takes the wish back.
    void stop() EXCLUDES(mutex_);

    // Requests follow each other closely. Costs nothing while that is known.
    void note_burst() EXCLUDES(mutex_) {
        if (rests_.load(std::memory_order_relaxed)) {
            end_rest();
        }
    }

    // For people: "any time", or "0 us while requests come; asked for 3 times, now".
    std::string description() const;

  private:
    Result<void> open_device();
    static void run_thread(void* self);
    void run() EXCLUDES(mutex_);
    bool rest_until_burst() EXCLUDES(mutex_);
    void end_rest() EXCLUDES(mutex_);
    bool stops_within(uint64_t time_us) EXCLUDES(mutex_);
    void wish(uint32_t latency_us);

    int device_ = -1;
    Options options_;
    std::function<uint64_t()> requests_;
    host::Thread thread_;
    std::atomic<bool> rests_{false};  // changed under mutex_
    std::atomic<bool> is_wished_{false};
    std::atomic<uint64_t> wishes_{0};
    host::Mutex mutex_{host::LockClass::leaf};
    host::Condition changes_;
    bool is_stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace tiffin::fuse
