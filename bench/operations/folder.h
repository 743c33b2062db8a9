// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A folder of the file system that is measured, and what its measurements share.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/must_call.h"

namespace tiffin::bench {

constexpr size_t kBlockBytes = 4096;
constexpr size_t kLargeBytes = 1U << 20;

// Where all folders are made.
extern std::string g_folder;

// An empty folder, and names in it. It goes away with all that is in it.
class Folder {
  public:
    Folder();
    ~Folder();
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;

    std::string name(int number) const { return path_ + "/name-" + std::to_string(number); }
    // Names for all iterations, so that making them is not measured.
    std::vector<std::string> names(int count) const;
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

void make_file(const std::string& name, size_t size_bytes = 0);

// What is used next comes from the device, or from the file system's own memory. Needs root.
void drop_caches();

}  // namespace tiffin::bench
