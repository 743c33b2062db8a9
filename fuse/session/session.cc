// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/session/session.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "fs/vfs/host.h"
#include "fuse/session/libfuse.h"
#include "fuse/session/libfuse_log.h"
#include "fuse/session/mount_point.h"
#include "fuse/session/operations.h"
#include "fuse/session/options.h"
#include "fuse/session/version.h"

namespace tiffin::fuse {
namespace {

// By then the kernel has taken an answer.
constexpr auto kAnswerTaken = std::chrono::seconds(1);
// A device may be slow, and programs may go on writing.
constexpr auto kSettleTime = std::chrono::seconds(60);

// Mount options are separated by commas; libfuse takes a backslash before a comma as "part of it".
std::string escaped(const std::string& text) {
    std::string result;
    for (char c : text) {
        if (c == ',' || c == '\\') {
            result += '\\';
        }
        result += c;
    }
    return result;
}

std::string option_text(const SessionOptions& options) {
    std::string text = "default_permissions,fsname=" + escaped(options.source);
    for (const std::string& option : options.mount_options) {
        text += "," + escaped(quoted_mount_option(option));
    }
#if TIFFIN_FUSE_HAS_IO_URING
    if (options.io_uring) {
        text += ",io_uring";
    }
#endif
    return text;
}

}  // namespace

Session::Session(vfs::FileSystem& file_system, SessionOptions options)
    : file_system_(file_system),
      device_(file_system.device()),
      options_(std::move(options)),
      owner_(geteuid()),
      start_ns_(host::monotonic_ns()) {}

OrProblem<std::unique_ptr<Session>> Session::mount(vfs::FileSystem& file_system,
                                                   SessionOptions options) {
    std::unique_ptr<Session> session(new Session(file_system, std::move(options)));
    if (std::optional<Problem> problem = session->attach()) {
        return *problem;
    }
    return session;
}

std::optional<Problem> Session::attach() {
    std::string text = option_text(options_);
    std::string program = "tiffin";
    std::string flag = "-o";
    char* arguments[] = {program.data(), flag.data(), text.data(), nullptr};
    fuse_args args = FUSE_ARGS_INIT(3, arguments);
    const fuse_lowlevel_ops operations = make_operations();

    CapturedMessages messages;
    session_ = fuse_session_new(&args, &operations, sizeof operations, this);
    fuse_opt_free_args(&args);
    if (session_ == nullptr) {
        return Problem{"libfuse refused the mount: " + messages.text("no reason given")};
    }
    // Not earlier: where a mount fails before, programs go on to meet errors, and not the directory below.
    if (std::optional<Problem> problem = take_dead_mounts_away(options_.mount_point)) {
        return problem;
    }
    if (fuse_session_mount(session_, options_.mount_point.c_str()) != 0) {
        std::string why = messages.text("is FUSE available? (modprobe fuse)");
        if (access("/dev/fuse", F_OK) == 0 && access("/dev/fuse", R_OK | W_OK) != 0) {
            why += "; root can permit it to all users (chmod 666 /dev/fuse)";
        }
        return Problem{"cannot mount on " + options_.mount_point + ": " + why};
    }
    attached_ = true;
    loop_ = std::make_unique<RequestLoop>(
        session_, RequestLoopOptions{options_.max_threads, options_.busy_poll_us, options_.io_uring,
                                     [this] { latency_.note_burst(); }});
    mounts_.remember(fuse_session_fd(session_), options_.mount_point);
    dirty_limit_.start(mounts_.own_device_number());
    start_latency();
    if (!page_flusher_.start(session_)) {
        return Problem{"cannot start a thread: raise the limit of processes", Error::eagain};
    }
    if (options_.on_device_failure) {
        options_.on_device_failure([this] { page_flusher_.run_next([this] { lose_device(); }); });
    }
    return std::nullopt;
}

// Loops that poll know when requests follow each other closely, and count them at once.
void Session::start_latency() {
    const bool is_noted = options_.busy_poll_us != 0 && !options_.io_uring;
    ProcessorLatency::Options options;
    options.is_default = !options_.cpu_latency_us;
    options.latency_us = options_.cpu_latency_us ? *options_.cpu_latency_us
                         : is_noted              ? default_processor_latency_us()
                                                 : kNoProcessorLatencyUs;
    options.bursts =
        is_noted ? ProcessorLatency::Bursts::noted : ProcessorLatency::Bursts::searched;
    latency_.start(options, [this, is_noted] { return request_count(is_noted); });
}

uint64_t Session::request_count(bool by_loop) const {
    if (by_loop) {
        const RequestLoop::Counters counters = loop_->counters();
        return counters.met_awake + counters.slept;
    }
    uint64_t requests = 0;
    for (size_t i = 0; i < kOperationCount; i++) {
        requests += statistics_.totals(static_cast<Operation>(i)).count;
    }
    return requests;
}

Session::~Session() {
    if (options_.on_device_failure) {
        options_.on_device_failure({});
    }
    latency_.stop();
    if (attached_) {
        leave();
    }
    page_flusher_.stop();
    if (session_ != nullptr) {
        fuse_session_destroy(session_);
    }
}

// Closes the connection and takes away what is mounted yet. In this order: a mount without users would
// be written back at once, and nothing answers any more.
void Session::leave() {
    bool is_mounted = mounts_.is_connected();
    // libfuse would unmount whatever the path shows, except when its descriptor tells that the
    // connection has ended; so does that of a pipe without a reader.
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) == 0) {
        close(ends[0]);
        dup2(ends[1], fuse_session_fd(session_));
        close(ends[1]);
        fuse_session_unmount(session_);
    }
    if (is_mounted) {
        mounts_.detach(UnmountMode::detach);
    }
}

