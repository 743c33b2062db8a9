// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The driver's settings, as KEY=VALUE (filebench_load.cc says which), and what all its parts need.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>

#include "bench/must_call.h"

namespace tiffin::bench {

using Random = std::mt19937_64;

[[noreturn]] inline void refuse(const std::string& problem) {
    std::fprintf(stderr, "filebench_load: %s\n", problem.c_str());
    std::exit(2);
}

struct Settings {
    std::map<std::string, std::string> values{{"files", "1"},
                                              {"width", "1000000"},
                                              {"mean_bytes", "16384"},
                                              {"gamma", "0"},
                                              {"present", "100"},
                                              {"threads", "1"},
                                              {"io_bytes", "1048576"},
                                              {"append_bytes", "16384"},
                                              {"loops", "0"},
                                              {"seconds", "1"},
                                              {"flow", ""}};

    uint64_t number(const char* key) const {
        return std::strtoull(values.at(key).c_str(), nullptr, 10);
    }
};

inline void sync_file_system(const std::string& folder) {
    const int directory = MUST_CALL(open(folder.c_str(), O_RDONLY | O_DIRECTORY));
    MUST_CALL(syncfs(directory));
    MUST_CALL(close(directory));
}

}  // namespace tiffin::bench
