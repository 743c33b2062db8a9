// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What is mounted where.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tiffin::fuse {

// A line of /proc/self/mountinfo.
struct MountEntry {
    uint64_t id = 0;            // of statx()
    std::string device_number;  // "MAJOR:MINOR"
    std::string root;  // which directory of the file system is seen there: "/" for all of it
    std::string mount_point;
    std::string options;  // of this mount, separated by commas: "rw,nosuid,noatime"
    std::string type;     // "fuse.tiffin", "ext4"...
    std::string source;
    std::string super_options;  // of the file system: "rw,sync,user_id=0"
};

// Whether it is a mount through FUSE, of any program: "fuse", or "fuse.NAME".
bool is_fuse(const MountEntry& entry);

// All mounts of this process's name space, in mount order; empty when /proc is not there.
std::vector<MountEntry> read_mounts();

// Where the file system is mounted to which `path` belongs, by its text: the path of a mount that has died cannot be
// resolved. The path itself when that is unknown.
std::string mount_point_above(const std::string& path);

}  // namespace tiffin::fuse
