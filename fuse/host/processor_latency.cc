// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/processor_latency.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "fuse/host/problem.h"

namespace tiffin::fuse {
namespace {

constexpr uint64_t kIntervalUs = 100'000;
// So many in an interval are worth it: one in two milliseconds.
constexpr uint64_t kBusyRequests = 50;
// The wish outlives pauses of a second.
constexpr uint32_t kPatientIntervals = 10;
// PM_QOS_CPU_LATENCY_DEFAULT_VALUE: none.
constexpr uint32_t kNoWishUs = 2'000'000'000;

}  // namespace

void ProcessorLatency::start(const std::optional<uint32_t>& latency_us,
                             std::function<uint64_t()> requests) {
    if (!latency_us) {
        return;
    }
    latency_us_ = *latency_us;
    requests_ = std::move(requests);
    const Result<void> started = open_device();
    if (!started.ok()) {
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
        stops_.notify_all();
    }
    thread_.join();
    close(std::exchange(device_, -1));
}

void ProcessorLatency::run_thread(void* self) { static_cast<ProcessorLatency*>(self)->run(); }

void ProcessorLatency::run() {
    uint64_t seen = requests_();
    uint32_t quiet_intervals = kPatientIntervals;
    while (!stops_within(kIntervalUs)) {
        const uint64_t now = requests_();
        const uint64_t before = std::exchange(seen, now);
        const bool is_busy = now >= before + kBusyRequests;  // what is counted may start anew
        if (is_busy && quiet_intervals >= kPatientIntervals) {
            wish(latency_us_);
        } else if (!is_busy && quiet_intervals + 1 == kPatientIntervals) {
            wish(kNoWishUs);
        }
        quiet_intervals = is_busy ? 0 : quiet_intervals + (quiet_intervals < kPatientIntervals);
    }
}

bool ProcessorLatency::stops_within(uint64_t time_us) {
    MutexLock lock(mutex_);
    if (!is_stopping_) {
        stops_.wait_for(mutex_, time_us);
    }
    return is_stopping_;
}

// A wish that the kernel does not take costs time only.
void ProcessorLatency::wish(uint32_t latency_us) {
    const auto value = static_cast<int32_t>(latency_us);
    [[maybe_unused]] const ssize_t written = write(device_, &value, sizeof value);
}

}  // namespace tiffin::fuse
