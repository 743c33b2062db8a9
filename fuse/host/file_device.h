// SPDX-License-Identifier: MIT OR GPL-2.0-only
// file:PATH, a block device in an image file or on a disk.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>

#include "fs/vfs/block_device.h"
#include "fs/vfs/host.h"
#include "fuse/host/device_file.h"
#include "fuse/host/problem.h"
#include "fuse/host/worker_pool.h"

namespace tiffin::fuse {

// A regular file or a block device, accessed through the page cache of the system.
//
// Exclusive: while it is open for writing, it cannot be opened again with this class, in this process
// or another (flock; block devices also with O_EXCL, which keeps mounts and other writers away).
// Opened read-only, it shares with other readers and excludes writers. The lock belongs to the open
// file: it survives fork() and ends with the last process that has it.
//
// The write unit of a regular file is 512 bytes: the file system below writes back whole pages, but
// a power failure may tear a page between the sectors of the disk, and 512 bytes is the sector that
// every disk writes whole. Block devices say what they write whole (the physical block size, up to
// 4096, if the device is aligned to it, else the logical one).
//
// A flush that failed may have lost data that the system then reports as clean, and it tells one of several
// callers only; so flushes come one at a time, and every one after it fails too, until the device is opened again.
//
// All functions may be called from any threads at once. Synchronous calls work in the calling
// thread; the first submit() starts worker threads, so fork() before it.
class FileDevice final : public vfs::BlockDevice {
  public:
    struct Options {
        bool read_only = false;
        // When the file does not exist, create it with this size (sparse); 0 is an error then.
        uint64_t create_size_bytes = 0;
        // With read_only: see BlockDevice::start_writing(). Others may read until then.
        bool may_write_later = false;
    };

    static OrProblem<std::unique_ptr<FileDevice>> open(const std::string& path,
                                                       const Options& options);
    // All requests must have completed.
    ~FileDevice() override;
    FileDevice(const FileDevice&) = delete;
    FileDevice& operator=(const FileDevice&) = delete;

    const std::string& path() const { return path_; }
    // Whether open() has made the file.
    bool created() const { return file_.created(); }

    const vfs::DeviceGeometry& geometry() const override {
        return *geometry_.load(std::memory_order_acquire);
    }
    Result<uint64_t> update_size() override;
    Result<void> start_writing() override;
    void submit(vfs::IoRequest& request) override;
    using vfs::BlockDevice::read;
    using vfs::BlockDevice::write;
    Result<void> read(uint64_t offset_bytes, const vfs::IoVector* buffers,
                      size_t buffer_count) override;
    Result<void> write(uint64_t offset_bytes, const vfs::IoVector* buffers,
                       size_t buffer_count) override;
    Result<void> flush() override EXCLUDES(flush_mutex_);
    Result<void> discard(uint64_t offset_bytes, uint64_t length_bytes) override;

  private:
    FileDevice(std::string path, DeviceFile file);

    // Tells the log what the system said; the contract has only one word for all of it.
    Error failed(const char* what, uint64_t offset_bytes, int error_number);

    std::string path_;
    DeviceFile file_;
    // The newest of those below, all of which threads may still be reading.
    std::atomic<const vfs::DeviceGeometry*> geometry_;
    std::deque<vfs::DeviceGeometry> geometries_;
    host::Mutex flush_mutex_{host::LockClass::leaf};
    bool flush_failed_ GUARDED_BY(flush_mutex_) = false;
    std::atomic<uint32_t> logged_errors_{0};
    WorkerPool workers_;
};

}  // namespace tiffin::fuse
