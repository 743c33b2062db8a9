// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Makes all trials below an empty directory and prints a line for each.
//
//     conformance [--read-only COMMAND] DIRECTORY [GROUP]...
//
// COMMAND is the shell's and makes the file system read-only, for the last group, when all of that group is
// prepared. Without it that group is left out.
//
// Runs as root, since callers of all kinds take part, and in a mount namespace of its own: what trials mount is
// nobody else's, and goes away with the program, however it ends. Exit status: 0 when all trials were made, whatever
// came of them; 2 when they could not be prepared.
#include <mntent.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/conformance/groups.h"

namespace tiffin::conformance {
namespace {

struct Group {
    const char* name;
    void (*add)(Trials& trials);
};
constexpr Group kGroups[] = {
    {"path", add_path_trials},
    {"pair", add_pair_trials},
    {"descriptor", add_descriptor_trials},
    {"access", add_access_trials},
    {"sticky", add_sticky_trials},
    {"owner", add_owner_trials},
    {"time", add_time_trials},
    {"data", add_data_trials},
    {"xattr", add_xattr_trials},
    {"directory", add_directory_trials},
    {"use", add_use_trials},
    {"mapping", add_mapping_trials},
    {"flag", add_flag_trials},
    {"limit", add_limit_trials},
    {"mount", add_mount_trials},
};
constexpr Group kReadOnly = {"read-only", add_read_only_trials};

// Whether the group is among the names; no names are all groups.
bool wanted(const Group& group, int count, char** names) {
    for (int i = 0; i < count; ++i) {
        if (std::strcmp(group.name, names[i]) == 0) {
            return true;
        }
    }
    return count == 0;
}

bool run_group(const Group& group, const std::function<void()>& between) {
    Trials trials;
    group.add(trials);
    return run_trials(group.name, trials, between);
}

// A mount that is in two namespaces goes away when both have let go of it, and its server ends only then: whoever
// unmounts a FUSE file system meanwhile must not wait for the end of all trials. So those of others are let go at once.
void let_go_of_others(const std::string& directory) {
    FILE* mounts = ::setmntent("/proc/self/mounts", "r");
    if (mounts == nullptr) {
        broken(std::string("/proc/self/mounts: ") + std::strerror(errno));
    }
    std::vector<std::string> others;
    while (const mntent* mount = ::getmntent(mounts)) {
        const std::string place = mount->mnt_dir;
        const bool leads_there = (directory + "/").compare(0, place.size() + 1, place + "/") == 0;
        if (std::strncmp(mount->mnt_type, "fuse", 4) == 0 && !leads_there) {
            others.push_back(place);
        }
    }
    ::endmntent(mounts);
    for (const std::string& place : others) {
        (void)::umount2(place.c_str(), MNT_DETACH);  // it may have gone already
    }
}

void own_mounts(const char* directory) {
    char place[PATH_MAX];
    if (::unshare(CLONE_NEWNS) < 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) < 0) {
        broken(std::string("no mount namespace of its own: ") + std::strerror(errno));
    }
    if (::realpath(directory, place) == nullptr) {
        broken(std::string(directory) + ": " + std::strerror(errno));
    }
    let_go_of_others(place);
}

int main_of(int count, char** arguments) {
    const bool read_only = count >= 3 && std::strcmp(arguments[1], "--read-only") == 0;
    const int first = read_only ? 3 : 1;
    if (count <= first) {
        std::fprintf(stderr, "usage: conformance [--read-only COMMAND] DIRECTORY [GROUP]...\n");
        return 2;
    }
    if (::geteuid() != 0) {
        broken("callers of all kinds take part: run it as root");
    }
    own_mounts(arguments[first]);
    if (::chdir(arguments[first]) < 0) {
        broken(std::string(arguments[first]) + ": " + std::strerror(errno));
    }
    const int name_count = count - first - 1;
    char** names = arguments + first + 1;
    bool good = true;
    bool any = false;
    for (const Group& group : kGroups) {
        if (wanted(group, name_count, names)) {
            good = run_group(group, nullptr) && good;
            any = true;
        }
    }
    if (read_only && wanted(kReadOnly, name_count, names)) {
        auto make_read_only = [&] {
            if (std::system(arguments[2]) != 0) {
                broken(std::string("failed: ") + arguments[2]);
            }
        };
        good = run_group(kReadOnly, make_read_only) && good;
        any = true;
    }
    return good && any ? 0 : 2;
}

}  // namespace
}  // namespace tiffin::conformance

int main(int count, char** arguments) { return tiffin::conformance::main_of(count, arguments); }
