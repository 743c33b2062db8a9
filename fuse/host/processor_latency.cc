// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/processor_latency.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "fuse/host/problem.h"
#include "fuse/host/wake_cost.h"

namespace tiffin::fuse {
namespace {

// How often it looks for requests that are not noted, and for the end of those that come.
constexpr uint64_t kSearchIntervalUs = 100'000;
constexpr uint64_t kBusyIntervalUs = 10'000;
// So many in an interval are worth it: one in two milliseconds.
constexpr uint64_t kBusyRequests = 5;
constexpr uint64_t kSearchedRequests = 50;
// The wish outlives pauses of less than so many intervals.
constexpr uint32_t kPatientIntervals = 5;

// What is counted may start anew.
uint64_t more(uint64_t before, uint64_t now) { return now > before ? now - before : 0; }

}  // namespace

uint32_t default_processor_latency_us() {
    return is_waking_expensive() ? 0 : kNoProcessorLatencyUs;
}

void ProcessorLatency::start(const Options& options, std::function<uint64_t()> requests) {
    if (options.latency_us == kNoProcessorLatencyUs) {
        return;
    }
    options_ = options;
    requests_ = std::move(requests);
    const Result<void> started = open_device();
    if (!started.ok() && !options_.is_default) {
        const std::string text = "cpu_latency_us has no effect: /dev/cpu_dma_latency: " +
                                 system_error_text(errno_value(started.error()));
        host::log(host::LogLevel::warning, text.c_str());
    }
}

Result<void> ProcessorLatency::open_device() {
    device_ = open("/dev/cpu_dma_latency", O_WRONLY | O_CLOEXEC);
    if (device_ < 0) {
        return static_cast<Error>(errno);
    }
    wish(kNoProcessorLatencyUs);  // opening it asks for 0
    const Result<void> started = thread_.start("latency", run_thread, this);
    if (!started.ok()) {
        close(std::exchange(device_, -1));
    }
    return started;
}

void ProcessorLatency::stop() {
    if (device_ < 0) {
        return;
    }
    {
        MutexLock lock(mutex_);
        is_stopping_ = true;
        changes_.notify_all();
    }
    thread_.join();
    close(std::exchange(device_, -1));
}

void ProcessorLatency::run_thread(void* self) { static_cast<ProcessorLatency*>(self)->run(); }

void ProcessorLatency::run() {
    while (rest_until_burst()) {
        wish(options_.latency_us);
        wishes_.fetch_add(1, std::memory_order_relaxed);
        is_wished_.store(true, std::memory_order_relaxed);
        uint64_t seen = requests_();
        for (uint32_t quiet_intervals = 0; quiet_intervals < kPatientIntervals;) {
            if (stops_within(kBusyIntervalUs)) {
                return;
            }
            const uint64_t now = requests_();
            const bool is_busy = more(std::exchange(seen, now), now) >= kBusyRequests;
            quiet_intervals = is_busy ? 0 : quiet_intervals + 1;
        }
        wish(kNoProcessorLatencyUs);
        is_wished_.store(false, std::memory_order_relaxed);
    }
}

std::string ProcessorLatency::description() const {
    if (device_ < 0) {
        return "any time";
    }
    return std::to_string(options_.latency_us) + " us while requests come; asked for " +
           std::to_string(wishes_.load(std::memory_order_relaxed)) + " times" +
           (is_wished_.load(std::memory_order_relaxed) ? ", now" : "");
}

// false: stop() was called.
bool ProcessorLatency::rest_until_burst() {
    if (options_.bursts == Bursts::searched) {
        for (uint64_t seen = requests_(); !stops_within(kSearchIntervalUs);) {
            const uint64_t now = requests_();
            if (more(std::exchange(seen, now), now) >= kSearchedRequests) {
                return true;
            }
        }
        return false;
    }
    MutexLock lock(mutex_);
    rests_.store(true, std::memory_order_relaxed);
    while (rests_.load(std::memory_order_relaxed) && !is_stopping_) {
        changes_.wait(mutex_);
    }
    return !is_stopping_;
}

void ProcessorLatency::end_rest() {
    MutexLock lock(mutex_);
    rests_.store(false, std::memory_order_relaxed);
    changes_.notify_all();
}

bool ProcessorLatency::stops_within(uint64_t time_us) {
    MutexLock lock(mutex_);
    if (!is_stopping_) {
        changes_.wait_for(mutex_, time_us);
    }
    return is_stopping_;
}

// A wish that the kernel does not take costs time only.
void ProcessorLatency::wish(uint32_t latency_us) {
    const auto value = static_cast<int32_t>(latency_us);
    [[maybe_unused]] const ssize_t written = write(device_, &value, sizeof value);
}

}  // namespace tiffin::fuse
