// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A mounted tiffinfs in this process that can be remounted, crashed and checked.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "fs/vfs/file_system.h"
#include "tests/support/crash_device.h"

namespace tiffin::suite {

// Functions throw std::runtime_error, with the reason, when the volume does not do what it must. One
// thread.
class CoreVolume {
  public:
    // Makes a file system on a fresh device of this size, and mounts it.
    explicit CoreVolume(uint64_t size_bytes);
    ~CoreVolume();
    CoreVolume(const CoreVolume&) = delete;
    CoreVolume& operator=(const CoreVolume&) = delete;

    vfs::FileSystem& file_system() { return *file_system_; }

    // Ends the mount in order; check() may follow, then mount().
    void unmount();
    // Ends the mount as a power failure would: what was not flushed is lost, or a part of it, as
    // `outcome` and `seed` say.
    void crash(test::CrashOutcome outcome, uint64_t seed);
    // Ends a mount that has been shut down; what unmount() answers does not matter.
    void abandon();
    void mount();
    // What the checker finds wrong on the unmounted device, empty when all is well. After a crash,
    // a journal that waits for replay is no finding.
    std::string check();

  private:
    std::unique_ptr<test::CrashDevice> device_;
    vfs::FileSystem* file_system_ = nullptr;
};

}  // namespace tiffin::suite
