// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/crash/recovery.h"

#include "fs/tiffinfs/volume/superblock.h"
#include "fuse/check/check.h"

namespace tiffin::test {
namespace {

std::string findings_of(const check::Report& report) {
    std::string text;
    for (const check::Finding& finding : report.findings) {
        text += finding.line() + "\n";
    }
    return text;
}

}  // namespace

std::string recover(CrashDevice& device,
                    const std::function<std::string(const SeenTree& seen)>& judge) {
    TestVolume volume(device);
    if (const Result<void> mounted = volume.mount(); !mounted.ok()) {
        return "mount fails with error " + std::to_string(errno_value(mounted.error()));
    }
    Result<SeenTree> seen = volume.see();
    if (!seen.ok()) {
        return "reading fails with error " + std::to_string(errno_value(seen.error()));
    }
    if (std::string wrong = judge(*seen); !wrong.empty()) {
        return wrong;
    }
    if (!volume.unmount().ok()) {
        return "unmounting fails";
    }
    const check::Report after = check::check_file_system(device, {.verify_data = true});
    return after.findings.empty() ? std::string()
                                  : "after the mount the checker finds\n" + findings_of(after);
}

std::string check_and_recover(CrashDevice& device,
                              const std::function<std::string(const SeenTree& seen)>& judge,
                              Met* met) {
    const check::Report before = check::check_file_system(device, {.verify_data = true});
    if (met != nullptr) {
        met->journals += before.count(check::Code::journal_pending);
        met->orphans += before.statistics.orphans;
        met->intents += before.statistics.intents;
    }
    // A superblock fits a write unit of any disk. Memory may tear it; then a copy can be damaged
    // although the other one says that all is well.
    const bool may_tear = device.geometry().write_unit_bytes < tiffinfs::kSuperblockBytes;
    const uint64_t torn = may_tear ? before.count(check::Code::superblock_copy) : 0;
    if (before.damage != 0 || before.harmless > torn) {
        return "before the mount the checker finds\n" + findings_of(before);
    }
    return recover(device, judge);
}

}  // namespace tiffin::test
