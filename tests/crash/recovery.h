// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What every test of power failures does with what is left of a volume.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "tests/support/crash_device.h"
#include "tests/support/test_volume.h"

namespace tiffin::test {

inline constexpr uint64_t kCrashDeviceBytes = 16U << 20;

// A kind of device.
struct Unit {
    uint32_t write_unit_bytes;
    bool volatile_cache;

    vfs::DeviceGeometry geometry() const {
        vfs::DeviceGeometry geometry;
        geometry.size_bytes = kCrashDeviceBytes;
        geometry.write_unit_bytes = write_unit_bytes;
        geometry.volatile_cache = volatile_cache;
        geometry.supports_discard = true;
        return geometry;
    }
    std::string name() const {
        return std::to_string(write_unit_bytes) + "Bytes" +
               (volatile_cache ? "Volatile" : "Durable");
    }
    friend void PrintTo(const Unit& unit, std::ostream* out) { *out << unit.name(); }
};

// What power failures have left, to prove that the rare cases were among them.
struct Met {
    uint64_t journals = 0;
    uint64_t orphans = 0;
    uint64_t intents = 0;
};

// Mounts the device, has `judge` look at all that is visible, unmounts, and has the checker look. Empty
// when all is well, else what is wrong.
std::string recover(CrashDevice& device,
                    const std::function<std::string(const SeenTree& seen)>& judge);

// The same, after the checker has looked at what the power failure left; `met` may be nullptr.
std::string check_and_recover(CrashDevice& device,
                              const std::function<std::string(const SeenTree& seen)>& judge,
                              Met* met);

}  // namespace tiffin::test
