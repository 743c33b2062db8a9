// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The metrics of a mount (-o metrics=). Nothing is counted for them that is not counted anyway: when asked for, they
// are collected from the session's statistics, from what the file system and the device say of themselves, and from
// the log.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "fs/vfs/block_device.h"
#include "fs/vfs/file_system.h"
#include "fs/vfs/host.h"
#include "fuse/host/problem.h"
#include "fuse/session/daemon.h"
#include "fuse/session/session.h"
#include "rdma_blk/metrics/families.h"
#include "rdma_blk/metrics/http_endpoint.h"

namespace tiffin::fuse {

class MountMetrics {
  public:
    // What a mount is called. Bytes that are not UTF-8 are replaced.
    struct Names {
        std::string device;
        std::string mount_point;
        std::string file_system;
    };
    // What is asked, while it is attached. No device: nullptr.
    struct Sources {
        const Session* session;
        vfs::FileSystem* file_system;
        const vfs::BlockDevice* device;
    };

    // The log outlives it.
    MountMetrics(const Names& names, const RememberingLogSink& log);
    MountMetrics(const MountMetrics&) = delete;
    MountMetrics& operator=(const MountMetrics&) = delete;

    // Serves them at /metrics until the end. Waits some seconds for an address that is in use.
    std::optional<Problem> listen(const std::string& address);

    // Sources may be asked from the construction to the end of one of these; it waits for readers that are asking.
    class Attachment {
      public:
        Attachment(MountMetrics& metrics, const Sources& sources);
        ~Attachment();
        Attachment(const Attachment&) = delete;
        Attachment& operator=(const Attachment&) = delete;

      private:
        MountMetrics& metrics_;
    };

    // In Prometheus' text format. Any thread.
    std::string text() EXCLUDES(mutex_);

  private:
    void collect_log(metrics::Families& families) const;

    const Names names_;
    const RememberingLogSink& log_;
    const int64_t start_ns_;
    host::Mutex mutex_{host::LockClass::session};
    std::optional<Sources> sources_ GUARDED_BY(mutex_);
    std::unique_ptr<metrics::HttpEndpoint> endpoint_;  // last: its threads use the rest
};

}  // namespace tiffin::fuse
