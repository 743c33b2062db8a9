// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/conformance/trial.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <set>

#include "tests/conformance/answer.h"
#include "tests/conformance/snapshot.h"
#include "tests/conformance/worker.h"

namespace tiffin::conformance {
namespace {

// Some kernels write out and forget what nobody has used for a minute. What is read again then moves
// access times, even by a write to a part of a block: so what is prepared is used soon.
constexpr size_t kPreparedAtOnce = 256;

void require(long result, const char* what, const std::string& path) {
    if (result < 0) {
        broken(std::string(what) + " " + path + ": " + std::strerror(errno));
    }
}

timespec now(clockid_t clock) {
    timespec time{};
    ::clock_gettime(clock, &time);
    return time;
}

bool later(const timespec& a, const timespec& b) {
    return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

// File systems stamp with the coarse clock (CLOCK_REALTIME_COARSE), and some between its ticks, too. What is
// stamped after this returns is later than whatever was stamped before.
void await_clock() {
    const timespec start = now(CLOCK_REALTIME);
    while (!later(now(CLOCK_REALTIME_COARSE), start)) {
        ::usleep(1000);
    }
}

std::vector<Snapshot> look_at_all(const std::vector<std::string>& paths, bool ask_again) {
    std::vector<Snapshot> snapshots;
    snapshots.reserve(paths.size());
    for (const std::string& path : paths) {
        snapshots.push_back(look_at(path, ask_again));
    }
    return snapshots;
}

// Makes the call in `place`, which is the working directory; returns the line's second half.
std::string outcome_of(Workers& workers, size_t index, const std::string& place,
                       const Scene& scene) {
    const std::vector<std::string>& paths = scene.watched();
    const std::vector<Snapshot> before = look_at_all(paths, false);
    Period period{};
    period.begin = now(CLOCK_REALTIME_COARSE);
    std::string text = workers.call(index, place);
    period.end = now(CLOCK_REALTIME);
    const std::vector<Snapshot> after = look_at_all(paths, true);
    for (size_t i = 0; i < paths.size(); ++i) {
        const std::string change = describe_change(paths[i], before[i], after[i], period);
        if (!change.empty()) {
            // Names of the greatest length would make lines that nobody reads.
            const std::string& path = paths[i];
            text +=
                " [" + (path.size() > 40 ? path.substr(0, 8) + "~" : path) + ": " + change + "]";
        }
    }
    return text;
}

std::string place_of(size_t index, const Scene& scene) {
    return std::to_string(index) + (scene.is_below() ? "/here" : "");
}

int open_here() {
    int directory = ::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    require(directory, "open", ".");
    return directory;
}

}  // namespace

void broken(const std::string& what) {
    std::fflush(stdout);
    std::fprintf(stderr, "conformance: %s\n", what.c_str());
    std::_Exit(2);
}

const char* caller_name(Caller caller) {
    switch (caller) {
        case Caller::root:
            return "root";
        case Caller::owner:
            return "owner";
        case Caller::group:
            return "group";
        case Caller::group_by_list:
            return "group by list";
        case Caller::other:
            break;
    }
    return "other";
}

void Scene::belong_to(uid_t user, gid_t group) {
    user_ = user;
    group_ = group;
}

void Scene::go_below() {
    require(::mkdir("here", 0755), "mkdir", "here");
    require(::chdir("here"), "chdir", "here");
    is_below_ = true;
}

void Scene::own(const std::string& path) {
    if (user_ != 0 || group_ != 0) {
        require(::lchown(path.c_str(), user_, group_), "chown", path);
    }
    note(path);
}

void Scene::note(const std::string& path) {
    if (std::find(watched_.begin(), watched_.end(), path) == watched_.end()) {
        watched_.push_back(path);
    }
}

void Scene::watch(const std::string& path) { note(prefix_ + path); }

void Scene::file(const std::string& path, mode_t mode, const std::string& content) {
    const std::string full = prefix_ + path;
    const int file = ::open(full.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    require(file, "create", full);
    if (::write(file, content.data(), content.size()) != static_cast<ssize_t>(content.size())) {
        broken("write " + full);
    }
    ::close(file);
    own(full);
    this->mode(path, mode);
}

void Scene::directory(const std::string& path, mode_t mode) {
    const std::string full = prefix_ + path;
    require(::mkdir(full.c_str(), 0755), "mkdir", full);
    own(full);
    this->mode(path, mode);
}

void Scene::symlink(const std::string& target, const std::string& path) {
    const std::string full = prefix_ + path;
    require(::symlink(target.c_str(), full.c_str()), "symlink", full);
    own(full);
}

void Scene::node(const std::string& path, mode_t type_and_mode, unsigned major, unsigned minor) {
    const std::string full = prefix_ + path;
    require(::mknod(full.c_str(), type_and_mode, makedev(major, minor)), "mknod", full);
    own(full);
    this->mode(path, type_and_mode & 07777);
}

void Scene::link(const std::string& old_path, const std::string& new_path) {
    const std::string full = prefix_ + new_path;
    require(::link((prefix_ + old_path).c_str(), full.c_str()), "link", full);
    note(full);
}

void Scene::mode(const std::string& path, mode_t mode) {
    const std::string full = prefix_ + path;
    require(::chmod(full.c_str(), mode), "chmod", full);
}

void Scene::xattr(const std::string& path, const std::string& name, const std::string& value) {
    const std::string full = prefix_ + path;
    require(::lsetxattr(full.c_str(), name.c_str(), value.data(), value.size(), 0), "setxattr",
            full);
}

bool run_trials(const std::string& group, const Trials& trials,
                const std::function<void()>& between) {
    require(::mkdir(group.c_str(), 0755), "mkdir", group);
    require(::chdir(group.c_str()), "chdir", group);
    const int group_directory = open_here();
    auto enter = [](const std::string& place) { require(::chdir(place.c_str()), "chdir", place); };
    auto leave = [&] { require(::fchdir(group_directory), "fchdir", group); };
    ::umask(0);
    std::vector<Scene> scenes(trials.all().size());
    auto prepare = [&](size_t i) {
        const std::string place = std::to_string(i);
        require(::mkdir(place.c_str(), 0755), "mkdir", trials.all()[i].name);
        enter(place);
        trials.all()[i].prepare(scenes[i]);
        leave();
    };
    Workers workers(trials);
    std::set<std::string> seen;
    bool unique = true;
    auto make = [&](size_t i) {
        const Trial& trial = trials.all()[i];
        const std::string name = group + " " + trial.name + ", by " + caller_name(trial.caller);
        if (!seen.insert(name).second) {
            std::fprintf(stderr, "conformance: two trials are called '%s'\n", name.c_str());
            unique = false;
        }
        const std::string place = place_of(i, scenes[i]);
        enter(place);
        std::printf("%s => %s\n", name.c_str(), outcome_of(workers, i, place, scenes[i]).c_str());
        leave();
    };
    // With a change of the mount in between there is no other way; on one that is read-only no time moves.
    const size_t at_once = between ? scenes.size() : kPreparedAtOnce;
    for (size_t begin = 0; begin < scenes.size(); begin += at_once) {
        const size_t end = std::min(begin + at_once, scenes.size());
        for (size_t i = begin; i < end; ++i) {
            prepare(i);
        }
        if (between) {
            between();
        }
        await_clock();
        for (size_t i = begin; i < end; ++i) {
            make(i);
        }
    }
    ::close(group_directory);
    require(::chdir(".."), "chdir", "..");
    return unique;
}

}  // namespace tiffin::conformance
