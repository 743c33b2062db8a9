// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What the kernel tells in /proc and /sys, as text.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace tiffin::fuse {

// Empty where there is no such file.
std::string first_line(const std::string& path);

// Of "MAJOR:MINOR", as the kernel writes it there; 0: the text is something else.
dev_t device_number_in(const std::string& text);

// A lock of flock(2). Waiting processes are not listed.
struct FileLock {
    pid_t process = 0;  // not above 0: of another process namespace
    bool is_exclusive = false;
};
std::vector<FileLock> file_locks(dev_t device, ino_t inode);

}  // namespace tiffin::fuse
