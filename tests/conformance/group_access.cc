// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Permissions: what the nine bits of a file and of a directory allow to whom.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "tests/conformance/answer.h"
#include "tests/conformance/calls.h"
#include "tests/conformance/groups.h"

namespace tiffin::conformance {

const PathCall& path_call(const std::string& name) {
    for (const auto* calls : {&open_calls(), &name_calls(), &object_calls(), &xattr_calls()}) {
        for (const PathCall& call : *calls) {
            if (call.name == name) {
                return call;
            }
        }
    }
    broken("no call is named '" + name + "'");
}

namespace {

constexpr mode_t kFileModes[] = {0000, 0400, 0200, 0100, 0040, 0020, 0010,
                                 0004, 0002, 0001, 0666, 0777, 0077, 0707};

constexpr const char* kFileCalls[] = {
    "open O_RDONLY",
    "open O_WRONLY",
    "open O_RDWR",
    "open O_ACCMODE",
    "open O_RDONLY|O_TRUNC",
    "open O_WRONLY|O_TRUNC",
    "open O_NOATIME",
    "open O_PATH",
    "creat",
    "access R_OK",
    "access W_OK",
    "access X_OK",
    "execve",
    "truncate to 3",
    "utimensat null",
    "utimensat values",
    "chmod 0640",
    "lchown nothing",
    "setxattr user.a",
    "getxattr user.a",
    "listxattr",
    "inotify_add_watch",
};

void add_file_trials(Trials& trials) {
    for (const char* name : kFileCalls) {
        const PathCall& call = path_call(name);
        for (mode_t mode : kFileModes) {
            for (Caller caller : kAllCallers) {
                trials.add(
                    call.name + ", file " + octal(mode), caller,
                    [mode](Scene& scene) {
                        scene.belong_to(kOwner, kGroup);
                        scene.file("x", mode);
                    },
                    [&call] { return call.run("x"); });
            }
        }
    }
}

struct DirectoryCall {
    const char* name;
    std::string (*run)();
};

const DirectoryCall kDirectoryCalls[] = {
    {"stat of a file in it", [] { return path_call("stat").run("x/f"); }},
    {"stat of a missing file in it", [] { return path_call("stat").run("x/no"); }},
    {"stat of a directory in it, with a slash", [] { return path_call("stat").run("x/e/"); }},
    {"open of a file in it", [] { return path_call("open O_RDONLY").run("x/f"); }},
    {"open of a missing file in it", [] { return path_call("open O_RDONLY").run("x/no"); }},
    {"creation", [] { return path_call("open O_CREAT|O_WRONLY").run("x/new"); }},
    {"creation over what is there",
     [] { return path_call("open O_CREAT|O_EXCL|O_RDWR").run("x/f"); }},
    {"open with O_CREAT of what is there",
     [] { return path_call("open O_CREAT|O_WRONLY").run("x/f"); }},
    {"temporary file", [] { return path_call("open O_TMPFILE|O_RDWR").run("x"); }},
    {"readdir", [] { return path_call("readdir").run("x"); }},
    {"open O_PATH", [] { return path_call("open O_PATH").run("x"); }},
    {"chdir", [] { return path_call("chdir").run("x"); }},
    {"mkdir", [] { return path_call("mkdir 0755").run("x/new"); }},
    {"mkdir over what is there", [] { return path_call("mkdir 0755").run("x/e"); }},
    {"mknod fifo", [] { return path_call("mknod fifo").run("x/new"); }},
    {"mknod char", [] { return path_call("mknod char").run("x/new"); }},
    {"mknod whiteout", [] { return path_call("mknod whiteout").run("x/new"); }},
    {"symlink", [] { return path_call("symlink").run("x/new"); }},
    {"bind", [] { return path_call("bind").run("x/new"); }},
    {"unlink", [] { return answer(::unlink("x/f")); }},
    {"unlink of a missing file", [] { return answer(::unlink("x/no")); }},
    {"unlink of a directory", [] { return answer(::unlink("x/e")); }},
    {"rmdir", [] { return answer(::rmdir("x/e")); }},
    {"rename in it", [] { return answer(::rename("x/f", "x/new")); }},
    {"rename out of it", [] { return answer(::rename("x/f", "new")); }},
    {"rename into it", [] { return answer(::rename("y", "x/new")); }},
    {"rename of a directory out of it", [] { return answer(::rename("x/e", "new")); }},
    {"rename to itself", [] { return answer(::rename("x/f", "x/f")); }},
    {"link in it", [] { return answer(::link("x/f", "x/new")); }},
    {"link out of it", [] { return answer(::link("x/f", "new")); }},
    {"link into it", [] { return answer(::link("y", "x/new")); }},
    {"chmod of a file in it", [] { return answer(::chmod("x/f", 0600)); }},
    {"utimensat null", [] { return path_call("utimensat null").run("x"); }},
    {"setxattr", [] { return path_call("setxattr user.a").run("x"); }},
    {"access W_OK", [] { return path_call("access W_OK").run("x"); }},
    {"parent by dot dot", [] { return path_call("stat").run("x/../y"); }},
};

void add_directory_trials_of(Trials& trials, mode_t mode, Caller caller) {
    for (const DirectoryCall& call : kDirectoryCalls) {
        trials.add(
            std::string(call.name) + ", directory " + octal(mode), caller,
            [mode](Scene& scene) {
                scene.mode(".", 0777);
                scene.belong_to(kOwner, kGroup);
                scene.file("y", 0666);
                scene.directory("x");
                scene.file("x/f", 0666);
                scene.directory("x/e", 0777);
                scene.watch("x/new");
                scene.watch("new");
                scene.mode("x", mode);
            },
            call.run);
    }
}

// One class has the bits and the others have none; then a class that has less than the next.
void add_directory_modes(Trials& trials) {
    for (mode_t bits = 0; bits < 8; ++bits) {
        add_directory_trials_of(trials, bits << 6, Caller::owner);
        add_directory_trials_of(trials, bits << 3, Caller::group_by_list);
        add_directory_trials_of(trials, bits, Caller::other);
    }
    for (Caller caller : kAllCallers) {
        add_directory_trials_of(trials, 0070 | 01000, caller);  // sticky, which is nothing to these
        add_directory_trials_of(trials, 0707, caller);
    }
}

}  // namespace

void add_access_trials(Trials& trials) {
    add_file_trials(trials);
    add_directory_modes(trials);
}

}  // namespace tiffin::conformance
