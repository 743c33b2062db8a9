// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A file system mounted through FUSE: translates the kernel's requests to vfs::FileSystem and back.
//
//     auto session = Session::mount(file_system, options);
//     ... session->run() returns when it has been unmounted; then file_system.unmount() ...
//
// What the kernel may cache it caches: everything changes through this one mount, so names,
// attributes, directories and data stay valid until the kernel itself changes them, and data is
// written back when the kernel sees fit. Permissions are checked by the kernel
// (default_permissions).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fs/vfs/file_system.h"
#include "fs/vfs/host.h"
#include "fuse/host/problem.h"
#include "fuse/host/processor_latency.h"
#include "fuse/host/wake_cost.h"
#include "fuse/session/dirty_limit.h"
#include "fuse/session/own_mounts.h"
#include "fuse/session/page_flusher.h"
#include "fuse/session/refused_pages.h"
#include "fuse/session/request_loop.h"
#include "fuse/session/statistics.h"
#include "fuse/session/tuning.h"

struct fuse_conn_info;
struct fuse_session;

namespace tiffin::fuse {

struct SessionOptions {
    // Absolute, an existing directory.
    std::string mount_point;
    // What /proc/mounts shows as the device.
    std::string source;
    // Further mount options for the kernel, such as "ro" and "nosuid".
    std::vector<std::string> mount_options;
    // Upper bound of threads that serve requests; they are started as they are needed.
    uint32_t max_threads = kDefaultMaxThreads;
    // How long a thread that has answered a request asks for the next before it sleeps; 0: not at all.
    uint32_t busy_poll_us = kLeastDefaultBusyPollUs;
    // While requests come, idle processors wake up within this time (kNoProcessorLatencyUs: nothing is asked of the
    // kernel); absent: default_processor_latency_us(), if busy_poll_us is not 0.
    std::optional<uint32_t> cpu_latency_us;
    // Ask for FUSE-over-io_uring; without it where the kernel or libfuse lacks it.
    bool io_uring = false;
    // Each change of a directory is durable before it is answered (-o dirsync).
    bool directory_sync = false;
    // Immutable and append-only files refuse writers when they are opened, which costs a message for
    // each open file. Otherwise immutable ones refuse the data, which the writer learns at fsync or
    // close, and append-only ones only truncation and direct I/O. Opening for reading also moves the
    // access time, which otherwise reads from the kernel's cache do not.
    bool strict_flags = false;
    // The kernel keeps no data that the file system has not: a write learns at once that the volume is
    // full, the file system alone decides times, and changes of names do not send them. But each write()
    // is a request.
    bool write_through = false;
    // The kernel keeps the entries of directories that it has listed, and neither opens nor releases directories. Its
    // cache (fs/fuse/readdir.c up to Linux 6.18) is filled by one reader over several calls; another one that is in the
    // middle of the directory then goes on in it, although it may be older than what that one has begun with, and
    // misses entries. So it is for trees that do not change while they are listed.
    bool cache_directories = false;
    // Lines "key: value" for the status, before those of the session.
    std::string facts;
    // More such lines, asked for each time; from any thread of the session. May be empty.
    std::function<std::string()> more_facts;
    // Adds or removes a link to the server of the device; from any thread of the session. May be empty.
    std::function<Result<void>(bool adds, const std::string& host, uint16_t port)> change_link;
    // Of a device that may be lost for good: has a function called when it is, from any thread; an empty one takes that
    // back, and waits for a call under way.
    std::function<void(std::function<void()> tell)> on_device_failure;
    // Called once, from a thread of the session, as soon as the kernel talks to it.
    std::function<void()> on_ready;
};

class Session {
  public:
    // Mounts. `file_system` must outlive the session. The kernel's and fusermount3's complaints
    // become the problem's text.
    static OrProblem<std::unique_ptr<Session>> mount(vfs::FileSystem& file_system,
                                                     SessionOptions options);
    // Unmounts (lazily) what is still mounted of it, and nothing else.
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    // Serves requests until the mount point is unmounted or stop() is called. Call once.
    std::optional<Problem> run();

    // Waits until the session has answered what the kernel had taken from programs and queued for it; at most a minute. False
    // when that was not enough, the kernel's queue cannot be seen (io_uring), or the calling thread serves.
    bool settle();

    // Makes run() return soon, from any other thread. Requests that were not answered by then fail,
    // and data that only the kernel has is lost: unmount first where possible.
    void stop();

    // Where it is mounted by now; for threads that answer no requests.
    const OwnMounts& mounts() const { return mounts_; }

    const Statistics& statistics() const { return statistics_; }
    // Requests received and not yet answered; absent with io_uring.
    std::optional<uint32_t> requests_under_way() const { return loop_->under_way(); }
    // Lines "key: value": the host's part of the status.
    std::string status() const;

    // ---- For the operations (operations_*.cc), in the session's threads ----------------------

