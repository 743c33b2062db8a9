// SPDX-License-Identifier: MIT OR GPL-2.0-only
// utimensat: who may set which times, and which values are kept. Which other call moves which time is seen
// in every line of the other groups.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>

#include "tests/conformance/answer.h"
#include "tests/conformance/groups.h"

namespace tiffin::conformance {
namespace {

struct Times {
    const char* name;
    timespec values[2];  // access, modification
};

constexpr time_t kSome = 1000000000;

constexpr Times kSettings[] = {
    {"now, now", {{0, UTIME_NOW}, {0, UTIME_NOW}}},
    {"now, omit", {{0, UTIME_NOW}, {0, UTIME_OMIT}}},
    {"omit, now", {{0, UTIME_OMIT}, {0, UTIME_NOW}}},
    {"omit, omit", {{0, UTIME_OMIT}, {0, UTIME_OMIT}}},
    {"value, value", {{kSome, 123456789}, {kSome + 1, 987654321}}},
    {"value, omit", {{kSome, 1}, {0, UTIME_OMIT}}},
    {"omit, value", {{0, UTIME_OMIT}, {kSome, 999999999}}},
    {"now, value", {{0, UTIME_NOW}, {kSome, 5}}},
    {"value, now", {{kSome, 5}, {0, UTIME_NOW}}},
    {"bad access time", {{kSome, 1000000000}, {kSome, 0}}},
    {"bad modification time", {{kSome, 0}, {kSome, -1}}},
    {"omit, bad", {{0, UTIME_OMIT}, {kSome, 1000000000}}},
    {"odd seconds with now", {{INT64_MIN, UTIME_NOW}, {INT64_MAX, UTIME_NOW}}},
};

constexpr mode_t kModes[] = {0666, 0644, 0444, 0222, 0464, 0000};

struct Object {
    const char* name;
    void (*make)(Scene& scene, mode_t mode);
};
constexpr Object kObjects[] = {
    {"file", [](Scene& scene, mode_t mode) { scene.file("x", mode); }},
    {"directory", [](Scene& scene, mode_t mode) { scene.directory("x", mode); }},
};

void add_permissions(Trials& trials) {
    for (const Times& times : kSettings) {
        for (mode_t mode : kModes) {
            for (Caller caller : kAllCallers) {
                for (const Object& object : kObjects) {
                    trials.add(
                        std::string("utimensat ") + times.name + ", " + object.name + " " +
                            octal(mode),
                        caller,
                        [&object, mode](Scene& scene) {
                            scene.belong_to(kOwner, kGroup);
                            object.make(scene, mode);
                        },
                        [&times] { return answer(::utimensat(AT_FDCWD, "x", times.values, 0)); });
                }
            }
        }
    }
}

// An open descriptor does not replace the permission.
void add_descriptors(Trials& trials) {
    for (const Times& times : kSettings) {
        for (int flags : {O_RDONLY, O_WRONLY, O_RDWR}) {
            for (Caller caller : {Caller::owner, Caller::other}) {
                trials.add(
                    std::string("futimens ") + times.name + ", opened " +
                        octal(static_cast<unsigned>(flags)),
                    caller,
                    [](Scene& scene) {
                        scene.belong_to(kOwner, kGroup);
                        scene.file("x", 0666);
                    },
                    [&times, flags] {
                        const int file = ::open("x", flags | O_CLOEXEC);
                        return answer(::futimens(file, times.values));
                    });
            }
        }
    }
}

constexpr timespec kValues[] = {
    {0, 0},
    {0, 1},
    {-1, 999999999},
    {-1, 0},
    {1, 999999999},
    {INT32_MAX, 999999999},
    {-INT32_MAX - 1LL, 1},
    {INT32_MAX + 1LL, 0},
    {5000000000, 123456789},
    {15000000000, 1},  // behind what 34 bits hold
};

std::string set_and_get(const timespec& value) {
    const timespec times[2] = {value, value};
    if (::utimensat(AT_FDCWD, "x", times, 0) < 0) {
        return error_name(errno);
    }
    struct stat status {};
    if (::stat("x", &status) < 0) {
        return error_name(errno);
    }
    return "ok " + std::to_string(status.st_atim.tv_sec) + "." +
           std::to_string(status.st_atim.tv_nsec) + " " + std::to_string(status.st_mtim.tv_sec) +
           "." + std::to_string(status.st_mtim.tv_nsec);
}

void add_values(Trials& trials) {
    for (const timespec& value : kValues) {
        for (const Object& object : kObjects) {
            trials.add(
                "values " + std::to_string(value.tv_sec) + "." + std::to_string(value.tv_nsec) +
                    ", " + object.name,
                Caller::root, [&object](Scene& scene) { object.make(scene, 0755); },
                [&value] { return set_and_get(value); });
        }
    }
}

bool is_later(const timespec& a, const timespec& b) {
    return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

std::string order(const timespec& a, const timespec& b) {
    return is_later(a, b) ? ">" : is_later(b, a) ? "<" : "=";
}

// How the times of what one call makes or changes relate to each other.
std::string relations(int result, const char* path) {
    struct stat object {};
    struct stat parent {};
    if (result < 0 || ::lstat(path, &object) < 0 || ::stat(".", &parent) < 0) {
        return error_name(errno);
    }
    // A file system may stamp the new object before or after its directory, never far from it.
    return "ok a" + order(object.st_atim, object.st_mtim) + "m" +
           order(object.st_mtim, object.st_ctim) + "c, directory m" +
           order(parent.st_mtim, parent.st_ctim) + "c";
}

void add_relations(Trials& trials) {
    auto add = [&](const char* name, std::string (*run)()) {
        trials.add(
            name, Caller::root, [](Scene& scene) { scene.file("x"); }, run);
    };
    add("times of a new file",
        [] { return relations(::open("n", O_CREAT | O_WRONLY | O_CLOEXEC, 0644), "n"); });
    add("times of a new directory", [] { return relations(::mkdir("n", 0755), "n"); });
    add("times of a new fifo", [] { return relations(::mknod("n", S_IFIFO | 0644, 0), "n"); });
    add("times of a new symlink", [] { return relations(::symlink("t", "n"), "n"); });
    add("times after removal", [] { return relations(::unlink("x"), "."); });
    add("times after renaming", [] { return relations(::rename("x", "n"), "."); });
    add("times after linking", [] { return relations(::link("x", "n"), "."); });
    add("times after truncation", [] {
        struct stat status {};
        return ::truncate("x", 1) < 0 || ::stat("x", &status) < 0
                   ? error_name(errno)
                   : "m" + order(status.st_mtim, status.st_ctim) + "c";
    });
    add("times after writing", [] {
        const int file = ::open("x", O_WRONLY | O_CLOEXEC);
        const std::string written = counted(::write(file, "a", 1));
        struct stat status {};
        return ::fstat(file, &status) < 0
                   ? error_name(errno)
                   : written + " m" + order(status.st_mtim, status.st_ctim) + "c";
    });
}

}  // namespace

void add_time_trials(Trials& trials) {
    add_permissions(trials);
    add_descriptors(trials);
    add_values(trials);
    add_relations(trials);
}

}  // namespace tiffin::conformance
