// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/conformance/answer.h"
#include "tests/conformance/calls.h"
#include "tests/conformance/snapshot.h"

namespace tiffin::conformance {
namespace {

// Kind, flags and position of what was opened. O_LARGEFILE is the architecture's.
std::string describe_open(long file) {
    if (file < 0) {
        return error_name(errno);
    }
    struct stat status {};
    if (::fstat(static_cast<int>(file), &status) < 0) {
        return "opened, and fstat says " + error_name(errno);
    }
    const int flags = ::fcntl(static_cast<int>(file), F_GETFL) & ~0100000;
    std::string text = std::string("ok ") + type_letter(status.st_mode) + " flags " +
                       octal(static_cast<unsigned>(flags));
    if (status.st_nlink == 0) {
        text += " mode " + octal(status.st_mode & 07777) + " owner " +
                std::to_string(status.st_uid) + ":" + std::to_string(status.st_gid) + " unlinked";
    }
    ::close(static_cast<int>(file));
    return text;
}

struct OpenFlags {
    const char* name;
    int flags;
};

constexpr OpenFlags kFlags[] = {
    {"O_RDONLY", O_RDONLY},
    {"O_WRONLY", O_WRONLY},
    {"O_RDWR", O_RDWR},
    {"O_ACCMODE", O_ACCMODE},
    {"O_RDONLY|O_TRUNC", O_RDONLY | O_TRUNC},
    {"O_WRONLY|O_TRUNC", O_WRONLY | O_TRUNC},
    {"O_WRONLY|O_APPEND", O_WRONLY | O_APPEND},
    {"O_RDWR|O_APPEND|O_TRUNC", O_RDWR | O_APPEND | O_TRUNC},
    {"O_CREAT|O_RDONLY", O_CREAT | O_RDONLY},
    {"O_CREAT|O_WRONLY", O_CREAT | O_WRONLY},
    {"O_CREAT|O_EXCL|O_RDWR", O_CREAT | O_EXCL | O_RDWR},
    {"O_EXCL|O_RDWR", O_EXCL | O_RDWR},
    {"O_CREAT|O_TRUNC|O_WRONLY", O_CREAT | O_TRUNC | O_WRONLY},
    {"O_CREAT|O_DIRECTORY", O_CREAT | O_DIRECTORY},
    {"O_CREAT|O_DIRECTORY|O_EXCL", O_CREAT | O_DIRECTORY | O_EXCL},
    {"O_CREAT|O_NOFOLLOW|O_WRONLY", O_CREAT | O_NOFOLLOW | O_WRONLY},
    {"O_DIRECTORY", O_DIRECTORY},
    {"O_DIRECTORY|O_WRONLY", O_DIRECTORY | O_WRONLY},
    {"O_NOFOLLOW", O_NOFOLLOW},
    {"O_NOFOLLOW|O_DIRECTORY", O_NOFOLLOW | O_DIRECTORY},
    {"O_PATH", O_PATH},
    {"O_PATH|O_NOFOLLOW", O_PATH | O_NOFOLLOW},
    {"O_PATH|O_DIRECTORY", O_PATH | O_DIRECTORY},
    {"O_PATH|O_NOFOLLOW|O_DIRECTORY", O_PATH | O_NOFOLLOW | O_DIRECTORY},
    {"O_PATH|O_CREAT", O_PATH | O_CREAT},
    {"O_TMPFILE|O_RDWR", O_TMPFILE | O_RDWR},
    {"O_TMPFILE|O_RDONLY", O_TMPFILE | O_RDONLY},
    {"O_TMPFILE|O_EXCL|O_WRONLY", O_TMPFILE | O_EXCL | O_WRONLY},
    {"O_TMPFILE|O_CREAT|O_RDWR", O_TMPFILE | O_CREAT | O_RDWR},
    {"O_NOATIME", O_NOATIME},
    {"O_DIRECT", O_DIRECT},
    {"O_DIRECT|O_CREAT|O_RDWR", O_DIRECT | O_CREAT | O_RDWR},
    {"O_SYNC|O_WRONLY", O_SYNC | O_WRONLY},
    {"O_DSYNC|O_CREAT|O_RDWR", O_DSYNC | O_CREAT | O_RDWR},
    {"O_ASYNC", O_ASYNC},
};

struct How {
    const char* name;
    open_how how;
};

constexpr How kHows[] = {
    {"plain", {O_RDONLY, 0, 0}},
    {"mode without creation", {O_RDONLY, 0644, 0}},
    {"unknown flag", {1ULL << 40, 0, 0}},
    {"O_CREAT, unknown mode bit", {O_CREAT | O_WRONLY, 0100000, 0}},
    {"O_CREAT 07777", {O_CREAT | O_WRONLY, 07777, 0}},
    {"unknown resolution", {O_RDONLY, 0, 1ULL << 40}},
    {"RESOLVE_NO_SYMLINKS", {O_RDONLY, 0, RESOLVE_NO_SYMLINKS}},
    {"RESOLVE_NO_SYMLINKS, O_CREAT", {O_CREAT | O_WRONLY, 0644, RESOLVE_NO_SYMLINKS}},
    {"RESOLVE_BENEATH", {O_RDONLY, 0, RESOLVE_BENEATH}},
    {"RESOLVE_BENEATH, O_CREAT", {O_CREAT | O_RDWR, 0600, RESOLVE_BENEATH}},
    {"RESOLVE_IN_ROOT", {O_RDONLY, 0, RESOLVE_IN_ROOT}},
    {"RESOLVE_BENEATH|RESOLVE_IN_ROOT", {O_RDONLY, 0, RESOLVE_BENEATH | RESOLVE_IN_ROOT}},
    {"RESOLVE_NO_XDEV", {O_RDONLY, 0, RESOLVE_NO_XDEV}},
    {"RESOLVE_NO_MAGICLINKS", {O_RDONLY, 0, RESOLVE_NO_MAGICLINKS}},
    {"RESOLVE_CACHED", {O_RDONLY, 0, RESOLVE_CACHED}},
    {"RESOLVE_CACHED, O_TRUNC", {O_WRONLY | O_TRUNC, 0, RESOLVE_CACHED}},
};

}  // namespace

const std::vector<PathCall>& open_calls() {
    static const std::vector<PathCall> calls = [] {
        std::vector<PathCall> made;
        for (const OpenFlags& entry : kFlags) {
            made.push_back({std::string("open ") + entry.name, [&entry](const char* path) {
                                // Never waiting for the other end of a fifo.
                                return describe_open(
                                    ::open(path, entry.flags | O_NONBLOCK | O_CLOEXEC, 07640));
                            }});
        }
        for (const How& entry : kHows) {
            made.push_back({std::string("openat2 ") + entry.name, [&entry](const char* path) {
                                open_how how = entry.how;
                                how.flags |= O_NONBLOCK | O_CLOEXEC;
                                return describe_open(
                                    ::syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how));
                            }});
        }
        made.push_back({"creat", [](const char* path) {
                            struct stat status {};
                            if (::stat(path, &status) == 0 && S_ISFIFO(status.st_mode)) {
                                return std::string("not tried: it would wait for a reader");
                            }
                            return describe_open(::creat(path, 0666));
                        }});
        return made;
    }();
    return calls;
}

}  // namespace tiffin::conformance
