// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The steps of the test and their report.
#include "tests/vm/module/core_test.h"

#include "fs/base/text.h"
#include "tests/vm/module/bench.h"

namespace tiffin::vm {
namespace {

constexpr uint64_t kDeviceBytes = 32U << 20;

struct Step {
    const char* name;
    Result<void> (*function)(Bench& bench);
    // What it reads and writes lies on pages, so that every buffer the device sees must.
    bool on_pages = false;
};

constexpr Step kSteps[] = {
    {"make a file system and mount it", make_and_mount, true},
    {"write files", write_files},
    {"read them back", check_files},
    {"unmount, mount again, read them back", remount},
    {"names: link, symlink, rename, unlink", change_names},
    {"attributes: times, modes, extended", change_attributes},
    {"directories of many entries", list_directories, true},
    {"space: allocate, punch, collapse, insert, copy", change_space, true},
    {"the lower data path", use_lower_path, true},
    {"damaged data is noticed", detect_damage},
    {"a full device", fill_device},
    {"a loss of power", recover},
    {"threads", run_threads},
    {"trim and scrub", scrub, true},
    {"unmount, mount again, read it all back", remount},
};

bool report(const char* where, const char* name, uint64_t start_ns, bool passed) {
    log_line(passed ? host::LogLevel::info : host::LogLevel::error, where, ": ", name, ": ",
             passed ? "passed" : "FAILED", " (", (host::monotonic_ns() - start_ns) / 1000000,
             " ms)");
    return passed;
}

bool run_step(const char* where, const char* name, Result<void> (*function)()) {
    const uint64_t start_ns = host::monotonic_ns();
    return report(where, name, start_ns, function().ok());
}

// A step builds on those before it, so the first failure ends the run on this device.
bool run_steps(const char* where, Bench& bench) {
    for (const Step& step : kSteps) {
        const uint64_t start_ns = host::monotonic_ns();
        const uint64_t unaligned = bench.device.unaligned_buffers();
        bool passed = step.function(bench).ok();
        if (step.on_pages && bench.device.unaligned_buffers() != unaligned) {
            log_line(host::LogLevel::error, where, ": a buffer of the core is not on a page");
            passed = false;
        }
        if (!report(where, step.name, start_ns, passed)) {
            return false;
        }
    }
    return true;
}

bool run_on(const char* where, DeviceKind kind) {
    MemoryDevice device(kind);
    Bench bench(device);
    bool passed = device.open(kDeviceBytes).ok() && bench.open().ok();
    passed = passed && run_steps(where, bench);
    if (bench.file_system != nullptr) {
        passed = bench.unmount().ok() && passed;
    }
    log_line(host::LogLevel::info, where, ": ", device.requests(), " device requests, ",
             device.requests_completed_in_interrupts(), " completed in interrupts, ",
             device.unaligned_buffers(), " buffers not aligned to 512 bytes, ",
             device.breaches_of_contract(), " breaches of the contract");
    // The device that interrupts must have done so, or nothing was shown.
    const bool interrupted = device.requests_completed_in_interrupts() == device.requests();
    return passed && device.breaches_of_contract() == 0 &&
           (kind == DeviceKind::direct || (device.requests() != 0 && interrupted));
}

}  // namespace
}  // namespace tiffin::vm

bool tiffin_core_test() {
    using tiffin::vm::DeviceKind;
    bool passed =
        tiffin::vm::run_step("kernel", "services of the host", tiffin::vm::check_services);
    passed = tiffin::vm::run_step("kernel", "the smallest file system", tiffin::vm::check_hello) &&
             passed;
    passed = tiffin::vm::run_on("direct", DeviceKind::direct) && passed;
    return tiffin::vm::run_on("interrupt", DeviceKind::interrupt) && passed;
}
