// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/common/mount_server.h"

#include <signal.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "fs/vfs/host.h"
#include "fuse/host/device_address.h"
#include "fuse/host/memory_shortage.h"
#include "fuse/host/remote_device.h"
#include "fuse/host/wake_cost.h"
#include "fuse/session/daemon.h"
#include "fuse/session/libfuse_log.h"
#include "fuse/session/mount_point.h"
#include "fuse/session/session.h"
#include "fuse/tools/common/known_contents.h"
#include "fuse/tools/common/mount_metrics.h"
#include "fuse/tools/common/tool.h"

namespace tiffin::fuse {
namespace {

constexpr const char* kNotAwaited =
    "not mounted: the program that asked for the mount does not wait any more";

bool is_remote(const std::string& device) { return device.starts_with("tiffin:"); }

OrProblem<std::unique_ptr<vfs::BlockDevice>> open_device_of(const MountTask& task) {
    OpenMode mode;
    mode.read_only = task.options.file_system.read_only && !task.device.starts_with("mem:");
    mode.force = task.options.force;
    mode.may_write_later = mode.read_only && !task.options.file_system.no_recovery;
    mode.mount_point = task.mount_point;
    auto device = open_device(task.device, mode);
    if (!device.ok() && !mode.read_only) {
        const Error code = device.problem().code;
        // A remote volume that refuses a key refuses readers, too.
        if (code == Error::erofs ||
            (!is_remote(task.device) && (code == Error::eacces || code == Error::eperm))) {
            return Problem{device.problem().text + "; to mount it read-only, use -o ro", code};
        }
    }
    return device;
}

// Never advises to make one: the present content may be of value.
Problem no_file_system(const MountTask& task, vfs::BlockDevice* device) {
    std::string text =
        "there is no " + std::string(task.type->name) + " file system on " + task.device;
    if (device == nullptr) {
        return {text, Error::einval};
    }
    if (const char* reason = lost_content_reason(*device); reason != nullptr) {
        return {text + ": " + reason, Error::einval};
    }
    auto address = parse_device_address(task.device);
    const bool is_file = address.ok() && address->kind == DeviceAddress::Kind::file;
    auto found = find_known_contents(*device, is_file ? address->path : "");
    if (!found.ok()) {
        text += "; " + found.problem().text;
    } else if (found->has_value()) {
        text += ": it holds " + **found;
    } else {
        text += ", nor another that is known; if there was one, fsck.tiffin -n " +
                shell_word(task.device) + " says more";
    }
    return {text, Error::einval};
}

Problem explain_mount_error(const MountTask& task, Error error, const std::string& complaint,
                            vfs::BlockDevice* device) {
    switch (error) {
        case Error::einval:
            return no_file_system(task, device);
        case Error::eopnotsupp:
            return {task.device + " was made by a newer version that this one does not understand",
                    error};
        case Error::erofs:
            return {task.device + " cannot be written: mount it with -o ro", error};
        case Error::euclean:
            return {task.device + " is damaged" +
                        (complaint.empty() ? "" : " (" + complaint + ")") +
                        ": check it with fsck.tiffin " + shell_word(task.device),
                    error};
        default:
            return {"cannot mount " + task.device + ": " +
                        (complaint.empty() ? system_error_text(errno_value(error)) : complaint),
                    error};
    }
}

// A device with a mounted file system.
class Volume {
  public:
    Volume() = default;
    ~Volume() { TIFFIN_ASSERT(file_system_ == nullptr); }
    Volume(const Volume&) = delete;
    Volume& operator=(const Volume&) = delete;

