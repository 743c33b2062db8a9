// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Mount points among the objects, and calls that lead from one mount to another. Nothing is unmounted here: the
// mounts are in a namespace that ends with the program.
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "tests/conformance/answer.h"
#include "tests/conformance/calls.h"
#include "tests/conformance/groups.h"

namespace tiffin::conformance {
namespace {

// What was there before is hidden from now on.
void mount_on(const std::string& path, const char* type, const char* source, unsigned long flags) {
    if (::mount(source, path.c_str(), type, flags, nullptr) < 0) {
        broken("mount on " + path + ": " + std::strerror(errno));
    }
}
void mount_tmpfs(const char* path) { mount_on(path, "tmpfs", "tmpfs", 0); }
void bind(const char* source, const char* path) { mount_on(path, nullptr, source, MS_BIND); }

struct MountPoint {
    const char* name;
    void (*prepare)(Scene& scene);  // makes "x"
};

const MountPoint kMountPoints[] = {
    {"tmpfs on a directory",
     [](Scene& scene) {
         scene.directory("x");
         mount_tmpfs("x");
     }},
    {"directory on a directory",
     [](Scene& scene) {
         scene.directory("d");
         scene.directory("x");
         bind("d", "x");
     }},
    {"directory on itself",
     [](Scene& scene) {
         scene.directory("x");
         bind("x", "x");
     }},
    {"directory on a full directory",
     [](Scene& scene) {
         scene.directory("d");
         scene.directory("x");
         scene.file("x/f");
         bind("d", "x");
     }},
    {"file on a file",
     [](Scene& scene) {
         scene.file("f");
         scene.file("x");
         bind("f", "x");
     }},
    {"file on a socket",
     [](Scene& scene) {
         scene.file("f");
         scene.socket("x");
         bind("f", "x");
     }},
    {"directory above a mount point",
     [](Scene& scene) {
         scene.directory("x");
         scene.directory("x/m");
         mount_tmpfs("x/m");
     }},
    {"link to a mount point",
     [](Scene& scene) {
         scene.directory("d");
         mount_tmpfs("d");
         scene.symlink("d", "x");
     }},
};

void add_names(Trials& trials) {
    for (const PathCall& call : name_calls()) {
        for (const MountPoint& point : kMountPoints) {
            for (const char* path : {"x", "x/", "x/.."}) {
                for (Caller caller : {Caller::root, Caller::other}) {
                    if (path[1] != '\0' && caller == Caller::other) {
                        continue;
                    }
                    trials.add(call.name + ", " + path + ", " + point.name, caller, point.prepare,
                               [&call, path] { return call.run(path); });
                }
            }
        }
    }
}

// From a mount point, and onto one.
void add_pairs(Trials& trials) {
    struct Partner {
        const char* name;
        const char* path;
    };
    static constexpr Partner partners[] = {
        {"a missing name", "new"},    {"a file", "file"}, {"a directory", "dir"},
        {"a full directory", "full"}, {"itself", "x"},    {"a name below it", "x/new"},
    };
    for (const PairCall& call : pair_calls()) {
        for (const MountPoint& point : kMountPoints) {
            for (const Partner& partner : partners) {
                auto prepare = [&point](Scene& scene) {
                    scene.file("file");
                    scene.directory("dir");
                    scene.directory("full");
                    scene.file("full/f");
                    point.prepare(scene);
                    scene.watch("new");
                };
                const std::string names[] = {point.name, partner.name};
                trials.add(call.name + ", " + names[0] + " to " + names[1], Caller::root, prepare,
                           [&] { return call.run("x", partner.path); });
                if (std::strcmp(partner.path, "x") != 0) {
                    trials.add(call.name + ", " + names[1] + " to " + names[0], Caller::root,
                               prepare, [&] { return call.run(partner.path, "x"); });
                }
            }
        }
    }
}

// Another mount on "m", with "m/f", a file, and "m/e", a directory. Here are "x", a file, and "d", a directory.
struct Outside {
    const char* name;
    void (*prepare)(Scene& scene);
};
const Outside kOutside[] = {
    {"a tmpfs",
     [](Scene& scene) {
         scene.directory("m");
         mount_tmpfs("m");
         scene.file("m/f");
         scene.directory("m/e");
     }},
    {"another mount of the same",
     [](Scene& scene) {
         scene.directory("b");
         scene.file("b/f");
         scene.directory("b/e");
         scene.directory("m");
         bind("b", "m");
         scene.watch("m/f");
         scene.watch("m/e");
     }},
};

void prepare_outside(Scene& scene, const Outside& outside) {
    scene.file("x");
    scene.directory("d");
    outside.prepare(scene);
    scene.watch("m/new");
    scene.watch("new");
}

void add_crossings(Trials& trials) {
    struct Crossing {
        const char* name;
        const char* from;
        const char* to;
    };
    static constexpr Crossing crossings[] = {
        {"a file out to", "x", "m/new"},
        {"a file over one of", "x", "m/f"},
        {"a file over a directory of", "x", "m/e"},
        {"a directory out to", "d", "m/new"},
        {"a directory over one of", "d", "m/e"},
        {"a missing name out to", "no", "m/new"},
        {"a missing name over one of", "no", "m/f"},
        {"a file in from", "m/f", "new"},
        {"a file over one here from", "m/f", "x"},
        {"a directory in from", "m/e", "new"},
        {"a directory over one here from", "m/e", "d"},
        {"a missing name in from", "m/no", "new"},
        {"a file to a missing directory of", "x", "m/no/new"},
        {"a file within", "m/f", "m/new"},
        {"a file to its name with a slash in", "x", "m/new/"},
    };
    for (const PairCall& call : pair_calls()) {
        for (const Crossing& crossing : crossings) {
            for (const Outside& outside : kOutside) {
                for (Caller caller : {Caller::root, Caller::other}) {
                    trials.add(
                        call.name + ", " + crossing.name + " " + outside.name, caller,
                        [&outside](Scene& scene) { prepare_outside(scene, outside); },
                        [&] { return call.run(crossing.from, crossing.to); });
                }
            }
        }
    }
}

std::string open_there(const char* path, uint64_t flags) {
    open_how how = {flags | O_CLOEXEC, (flags & O_CREAT) != 0 ? 0644U : 0U, RESOLVE_NO_XDEV};
    return answer(::syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how));
}

int opened(const char* path) { return ::open(path, O_RDWR | O_CLOEXEC); }

std::string deduplicate(const char* from, const char* to) {
    // Memory of the alignment that the two structures, one behind the other, need.
    uint64_t memory[(sizeof(file_dedupe_range) + sizeof(file_dedupe_range_info)) / 8] = {};
    auto* request = reinterpret_cast<file_dedupe_range*>(memory);
    request->src_length = 5;
    request->dest_count = 1;
    request->info[0].dest_fd = opened(to);
    const std::string text = answer(::ioctl(opened(from), FIDEDUPERANGE, request));
    return text == "ok" ? "ok, " + error_name(-request->info[0].status) : text;
}

// What leads from one mount to another by something else than two names.
void add_ways(Trials& trials) {
    struct Way {
        const char* name;
        std::string (*run)();
    };
    static constexpr Way ways[] = {
        {"openat2 RESOLVE_NO_XDEV of the mount point of", [] { return open_there("m", O_RDONLY); }},
        {"openat2 RESOLVE_NO_XDEV of a file in", [] { return open_there("m/f", O_RDONLY); }},
        {"openat2 RESOLVE_NO_XDEV of a new file in",
         [] { return open_there("m/new", O_CREAT | O_WRONLY); }},
        {"openat2 RESOLVE_NO_XDEV of a missing file in",
         [] { return open_there("m/no", O_RDONLY); }},
        {"openat2 RESOLVE_NO_XDEV of the parent of",
         [] { return ::chdir("m") < 0 ? "no mount" : open_there("..", O_RDONLY); }},
        {"openat2 RESOLVE_NO_XDEV of a file here, beside",
         [] { return open_there("x", O_RDONLY); }},
        {"linkat of a descriptor into",
         [] { return answer(::linkat(opened("x"), "", AT_FDCWD, "m/new", AT_EMPTY_PATH)); }},
        {"linkat by /proc into",
         [] {
             const std::string path = "/proc/self/fd/" + std::to_string(opened("x"));
             return answer(::linkat(AT_FDCWD, path.c_str(), AT_FDCWD, "m/new", AT_SYMLINK_FOLLOW));
         }},
        {"linkat of a temporary file into",
         [] {
             const int file = ::open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
             return answer(::linkat(file, "", AT_FDCWD, "m/new", AT_EMPTY_PATH));
         }},
        {"copy_file_range into",
         [] {
             return counted(::copy_file_range(opened("x"), nullptr, opened("m/f"), nullptr, 3, 0));
         }},
        {"copy_file_range from",
         [] {
             return counted(::copy_file_range(opened("m/f"), nullptr, opened("x"), nullptr, 3, 0));
         }},
        {"FICLONE into", [] { return answer(::ioctl(opened("m/f"), FICLONE, opened("x"))); }},
        {"FICLONE from", [] { return answer(::ioctl(opened("x"), FICLONE, opened("m/f"))); }},
        {"FIDEDUPERANGE into", [] { return deduplicate("x", "m/f"); }},
        {"FIDEDUPERANGE from", [] { return deduplicate("m/f", "x"); }},
    };
    for (const Way& way : ways) {
        for (const Outside& outside : kOutside) {
            trials.add(
                std::string(way.name) + " " + outside.name, Caller::root,
                [&outside](Scene& scene) { prepare_outside(scene, outside); }, way.run);
        }
    }
}

// The mount point of the file system that is tried.
std::string root_of_mount() {
    char here[PATH_MAX];
    if (::realpath(".", here) == nullptr) {
        broken("realpath");
    }
    std::string path = here;
    struct statx status {};
    while (::statx(AT_FDCWD, path.c_str(), 0, STATX_TYPE, &status) == 0 &&
           (status.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0 && path.size() > 1) {
        path.resize(path.rfind('/') == 0 ? 1 : path.rfind('/'));
    }
    return path;
}

void add_root(Trials& trials) {
    const std::string root = root_of_mount();
    for (const PathCall& call : name_calls()) {
        trials.add(
            call.name + ", the root of the mount", Caller::root, [](Scene&) {},
            [&call, root] { return call.run(root.c_str()); });
    }
    for (const PairCall& call : pair_calls()) {
        for (const char* other : {"x", "d", "new"}) {
            auto prepare = [](Scene& scene) {
                scene.file("x");
                scene.directory("d");
                scene.watch("new");
            };
            trials.add(call.name + ", the root of the mount to " + other, Caller::root, prepare,
                       [&call, root, other] { return call.run(root.c_str(), other); });
            trials.add(call.name + ", " + other + " to the root of the mount", Caller::root,
                       prepare, [&call, root, other] { return call.run(other, root.c_str()); });
        }
    }
}

}  // namespace

void add_mount_trials(Trials& trials) {
    add_names(trials);
    add_pairs(trials);
    add_crossings(trials);
    add_ways(trials);
    add_root(trials);
}

}  // namespace tiffin::conformance
