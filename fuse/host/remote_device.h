// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffin://...: opening a volume in the memory of other machines.
#pragma once

#include <memory>
#include <string>

#include "fuse/host/problem.h"
#include "fuse/host/remote_address.h"
#include "rdma_blk/volume/remote_block_device.h"

namespace tiffin::fuse {

struct RemoteOpenMode {
    bool read_only = false;
    bool force = false;       // take it over, fencing the current writer
    uint16_t slot_count = 0;  // operations in flight, of open_remote_session(); 0: the default
};

// Reads the key, and opens sessions with all servers. Starts threads: fork() before it. When a program
// of this machine that mounts has the volume and is not mounted any more, waits some seconds for its end.
OrProblem<std::unique_ptr<rdma_blk::RemoteBlockDevice>> open_remote_device(
    const RemoteVolumeAddress& address, const RemoteOpenMode& mode);

// A session with the first server of a volume, for programs that use its memory without a device. The
// caller calls close().
OrProblem<std::unique_ptr<rdma_blk::RemoteMemory>> open_remote_session(
    const RemoteVolumeAddress& address, const RemoteOpenMode& mode);

// Why a remote volume holds nothing, for the end of a message; nullptr where that is not known.
const char* lost_content_reason(const vfs::BlockDevice& device);

// Lines "key: value" about a device's servers for `tiffin status`.
std::string describe_remote_device(const rdma_blk::RemoteBlockDevice& device);

}  // namespace tiffin::fuse
