// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/suite/core_volume.h"

#include <stdexcept>

#include "fs/tiffinfs/tiffinfs.h"
#include "fuse/check/check.h"
#include "tests/suite/case.h"

namespace tiffin::suite {

namespace {

void must(Result<void> result, const char* what) {
    if (!result.ok()) {
        throw std::runtime_error(std::string(what) + ": " +
                                 errno_text(errno_value(result.error())));
    }
}

}  // namespace

CoreVolume::CoreVolume(uint64_t size_bytes)
    : device_(std::make_unique<test::CrashDevice>(size_bytes)) {
    must(tiffinfs::make_file_system(*device_, {}), "making a file system");
    mount();
}

CoreVolume::~CoreVolume() { abandon(); }

void CoreVolume::mount() {
    tiffinfs::MountOptions options;
    Result<vfs::FileSystem*> mounted = tiffinfs::mount(*device_, options);
    if (!mounted.ok()) {
        throw std::runtime_error("mount: " + errno_text(errno_value(mounted.error())));
    }
    file_system_ = mounted.value();
}

void CoreVolume::unmount() {
    Result<void> result = file_system_->unmount();
    tiffinfs::destroy(file_system_);
    file_system_ = nullptr;
    must(std::move(result), "unmount");
}

void CoreVolume::abandon() {
    if (file_system_ != nullptr) {
        // It may well answer eio.
        (void)file_system_->unmount().ok();
        tiffinfs::destroy(file_system_);
        file_system_ = nullptr;
    }
}

void CoreVolume::crash(test::CrashOutcome outcome, uint64_t seed) {
    device_->stop();
    std::unique_ptr<test::CrashDevice> after = device_->after_crash(outcome, seed);
    abandon();
    device_ = std::move(after);
}

std::string CoreVolume::check() {
    check::CheckOptions options;
    options.verify_data = true;
    check::Report report = check::check_file_system(*device_, options);
    std::string text;
    for (const check::Finding& finding : report.findings) {
        if (finding.severity != check::Severity::note) {
            text += (text.empty() ? "" : "; ") + finding.line();
        }
    }
    return text;
}

}  // namespace tiffin::suite
