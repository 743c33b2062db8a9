// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/conformance/worker.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/conformance/answer.h"

namespace tiffin::conformance {
namespace {

constexpr mode_t kUmask = 022;  // of the callers
// A call that waits for ever is a finding like others; the signal ends it.
constexpr unsigned kLongestCallSeconds = 20;
// A worker's own descriptors; what lies around them is closed after each call.
constexpr int kGroupDirectory = 100;
constexpr int kRequests = 101;
constexpr int kAnswers = 102;
constexpr int kFirstElsewhere = 200;

void require(long result, const char* what) {
    if (result < 0) {
        broken(std::string(what) + ": " + std::strerror(errno));
    }
}

struct Credentials {
    uid_t user;
    gid_t group;
    std::vector<gid_t> list;
};

Credentials credentials_of(Caller caller) {
    switch (caller) {
        case Caller::root:
            return {0, 0, {0}};
        case Caller::owner:
            return {kOwner, 1001, {}};
        case Caller::group:
            return {1002, kGroup, {}};
        case Caller::group_by_list:
            return {1003, 1003, {1999, kGroup, 2001}};
        case Caller::other:
            break;
    }
    return {kOther, 1004, {}};
}

void become(Caller caller) {
    const Credentials wanted = credentials_of(caller);
    require(::setgroups(wanted.list.size(), wanted.list.data()), "setgroups");
    require(::setresgid(wanted.group, wanted.group, wanted.group), "setresgid");
    require(::setresuid(wanted.user, wanted.user, wanted.user), "setresuid");
}

struct Request {
    size_t index;
    char place[64];
};

// Where a process that makes a call leaves its answer.
struct Mailbox {
    size_t size;
    char text[65536];
};

Mailbox& mailbox() {
    static Mailbox* box = [] {
        void* address = ::mmap(nullptr, sizeof(Mailbox), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (address == MAP_FAILED) {
            broken("no memory for answers");
        }
        return static_cast<Mailbox*>(address);
    }();
    return *box;
}

void leave_answer(const std::string& text) {
    Mailbox& box = mailbox();
    box.size = std::min(text.size(), sizeof box.text);
    std::memcpy(box.text, text.data(), box.size);
}

// How a process ended that should have answered.
std::string wait_for(pid_t process) {
    int status = 0;
    require(::waitpid(process, &status, 0), "waitpid");
    if (WIFSIGNALED(status)) {
        const char* name = ::sigabbrev_np(WTERMSIG(status));
        return std::string("killed by SIG") + (name != nullptr ? name : "?");
    }
    if (WEXITSTATUS(status) != 0) {
        broken("a process that makes calls exited with " + std::to_string(WEXITSTATUS(status)));
    }
    return "";
}

}  // namespace

Workers::Workers(const Trials& trials) : trials_(trials), group_directory_(kGroupDirectory) {
    const int here = ::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    require(here, "open the group's directory");
    require(::dup3(here, group_directory_, O_CLOEXEC), "dup3");
    ::close(here);
    mailbox();
}

Workers::~Workers() {
    for (Worker& worker : workers_) {
        if (worker.process > 0) {
            end(worker);
        }
    }
    ::close(group_directory_);
}

std::string Workers::run(size_t index, const std::string& place) const {
    require(::fchdir(group_directory_), "fchdir");
    require(::chdir(place.c_str()), place.c_str());
    ::alarm(kLongestCallSeconds);
    std::string text = trials_.all()[index].call();
    ::alarm(0);
    return text;
}

void Workers::serve(Caller caller, int requests, int answers) const {
    // In this order, since one may be the other's place; dup2 leaves one that is in place as it is.
    const int high_requests = ::fcntl(requests, F_DUPFD, kFirstElsewhere);
    const int high_answers = ::fcntl(answers, F_DUPFD, kFirstElsewhere);
    require(::dup2(high_requests, kRequests), "dup2");
    require(::dup2(high_answers, kAnswers), "dup2");
    become(caller);
    ::umask(kUmask);
    auto close_others = [] {
        ::close_range(3, kGroupDirectory - 1, 0);
        ::close_range(kAnswers + 1, ~0U, 0);
    };
    close_others();
    Request request{};
    while (::read(kRequests, &request, sizeof request) == sizeof request) {
        leave_answer(run(request.index, request.place));
        close_others();
        if (::write(kAnswers, "", 1) != 1) {
            break;
        }
    }
    ::_exit(0);
}

void Workers::start(Worker& worker, Caller caller) {
    int requests[2];
    int answers[2];
    require(::pipe2(requests, O_CLOEXEC), "pipe");
    require(::pipe2(answers, O_CLOEXEC), "pipe");
    worker.process = ::fork();
    require(worker.process, "fork");
    if (worker.process == 0) {
        serve(caller, requests[0], answers[1]);
    }
    ::close(requests[0]);
    ::close(answers[1]);
    worker.requests = requests[1];
    worker.answers = answers[0];
}

std::string Workers::end(Worker& worker) {
    ::close(worker.requests);
    ::close(worker.answers);
    const pid_t process = worker.process;
    worker = {};
    return wait_for(process);
}

std::string Workers::call(size_t index, const std::string& place) {
    const Trial& trial = trials_.all()[index];
    Mailbox& box = mailbox();
    box.size = 0;
    if (trial.alone) {
        const pid_t child = ::fork();
        require(child, "fork");
        if (child == 0) {
            become(trial.caller);
            ::umask(kUmask);
            leave_answer(run(index, place));
            ::_exit(0);
        }
        const std::string ended = wait_for(child);
        return ended.empty() ? std::string(box.text, box.size) : ended;
    }
    Worker& worker = workers_[static_cast<size_t>(trial.caller)];
    if (worker.process < 0) {
        start(worker, trial.caller);
    }
    Request request{index, {}};
    if (place.size() >= sizeof request.place) {
        broken("a place's name is too long: " + place);
    }
    std::memcpy(request.place, place.c_str(), place.size() + 1);
    char done = 0;
    if (::write(worker.requests, &request, sizeof request) != sizeof request) {
        broken("a worker takes no requests");
    }
    if (::read(worker.answers, &done, 1) != 1) {
        return end(worker);
    }
    return std::string(box.text, box.size);
}

}  // namespace tiffin::conformance
