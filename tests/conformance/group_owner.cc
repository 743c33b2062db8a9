// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Who may change modes and owners, what becomes of the set-id bits then, and which writes clear them.
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <csignal>

#include "tests/conformance/answer.h"
#include "tests/conformance/groups.h"

namespace tiffin::conformance {
namespace {

constexpr uid_t kKeepUser = static_cast<uid_t>(-1);
constexpr gid_t kKeepGroup = static_cast<gid_t>(-1);

void add_chmod(Trials& trials) {
    for (mode_t mode : {0600, 04755, 02755, 02744, 01755, 07777, 0}) {
        for (Caller caller : kAllCallers) {
            for (bool directory : {false, true}) {
                trials.add(
                    "chmod " + octal(mode) + (directory ? ", directory" : ", file"), caller,
                    [directory](Scene& scene) {
                        scene.belong_to(kOwner, kGroup);
                        directory ? scene.directory("x") : scene.file("x");
                    },
                    [mode] { return answer(::chmod("x", mode)); });
                // The owner is in this group only if it is the caller's own.
                trials.add(
                    "chmod " + octal(mode) + (directory ? ", directory" : ", file") +
                        " of the owner's group",
                    caller,
                    [directory](Scene& scene) {
                        scene.belong_to(kOwner, 1001);
                        directory ? scene.directory("x") : scene.file("x");
                    },
                    [mode] { return answer(::chmod("x", mode)); });
            }
        }
    }
}

struct Owners {
    const char* name;
    uid_t user;
    gid_t group;
};
constexpr Owners kNewOwners[] = {
    {"nobody", kKeepUser, kKeepGroup},
    {"the same", kOwner, kGroup},
    {"another user", kOther, kKeepGroup},
    {"the same user", kOwner, kKeepGroup},
    {"the same group", kKeepUser, kGroup},
    {"the owner's own group", kKeepUser, 1001},
    {"a group of the list", kKeepUser, 2001},
    {"a foreign group", kKeepUser, 4000},
    {"both others", kOther, 1004},
    {"root", 0, 0},
};

void add_chown(Trials& trials) {
    for (const Owners& owners : kNewOwners) {
        for (mode_t mode : {0755, 06755, 02745, 02644, 04644}) {
            for (Caller caller : kAllCallers) {
                trials.add(
                    std::string("chown to ") + owners.name + ", file " + octal(mode), caller,
                    [mode](Scene& scene) {
                        scene.belong_to(kOwner, kGroup);
                        scene.file("x", mode);
                    },
                    [&owners] { return answer(::chown("x", owners.user, owners.group)); });
            }
        }
        for (Caller caller : {Caller::root, Caller::owner, Caller::group_by_list}) {
            // The caller's own file: the owner in a group list of three.
            trials.add(
                std::string("chown to ") + owners.name + ", file of 1003", caller,
                [](Scene& scene) {
                    scene.belong_to(1003, 1003);
                    scene.file("x", 06755);
                },
                [&owners] { return answer(::chown("x", owners.user, owners.group)); });
            trials.add(
                std::string("chown to ") + owners.name + ", directory 06775 of 1003", caller,
                [](Scene& scene) {
                    scene.belong_to(1003, 1003);
                    scene.directory("x", 06775);
                },
                [&owners] { return answer(::chown("x", owners.user, owners.group)); });
            trials.add(
                std::string("lchown to ") + owners.name + ", symlink of 1003", caller,
                [](Scene& scene) {
                    scene.belong_to(1003, 1003);
                    scene.symlink("t", "x");
                },
                [&owners] { return answer(::lchown("x", owners.user, owners.group)); });
        }
    }
}

struct Writing {
    const char* name;
    std::string (*run)();
};

std::string with_open(int flags, std::string (*run)(int file)) {
    const int file = ::open("x", flags | O_CLOEXEC);
    return file < 0 ? "not opened: " + error_name(errno) : run(file);
}

std::string write_through_mapping(int file) {
    void* address = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (address == MAP_FAILED) {
        return error_name(errno);
    }
    *static_cast<char*>(address) = 'z';
    return answer(::msync(address, 4096, MS_SYNC));
}

std::string splice_into(int file) {
    int ends[2];
    if (::pipe(ends) < 0 || ::write(ends[1], "piped", 5) != 5) {
        return "no pipe";
    }
    return counted(::splice(ends[0], nullptr, file, nullptr, 5, 0));
}

const Writing kWritings[] = {
    {"write",
     [] { return with_open(O_WRONLY, [](int file) { return counted(::write(file, "ab", 2)); }); }},
    {"write of nothing",
     [] { return with_open(O_WRONLY, [](int file) { return counted(::write(file, "ab", 0)); }); }},
    {"append",
     [] {
         return with_open(O_WRONLY | O_APPEND,
                          [](int file) { return counted(::write(file, "ab", 2)); });
     }},
    {"synchronous write",
     [] {
         return with_open(O_WRONLY | O_SYNC,
                          [](int file) { return counted(::write(file, "ab", 2)); });
     }},
    {"truncate", [] { return answer(::truncate("x", 2)); }},
    {"truncate to the same size", [] { return answer(::truncate("x", 5)); }},
    {"truncate upwards", [] { return answer(::truncate("x", 50)); }},
    {"ftruncate",
     [] { return with_open(O_WRONLY, [](int file) { return answer(::ftruncate(file, 2)); }); }},
    {"O_TRUNC",
     [] { return with_open(O_WRONLY | O_TRUNC, [](int) { return std::string("ok"); }); }},
    {"fallocate",
     [] {
         return with_open(O_WRONLY, [](int file) { return answer(::fallocate(file, 0, 0, 100)); });
     }},
    {"punch hole",
     [] {
         return with_open(O_WRONLY, [](int file) {
             return answer(::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 3));
         });
     }},
    {"mapping", [] { return with_open(O_RDWR, write_through_mapping); }},
    {"splice", [] { return with_open(O_WRONLY, splice_into); }},
    {"copy_file_range",
     [] {
         return with_open(O_WRONLY, [](int file) {
             return counted(::copy_file_range(::open("y", O_RDONLY), nullptr, file, nullptr, 3, 0));
         });
     }},
    {"setxattr", [] { return answer(::setxattr("x", "user.a", "v", 1, 0)); }},
    {"utimensat", [] { return answer(::utimensat(AT_FDCWD, "x", nullptr, 0)); }},
    {"link", [] { return answer(::link("x", "new")); }},
    {"rename", [] { return answer(::rename("x", "new")); }},
    {"reading",
     [] {
         return with_open(O_RDONLY, [](int file) {
             char buffer[8];
             return counted(::read(file, buffer, sizeof buffer));
         });
     }},
};

void add_writings(Trials& trials) {
    for (const Writing& writing : kWritings) {
        for (mode_t mode : {06777, 02767, 04766, 01777, 0777}) {
            for (Caller caller : kAllCallers) {
                for (bool capable : {false, true}) {
                    if (capable && mode != 0777) {
                        continue;
                    }
                    trials.add(
                        std::string(writing.name) + ", file " + octal(mode) +
                            (capable ? " with capabilities" : ""),
                        caller,
                        [mode, capable](Scene& scene) {
                            scene.mode(".", 0777);
                            scene.file("y");
                            scene.belong_to(kOwner, kGroup);
                            scene.file("x", mode);
                            scene.watch("new");
                            if (capable) {
                                // CAP_NET_RAW, permitted, as setcap writes it.
                                const char value[] = "\1\0\0\2\0\40\0\0\0\0\0\0\0\0\0\0\0\0\0";
                                scene.xattr("x", "security.capability", std::string(value, 20));
                            }
                        },
                        [&writing, capable] {
                            std::string text = writing.run();
                            if (capable) {
                                const ssize_t size =
                                    ::getxattr("x", "security.capability", nullptr, 0);
                                text += size < 0 ? ", capabilities " + error_name(errno)
                                                 : ", capabilities kept";
                            }
                            return text;
                        });
                }
            }
        }
    }
}

}  // namespace

void add_owner_trials(Trials& trials) {
    add_chmod(trials);
    add_chown(trials);
    add_writings(trials);
}

}  // namespace tiffin::conformance
