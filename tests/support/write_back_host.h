// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A host with a page cache, as the kernel's for FUSE with write-back: write() always succeeds and is late,
// pages are written back in any order and once only, short answers go unnoticed, and what failed is told
// by the next fsync. For tests of what a file system owes such a host.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <string_view>

#include "fs/vfs/file_system.h"
#include "fs/vfs/result.h"

namespace tiffin::test {

// One thread. The file system must outlive it.
class WriteBackHost {
  public:
    WriteBackHost(vfs::FileSystem& file_system, uint64_t seed)
        : file_system_(file_system), random_(seed) {}

    // Caches `data`; all that the file holds was written through this host.
    void write(vfs::NodeId node, uint64_t offset_bytes, std::string_view data);
    // Writes back at most `requests` requests of one file, of up to 256 neighbouring dirty pages each.
    void write_back(vfs::NodeId node, uint32_t requests = UINT32_MAX);
    // Writes everything back, and tells once what has failed since the last call.
    Result<void> fsync(vfs::NodeId node);
    // Drops the file, its dirty pages too.
    void drop(vfs::NodeId node) { files_.erase(node); }

    // What programs see.
    const std::string& content(vfs::NodeId node) { return files_[node].content; }
    uint64_t short_answers() const { return short_answers_; }
    uint64_t failed_requests() const { return failed_requests_; }

  private:
    struct File {
        std::string content;
        std::set<uint64_t> dirty_pages;
        Result<void> failure;
    };
    void send(vfs::NodeId node, File& file, uint64_t first_page, uint64_t end_page);

    vfs::FileSystem& file_system_;
    std::mt19937_64 random_;
    std::map<vfs::NodeId, File> files_;
    uint64_t short_answers_ = 0;
    uint64_t failed_requests_ = 0;
};

}  // namespace tiffin::test
