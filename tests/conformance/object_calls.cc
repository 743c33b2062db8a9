// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include <dirent.h>
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
#include <utime.h>

#include <algorithm>
#include <climits>

#include "tests/conformance/answer.h"
#include "tests/conformance/calls.h"
#include "tests/conformance/snapshot.h"

namespace tiffin::conformance {
namespace {

constexpr int kFchmodat2 = 452;  // newer than the C library

std::string set_times(const char* path, long access_ns, long modification_ns, int flags) {
    const timespec times[2] = {{1000000000, access_ns}, {1100000000, modification_ns}};
    return answer(::utimensat(AT_FDCWD, path, times, flags));
}

std::string describe_stat(int result, const struct stat& status) {
    return result < 0 ? error_name(errno)
                      : std::string("ok ") + type_letter(status.st_mode) + " " +
                            octal(status.st_mode & 07777);
}

std::string describe_statx(const char* path, int flags, unsigned mask) {
    struct statx status {};
    if (::syscall(SYS_statx, AT_FDCWD, path, flags, mask, &status) < 0) {
        return error_name(errno);
    }
    return std::string("ok ") + type_letter(status.stx_mode);
}

std::string list(const char* path) {
    DIR* directory = ::opendir(path);
    if (directory == nullptr) {
        return error_name(errno);
    }
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(directory)) {
        names.push_back(entry->d_name);
    }
    const int error = errno;
    ::closedir(directory);
    if (error != 0) {
        return "opened, then " + error_name(error);
    }
    std::sort(names.begin(), names.end());
    // A test's directory is full of other trials.
    return "ok " + (names.size() > 10 ? std::string("many") : std::to_string(names.size()));
}

std::string execute(const char* path) {
    char* const arguments[] = {const_cast<char*>("x"), nullptr};
    ::execve(path, arguments, arguments + 1);
    return error_name(errno);
}

std::string handle_of(const char* path, int flags) {
    struct {
        file_handle handle;
        unsigned char bytes[MAX_HANDLE_SZ];
    } buffer{};
    buffer.handle.handle_bytes = MAX_HANDLE_SZ;
    int mount = 0;
    return answer(::name_to_handle_at(AT_FDCWD, path, &buffer.handle, &mount, flags));
}

std::string read_target(const char* path, size_t size) {
    char target[PATH_MAX];
    const ssize_t length = ::readlink(path, target, size);
    return length < 0 ? error_name(errno)
                      : "ok " + quoted(std::string(target, static_cast<size_t>(length)));
}

std::string watch_by_inotify(const char* path, uint32_t mask) {
    const int notifier = ::inotify_init1(IN_CLOEXEC);
    return answer(::inotify_add_watch(notifier, path, mask));
}

void add_mode_calls(std::vector<PathCall>& calls) {
    auto add = [&](const char* name, std::function<std::string(const char*)> run) {
        calls.push_back({name, std::move(run)});
    };
    add("chmod 0640", [](const char* path) { return answer(::chmod(path, 0640)); });
    add("chmod 06711", [](const char* path) { return answer(::chmod(path, 06711)); });
    add("fchmodat2 AT_SYMLINK_NOFOLLOW", [](const char* path) {
        return answer(::syscall(kFchmodat2, AT_FDCWD, path, 0600, AT_SYMLINK_NOFOLLOW));
    });
    add("fchmodat2 unknown flag",
        [](const char* path) { return answer(::syscall(kFchmodat2, AT_FDCWD, path, 0600, 1)); });
    add("chown", [](const char* path) { return answer(::chown(path, 1001, 2001)); });
    add("lchown", [](const char* path) { return answer(::lchown(path, 1001, 2001)); });
    add("lchown group",
        [](const char* path) { return answer(::lchown(path, static_cast<uid_t>(-1), 2001)); });
    add("lchown nothing", [](const char* path) {
        return answer(::lchown(path, static_cast<uid_t>(-1), static_cast<gid_t>(-1)));
    });
    add("fchownat unknown flag",
        [](const char* path) { return answer(::fchownat(AT_FDCWD, path, 1, 1, 1)); });
}

void add_time_calls(std::vector<PathCall>& calls) {
    auto add = [&](const char* name, std::function<std::string(const char*)> run) {
        calls.push_back({name, std::move(run)});
    };
    add("utimensat null",
        [](const char* path) { return answer(::utimensat(AT_FDCWD, path, nullptr, 0)); });
    add("utimensat values", [](const char* path) { return set_times(path, 1, 999999999, 0); });
    add("utimensat values AT_SYMLINK_NOFOLLOW",
        [](const char* path) { return set_times(path, 123456789, 0, AT_SYMLINK_NOFOLLOW); });
    add("utimensat now AT_SYMLINK_NOFOLLOW", [](const char* path) {
        return set_times(path, UTIME_NOW, UTIME_NOW, AT_SYMLINK_NOFOLLOW);
    });
    add("utimensat omit",
        [](const char* path) { return set_times(path, UTIME_OMIT, UTIME_OMIT, 0); });
    add("utimensat a billion nanoseconds",
        [](const char* path) { return set_times(path, 1000000000, 0, 0); });
    add("utimensat unknown flag", [](const char* path) { return set_times(path, 0, 0, 1); });
    add("utime", [](const char* path) {
        const utimbuf times = {1200000000, 1300000000};
        return answer(::utime(path, &times));
    });
}

void add_size_calls(std::vector<PathCall>& calls) {
    struct Size {
        const char* name;
        off_t bytes;
    };
    static constexpr Size sizes[] = {
        {"truncate to 3", 3},
        {"truncate to the same size", 5},
        {"truncate to 5000", 5000},
        {"truncate to -1", -1},
        {"truncate to the largest size", INT64_MAX},
    };
    for (const Size& size : sizes) {
        calls.push_back({size.name, [&size](const char* path) {
                             return answer(::truncate(path, size.bytes));
                         }});
    }
}

void add_looking_calls(std::vector<PathCall>& calls) {
    auto add = [&](const char* name, std::function<std::string(const char*)> run) {
        calls.push_back({name, std::move(run)});
    };
    add("stat", [](const char* path) {
        struct stat status {};
        return describe_stat(::stat(path, &status), status);
    });
    add("lstat", [](const char* path) {
        struct stat status {};
        return describe_stat(::lstat(path, &status), status);
    });
    add("statx", [](const char* path) { return describe_statx(path, 0, STATX_ALL); });
    add("statx reserved mask",
        [](const char* path) { return describe_statx(path, 0, 0x80000000U); });
    add("statx both sync flags", [](const char* path) {
        return describe_statx(path, AT_STATX_FORCE_SYNC | AT_STATX_DONT_SYNC, STATX_BASIC_STATS);
    });
    add("statx DONT_SYNC", [](const char* path) {
        return describe_statx(path, AT_STATX_DONT_SYNC | AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS);
    });
    add("fstatat AT_EMPTY_PATH", [](const char* path) {
        struct stat status {};
        return describe_stat(::fstatat(AT_FDCWD, path, &status, AT_EMPTY_PATH), status);
    });
    add("access F_OK", [](const char* path) { return answer(::access(path, F_OK)); });
    add("access R_OK", [](const char* path) { return answer(::access(path, R_OK)); });
    add("access W_OK", [](const char* path) { return answer(::access(path, W_OK)); });
    add("access X_OK", [](const char* path) { return answer(::access(path, X_OK)); });
    add("access unknown mode", [](const char* path) { return answer(::access(path, 8)); });
    add("faccessat2 AT_SYMLINK_NOFOLLOW", [](const char* path) {
        return answer(::syscall(SYS_faccessat2, AT_FDCWD, path, R_OK | W_OK | X_OK,
                                AT_SYMLINK_NOFOLLOW | AT_EACCESS));
    });
    add("readlink", [](const char* path) { return read_target(path, PATH_MAX); });
    add("readlink of 1 byte", [](const char* path) { return read_target(path, 1); });
    add("readlink of 0 bytes", [](const char* path) { return read_target(path, 0); });
    add("statfs", [](const char* path) {
        struct statfs status {};
        return answer(::statfs(path, &status));
    });
}

void add_using_calls(std::vector<PathCall>& calls) {
    auto add = [&](const char* name, std::function<std::string(const char*)> run) {
        calls.push_back({name, std::move(run)});
    };
    add("readdir", list);
    add("chdir", [](const char* path) { return answer(::chdir(path)); });
    add("chroot", [](const char* path) { return answer(::chroot(path)); });
    add("execve", execute);
    add("name_to_handle_at", [](const char* path) { return handle_of(path, 0); });
    add("name_to_handle_at AT_SYMLINK_FOLLOW",
        [](const char* path) { return handle_of(path, AT_SYMLINK_FOLLOW); });
    add("inotify_add_watch",
        [](const char* path) { return watch_by_inotify(path, IN_ALL_EVENTS); });
    add("inotify_add_watch IN_ONLYDIR|IN_DONT_FOLLOW", [](const char* path) {
        return watch_by_inotify(path, IN_MODIFY | IN_ONLYDIR | IN_DONT_FOLLOW);
    });
}

}  // namespace

const std::vector<PathCall>& object_calls() {
    static const std::vector<PathCall> calls = [] {
        std::vector<PathCall> made;
        add_mode_calls(made);
        add_time_calls(made);
        add_size_calls(made);
        add_looking_calls(made);
        add_using_calls(made);
        return made;
    }();
    return calls;
}

}  // namespace tiffin::conformance
