// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Directories with the sticky and the set-group-id bit.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/conformance/answer.h"
#include "tests/conformance/calls.h"
#include "tests/conformance/groups.h"

namespace tiffin::conformance {
namespace {

struct Action {
    const char* name;
    std::string (*run)();
};

std::string exchange(const char* a, const char* b) {
    return answer(::syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE));
}

// In "s", the directory, are "f" and "e", somebody's; beside it, open to all, is "o" with "mine" and
// "dir", the caller's.
const Action kStickyActions[] = {
    {"unlink", [] { return answer(::unlink("s/f")); }},
    {"rmdir", [] { return answer(::rmdir("s/e")); }},
    {"rename within", [] { return answer(::rename("s/f", "s/new")); }},
    {"rename of a directory within", [] { return answer(::rename("s/e", "s/new")); }},
    {"rename out", [] { return answer(::rename("s/f", "o/new")); }},
    {"rename of a directory out", [] { return answer(::rename("s/e", "o/new")); }},
    {"rename over", [] { return answer(::rename("o/mine", "s/f")); }},
    {"rename of a directory over", [] { return answer(::rename("o/dir", "s/e")); }},
    {"rename into", [] { return answer(::rename("o/mine", "s/new")); }},
    {"exchange with one's own", [] { return exchange("o/mine", "s/f"); }},
    {"exchange of directory and file", [] { return exchange("o/dir", "s/f"); }},
    {"link within", [] { return answer(::link("s/f", "s/new")); }},
    {"creation", [] { return path_call("creat").run("s/new"); }},
    {"creation over", [] { return path_call("creat").run("s/f"); }},
    {"opening with O_CREAT", [] { return path_call("open O_CREAT|O_WRONLY").run("s/f"); }},
};

struct Owners {
    const char* name;
    uid_t directory;
    uid_t object;
};
constexpr Owners kOwners[] = {
    {"all root's", 0, 0},
    {"the owner's in root's", 0, kOwner},
    {"another's in the owner's", kOwner, kOther},
    {"all the owner's", kOwner, kOwner},
};

uid_t user_of(Caller caller) {
    switch (caller) {
        case Caller::owner:
            return kOwner;
        case Caller::other:
            return kOther;
        default:
            return 0;
    }
}

void add_sticky(Trials& trials, mode_t mode, const Owners& owners, Caller caller) {
    for (const Action& action : kStickyActions) {
        trials.add(
            std::string(action.name) + ", in " + octal(mode) + ", " + owners.name, caller,
            [mode, &owners, caller](Scene& scene) {
                scene.mode(".", 0777);
                scene.belong_to(owners.directory, kGroup);
                scene.directory("s");
                scene.belong_to(owners.object, kGroup);
                scene.file("s/f", 0666);
                scene.directory("s/e", 0777);
                scene.belong_to(user_of(caller), kGroup);
                scene.directory("o", 0777);
                scene.file("o/mine", 0666);
                scene.directory("o/dir", 0777);
                scene.watch("s/new");
                scene.watch("o/new");
                scene.mode("s", mode);
            },
            action.run);
    }
}

// Moving a directory to another parent changes its "..": that needs write permission on itself.
void add_moves_of_directories(Trials& trials) {
    for (mode_t mode : {0755, 0775, 0777, 0700}) {
        for (Caller caller : kAllCallers) {
            for (bool within : {true, false}) {
                trials.add(
                    std::string("rename of a directory ") +
                        (within ? "within its parent, " : "to another parent, ") + octal(mode),
                    caller,
                    [mode](Scene& scene) {
                        scene.directory("a", 0777);
                        scene.directory("b", 0777);
                        scene.belong_to(kOwner, kGroup);
                        scene.directory("a/d", mode);
                        scene.watch("a/new");
                        scene.watch("b/new");
                    },
                    [within] { return answer(::rename("a/d", within ? "a/new" : "b/new")); });
            }
        }
    }
}

const Action kCreations[] = {
    {"open 0644", [] { return answer(::open("s/new", O_CREAT | O_WRONLY, 0644)); }},
    {"open 02755", [] { return answer(::open("s/new", O_CREAT | O_WRONLY, 02755)); }},
    {"open 06755", [] { return answer(::open("s/new", O_CREAT | O_WRONLY, 06755)); }},
    {"open 02644", [] { return answer(::open("s/new", O_CREAT | O_WRONLY, 02644)); }},
    {"open 01777", [] { return answer(::open("s/new", O_CREAT | O_WRONLY, 01777)); }},
    {"mkdir 0755", [] { return answer(::mkdir("s/new", 0755)); }},
    {"mkdir 02700", [] { return answer(::mkdir("s/new", 02700)); }},
    {"mkdir 07777", [] { return answer(::mkdir("s/new", 07777)); }},
    {"mknod 02755", [] { return answer(::mknod("s/new", S_IFREG | 02755, 0)); }},
    {"mknod fifo 02755", [] { return answer(::mknod("s/new", S_IFIFO | 02755, 0)); }},
    {"symlink", [] { return answer(::symlink("t", "s/new")); }},
    {"link", [] { return answer(::link("mine", "s/new")); }},
    {"rename", [] { return answer(::rename("mine", "s/new")); }},
    {"rename of a directory", [] { return answer(::rename("dir", "s/new")); }},
    {"temporary file 02755", [] { return path_call("open O_TMPFILE|O_RDWR").run("s"); }},
    {"temporary file given a name",
     [] {
         const int file = ::open("s", O_TMPFILE | O_WRONLY, 02755);
         const std::string path = "/proc/self/fd/" + std::to_string(file);
         return file < 0 ? error_name(errno)
                         : answer(::linkat(AT_FDCWD, path.c_str(), AT_FDCWD, "s/new",
                                           AT_SYMLINK_FOLLOW));
     }},
};

void add_set_group_id(Trials& trials) {
    for (const Action& action : kCreations) {
        for (mode_t mode : {02777, 0777}) {
            for (Caller caller : kAllCallers) {
                trials.add(
                    std::string(action.name) + ", made in " + octal(mode), caller,
                    [mode, caller](Scene& scene) {
                        scene.mode(".", 0777);
                        scene.belong_to(user_of(caller), 3000);
                        scene.file("mine", 0666);
                        scene.directory("dir", 0777);
                        scene.belong_to(0, kGroup);
                        scene.directory("s", mode);
                        scene.watch("s/new");
                    },
                    action.run);
            }
        }
    }
}

}  // namespace

void add_sticky_trials(Trials& trials) {
    for (mode_t mode : {01777, 0777, 01770, 03777}) {
        for (const Owners& owners : kOwners) {
            for (Caller caller :
                 {Caller::root, Caller::owner, Caller::group_by_list, Caller::other}) {
                add_sticky(trials, mode, owners, caller);
            }
        }
    }
    add_moves_of_directories(trials);
    add_set_group_id(trials);
}

}  // namespace tiffin::conformance
