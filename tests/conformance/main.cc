// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Makes all trials below an empty directory and prints a line for each.
//
//     conformance DIRECTORY [GROUP]...
//
// Runs as root, since callers of all kinds take part. Exit status: 0 when all trials were made, whatever
// came of them; 2 when they could not be prepared.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

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
};

bool wanted(const Group& group, int count, char** arguments) {
    for (int i = 2; i < count; ++i) {
        if (std::strcmp(group.name, arguments[i]) == 0) {
            return true;
        }
    }
    return count <= 2;
}

int main_of(int count, char** arguments) {
    if (count < 2) {
        std::fprintf(stderr, "usage: conformance DIRECTORY [GROUP]...\n");
        return 2;
    }
    if (::geteuid() != 0) {
        broken("callers of all kinds take part: run it as root");
    }
    if (::chdir(arguments[1]) < 0) {
        broken(std::string(arguments[1]) + ": " + std::strerror(errno));
    }
    bool good = true;
    bool any = false;
    for (const Group& group : kGroups) {
        if (wanted(group, count, arguments)) {
            Trials trials;
            group.add(trials);
            good = run_trials(group.name, trials) && good;
            any = true;
        }
    }
    return good && any ? 0 : 2;
}

}  // namespace
}  // namespace tiffin::conformance

int main(int count, char** arguments) { return tiffin::conformance::main_of(count, arguments); }
