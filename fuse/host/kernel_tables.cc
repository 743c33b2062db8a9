// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/kernel_tables.h"

#include <sys/sysmacros.h>

#include <cstdio>
#include <fstream>
#include <sstream>

namespace tiffin::fuse {

std::string first_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

dev_t device_number_in(const std::string& text) {
    unsigned major_number = 0;
    unsigned minor_number = 0;
    return sscanf(text.c_str(), "%u:%u", &major_number, &minor_number) == 2
               ? makedev(major_number, minor_number)
               : 0;
}

// NUMBER: FLOCK ADVISORY WRITE PROCESS MAJOR:MINOR:INODE START END
std::vector<FileLock> file_locks(dev_t device, ino_t inode) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, "%02x:%02x:%llu", major(device), minor(device),
             static_cast<unsigned long long>(inode));
    std::vector<FileLock> locks;
    std::ifstream table("/proc/locks");
    for (std::string line; std::getline(table, line);) {
        std::istringstream fields(line);
        std::string number;
        std::string kind;
        std::string skipped;
        std::string mode;
        std::string file;
        pid_t process = 0;
        // "->" before the kind: a process that waits for the lock.
        if (fields >> number >> kind >> skipped >> mode >> process >> file && kind == "FLOCK" &&
            file == wanted) {
            locks.push_back({process, mode == "WRITE"});
        }
    }
    return locks;
}

}  // namespace tiffin::fuse
