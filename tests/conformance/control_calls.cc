// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include <fcntl.h>
#include <linux/fs.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <csignal>

#include "tests/conformance/answer.h"
#include "tests/conformance/descriptor_calls.h"
#include "tests/conformance/snapshot.h"

namespace tiffin::conformance {
namespace {

constexpr int kFchmodat2 = 452;  // newer than the C library

using Calls = std::vector<DescriptorCall>;
using Run = std::function<std::string(int)>;

void add_attributes(Calls& calls) {
    auto add = [&](const char* name, Run run) { calls.push_back({name, std::move(run)}); };
    add("fstat", [](int file) {
        struct stat status {};
        return ::fstat(file, &status) < 0 ? error_name(errno)
                                          : std::string("ok ") + type_letter(status.st_mode);
    });
    add("fstatfs", [](int file) {
        struct statfs status {};
        return answer(::fstatfs(file, &status));
    });
    add("fchmod", [](int file) { return answer(::fchmod(file, 0600)); });
    add("fchmodat2 AT_EMPTY_PATH",
        [](int file) { return answer(::syscall(kFchmodat2, file, "", 0600, AT_EMPTY_PATH)); });
    add("fchown", [](int file) { return answer(::fchown(file, 1001, 2001)); });
    add("fchownat AT_EMPTY_PATH",
        [](int file) { return answer(::fchownat(file, "", 1001, 2001, AT_EMPTY_PATH)); });
    add("futimens now", [](int file) { return answer(::futimens(file, nullptr)); });
    add("futimens values", [](int file) {
        const timespec times[2] = {{1, 2}, {3, 4}};
        return answer(::futimens(file, times));
    });
    add("utimensat AT_EMPTY_PATH", [](int file) {
        const timespec times[2] = {{1, 2}, {3, 4}};
        return answer(::utimensat(file, "", times, AT_EMPTY_PATH));
    });
    add("fsetxattr", [](int file) { return answer(::fsetxattr(file, "user.a", "v", 1, 0)); });
    add("fgetxattr", [](int file) { return answer(::fgetxattr(file, "user.a", nullptr, 0)); });
    add("flistxattr", [](int file) { return counted(::flistxattr(file, nullptr, 0)); });
    add("fremovexattr", [](int file) { return answer(::fremovexattr(file, "user.a")); });
}

void add_syncs(Calls& calls) {
    auto add = [&](const char* name, Run run) { calls.push_back({name, std::move(run)}); };
    add("fsync", [](int file) { return answer(::fsync(file)); });
    add("fdatasync", [](int file) { return answer(::fdatasync(file)); });
    add("syncfs", [](int file) { return answer(::syncfs(file)); });
    add("sync_file_range",
        [](int file) { return answer(::sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE)); });
    add("sync_file_range unknown flag",
        [](int file) { return answer(::sync_file_range(file, 0, 0, 64)); });
    add("sync_file_range -1", [](int file) { return answer(::sync_file_range(file, -1, 10, 1)); });
    add("readahead", [](int file) { return answer(::readahead(file, 0, 4096)); });
    add("posix_fadvise", [](int file) {
        const int error = ::posix_fadvise(file, 0, 0, POSIX_FADV_SEQUENTIAL);
        return error == 0 ? std::string("ok") : error_name(error);
    });
    add("posix_fadvise unknown advice", [](int file) {
        const int error = ::posix_fadvise(file, 0, 0, 99);
        return error == 0 ? std::string("ok") : error_name(error);
    });
}

std::string opened(int file) {
    if (file < 0) {
        return error_name(errno);
    }
    ::close(file);
    return "ok";
}

void add_names(Calls& calls) {
    auto add = [&](const char* name, Run run) { calls.push_back({name, std::move(run)}); };
    add("fchdir", [](int file) { return answer(::fchdir(file)); });
    add("getdents", [](int file) {
        char buffer[4096];
        const long count = ::syscall(SYS_getdents64, file, buffer, sizeof buffer);
        return count > 0 ? "ok" : counted(count);
    });
    add("getdents into 10 bytes", [](int file) {
        char buffer[10];
        return counted(::syscall(SYS_getdents64, file, buffer, sizeof buffer));
    });
    add("openat in it",
        [](int file) { return opened(::openat(file, "new", O_CREAT | O_RDWR, 0644)); });
    add("openat absolute", [](int file) { return opened(::openat(file, "/", O_PATH)); });
    add("mkdirat in it", [](int file) { return answer(::mkdirat(file, "new", 0755)); });
    add("symlinkat in it", [](int file) { return answer(::symlinkat("t", file, "new")); });
    add("unlinkat in it", [](int file) { return answer(::unlinkat(file, "new", 0)); });
    add("renameat into it",
        [](int file) { return answer(::renameat(AT_FDCWD, "other", file, "new")); });
    add("linkat into it",
        [](int file) { return answer(::linkat(AT_FDCWD, "other", file, "new", 0)); });
    add("linkat AT_EMPTY_PATH",
        [](int file) { return answer(::linkat(file, "", AT_FDCWD, "new", AT_EMPTY_PATH)); });
    add("linkat by /proc", [](int file) {
        const std::string path = "/proc/self/fd/" + std::to_string(file);
        return answer(::linkat(AT_FDCWD, path.c_str(), AT_FDCWD, "new", AT_SYMLINK_FOLLOW));
    });
    add("readlinkat empty path", [](int file) {
        char target[64];
        return counted(::readlinkat(file, "", target, sizeof target));
    });
    add("statx empty path", [](int file) {
        struct statx status {};
        return answer(::statx(file, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &status));
    });
    add("faccessat2 empty path", [](int file) {
        return answer(::syscall(SYS_faccessat2, file, "", R_OK | W_OK, AT_EMPTY_PATH));
    });
    add("open by /proc for writing", [](int file) {
        const std::string path = "/proc/self/fd/" + std::to_string(file);
        return opened(::open(path.c_str(), O_RDWR | O_NONBLOCK));
    });
    add("execveat", [](int file) {
        char* const none[] = {nullptr};
        ::syscall(SYS_execveat, file, "", none, none, AT_EMPTY_PATH);
        return error_name(errno);
    });
}

std::string set_lock(int file, int command, short type, off_t start, off_t length) {
    struct flock lock {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = start;
    lock.l_len = length;
    return answer(::fcntl(file, command, &lock));
}

void add_locks(Calls& calls) {
    auto add = [&](const char* name, Run run) { calls.push_back({name, std::move(run)}); };
    add("flock LOCK_SH", [](int file) { return answer(::flock(file, LOCK_SH | LOCK_NB)); });
    add("flock LOCK_EX", [](int file) { return answer(::flock(file, LOCK_EX | LOCK_NB)); });
    add("flock unknown operation", [](int file) { return answer(::flock(file, 64)); });
    add("F_SETLK read", [](int file) { return set_lock(file, F_SETLK, F_RDLCK, 0, 0); });
    add("F_SETLK write", [](int file) { return set_lock(file, F_SETLK, F_WRLCK, 0, 0); });
    add("F_SETLK -1", [](int file) { return set_lock(file, F_SETLK, F_RDLCK, -1, 0); });
    add("F_SETLK beyond the largest",
        [](int file) { return set_lock(file, F_SETLK, F_RDLCK, INT64_MAX, INT64_MAX); });
    add("F_GETLK", [](int file) { return set_lock(file, F_GETLK, F_WRLCK, 0, 0); });
    add("F_OFD_SETLK write", [](int file) { return set_lock(file, F_OFD_SETLK, F_WRLCK, 0, 0); });
    add("F_SETLEASE read", [](int file) { return answer(::fcntl(file, F_SETLEASE, F_RDLCK)); });
    add("F_SETLEASE write", [](int file) { return answer(::fcntl(file, F_SETLEASE, F_WRLCK)); });
    add("F_GETLEASE", [](int file) { return counted(::fcntl(file, F_GETLEASE)); });
    add("F_NOTIFY", [](int file) { return answer(::fcntl(file, F_NOTIFY, DN_CREATE)); });
}

void add_flags(Calls& calls) {
    auto add = [&](const char* name, Run run) { calls.push_back({name, std::move(run)}); };
    add("F_DUPFD", [](int file) { return opened(::fcntl(file, F_DUPFD, 10)); });
    add("F_SETFD", [](int file) { return answer(::fcntl(file, F_SETFD, FD_CLOEXEC)); });
    for (int flag : {O_APPEND, O_NONBLOCK, O_NOATIME, O_DIRECT, O_ASYNC, O_SYNC, O_TRUNC}) {
        calls.push_back(
            {"F_SETFL " + octal(static_cast<unsigned>(flag)), [flag](int file) {
                 std::string text = answer(::fcntl(file, F_SETFL, flag));
                 const int flags = ::fcntl(file, F_GETFL);
                 return text + (flags < 0 ? "" : " flags " + octal(static_cast<unsigned>(flags)));
             }});
    }
    add("F_SETPIPE_SZ", [](int file) { return answer(::fcntl(file, F_SETPIPE_SZ, 8192)); });
    add("F_ADD_SEALS", [](int file) { return answer(::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK)); });
    add("F_SET_RW_HINT", [](int file) {
        uint64_t hint = RWH_WRITE_LIFE_SHORT;
        return answer(::fcntl(file, F_SET_RW_HINT, &hint));
    });
    add("F_SETOWN", [](int file) { return answer(::fcntl(file, F_SETOWN, ::getpid())); });
    add("F_SETSIG", [](int file) { return answer(::fcntl(file, F_SETSIG, SIGIO)); });
    add("fcntl unknown", [](int file) { return answer(::fcntl(file, 9999)); });
}

void add_controls(Calls& calls) {
    auto add = [&](const char* name, Run run) { calls.push_back({name, std::move(run)}); };
    add("FS_IOC_GETFLAGS", [](int file) {
        int flags = 0;
        return answer(::ioctl(file, FS_IOC_GETFLAGS, &flags));
    });
    add("FS_IOC_SETFLAGS nodump", [](int file) {
        int flags = 0;  // some belong to the file system
        ::ioctl(file, FS_IOC_GETFLAGS, &flags);
        flags |= FS_NODUMP_FL;
        return answer(::ioctl(file, FS_IOC_SETFLAGS, &flags));
    });
    add("FS_IOC_FSGETXATTR", [](int file) {
        fsxattr attributes{};
        return answer(::ioctl(file, FS_IOC_FSGETXATTR, &attributes));
    });
    add("FIONREAD", [](int file) {
        int count = 0;
        const std::string text = answer(::ioctl(file, FIONREAD, &count));
        return text == "ok" ? "ok " + std::to_string(count) : text;
    });
    add("FIGETBSZ", [](int file) {
        int size = 0;
        return answer(::ioctl(file, FIGETBSZ, &size));
    });
    add("FIONBIO", [](int file) {
        int on = 1;
        return answer(::ioctl(file, FIONBIO, &on));
    });
    add("FICLONE from it", [](int file) {
        return answer(::ioctl(::open("new", O_CREAT | O_RDWR, 0644), FICLONE, file));
    });
    add("TCGETS", [](int file) {
        char buffer[256];
        return answer(::ioctl(file, 0x5401, buffer));
    });
    add("ioctl unknown", [](int file) { return answer(::ioctl(file, 0x12345678, nullptr)); });
    add("poll", [](int file) {
        pollfd query{file, POLLIN | POLLOUT, 0};
        const int count = ::poll(&query, 1, 0);
        return counted(count) + " events " + octal(static_cast<unsigned short>(query.revents));
    });
    add("epoll_ctl", [](int file) {
        epoll_event event{};
        return answer(::epoll_ctl(::epoll_create1(0), EPOLL_CTL_ADD, file, &event));
    });
}

std::string map(int file, int protection, int flags, off_t offset) {
    void* address = ::mmap(nullptr, 4096, protection, flags, file, offset);
    return address == MAP_FAILED ? error_name(errno) : "ok";
}

void add_mappings(Calls& calls) {
    auto add = [&](const char* name, Run run) { calls.push_back({name, std::move(run)}); };
    add("mmap shared read", [](int file) { return map(file, PROT_READ, MAP_SHARED, 0); });
    add("mmap shared write",
        [](int file) { return map(file, PROT_READ | PROT_WRITE, MAP_SHARED, 0); });
    add("mmap private write",
        [](int file) { return map(file, PROT_READ | PROT_WRITE, MAP_PRIVATE, 0); });
    add("mmap execute", [](int file) { return map(file, PROT_READ | PROT_EXEC, MAP_PRIVATE, 0); });
    add("mmap odd offset", [](int file) { return map(file, PROT_READ, MAP_SHARED, 100); });
    add("mmap neither", [](int file) { return map(file, PROT_READ, 0, 0); });
    add("mmap MAP_SHARED_VALIDATE|MAP_SYNC", [](int file) {
        return map(file, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, 0);
    });
}

}  // namespace

const std::vector<DescriptorCall>& control_calls() {
    static const std::vector<DescriptorCall> calls = [] {
        std::vector<DescriptorCall> made;
        add_attributes(made);
        add_syncs(made);
        add_names(made);
        add_locks(made);
        add_flags(made);
        add_controls(made);
        add_mappings(made);
        return made;
    }();
    return calls;
}

}  // namespace tiffin::conformance