std::optional<Problem> Session::run() {
    const int error = loop_->run();
    if (error != 0) {
        // Nothing answers the kernel any more: let it give up on what waits for us.
        if (mounts_.is_connected()) {
            mounts_.detach(UnmountMode::abort);
        }
        return Problem{"the session ended: " + system_error_text(error), Error::eio};
    }
    if (!initialised_.load()) {
        return Problem{"the kernel and libfuse did not agree; the log says why", Error::eio};
    }
    return std::nullopt;
}

Result<void> Session::remount(bool read_only) {
    MutexLock lock(remount_lock_);
    return file_system_.remount(read_only);
}

void Session::forget_attributes(vfs::NodeId node) {
    // A negative offset leaves the pages alone: so the kernel waits for nothing that a request
    // could hold. It fails when the kernel does not know the node any more, which is as good.
    (void)fuse_lowlevel_notify_inval_inode(session_, node, -1, 0);
}

Result<vfs::Attributes> Session::get_attributes(vfs::NodeId node) {
    if (node == vfs::kRootNode && device_is_lost_.load(std::memory_order_acquire)) [[unlikely]] {
        return root_;
    }
    return file_system_.get_attributes(node);
}

double Session::missing_name_seconds(vfs::NodeId parent) const {
    return parent == vfs::kRootNode && options_.on_device_failure ? kMissingInRootSeconds
                                                                  : kCacheSeconds;
}

// In the page flusher's thread. The kernel asks for attributes before it uses a name in a directory, opens a file, or
// writes to its cache. So without attributes and pages it does nothing any more that the file system does not refuse.
void Session::lose_device() {
    struct Forgetter final : vfs::NodeSink {
        explicit Forgetter(fuse_session* session) : session_(session) {}
        void add(Span<const vfs::NodeId> nodes) override {
            for (const vfs::NodeId node : nodes) {
                (void)fuse_lowlevel_notify_inval_inode(session_, node, 0, 0);
            }
        }
        fuse_session* session_;
    };

    const Result<vfs::Attributes> root = file_system_.get_attributes(vfs::kRootNode);
    if (root.ok()) {
        root_ = root.value();
    } else {
        root_.node = vfs::kRootNode;
        root_.mode = vfs::mode::directory | 0555;
        root_.link_count = 2;
    }
    device_is_lost_.store(true, std::memory_order_release);
    // It may have been shut down before.
    (void)file_system_.shutdown(vfs::ShutdownMode::discard);
    Forgetter forgetter(session_);
    // Twice: the kernel may still be taking an answer of before the shutdown.
    for (int round = 0; round == 0 || (round == 1 && page_flusher_.sleep(kAnswerTaken)); round++) {
        forgetter.add({&root_.node, 1});
        (void)file_system_.list_references(forgetter);
    }
}

bool Session::settle() {
    const std::string& number = mounts_.own_device_number();
    return loop_->wait_until_queue_is_answered(
        kSettleTime, "/sys/fs/fuse/connections/" + number.substr(number.find(':') + 1));
}

void Session::stop() {
    // First, while there are threads that answer the writes it may be waiting for.
    page_flusher_.stop();
    loop_->stop();
}

