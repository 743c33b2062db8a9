// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The command line of fsck.tiffin, which follows fsck(8).
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "fuse/host/problem.h"

namespace tiffin::fuse {

enum class RepairMode : uint8_t {
    ask,   // each class of problems, on a terminal
    no,    // -n
    yes,   // -y
    safe,  // -p, -a: only repairs that cannot lose data
};

struct FsckOptions {
    RepairMode mode = RepairMode::ask;
    bool force = false;                      // -f: with -p, look at volumes that are marked clean
    bool verbose = false;                    // -v
    bool verify_data = false;                // --data
    bool show_progress = false;              // -C
    std::optional<int> progress_descriptor;  // -C fd: for programs
    uint64_t size_bytes = 0;                 // --size: of the volume; 0: as its superblocks say
    std::string device;
};

// Either the options, or the exit status with which the program has to end now.
std::variant<FsckOptions, int> parse_fsck_options(int argc, char** argv);

namespace fsck_status {
inline constexpr int clean = 0;
inline constexpr int corrected = 1;
inline constexpr int uncorrected = 4;
inline constexpr int operational_error = 8;
inline constexpr int usage_error = 16;
inline constexpr int cancelled = 32;
}  // namespace fsck_status

}  // namespace tiffin::fuse
