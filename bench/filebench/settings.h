// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The driver's settings, as KEY=VALUE (filebench_load.cc says which), and what all its parts need.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
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

// The uppermost folder of the file system that `folder` lies in.
inline std::string root_of(const std::string& folder) {
    const auto device = [](const std::filesystem::path& path) {
        struct stat status;
        MUST_CALL(stat(path.c_str(), &status));
        return status.st_dev;
    };
    std::filesystem::path root = std::filesystem::canonical(folder);
    while (root.has_relative_path() && device(root.parent_path()) == device(root)) {
        root = root.parent_path();
    }
    return root.string();
}

// Makes all durable that was done with files that are closed by now. On FUSE syncfs() only sends what the kernel has
// cached, and fsync() of the root commits it (docs/fuse.md); for the kernel's file systems nothing is left to do then.
inline void sync_file_system(const std::string& folder) {
    const int root = MUST_CALL(open(root_of(folder).c_str(), O_RDONLY | O_DIRECTORY));
    MUST_CALL(syncfs(root));
    MUST_CALL(fsync(root));
    MUST_CALL(close(root));
}

}  // namespace tiffin::bench
