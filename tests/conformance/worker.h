// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Processes that make the calls: one for each caller, and one for each trial that changes its own process.
#pragma once

#include <sys/types.h>

#include <string>

#include "tests/conformance/trial.h"

namespace tiffin::conformance {

class Workers {
  public:
    // For the trials of a group whose directory is the working directory.
    explicit Workers(const Trials& trials);
    ~Workers();
    Workers(const Workers&) = delete;
    Workers& operator=(const Workers&) = delete;

    // Makes the call of trial `index` in the directory `place`, relative to the group's, and returns the
    // answer, or how the process ended. By then everything that the call had opened is closed.
    std::string call(size_t index, const std::string& place);

  private:
    struct Worker {
        pid_t process = -1;  // -1: none
        int requests = -1;
        int answers = -1;
    };

    void start(Worker& worker, Caller caller);
    // Returns how it ended.
    static std::string end(Worker& worker);
    [[noreturn]] void serve(Caller caller, int requests, int answers) const;
    std::string run(size_t index, const std::string& place) const;

    const Trials& trials_;
    int group_directory_;
    Worker workers_[std::size(kAllCallers)];
};

}  // namespace tiffin::conformance
