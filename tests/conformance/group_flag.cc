// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The flags of chattr: what they forbid.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "tests/conformance/answer.h"
#include "tests/conformance/calls.h"
#include "tests/conformance/groups.h"

namespace tiffin::conformance {
namespace {

struct Action {
    const char* name;
    std::string (*run)();
};

void set_flags(const char* path, int flags) {
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    int all = 0;  // some belong to the file system
    if (file < 0 || ::ioctl(file, FS_IOC_GETFLAGS, &all) < 0 ||
        ::ioctl(file, FS_IOC_SETFLAGS, &(all |= flags)) < 0) {
        broken(std::string("chattr ") + path + ": " + std::strerror(errno));
    }
    ::close(file);
}

const Action kOnFlagged[] = {
    {"open O_RDONLY", [] { return path_call("open O_RDONLY").run("d/x"); }},
    {"open O_RDONLY|O_TRUNC", [] { return path_call("open O_RDONLY|O_TRUNC").run("d/x"); }},
    {"truncate", [] { return answer(::truncate("d/x", 2)); }},
    {"chmod", [] { return answer(::chmod("d/x", 0600)); }},
    {"chown", [] { return answer(::chown("d/x", 1, 1)); }},
    {"chown of nothing", [] { return answer(::chown("d/x", -1, -1)); }},
    {"utimensat null", [] { return path_call("utimensat null").run("d/x"); }},
    {"utimensat values", [] { return path_call("utimensat values").run("d/x"); }},
    {"setxattr", [] { return path_call("setxattr user.a").run("d/x"); }},
    {"getxattr", [] { return path_call("getxattr user.a").run("d/x"); }},
    {"access W_OK", [] { return path_call("access W_OK").run("d/x"); }},
    {"link", [] { return answer(::link("d/x", "new")); }},
    {"unlink", [] { return answer(::unlink("d/x")); }},
    {"rename", [] { return answer(::rename("d/x", "new")); }},
    {"rename over", [] { return answer(::rename("y", "d/x")); }},
    {"creation", [] { return path_call("creat").run("d/new"); }},
    {"mkdir", [] { return answer(::mkdir("d/new", 0755)); }},
    {"symlink", [] { return answer(::symlink("t", "d/new")); }},
    {"rename into", [] { return answer(::rename("y", "d/new")); }},
    {"link into", [] { return answer(::link("y", "d/new")); }},
    {"temporary file", [] { return path_call("open O_TMPFILE|O_RDWR").run("d"); }},
    {"chmod of the directory", [] { return answer(::chmod("d", 0700)); }},
    {"utimensat null of the directory", [] { return path_call("utimensat null").run("d"); }},
    {"rmdir of the directory", [] { return answer(::rmdir("d")); }},
    {"rename of the directory", [] { return answer(::rename("d", "new")); }},
    {"open O_WRONLY", [] { return path_call("open O_WRONLY").run("d/x"); }},
    {"open O_WRONLY|O_APPEND", [] { return path_call("open O_WRONLY|O_APPEND").run("d/x"); }},
};

}  // namespace

void add_flag_trials(Trials& trials) {
    struct Flag {
        const char* name;
        const char* path;
        int flags;
    };
    static constexpr Flag flags[] = {
        {"immutable file", "d/x", FS_IMMUTABLE_FL},
        {"append-only file", "d/x", FS_APPEND_FL},
        {"immutable directory", "d", FS_IMMUTABLE_FL},
        {"append-only directory", "d", FS_APPEND_FL},
    };
    for (const Flag& flag : flags) {
        for (const Action& action : kOnFlagged) {
            for (Caller caller : {Caller::root, Caller::other}) {
                trials.add(
                    std::string(action.name) + ", " + flag.name, caller,
                    [&flag](Scene& scene) {
                        scene.mode(".", 0777);
                        scene.file("y", 0666);
                        scene.directory("d", 0777);
                        scene.file("d/x", 0666);
                        scene.watch("new");
                        scene.watch("d/new");
                        set_flags(flag.path, flag.flags);
                    },
                    action.run);
            }
        }
    }
}

}  // namespace tiffin::conformance
