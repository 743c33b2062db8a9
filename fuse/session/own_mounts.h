// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The places where a session's own file system is mounted. A path does not tell: another program may have
// unmounted the file system, and mounted another one there since. Its device number does, as long as
// the kernel keeps the connection.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fuse/session/mount_point.h"

namespace tiffin::fuse {

// The number of the file system at `path`, as in /proc/self/mountinfo; empty when it cannot be found
// out. Asks the kernel only, never the file system.
std::string device_number_at(const std::string& path);
// The same of an open file.
std::string device_number_of(int file);

class OwnMounts {
  public:
    enum class Outcome : uint8_t {
        unmounted,  // everywhere: all data is written back; others may still hold it elsewhere
        nowhere,    // another program was first, or only other name spaces have it
        covered,    // another file system is mounted over it
        in_use,     // by files or mounts below it, in at least one place
    };

    // Call right after mounting. `connection` is the session's descriptor of /dev/fuse.
    void remember(int connection, const std::string& mount_point);

    // As in /proc/self/mountinfo.
    const std::string& own_device_number() const { return device_number_; }

    // Whether the kernel still talks to the session: as long as it does, the number is the session's.
    bool is_connected() const;

    // As umount(8) would, wherever it is mounted.
    Outcome unmount() const;
    // Writes cached data back and waits for it; not from a thread that answers requests. Returns 0
    // or an errno value.
    int sync() const;
    // Takes all mounts out of the tree, by detaching or aborting. Only while it is connected, or at
    // once after that has been closed: later the number may be another's.
    void detach(UnmountMode mode) const;

  private:
    struct Places {
        std::vector<std::string> visible;  // the last mounted first
        bool some_covered = false;
    };
    Places find() const;

    int connection_ = -1;
    std::string device_number_;
};

}  // namespace tiffin::fuse