    std::optional<Problem> mount(const MountTask& task, const RememberingLogSink& log) {
        type_ = task.type;
        if (type_->needs_device) {
            auto device = open_device_of(task);
            if (!device.ok()) {
                return device.problem();
            }
            device_ = std::move(*device);
            bool is_new = task.device.starts_with("mem:");
            if (is_new && type_->make != nullptr) {
                Result<void> made = type_->make(*device_);
                if (!made.ok()) {
                    return Problem{"cannot make a file system on " + task.device + ": " +
                                       (made.error() == Error::einval
                                            ? "it is too small, a volume needs at least 8 MiB"
                                            : system_error_text(errno_value(made.error()))),
                                   made.error()};
                }
            }
        }
        Result<vfs::FileSystem*> mounted = type_->mount(device_.get(), task.options.file_system);
        if (!mounted.ok()) {
            return explain_mount_error(task, mounted.error(), log.complaint(), device_.get());
        }
        file_system_ = mounted.value();
        return std::nullopt;
    }

    vfs::FileSystem& file_system() { return *file_system_; }
    const vfs::BlockDevice* device() const { return device_.get(); }
    Result<void> change_link(bool adds, const std::string& host, uint16_t port) {
        return device_ == nullptr ? Result<void>(Error::eopnotsupp)
                                  : fuse::change_link(*device_, adds, host, port);
    }
    void on_failure(std::function<void()> tell) { on_device_failure(*device_, std::move(tell)); }
    std::string describe() { return device_ == nullptr ? "" : describe_device(*device_); }

    std::optional<Problem> unmount() {
        Result<void> result = file_system_->unmount();
        type_->destroy(std::exchange(file_system_, nullptr));
        device_.reset();
        if (!result.ok()) {
            return Problem{"not everything could be written to the device at the end: " +
                               system_error_text(errno_value(result.error())),
                           result.error()};
        }
        return std::nullopt;
    }

  private:
    const FileSystemType* type_ = nullptr;
    std::unique_ptr<vfs::BlockDevice> device_;
    vfs::FileSystem* file_system_ = nullptr;
};

// Whether the mount works; not in the process that serves it.
std::optional<Problem> ask_mount(const std::string& mount_point) {
    // Also waits until the kernel has taken the answer to its greeting, before which it would
    // overwrite settings of the mount.
    struct statfs ignored {};
    if (statfs(mount_point.c_str(), &ignored) != 0) {
        return Problem{"the mount does not answer: " + system_error_text(errno)};
    }
    tune_mount(mount_point);
    return std::nullopt;
}

// What speaks against mounting, after a start that may have taken long.
std::optional<Problem> reason_to_give_up(Readiness& readiness) {
    if (int number = SignalWatcher::pending_signal()) {
        return Problem{
            "not mounted: ended by signal " + std::to_string(number) + " before it was ready",
            Error::eintr};
    }
    if (!readiness.is_awaited()) {
        return Problem{kNotAwaited, Error::eintr};
    }
    return std::nullopt;
}

// Tells the starter as soon as the mount answers. Waits for the first message of the kernel. When the
// mount is of no use, sends this process a signal to end it.
class Announcer {
  public:
    Announcer() = default;
    ~Announcer() { finish(); }
    Announcer(const Announcer&) = delete;
    Announcer& operator=(const Announcer&) = delete;

    // `readiness` must outlive it. Call once.
    std::optional<Problem> start(Readiness& readiness) {
        try {
            thread_ = std::thread([this, &readiness] { announce(readiness); });
        } catch (const std::system_error&) {
            return Problem{"cannot start a thread: raise the limit of processes", Error::eagain};
        }
        return std::nullopt;
    }

    void greeted() { say(true); }

    // That is told when the kernel's settings of the mount have been made; nullptr: it ends.
    void set_session(Session* session) {
        const std::lock_guard lock(mutex_);
        session_ = session;
    }

    // Once nothing is served any more, and the kernel knows it: why that was, when it was for what the
    // starter was told or can no longer be told.
    std::optional<Problem> finish() {
        say(false);
        if (thread_.joinable()) {
            thread_.join();
        }
        return problem_;
    }

