// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/session/options.h"

#include <charconv>

#include "fuse/host/processor_latency.h"
#include "fuse/host/size_text.h"

namespace tiffin::fuse {
namespace {

constexpr uint32_t kMaxThreadsLimit = 1024;
constexpr uint32_t kMaxBusyPollUs = 1000;
constexpr uint64_t kMaxCommitSeconds = 86'400;  // a day
constexpr uint64_t kMinCacheBytes = uint64_t{1} << 20;
constexpr uint64_t kMaxCacheBytes = uint64_t{1} << 40;

std::optional<Problem> parse_number(std::string_view name, std::string_view text, uint64_t minimum,
                                    uint64_t maximum, uint64_t& value) {
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < minimum ||
        value > maximum) {
        return Problem{"the mount option " + std::string(name) + " wants a number from " +
                       std::to_string(minimum) + " to " + std::to_string(maximum) + ", not \"" +
                       std::string(text) + "\""};
    }
    return std::nullopt;
}

std::optional<Problem> set_cache(std::string_view value, MountOptions& options) {
    OrProblem<uint64_t> size = parse_size(value);
    if (!size.ok()) {
        return Problem{"the mount option cache wants a size such as 256M: " + size.problem().text};
    }
    if (size.value() < kMinCacheBytes || size.value() > kMaxCacheBytes) {
        return Problem{"the mount option cache wants a size from 1M to 1T, not \"" +
                       std::string(value) + "\""};
    }
    options.file_system.cache_bytes = size.value();
    return std::nullopt;
}

std::optional<Problem> set_commit(std::string_view value, MountOptions& options) {
    uint64_t seconds = 0;
    std::optional<Problem> problem =
        parse_number("commit (seconds)", value, 0, kMaxCommitSeconds, seconds);
    options.file_system.commit_interval_ms = seconds * 1000;
    return problem;
}

std::optional<Problem> set_errors(std::string_view value, MountOptions& options) {
    if (value == "remount-ro") {
        options.file_system.errors = ErrorsPolicy::remount_read_only;
    } else if (value == "continue") {
        options.file_system.errors = ErrorsPolicy::continue_running;
    } else {
        return Problem{"the mount option errors wants remount-ro or continue, not \"" +
                       std::string(value) + "\""};
    }
    return std::nullopt;
}

// Into a uint32_t, or one that may be absent.
template <typename Place>
std::optional<Problem> set_number(std::string_view name, std::string_view value, uint64_t minimum,
                                  uint64_t maximum, Place& place) {
    uint64_t number = 0;
    std::optional<Problem> problem = parse_number(name, value, minimum, maximum, number);
    place = static_cast<uint32_t>(number);
    return problem;
}

std::optional<Problem> set_max_threads(std::string_view value, MountOptions& options) {
    // One thread can wait for what only a second one can answer.
    return set_number("max_threads", value, 2, kMaxThreadsLimit, options.max_threads);
}

std::optional<Problem> set_busy_poll(std::string_view value, MountOptions& options) {
    return set_number("busy_poll_us (microseconds)", value, 0, kMaxBusyPollUs,
                      options.busy_poll_us);
}

std::optional<Problem> set_cpu_latency(std::string_view value, MountOptions& options) {
    return set_number("cpu_latency_us (microseconds)", value, 0, kMaxProcessorLatencyUs,
                      options.cpu_latency_us);
}

std::optional<Problem> set_source(std::string_view value, MountOptions& options) {
    options.source = value;
    return std::nullopt;
}

std::optional<Problem> set_subtype(std::string_view value, MountOptions& options) {
    options.subtype = value;
    return std::nullopt;
}

std::optional<Problem> set_log(std::string_view value, MountOptions& options) {
    if (value.empty()) {
        return Problem{"the mount option log wants the path of a file"};
    }
    options.log_path = value;
    return std::nullopt;
}

// An option that is one word.
struct Word {
    const char* name;
    void (*apply)(MountOptions& options);
    const char* help;  // nullptr: not worth a line of its own
};

using Updates = AccessTimeUpdates;

void set_read_only(MountOptions& options, bool read_only) {
    options.file_system.read_only = read_only;
    options.says_ro_or_rw = true;
}

constexpr Word kWords[] = {
    {"ro", [](MountOptions& o) { set_read_only(o, true); }, "read-only"},
    {"rw", [](MountOptions& o) { set_read_only(o, false); }, nullptr},
    {"norecovery", [](MountOptions& o) { o.file_system.no_recovery = true; },
     "with ro: the journal is not replayed; for volumes that cannot be recovered"},
    {"noload", [](MountOptions& o) { o.file_system.no_recovery = true; }, nullptr},
    {"sync", [](MountOptions& o) { o.file_system.synchronous = true; },
     "every change is durable when the call returns"},
    {"async", [](MountOptions& o) { o.file_system.synchronous = false; }, nullptr},
    {"dirsync", [](MountOptions& o) { o.directory_sync = true; },
     "the same for changes of directories only"},
    {"relatime", [](MountOptions& o) { o.file_system.access_times = Updates::relative; },
     "access times move once a day and after changes (default)"},
    {"strictatime", [](MountOptions& o) { o.file_system.access_times = Updates::always; },
     "access times move with each read that reaches the file system"},
    {"noatime", [](MountOptions& o) { o.file_system.access_times = Updates::never; },
     "access times never move"},
    {"atime", [](MountOptions& o) { o.file_system.access_times = Updates::relative; }, nullptr},
    {"norelatime", [](MountOptions& o) { o.file_system.access_times = Updates::always; }, nullptr},
    {"nostrictatime", [](MountOptions& o) { o.file_system.access_times = Updates::relative; },
     nullptr},
    // Directories follow the rule of files.
    {"diratime", [](MountOptions&) {}, nullptr},
    {"nodiratime", [](MountOptions&) {}, nullptr},
    {"suid", [](MountOptions& o) { o.suid = true; }, nullptr},
    {"nosuid", [](MountOptions& o) { o.suid = false; }, "ignore set-user-id bits"},
    {"dev", [](MountOptions& o) { o.dev = true; }, nullptr},
    {"nodev", [](MountOptions& o) { o.dev = false; }, "device nodes cannot be opened"},
    {"exec", [](MountOptions& o) { o.exec = true; }, nullptr},
    {"noexec", [](MountOptions& o) { o.exec = false; }, "programs cannot be executed"},
    {"symfollow", [](MountOptions& o) { o.follow_symlinks = true; }, nullptr},
    {"nosymfollow", [](MountOptions& o) { o.follow_symlinks = false; },
     "symbolic links are not followed (libfuse 3.18)"},
    {"allow_other", [](MountOptions& o) { o.allow_other = true; },
     "other users may enter too; the default for root, needs user_allow_other in /etc/fuse.conf "
     "for others"},
    {"noallow_other", [](MountOptions& o) { o.allow_other = false; }, "only the mounting user may"},
    // Permissions are always checked, by the kernel.
    {"default_permissions", [](MountOptions&) {}, nullptr},
    {"strict_flags", [](MountOptions& o) { o.strict_flags = true; },
     "immutable and append-only files refuse writers at open, and access times move at open; makes "
     "opening slower"},
    {"write_through", [](MountOptions& o) { o.write_through = true; },
     "each write reaches the file system before it returns; small writes are slower, names faster"},
    {"cache_directories", [](MountOptions& o) { o.cache_directories = true; },
     "the kernel keeps lists of entries, for trees that nobody changes while they are listed"},
    {"io_uring", [](MountOptions& o) { o.io_uring = true; },
     "talk to the kernel through io_uring (Linux 6.14, libfuse 3.18)"},
    {"remount", [](MountOptions& o) { o.remount = true; },
     "change a mount between ro and rw (and suid, dev, exec, symfollow) instead of making one"},
    {"force", [](MountOptions& o) { o.force = true; },
     "take a remote volume from whoever writes it, who then can do so no more"},
    // For mount(8) and those who read fstab.
    {"defaults", [](MountOptions&) {}, nullptr},
    {"auto", [](MountOptions&) {}, nullptr},
    {"noauto", [](MountOptions&) {}, nullptr},
    {"nofail", [](MountOptions&) {}, nullptr},
    {"_netdev", [](MountOptions&) {}, nullptr},
    {"user", [](MountOptions&) {}, nullptr},
    {"nouser", [](MountOptions&) {}, nullptr},
    {"users", [](MountOptions&) {}, nullptr},
    {"owner", [](MountOptions&) {}, nullptr},
    {"group", [](MountOptions&) {}, nullptr},
    {"silent", [](MountOptions&) {}, nullptr},
    {"loud", [](MountOptions&) {}, nullptr},
};

// An option with a value.
struct Setting {
    const char* name;
    std::optional<Problem> (*apply)(std::string_view value, MountOptions& options);
    const char* argument;
    const char* help;
};

constexpr Setting kSettings[] = {
    {"cache", set_cache, "SIZE", "memory for the file system's own structures, 1M to 1T (256M)"},
    {"commit", set_commit, "SECONDS", "changes are durable after this time at the latest"},
    {"errors", set_errors, "remount-ro|continue", "what to do when damage is found"},
    {"max_threads", set_max_threads, "N", "threads that serve requests, at most, 2 to 1024 (16)"},
    {"busy_poll_us", set_busy_poll, "N",
     "microseconds for which a thread asks for the next request before it sleeps, 0 to 1000 "
     "(measured, 50 to 200)"},
    {"cpu_latency_us", set_cpu_latency, "N",
     "microseconds within which idle processors wake up while requests come, 0 to 10000 (0: they "
     "do not sleep)"},
    {"fsname", set_source, "NAME", "what df and /proc/mounts show instead of the device"},
    {"subtype", set_subtype, "NAME",
     "the type is fuse.NAME instead of fuse.tiffin; plain fuse without a name"},
    {"log", set_log, "PATH", "append messages to this file instead of the system's log"},
};

Problem without_value(const Setting& setting) {
    std::string name = setting.name;
    return {"the mount option " + name + " wants a value: " + name + "=" + setting.argument};
}

// Comments of fstab, remarks of mount(8), and what the kernel says of FUSE's mounts, which mount(8) hands
// back for a remount.
bool is_for_others(std::string_view word) {
    for (std::string_view prefix : {"x-", "X-", "comment=", "user=", "uhelper=", "helper=",
                                    "user_id=", "group_id=", "max_read=", "blksize="}) {
        if (word.starts_with(prefix)) {
            return true;
        }
    }
    return word == "seclabel";
}

bool is_security_context(std::string_view word) {
    for (std::string_view prefix : {"context=", "fscontext=", "defcontext=", "rootcontext="}) {
        if (word.starts_with(prefix)) {
            return true;
        }
    }
    return false;
}

}  // namespace