void Session::initialise(fuse_conn_info& connection) {
    auto want = [&](unsigned capability, const char* name) {
        if ((connection.capable & capability) == 0) {
            return false;
        }
        connection.want |= capability;
        features_ += features_.empty() ? name : std::string(", ") + name;
        return true;
    };
    auto refuse = [&](unsigned capability) { connection.want &= ~capability; };

    if (options_.write_through) {
        refuse(FUSE_CAP_WRITEBACK_CACHE);
    } else {
        want(FUSE_CAP_WRITEBACK_CACHE, "write-back cache");
    }
    want(FUSE_CAP_READDIRPLUS, "readdirplus");
    want(FUSE_CAP_READDIRPLUS_AUTO, "automatic readdirplus");
    want(FUSE_CAP_PARALLEL_DIROPS, "parallel directory operations");
    want(FUSE_CAP_CACHE_SYMLINKS, "symlink cache");
    want(FUSE_CAP_ASYNC_READ, "asynchronous reads");
    // With it the kernel forgets to drop cached pages when an asynchronous direct write ends.
    refuse(FUSE_CAP_ASYNC_DIO);
    want(FUSE_CAP_POSIX_ACL, "POSIX ACLs");
    want(FUSE_CAP_DONT_MASK, "umask by the file system");
    want(FUSE_CAP_EXPORT_SUPPORT, "file handles");
    want(FUSE_CAP_IOCTL_DIR, "directory ioctls");
    skips_open_ = want(FUSE_CAP_NO_OPEN_SUPPORT, "no open");
    skips_open_directory_ =
        options_.cache_directories && want(FUSE_CAP_NO_OPENDIR_SUPPORT, "no opendir");
    // Only this kernel changes files, so it need not watch for changes of their times.
    want(FUSE_CAP_EXPLICIT_INVAL_DATA, "explicit invalidation");
    refuse(FUSE_CAP_AUTO_INVAL_DATA);
    // The old protocol leaves set-user-id bits to the file system but does not say when cached
    // writes shall clear them. Without either, the kernel clears them with a change of attributes.
    refuse(FUSE_CAP_HANDLE_KILLPRIV);
#ifdef FUSE_CAP_HANDLE_KILLPRIV_V2
    want(FUSE_CAP_HANDLE_KILLPRIV_V2, "privileges cleared by the file system");
#endif
    // An open() that truncates would be lost: opening is not passed on.
    refuse(FUSE_CAP_ATOMIC_O_TRUNC);
    // Requests are small or go from memory to memory: a pipe between only adds system calls.
    refuse(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
#if TIFFIN_FUSE_HAS_IO_URING
    if (!options_.io_uring) {
        refuse(FUSE_CAP_OVER_IO_URING);  // which libfuse takes by itself
    } else if (!want(FUSE_CAP_OVER_IO_URING, "io_uring")) {
        host::log(host::LogLevel::warning,
                  "io_uring is not available: write Y to /sys/module/fuse/parameters/enable_uring "
                  "(Linux 6.14 or later)");
    }
#else
    if (options_.io_uring) {
        host::log(host::LogLevel::warning, "io_uring is not available: it needs libfuse 3.18");
    }
#endif
#if TIFFIN_FUSE_HAS_NO_INTERRUPT
    // No operation waits for anything that a signal could end.
    connection.no_interrupt = 1;
#endif
    connection.max_write = kMaxRequestBytes;
    connection.max_background = kMaxBackgroundRequests;
    connection.congestion_threshold = kMaxBackgroundRequests * 3 / 4;
    connection.time_gran = 1;
    protocol_minor_ = connection.proto_minor;

    initialised_.store(true);
    if (options_.on_ready) {
        options_.on_ready();
    }
}

std::string Session::status() const {
    uint64_t uptime_s = (host::monotonic_ns() - start_ns_) / 1'000'000'000;
    std::string text = "program version: " + std::string(kVersion) + "\n";
    text += options_.facts;
    text += options_.more_facts ? options_.more_facts() : "";
    text += "process: " + std::to_string(getpid()) + "\n";
    text += "uptime: " + std::to_string(uptime_s) + " s\n";
    text += "threads at most: " + std::to_string(options_.max_threads) + "\n";
    const RequestLoop::Counters counters = loop_->counters();
    text += "polling, us: " + std::to_string(options_.busy_poll_us) + "\n";
    text += "processors wake up within: " + latency_.description() + "\n";
    text += "requests met while polling: " + std::to_string(counters.met_awake) + "\n";
    text += "requests slept for: " + std::to_string(counters.slept) + "\n";
    if (const std::optional<uint32_t> under_way = loop_->under_way()) {
        text += "requests under way: " + std::to_string(*under_way) + "\n";
    }
    text += "libfuse: " + std::string(fuse_pkgversion()) + "\n";
    text += "FUSE protocol: 7." + std::to_string(protocol_minor_.load()) + "\n";
    text += "FUSE features: " + features_ + "\n";
    return text;
}

}  // namespace tiffin::fuse
