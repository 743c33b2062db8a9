// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What the server remembers of a volume for good: one small file of text in the state directory, replaced as a
// whole (write, fsync, rename, fsync of the folder), with a checksum. It holds the volume's key: mode 600.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fs/vfs/result.h"
#include "rdma_blk/server/unique_descriptor.h"
#include "rdma_blk/session/handshake.h"

namespace tiffin::rdma_blk {

struct VolumeState {
    std::string name;
    unsigned char uuid[16] = {};
    Secret<kVolumeKeyBytes> key;
    uint64_t data_bytes = 0;
    uint64_t words_bytes = 0;
    std::string backing;  // a file or disk; empty: memory only
    // The last one granted. In the file before anybody gets it.
    uint64_t epoch = 0;
    // The client that it was granted to; zeros: none, or the file is of a version that did not keep it. With it, a writer the
    // grant's answer to which was lost with this server gets the same epoch again.
    unsigned char epoch_owner[16] = {};
    uint64_t content_incarnation = 1;
    uint64_t empty_since_incarnation = 1;
    // The server has stopped after it had flushed all, and no lease was granted since: a start finds in the backing what
    // was in the memory.
    bool is_flushed = false;
    // The first kDurableWordsBytes of the words, as last flushed; empty: nothing was, all are zero. Only with a
    // backing: without one they go with the memory.
    std::vector<unsigned char> words;
    // False: the file is of a version that did not keep them, and they were not flushed since.
    bool words_are_known = true;
};

// 1 to 63 of a-z A-Z 0-9 . _ -, not beginning with a dot (it is a file's name).
bool is_volume_name(const std::string& name);

// The files of one folder. Any threads; a volume's file is written by one at a time.
class StateDirectory {
  public:
    explicit StateDirectory(std::string path) : path_(std::move(path)) {}

    const std::string& path() const { return path_; }
    // Whether a file of that name is one of those that are made, replaced and removed here, so that nobody else may have it.
    bool has_for_itself(const std::string& path) const;
    // Makes the folder (mode 700) when it is not there. Errors: those of the system.
    Result<void> prepare() const;
    // Removes what an interrupted save() left. With the lock only: another process may be in the middle of one.
    Result<void> remove_leftovers() const;
    // Held by one process at a time, while the result is open. Errors: ebusy.
    Result<UniqueDescriptor> lock() const;
    // Names of the volumes that have a file.
    Result<std::vector<std::string>> list() const;
    // The file of a volume, which has its key, if its rights and those of the folder let others read it; else empty.
    std::string readable_by_others(const std::string& name) const;
    // Errors: enoent, euclean (damaged).
    Result<VolumeState> load(const std::string& name) const;
    // Durable when it returns. After an error the old state or the new one is there.
    Result<void> save(const VolumeState& state) const;
    // Durable as well. Errors: enoent.
    Result<void> remove(const std::string& name) const;

    // The UUID of this server, made at the first start.
    Result<void> server_uuid(unsigned char uuid[16]) const;

  private:
    Result<void> replace(const std::string& file, const std::string& content) const;
    Result<void> sync_folder() const;

    std::string path_;
};

}  // namespace tiffin::rdma_blk