std::optional<Problem> add_mount_option(const std::string& word, MountOptions& options,
                                        UnknownOptions unknown) {
    for (const Word& known : kWords) {
        if (word == known.name) {
            known.apply(options);
            return std::nullopt;
        }
    }
    size_t equals = word.find('=');
    std::string_view name = std::string_view(word).substr(0, equals);
    for (const Setting& known : kSettings) {
        if (name == known.name) {
            if (equals == std::string::npos) {
                return without_value(known);
            }
            return known.apply(std::string_view(word).substr(equals + 1), options);
        }
    }
    if (is_security_context(word)) {
        options.security_contexts.push_back(word);
        return std::nullopt;
    }
    if (is_for_others(word) || unknown == UnknownOptions::skip) {
        return std::nullopt;
    }
    return Problem{"unknown mount option \"" + word + "\": see mount.tiffin --help"};
}

std::vector<std::string> split_mount_options(std::string_view text) {
    std::vector<std::string> words;
    std::string word;
    for (size_t i = 0; i <= text.size(); ++i) {
        if (i < text.size() && text[i] == '\\' && i + 1 < text.size()) {
            word += text[++i];
        } else if (i < text.size() && text[i] != ',') {
            word += text[i];
        } else if (!word.empty()) {
            words.push_back(word);
            word.clear();
        }
    }
    return words;
}

