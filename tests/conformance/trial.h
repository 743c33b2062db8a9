// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Trials: one system call in one situation by one caller. A trial prints one line that is the same on
// every run and on every file system that behaves the same:
//
//     GROUP CALL, SITUATION, by CALLER => ANSWER [CHANGES]
//
// Trials are made by group (groups.h). A few hundred are prepared; then the clock of the file system is
// awaited, so that whatever a trial changes carries a later time than its preparation; then the calls are
// made, in a process with the caller's credentials (worker.h), and root looks at what has become of the
// objects.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <string>
#include <vector>

namespace tiffin::conformance {

// Who makes the call. Objects of permission trials belong to user 1001 and group 2000.
enum class Caller {
    root,           // 0:0
    owner,          // 1001:1001, and in no other group
    group,          // 1002:2000, a member by the primary group
    group_by_list,  // 1003:1003, a member by the list of supplementary groups, which has three
    other,          // 1004:1004
};
constexpr Caller kAllCallers[] = {Caller::root, Caller::owner, Caller::group, Caller::group_by_list,
                                  Caller::other};
constexpr uid_t kOwner = 1001;
constexpr uid_t kOther = 1004;
constexpr gid_t kGroup = 2000;
const char* caller_name(Caller caller);

// The objects of one trial, made by root in the trial's own directory, which is the working
// directory; paths are relative to it. Everything made here is watched. Failures end the program.
class Scene {
  public:
    // Makes the trial's own directory one below another that is its own as well: for calls on "..". First.
    void go_below();
    bool is_below() const { return is_below_; }

    // Paths are made below this from here on ("directory/" or ""). Targets of symlinks are not touched.
    void below(const std::string& prefix) { prefix_ = prefix; }
    // Objects belong to user `user` and group `group` from here on (root's to begin with).
    void belong_to(uid_t user, gid_t group);

    void file(const std::string& path, mode_t mode = 0644, const std::string& content = "12345");
    void directory(const std::string& path, mode_t mode = 0755);
    void symlink(const std::string& target, const std::string& path);
    void node(const std::string& path, mode_t type_and_mode, unsigned major = 0,
              unsigned minor = 0);
    void fifo(const std::string& path) { node(path, S_IFIFO | 0644); }
    void socket(const std::string& path) { node(path, S_IFSOCK | 0644); }
    void link(const std::string& old_path, const std::string& new_path);
    void mode(const std::string& path, mode_t mode);
    void xattr(const std::string& path, const std::string& name, const std::string& value);
    // A path that the call may make.
    void watch(const std::string& path);

    const std::vector<std::string>& watched() const { return watched_; }

  private:
    // Both take a whole path.
    void own(const std::string& path);
    void note(const std::string& path);

    bool is_below_ = false;
    std::string prefix_;
    uid_t user_ = 0;
    gid_t group_ = 0;
    std::vector<std::string> watched_ = {"."};
};

struct Trial {
    std::string name;  // "CALL, SITUATION"
    Caller caller;
    std::function<void(Scene&)> prepare;
    std::function<std::string()> call;  // returns the answer
    bool alone;  // whether the call changes the process that makes it: then no other shares it
};

class Trials {
  public:
    // Begins the names of those that are added from here on.
    void prefix(const std::string& text) { prefix_ = text; }
    void add(const std::string& name, Caller caller, std::function<void(Scene&)> prepare,
             std::function<std::string()> call) {
        trials_.push_back({prefix_ + name, caller, std::move(prepare), std::move(call), false});
    }
    void add_alone(const std::string& name, Caller caller, std::function<void(Scene&)> prepare,
                   std::function<std::string()> call) {
        trials_.push_back({prefix_ + name, caller, std::move(prepare), std::move(call), true});
    }
    const std::vector<Trial>& all() const { return trials_; }

  private:
    std::string prefix_;
    std::vector<Trial> trials_;
};

// Prepares and makes all trials in new directories below the working directory, and prints a line for
// each. Returns false when two have the same name. With `between`, all are prepared before the first call is
// made, and this is done in between.
bool run_trials(const std::string& group, const Trials& trials,
                const std::function<void()>& between = nullptr);

// Ends the program: the preparation itself went wrong.
[[noreturn]] void broken(const std::string& what);

}  // namespace tiffin::conformance