  private:
    void announce(Readiness& readiness) {
        if (!greeted_.get_future().get()) {
            return;
        }
        problem_ = readiness.ask();
        if (!problem_.has_value()) {
            const std::lock_guard lock(mutex_);
            if (session_ != nullptr) {
                session_->mount_is_tuned();
            }
        }
        if (problem_.has_value()) {
            readiness.fail(*problem_);
        } else if (!readiness.succeed()) {
            problem_ = {kNotAwaited, Error::eintr};
        }
        if (problem_.has_value()) {
            kill(getpid(), SIGTERM);
        }
    }
    void say(bool value) {
        if (!said_.exchange(true)) {
            greeted_.set_value(value);
        }
    }

    std::promise<bool> greeted_;
    std::atomic<bool> said_{false};
    std::mutex mutex_;
    Session* session_ = nullptr;      // guarded by mutex_
    std::optional<Problem> problem_;  // the thread's, until it is joined
    std::thread thread_;
};

// A signal came: unmount as umount(8) would, or if files are in use, as much of it as is possible.
// Where others have unmounted or covered it nothing is taken away: the kernel may still hold data that
// it could not write back to a session that has stopped.
void end_session(Session& session, int signal_number) {
    std::string text = "signal " + std::to_string(signal_number) + ": ";
    if (session.is_in_use() && !session.knows_what_is_written()) {
        // These kernels unmount without waiting for mapped pages of which no program has a descriptor any more.
        const int error = session.mounts().sync();
        (void)session.settle();
        if (error != 0 && error != ENOENT) {
            text += "writing back failed: " + system_error_text(error) + "; ";
        }
    }
    switch (session.mounts().unmount()) {
        case OwnMounts::Outcome::unmounted:
            text += "unmounted; ending when the file system is not in use any more";
            return host::log(host::LogLevel::info, text.c_str());
        case OwnMounts::Outcome::nowhere:
            text +=
                "not mounted any more; ending when the last program that uses the file system, in "
                "this or another mount name space, has let go of it";
            return host::log(host::LogLevel::warning, text.c_str());
        case OwnMounts::Outcome::covered:
            text +=
                "not ending, since another file system is mounted over this one: unmount that, and "
                "send the signal again";
            return host::log(host::LogLevel::warning, text.c_str());
        case OwnMounts::Outcome::in_use:
            break;
    }
    int error = session.mounts().sync();
    session.mounts().detach(UnmountMode::detach);
    const bool is_settled = session.settle();
    text += "the mount is in use: its users lose it" +
            (error == 0 ? "" : "; writing back failed: " + system_error_text(error)) +
            (is_settled ? ""
                        : "; part of what they wrote may not be stored, since the kernel's queue "
                          "has not been seen empty");
    host::log(host::LogLevel::warning, text.c_str());
    session.stop();
}

std::string facts(const MountTask& task) {
    return "device: " + task.device + "\nmount point: " + task.mount_point +
           "\nfile system: " + task.type->name +
           "\noptions: " + (task.option_text.empty() ? "none" : task.option_text) + "\n";
}

std::optional<Problem> serve_session(const MountTask& task, Volume& volume, MountMetrics& metrics,
                                     SignalWatcher& signals, Readiness& readiness) {
    Announcer announcer;
    if (std::optional<Problem> problem = announcer.start(readiness)) {
        return problem;
    }
    SessionOptions options;
    options.mount_point = task.mount_point;
    options.source = task.source;
    options.mount_options = task.kernel_options;
    options.max_threads = task.options.max_threads;
    options.busy_poll_us = busy_poll_us_or_default(task.options.busy_poll_us);
    options.cpu_latency_us = task.options.cpu_latency_us;
    options.io_uring = task.options.io_uring;
    options.strict_flags = task.options.strict_flags;
    options.write_through = task.options.write_through;
    options.cache_directories = task.options.cache_directories;
    options.directory_sync = task.options.directory_sync;
    options.facts = facts(task);
    options.more_facts = [&volume] { return volume.describe(); };
    options.change_link = [&volume](bool adds, const std::string& host, uint16_t port) {
        return volume.change_link(adds, host, port);
    };
    if (is_remote(task.device)) {
        options.on_device_failure = [&volume](std::function<void()> tell) {
            volume.on_failure(std::move(tell));
        };
    }
    options.on_ready = [&announcer] { announcer.greeted(); };
    if (std::optional<Problem> problem = reason_to_give_up(readiness)) {
        return problem;
    }
    auto session = Session::mount(volume.file_system(), std::move(options));
    if (!session.ok()) {
        return session.problem();
    }
    Session& running = *session.value();
    std::optional<MountMetrics::Attachment> attachment(
        std::in_place, metrics,
        MountMetrics::Sources{&running, &volume.file_system(), volume.device()});
    std::optional<Problem> problem =
        signals.start([&](int number) { end_session(running, number); });
    if (problem.has_value()) {
        return problem;
    }
    announcer.set_session(&running);
    problem = running.run();
    signals.stop();
    announcer.set_session(nullptr);
    attachment.reset();
    // Ends the connection: requests of this moment get an error instead of waiting for ever.
    session.value().reset();
    return problem.has_value() ? problem : announcer.finish();
}

// The whole life of the serving process, with logging set up.
std::optional<Problem> serve_logged(const MountTask& task, SignalWatcher& signals,
                                    const RememberingLogSink& log, Readiness& readiness) {
    harden_process();
    log_messages_of_libfuse();
    if (!task.foreground && chdir("/") != 0) {
        return Problem{"cannot change to /: " + system_error_text(errno)};
    }
    MountMetrics metrics({task.source, task.mount_point, task.type->name}, log);
    // Before the volume is opened: a mount that fails for its port takes no volume over.
    if (!task.options.metrics.empty()) {
        if (std::optional<Problem> problem = metrics.listen(task.options.metrics)) {
            return problem;
        }
    }
    Volume volume;
    if (std::optional<Problem> problem = volume.mount(task, log)) {
        return problem;
    }
    std::optional<Problem> problem = serve_session(task, volume, metrics, signals, readiness);
    std::optional<Problem> at_end = volume.unmount();
    return problem.has_value() ? problem : at_end;
}

std::optional<Problem> serve(const MountTask& task, Readiness& readiness) {
    ignore_meaningless_signals();
    wait_when_out_of_memory();
    SignalWatcher signals;
    std::unique_ptr<LogSink> target;
    if (!task.options.log_path.empty()) {
        auto file = FileLogSink::open(task.options.log_path);
        if (!file.ok()) {
            readiness.fail(file.problem());
            return file.problem();
        }
        target = std::move(*file);
    } else if (task.foreground) {
        target = std::make_unique<StderrLogSink>(task.program.c_str());
    } else {
        target = std::make_unique<SyslogLogSink>(task.program.c_str());
    }
    RememberingLogSink log(*target);
    LogSink* previous = set_log_sink(&log);
    std::optional<Problem> problem = serve_logged(task, signals, log, readiness);
    if (problem.has_value()) {
        if (!task.foreground) {
            std::string line = task.device + " on " + task.mount_point + ": " + problem->text;
            host::log(host::LogLevel::error, line.c_str());
        }
        // Not heard any more if the mount had answered before.
        readiness.fail(*problem);
    }
    set_log_sink(previous);
    return problem;
}

}  // namespace

std::optional<Problem> serve_mount(const MountTask& task) {
    const auto ask = [&task] { return ask_mount(task.mount_point); };
    if (task.foreground) {
        return run_in_foreground([&task](Readiness& readiness) { return serve(task, readiness); },
                                 ask);
    }
    return run_in_background(
        [&task](Readiness& readiness) {
            return serve(task, readiness).has_value() ? EXIT_FAILURE : EXIT_SUCCESS;
        },
        ask);
}

}  // namespace tiffin::fuse