std::optional<Problem> add_mount_options(std::string_view text, MountOptions& options,
                                         UnknownOptions unknown) {
    for (const std::string& word : split_mount_options(text)) {
        if (std::optional<Problem> problem = add_mount_option(word, options, unknown)) {
            return problem;
        }
    }
    return std::nullopt;
}

bool has_mount_option(const std::string& words, const std::string& word) {
    return ("," + words + ",").find("," + word + ",") != std::string::npos;
}

OrProblem<std::vector<std::string>> kernel_mount_options(const MountOptions& options,
                                                         bool is_root) {
    if (!is_root && (options.suid == true || options.dev == true)) {
        return Problem{
            std::string("only root can mount with ") + (options.suid == true ? "suid" : "dev"),
            Error::eperm};
    }
    std::vector<std::string> result = options.security_contexts;
    auto add_if = [&](bool condition, const char* word) {
        if (condition) {
            result.emplace_back(word);
        }
    };
    add_if(options.file_system.read_only, "ro");
    add_if(options.file_system.synchronous, "sync");
    add_if(options.directory_sync, "dirsync");
    add_if(options.file_system.access_times == AccessTimeUpdates::never, "noatime");
    add_if(options.allow_other.value_or(is_root), "allow_other");
    // libfuse's own default is nosuid and nodev.
    add_if(options.suid.value_or(is_root), "suid");
    add_if(options.dev.value_or(is_root), "dev");
    add_if(options.exec == false, "noexec");
    add_if(options.follow_symlinks == false, "nosymfollow");
    return result;
}

std::string mount_options_help() {
    std::string text;
    auto add_line = [&](std::string name, const char* help) {
        name.resize(std::max<size_t>(name.size() + 1, 28), ' ');
        text.append("  ").append(name).append(help).append("\n");
    };
    for (const Word& word : kWords) {
        if (word.help != nullptr) {
            add_line(word.name, word.help);
        }
    }
    for (const Setting& setting : kSettings) {
        add_line(std::string(setting.name) + "=" + setting.argument, setting.help);
    }
    return text;
}

}  // namespace tiffin::fuse