    vfs::FileSystem& file_system() { return file_system_; }
    // The device to read from directly; nullptr when the file system has none.
    vfs::BlockDevice* device() { return device_; }
    Statistics& statistics() { return statistics_; }
    const SessionOptions& options() const { return options_; }
    // Who has mounted it may use the commands for administrators.
    bool is_owner(uint32_t user_id) const { return user_id == owner_; }

    // Learned when the kernel introduced itself.
    bool kernel_skips_open() const { return skips_open_ && !options_.strict_flags; }
    bool kernel_skips_open_directory() const { return skips_open_directory_; }
    // Learned from the file system: it keeps no state per open file.
    bool opens_are_stateless() const { return stateless_opens_.load(std::memory_order_relaxed); }
    void set_opens_are_stateless() { stateless_opens_.store(true, std::memory_order_relaxed); }

    // Whether the session has to keep writers from immutable files itself. The kernel cannot tell
    // them at open() without asking, nor when a file that is open gets the flag, but caches what they write; the file
    // system takes cached data, which may be older than the flag.
    void note_flags(uint32_t flags) {
        if ((flags & vfs::file_flag::immutable) != 0) [[unlikely]] {
            immutable_files_seen_.store(true, std::memory_order_relaxed);
        }
    }
    bool guards_immutable_files() const {
        return immutable_files_seen_.load(std::memory_order_relaxed);
    }

    PageFlusher& page_flusher() { return page_flusher_; }
    // Requests that wait for what the kernel writes. With io_uring each keeps a place that the writes may need: of the eight that
    // libfuse has for a processor, some have to stay.
    bool may_wait_for_pages() {
        constexpr uint32_t kMostWaiting = 4;
        if (waiting_for_pages_.fetch_add(1) < kMostWaiting || !options_.io_uring) {
            return true;
        }
        waiting_for_pages_.fetch_sub(1);
        return false;
    }
    void has_waited_for_pages() { waiting_for_pages_.fetch_sub(1); }
    // Whether the kernel keeps a page for one that is being written until that has been answered: from Linux 6.16 on.
    bool knows_what_is_written() const { return protocol_minor_ >= 44; }
    // Whether the kernel asks for attributes by a file's handle before write() and for nothing else (RefusedPages): with
    // write-back, from Linux 5.16 on.
    bool asks_before_writes() const { return !options_.write_through && protocol_minor_ >= 35; }
    // Whether close() writes back although FLUSH is not asked for: from Linux 5.8 on (7.31, as before; 7.32 is 5.10).
    bool writes_back_at_close() const { return protocol_minor_ >= 32; }
    // Whether the kernel has begun to ask.
    bool is_in_use() const { return initialised_; }
    DirtyLimit& dirty_limit() { return dirty_limit_; }
    // The kernel's settings for this mount are those that every mount gets.
    void mount_is_tuned() { dirty_limit_.begin(file_system_); }
    RefusedPages& refused_pages() { return refused_pages_; }
    // The file system's, for commands that come side by side.
    Result<void> remount(bool read_only);
    // Lets the kernel forget what it knows of a node's attributes (not of its content).
    void forget_attributes(vfs::NodeId node);

    // The file system's, and the root's also when the device is lost: so that the mount point can be opened, for the status.
    Result<vfs::Attributes> get_attributes(vfs::NodeId node);
    // How long the kernel may take it that a name is missing there.
    double missing_name_seconds(vfs::NodeId parent) const;

    // The kernel's first message: agrees on capabilities.
    void initialise(fuse_conn_info& connection);

  private:
    Session(vfs::FileSystem& file_system, SessionOptions options);
    std::optional<Problem> attach();
    void start_latency();
    uint64_t request_count(bool by_loop) const;
    void leave();
    void lose_device();

    vfs::FileSystem& file_system_;
    vfs::BlockDevice* device_;
    SessionOptions options_;
    uint32_t owner_;
    uint64_t start_ns_;
    Statistics statistics_;
    PageFlusher page_flusher_;
    std::atomic<uint32_t> waiting_for_pages_{0};
    DirtyLimit dirty_limit_;
    RefusedPages refused_pages_;
    host::Mutex remount_lock_{host::LockClass::session};

    struct fuse_session* session_ = nullptr;
    bool attached_ = false;
    OwnMounts mounts_;
    std::unique_ptr<RequestLoop> loop_;
    ProcessorLatency latency_;

    // Written by initialise() before any other request can arrive.
    bool skips_open_ = false;
    bool skips_open_directory_ = false;
    std::atomic<uint32_t> protocol_minor_{0};  // before INIT
    std::string features_;
    std::atomic<bool> initialised_{false};

    std::atomic<bool> device_is_lost_{false};
    vfs::Attributes root_;  // since then

    std::atomic<bool> stateless_opens_{false};
    // The kernel learns of a node before it writes to it, so none can have been missed.
    std::atomic<bool> immutable_files_seen_{false};
};

}  // namespace tiffin::fuse
