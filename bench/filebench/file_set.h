// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The files that a workload uses: which of them exist, and how many threads have each open.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bench/filebench/settings.h"

namespace tiffin::bench {

// Any number of threads may call what takes or gives a file.
class FileSet {
  public:
    struct File {
        std::string path;
        uint64_t size_bytes;
        int open_count;
    };

    // Makes the directories in `folder`, and chooses the sizes: the same ones each time.
    FileSet(std::string folder, const Settings& settings);

    // Makes the files that exist before, and syncs the file system.
    void make_files() const;

    const File& file(size_t index) const { return files_[index]; }
    std::string log_path() const { return folder_ + "/log"; }

    // One that does not exist. It exists, and is open, from created() on.
    std::optional<size_t> take_absent(Random& random);
    void created(size_t index);
    // One that exists; it is open until close().
    std::optional<size_t> open(Random& random);
    void close(size_t index);
    // One that nobody has open. It neither exists nor is absent until deleted().
    std::optional<size_t> take_closed(Random& random);
    void deleted(size_t index);

  private:
    std::string directory(size_t number) const { return folder_ + "/d" + std::to_string(number); }

    const std::string folder_;
    std::vector<File> files_;
    std::mutex lock_;
    std::vector<size_t> present_;
    std::vector<size_t> absent_;
};

}  // namespace tiffin::bench
