// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/session/option_table.h"

#include <algorithm>
#include <charconv>

#include "fuse/host/processor_latency.h"
#include "fuse/host/size_text.h"
#include "rdma_blk/wire/listen_address.h"

namespace tiffin::fuse {
namespace {

using Failure = std::optional<Problem>;
using System = FileSystemOptions;
using Host = MountOptions;
using Updates = AccessTimeUpdates;

constexpr uint64_t kMinCacheBytes = uint64_t{1} << 20;
constexpr uint64_t kMaxCacheBytes = uint64_t{1} << 40;

template <auto kField>
auto& field(auto& options) {
    if constexpr (requires { options.*kField; }) {
        return options.*kField;
    } else {
        return options.file_system.*kField;
    }
}

template <auto kField>
bool is_same(const MountOptions& running, const MountOptions& asked) {
    return field<kField>(running) == field<kField>(asked);
}

bool any_change(const MountOptions& /*running*/, const MountOptions& /*asked*/) { return true; }

template <auto kField, auto kValue>
Failure set(std::string_view /*name*/, std::string_view /*value*/, MountOptions& options) {
    field<kField>(options) = kValue;
    return std::nullopt;
}

template <auto kField>
Failure set_text(std::string_view /*name*/, std::string_view value, MountOptions& options) {
    field<kField>(options) = value;
    return std::nullopt;
}

Problem wants(std::string_view name, const std::string& what, std::string_view value) {
    return Problem{"the mount option " + std::string(name) + " wants " + what + ", not \"" +
                   std::string(value) + "\""};
}

constexpr char kThreads[] = "";
constexpr char kSeconds[] = " (seconds)";
constexpr char kMicroseconds[] = " (microseconds)";

template <auto kField, uint64_t kMinimum, uint64_t kMaximum, const char* kUnit,
          uint64_t kFactor = 1>
Failure set_number(std::string_view name, std::string_view value, MountOptions& options) {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < kMinimum ||
        number > kMaximum) {
        return wants(
            std::string(name) + kUnit,
            "a number from " + std::to_string(kMinimum) + " to " + std::to_string(kMaximum), value);
    }
    field<kField>(options) = number * kFactor;
    return std::nullopt;
}

Failure set_read_only(std::string_view name, std::string_view /*value*/, MountOptions& options) {
    options.file_system.read_only = name == "ro";
    options.says_ro_or_rw = true;
    return std::nullopt;
}

Failure set_cache(std::string_view name, std::string_view value, MountOptions& options) {
    OrProblem<uint64_t> size = parse_size(value);
    if (!size.ok()) {
        return Problem{"the mount option cache wants a size such as 256M: " + size.problem().text};
    }
    if (size.value() < kMinCacheBytes || size.value() > kMaxCacheBytes) {
        return wants(name, "a size from 1M to 1T", value);
    }
    options.file_system.cache_bytes = size.value();
    return std::nullopt;
}

Failure set_errors(std::string_view name, std::string_view value, MountOptions& options) {
    if (value != "remount-ro" && value != "continue") {
        return wants(name, "remount-ro or continue", value);
    }
    options.file_system.errors =
        value == "continue" ? ErrorsPolicy::continue_running : ErrorsPolicy::remount_read_only;
    return std::nullopt;
}

Failure set_log(std::string_view /*name*/, std::string_view value, MountOptions& options) {
    if (value.empty()) {
        return Problem{"the mount option log wants the path of a file"};
    }
    options.log_path = value;
    return std::nullopt;
}

Failure set_metrics(std::string_view name, std::string_view value, MountOptions& options) {
    rdma_blk::ListenAddress address;
    if (!rdma_blk::parse_listen_address(std::string(value), address) || address.port == 0) {
        return wants(name, "an address and a port such as 127.0.0.1:9848 or [::1]:9848", value);
    }
    options.metrics = value;
    return std::nullopt;
}

Failure add_context(std::string_view name, std::string_view value, MountOptions& options) {
    options.security_contexts.push_back(std::string(name) + "=" + std::string(value));
    return std::nullopt;
}

// An option whose names take no value.
constexpr MountOption words(const char* title, const char* example, RemountRule* may_become,
                            const std::array<OptionName, 6>& names) {
    return {title, nullptr, example, may_become, names};
}

template <auto kField>
constexpr MountOption flag(const char* name, const char* help) {
    return words(name, name, is_same<kField>, {{{name, set<kField, true>, help}}});
}

// What the kernel forbids, which a remount can change.
template <auto kField>
constexpr MountOption permission(const char* name, const char* forbidding, const char* help) {
    return words(name, forbidding, any_change,
                 {{{name, set<kField, true>}, {forbidding, set<kField, false>, help}}});
}

template <auto kField>
constexpr MountOption value(const char* name, const char* argument, const char* example,
                            OptionSetter* apply, const char* help) {
    return {name, argument, example, is_same<kField>, {{{name, apply, help}}}};
}

template <auto kField, uint64_t kMinimum, uint64_t kMaximum, const char* kUnit,
          uint64_t kFactor = 1>
constexpr MountOption number(const char* name, const char* argument, const char* example,
                             const char* help) {
    return value<kField>(name, argument, example,
                         set_number<kField, kMinimum, kMaximum, kUnit, kFactor>, help);
}

constexpr uint64_t kSecondsPerDay = 86'400;
constexpr auto kTimes = &System::access_times;

Failure set_cpu_latency(std::string_view name, std::string_view value, MountOptions& options) {
    if (value == "none") {
        field<&Host::cpu_latency_us>(options) = kNoProcessorLatencyUs;
        return std::nullopt;
    }
    return set_number<&Host::cpu_latency_us, 0, kMaxProcessorLatencyUs, kMicroseconds>(name, value,
                                                                                       options);
}

constexpr MountOption kTable[] = {
    words("ro and rw", "ro", any_change,
          {{{"ro", set_read_only, "read-only"}, {"rw", set_read_only}}}),
    words("norecovery", "norecovery", is_same<&System::no_recovery>,
          {{{"norecovery", set<&System::no_recovery, true>,
             "with ro: the journal is not replayed; for volumes that cannot be recovered"},
            {"noload", set<&System::no_recovery, true>}}}),
    words("sync and async", "sync", is_same<&System::synchronous>,
          {{{"sync", set<&System::synchronous, true>,
             "every change is durable when the call returns"},
            {"async", set<&System::synchronous, false>}}}),
    flag<&Host::directory_sync>("dirsync", "the same for changes of directories only"),
    words("relatime, strictatime and noatime", "noatime", is_same<kTimes>,
          {{{"relatime", set<kTimes, Updates::relative>,
             "access times move once a day and after changes (default)"},
            {"strictatime", set<kTimes, Updates::always>,
             "access times move with each read that reaches the file system"},
            {"noatime", set<kTimes, Updates::never>, "access times never move"},
            {"atime", set<kTimes, Updates::relative>},
            {"norelatime", set<kTimes, Updates::always>},
            {"nostrictatime", set<kTimes, Updates::relative>}}}),
    permission<&Host::suid>("suid", "nosuid", "ignore set-user-id bits"),
    permission<&Host::dev>("dev", "nodev", "device nodes cannot be opened"),
    permission<&Host::exec>("exec", "noexec", "programs cannot be executed"),
    permission<&Host::follow_symlinks>("symfollow", "nosymfollow",
                                       "symbolic links are not followed (libfuse 3.18)"),
    words("allow_other", "noallow_other", is_same<&Host::allow_other>,
          {{{"allow_other", set<&Host::allow_other, true>,
             "other users may enter too; the default for root, needs user_allow_other in "
             "/etc/fuse.conf for others"},
            {"noallow_other", set<&Host::allow_other, false>, "only the mounting user may"}}}),
    flag<&Host::strict_flags>("strict_flags",
                              "immutable and append-only files refuse writers at open, and access "
                              "times move at open; makes opening slower"),
    flag<&Host::write_through>("write_through",
                               "each write reaches the file system before it returns; small writes "
                               "are slower, metadata operations faster"),
    flag<&Host::cache_directories>(
        "cache_directories",
        "the kernel keeps lists of entries, for trees that are not changed while they are listed"),
    flag<&Host::io_uring>("io_uring",
                          "talk to the kernel through io_uring (Linux 6.14, libfuse 3.18)"),
    flag<&Host::in_kernel>("kernel", "mount by the kernel's module instead of FUSE"),
    words("remount", "remount", any_change,
          {{{"remount", set<&Host::remount, true>,
             "change a mount between ro and rw (and suid, dev, exec, symfollow) instead of making "
             "one"}}}),
    words("force", "force", any_change,
          {{{"force", set<&Host::force, true>,
             "take over a remote volume; the previous writer is fenced off"}}}),
    value<&System::cache_bytes>("cache", "SIZE", "64M", set_cache,
                                "memory for the file system's own structures, 1M to 1T (256M)"),
    number<&System::commit_interval_ms, 0, kSecondsPerDay, kSeconds, 1000>(
        "commit", "SECONDS", "7", "maximum delay until changes are durable, even without fsync"),
    value<&System::errors>("errors", "remount-ro|continue", "continue", set_errors,
                           "what to do when damage is found"),
    // One thread can wait for what only a second one can answer.
    number<&Host::max_threads, 2, 1024, kThreads>(
        "max_threads", "N", "2", "threads that serve requests, at most, 2 to 1024 (16)"),
    number<&Host::busy_poll_us, 0, 1000, kMicroseconds>(
        "busy_poll_us", "N", "0",
        "microseconds for which a thread polls for the next request before it sleeps, 0 to 1000 "
        "(measured, 50 to 200)"),
    value<&Host::cpu_latency_us>(
        "cpu_latency_us", "N|none", "20", set_cpu_latency,
        "microseconds within which idle processors wake up while requests come, 0 to 10000 "
        "(0, they do not sleep, where waking is expensive; else none)"),
    value<&Host::source>("fsname", "NAME", "books", set_text<&Host::source>,
                         "what df and /proc/mounts show instead of the device"),
    value<&Host::subtype>(
        "subtype", "NAME", "books", set_text<&Host::subtype>,
        "the type is fuse.NAME instead of fuse.tiffin; plain fuse without a name"),
    value<&Host::log_path>("log", "PATH", "/var/log/books", set_log,
                           "append messages to this file instead of the system's log"),
    value<&Host::metrics>("metrics", "ADDRESS:PORT", "127.0.0.1:9848", set_metrics,
                          "serve metrics for Prometheus here, at /metrics (none)"),
    {"context",
     "CONTEXT",
     "system_u:object_r:tmp_t:s0",
     is_same<&Host::security_contexts>,
     {{{"context", add_context, "as of mount(8); so are fscontext, defcontext and rootcontext"},
       {"fscontext", add_context},
       {"defcontext", add_context},
       {"rootcontext", add_context}}}},
};

}  // namespace

Span<const MountOption> mount_option_table() { return kTable; }

bool is_ignored_mount_option(std::string_view word) {
    // Directories follow the rule of files, and permissions are always checked, by the kernel. The rest is for
    // mount(8) and programs that read fstab, or what the kernel says of FUSE's mounts, which mount(8) hands
    // back for a remount. A name that ends in "-" or "=" is the beginning of words.
    constexpr std::string_view kNames =
        " diratime nodiratime default_permissions defaults auto noauto nofail _netdev user nouser "
        "users owner group silent loud seclabel x- X- comment= user= uhelper= helper= user_id= "
        "group_id= max_read= blksize= ";
    const std::string name(word.substr(0, word.find_first_of("-= ") + 1));
    return kNames.find(" " + (name.empty() ? std::string(word) : name) + " ") !=
           std::string_view::npos;
}

}  // namespace tiffin::fuse
