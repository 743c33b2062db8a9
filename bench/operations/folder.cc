// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "bench/operations/folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace tiffin::bench {

std::string g_folder;

Folder::Folder() : path_(g_folder + "/benchmark-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) {
        fail("mkdtemp");
    }
}

Folder::~Folder() {
    // What was measured stays true when a file system under test fails here, but it is said.
    std::error_code error;
    std::filesystem::remove_all(path_, error);
    if (error) {
        std::fprintf(stderr, "cannot remove %s: %s\n", path_.c_str(), error.message().c_str());
    }
}

std::vector<std::string> Folder::names(int count) const {
    std::vector<std::string> all;
    for (int i = 0; i < count; ++i) {
        all.push_back(name(i));
    }
    return all;
}

void make_file(const std::string& name, size_t size_bytes) {
    const int file = MUST_CALL(open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644));
    const std::vector<char> data(size_bytes < kLargeBytes ? size_bytes : kLargeBytes, 'x');
    for (size_t done = 0; done < size_bytes; done += data.size()) {
        MUST_CALL(write(file, data.data(), data.size()));
    }
    MUST_CALL(close(file));
}

void drop_caches() {
    sync();
    const int file = MUST_CALL(open("/proc/sys/vm/drop_caches", O_WRONLY));
    MUST_CALL(write(file, "3", 1));
    MUST_CALL(close(file));
}

}  // namespace tiffin::bench
