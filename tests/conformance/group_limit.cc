// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Lengths and numbers at their limits. Limits that each file system chooses for itself (links, sizes) are
// cases of the suite.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <climits>

#include "tests/conformance/answer.h"
#include "tests/conformance/calls.h"
#include "tests/conformance/groups.h"
#include "tests/conformance/kinds.h"

namespace tiffin::conformance {
namespace {

void add_targets(Trials& trials) {
    for (size_t size : {1, 59, 60, 61, 255, 256, 1000, 4094, 4095, 4096, 5000}) {
        trials.add(
            "symlink, target of " + std::to_string(size), Caller::root,
            [](Scene& scene) { scene.watch("x"); },
            [size] { return answer(::symlink(std::string(size, 't').c_str(), "x")); });
        trials.add(
            "stat, link to a path of " + std::to_string(size), Caller::root,
            [size](Scene& scene) {
                if (size < PATH_MAX) {
                    scene.symlink(std::string(size, '/'), "l");
                }
            },
            [] { return path_call("chdir").run("l"); });
    }
}

// Names of every kind of byte.
void add_names(Trials& trials) {
    const std::string names[] = {"\x01",
                                 "\xff",
                                 "\xc0\x80",
                                 "a\nb",
                                 "...",
                                 "-",
                                 " ",
                                 "\xe2\x82\xac",
                                 std::string(254, '\xff'),
                                 std::string(255, '.'),
                                 "A",
                                 "con",
                                 "~"};
    for (const std::string& name : names) {
        const std::string shown = name.size() > 20 ? std::to_string(name.size()) + " bytes of " +
                                                         quoted(name.substr(0, 1))
                                                   : quoted(name);
        for (const char* call : {"creat", "mkdir 0755", "mknod fifo", "symlink"}) {
            trials.add(
                std::string(call) + ", name " + shown, Caller::root, [](Scene&) {},
                [call, name] { return path_call(call).run(name.c_str()); });
        }
    }
}

void add_two_name_lengths(Trials& trials) {
    for (const PairCall& call : pair_calls()) {
        for (size_t size : {255, 256}) {
            trials.add(
                call.name + ", new name of " + std::to_string(size), Caller::root,
                [size](Scene& scene) {
                    scene.file("x");
                    if (size == 255) {
                        scene.watch(long_name(255));
                    }
                },
                [&call, size] { return call.run("x", long_name(size).c_str()); });
            trials.add(
                call.name + ", old name of " + std::to_string(size), Caller::root,
                [size](Scene& scene) {
                    if (size == 255) {
                        scene.file(long_name(255));
                    }
                    scene.watch("new");
                },
                [&call, size] { return call.run(long_name(size).c_str(), "new"); });
        }
    }
}

void add_devices(Trials& trials) {
    struct Number {
        unsigned major;
        unsigned minor;
    };
    static constexpr Number numbers[] = {{0, 0},      {1, 3},          {255, 255},  {256, 0},
                                         {4095, 255}, {4095, 1048575}, {0, 1048575}};
    for (const Number& number : numbers) {
        for (mode_t type : {S_IFCHR, S_IFBLK, S_IFIFO, S_IFREG}) {
            trials.add(
                "mknod " + octal(type) + ", device " + std::to_string(number.major) + "," +
                    std::to_string(number.minor),
                Caller::root, [](Scene& scene) { scene.watch("x"); },
                [&number, type] {
                    return answer(::mknod("x", type | 0600, makedev(number.major, number.minor)));
                });
        }
    }
}

void add_owners(Trials& trials) {
    for (uid_t id : {0U, 65535U, 65536U, 0x7fffffffU, 0x80000000U, 0xfffffffeU}) {
        trials.add(
            "chown to " + std::to_string(id), Caller::root, [](Scene& scene) { scene.file("x"); },
            [id] { return answer(::chown("x", id, id)); });
    }
}

// Forty links are followed, and one more is a loop.
void add_chains(Trials& trials) {
    for (const char* call : {"open O_RDONLY",
                             "open O_PATH|O_NOFOLLOW",
                             "open O_CREAT|O_WRONLY",
                             "creat",
                             "open O_NOFOLLOW",
                             "openat2 RESOLVE_NO_SYMLINKS",
                             "stat",
                             "lstat",
                             "access R_OK",
                             "chdir",
                             "readdir",
                             "execve",
                             "readlink",
                             "chmod 0640",
                             "chown",
                             "lchown",
                             "truncate to 3",
                             "utimensat values",
                             "setxattr user.a",
                             "lsetxattr user.a",
                             "mkdir 0755",
                             "mknod fifo",
                             "symlink",
                             "unlink",
                             "rmdir",
                             "statfs",
                             "inotify_add_watch"}) {
        for (int count : {39, 40, 41}) {
            for (const char* target : {"f", "d", "new"}) {
                trials.add(
                    std::string(call) + ", chain of " + std::to_string(count) + " to " + target,
                    Caller::root,
                    [count, target](Scene& scene) {
                        scene.file("f");
                        scene.directory("d");
                        scene.watch("new");
                        make_chain(target, count);
                    },
                    [call, count] { return path_call(call).run(std::to_string(count).c_str()); });
            }
        }
    }
}

// Deeper than a path can be: each step is short.
void add_depth(Trials& trials) {
    trials.add(
        "getcwd, deeper than a path", Caller::root, [](Scene&) {},
        [] {
            const std::string name = long_name(250);
            for (int i = 0; i < 20; ++i) {
                if (::mkdir(name.c_str(), 0755) < 0 || ::chdir(name.c_str()) < 0) {
                    return "level " + std::to_string(i) + " " + error_name(errno);
                }
            }
            char buffer[PATH_MAX];
            const bool known = ::getcwd(buffer, sizeof buffer) != nullptr;
            const std::string where = known ? "ok" : error_name(errno);
            return where + ", file " + path_call("creat").run("x");
        });
}

}  // namespace

void add_limit_trials(Trials& trials) {
    add_targets(trials);
    add_names(trials);
    add_two_name_lengths(trials);
    add_devices(trials);
    add_owners(trials);
    add_chains(trials);
    add_depth(trials);
}

}  // namespace tiffin::conformance
