// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Files in use: execution, locks and leases between processes.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "tests/conformance/answer.h"
#include "tests/conformance/calls.h"
#include "tests/conformance/groups.h"

namespace tiffin::conformance {
namespace {

struct Action {
    const char* name;
    std::string (*run)();
};

// "program" becomes a copy of cat.
void copy_program(Scene& scene, mode_t mode) {
    const int source = ::open("/bin/cat", O_RDONLY | O_CLOEXEC);
    const int target = ::open("program", O_CREAT | O_WRONLY | O_CLOEXEC, 0755);
    ssize_t count = 0;
    while ((count = ::sendfile(target, source, nullptr, 1 << 20)) > 0) {
    }
    if (count < 0) {
        broken("cannot copy cat");
    }
    ::close(source);
    ::close(target);
    scene.mode("program", mode);
    scene.watch("program");
}

// A running "program" that answers what it is sent, and ends with this object.
class Running {
  public:
    Running() {
        int in[2];
        int out[2];
        if (::pipe2(in, O_CLOEXEC) < 0 || ::pipe2(out, O_CLOEXEC) < 0) {
            ::_exit(2);
        }
        child_ = ::fork();
        if (child_ == 0) {
            ::dup2(in[0], 0);
            ::dup2(out[1], 1);
            ::execl("./program", "program", nullptr);
            ::_exit(1);
        }
        ::close(in[0]);
        ::close(out[1]);
        input_ = in[1];
        char echo = 0;
        started_ = ::write(input_, "x", 1) == 1 && ::read(out[0], &echo, 1) == 1;
    }
    ~Running() {
        ::close(input_);
        ::waitpid(child_, nullptr, 0);
    }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

    bool started() const { return started_; }

  private:
    pid_t child_ = -1;
    int input_ = -1;
    bool started_ = false;
};

std::string while_running(std::string (*run)()) {
    Running program;
    return program.started() ? run() : "does not run";
}

const Action kOnRunning[] = {
    {"open O_WRONLY", [] { return answer(::open("program", O_WRONLY)); }},
    {"open O_RDWR", [] { return answer(::open("program", O_RDWR)); }},
    {"open O_RDONLY", [] { return answer(::open("program", O_RDONLY)); }},
    {"open O_TRUNC", [] { return answer(::open("program", O_RDONLY | O_TRUNC)); }},
    {"truncate", [] { return answer(::truncate("program", 100)); }},
    {"access W_OK", [] { return answer(::access("program", W_OK)); }},
    {"chmod", [] { return answer(::chmod("program", 0700)); }},
    {"unlink", [] { return answer(::unlink("program")); }},
    {"rename over", [] { return answer(::rename("y", "program")); }},
    {"link", [] { return answer(::link("program", "new")); }},
    {"creat", [] { return answer(::creat("program", 0755)); }},
    {"open O_WRONLY by another name", [] { return answer(::open("link", O_WRONLY)); }},
    {"open O_WRONLY by a symlink", [] { return answer(::open("symlink", O_WRONLY)); }},
    {"open O_CREAT|O_WRONLY", [] { return answer(::open("program", O_CREAT | O_WRONLY, 0755)); }},
    {"open O_CREAT|O_EXCL|O_WRONLY",
     [] { return answer(::open("program", O_CREAT | O_EXCL | O_WRONLY, 0755)); }},
    {"open O_DIRECTORY|O_WRONLY", [] { return answer(::open("program", O_DIRECTORY | O_WRONLY)); }},
    {"truncate to -1", [] { return answer(::truncate("program", -1)); }},
    {"utimensat", [] { return answer(::utimensat(AT_FDCWD, "program", nullptr, 0)); }},
    {"setxattr", [] { return path_call("setxattr user.a").run("program"); }},
    {"rename", [] { return answer(::rename("program", "new")); }},
};

// What /proc says of the user and group ids of a program that runs.
std::string ids_of_program() {
    int out[2];
    if (::pipe2(out, O_CLOEXEC) < 0) {
        return "no pipe";
    }
    const pid_t child = ::fork();
    if (child == 0) {
        ::dup2(out[1], 1);
        ::execl("./program", "program", "/proc/self/status", nullptr);
        ::_exit(errno);
    }
    ::close(out[1]);
    std::string text;
    char buffer[4096];
    ssize_t count = 0;
    while ((count = ::read(out[0], buffer, sizeof buffer)) > 0) {
        text.append(buffer, static_cast<size_t>(count));
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (text.empty()) {
        return error_name(WEXITSTATUS(status));
    }
    std::string result = "ok";
    for (const char* key : {"\nUid:", "\nGid:"}) {
        const size_t at = text.find(key);
        result += " " + quoted(text.substr(at + 1, text.find('\n', at + 1) - at - 1));
    }
    return result;
}

// What is being written is not executed, whoever writes it and by whichever name.
const Action kOnWritten[] = {
    {"opened for writing",
     [] {
         const int file = ::open("program", O_WRONLY | O_CLOEXEC);
         return file < 0 ? error_name(errno) : path_call("execve").run("program");
     }},
    {"opened for writing by another name",
     [] {
         const int file = ::open("link", O_RDWR | O_CLOEXEC);
         return file < 0 ? error_name(errno) : path_call("execve").run("program");
     }},
    {"mapped for writing",
     [] {
         const int file = ::open("program", O_RDWR | O_CLOEXEC);
         void* address = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
         ::close(file);
         return address == MAP_FAILED ? error_name(errno) : path_call("execve").run("program");
     }},
    {"script, opened for writing",
     [] {
         const int file = ::open("script", O_WRONLY | O_CLOEXEC);
         return file < 0 ? error_name(errno) : path_call("execve").run("./script");
     }},
    {"script of what is opened for writing",
     [] {
         const int file = ::open("program", O_WRONLY | O_CLOEXEC);
         return file < 0 ? error_name(errno) : path_call("execve").run("./script");
     }},
};

void add_execution_of_written(Trials& trials) {
    for (const Action& action : kOnWritten) {
        trials.add_alone(
            std::string("execve, ") + action.name, Caller::root,
            [](Scene& scene) {
                scene.file("script", 0755, "#!./program\n");
                copy_program(scene, 0755);
                scene.link("program", "link");
            },
            action.run);
    }
}

void add_execution(Trials& trials) {
    auto prepare = [](Scene& scene) {
        scene.file("y");
        scene.watch("new");
        copy_program(scene, 0755);
        scene.link("program", "link");
        scene.symlink("program", "symlink");
    };
    for (const Action& action : kOnRunning) {
        trials.add_alone(std::string(action.name) + ", running program", Caller::root, prepare,
                         [&action] { return while_running(action.run); });
    }
    add_execution_of_written(trials);
    for (mode_t mode : {0755, 04755, 02755, 06755, 0711, 0644, 0}) {
        for (Caller caller : {Caller::root, Caller::owner, Caller::other}) {
            trials.add_alone(
                "ids of a program, " + octal(mode), caller,
                [mode](Scene& scene) {
                    copy_program(scene, 0755);
                    if (::chown("program", kOwner, kGroup) < 0) {
                        broken("chown");
                    }
                    scene.mode("program", mode);
                },
                ids_of_program);
        }
    }
    struct Script {
        const char* name;
        const char* text;
    };
    static constexpr Script scripts[] = {
        {"empty file", ""},
        {"no program", "12345"},
        {"script of a missing interpreter", "#!/no/such/interpreter\n"},
        {"script of a directory", "#!/\n"},
        {"script of itself", "#!./x\n"},
        {"script without interpreter", "#!\n"},
    };
    for (const Script& script : scripts) {
        trials.add_alone(
            std::string("execve, ") + script.name, Caller::root,
            [&script](Scene& scene) { scene.file("x", 0755, script.text); },
            [] { return path_call("execve").run("./x"); });
    }
}

std::string lock(int file, int command, short type, off_t start, off_t length) {
    struct flock what {};
    what.l_type = type;
    what.l_whence = SEEK_SET;
    what.l_start = start;
    what.l_len = length;
    const std::string text = answer(::fcntl(file, command, &what));
    if (text != "ok" || (command != F_GETLK && command != F_OFD_GETLK)) {
        return text;
    }
    return what.l_type == F_UNLCK
               ? "free"
               : "held " + std::to_string(what.l_type) + " " + std::to_string(what.l_start) + "+" +
                     std::to_string(what.l_len);
}

// Runs `first` here and `second` in another process meanwhile.
std::string with_other_process(std::string (*first)(), std::string (*second)()) {
    int back[2];
    const std::string mine = first();
    if (::pipe2(back, O_CLOEXEC) < 0) {
        return "no pipe";
    }
    const pid_t child = ::fork();
    if (child == 0) {
        const std::string text = second();
        ::_exit(::write(back[1], text.data(), text.size()) < 0 ? 1 : 0);
    }
    ::waitpid(child, nullptr, 0);
    char buffer[256];
    const ssize_t count = ::read(back[0], buffer, sizeof buffer);
    return mine + ", the other " + std::string(buffer, count < 0 ? 0 : static_cast<size_t>(count));
}

int open_x(int flags = O_RDWR) { return ::open("x", flags | O_CLOEXEC); }

struct Two {
    const char* name;
    std::string (*first)();
    std::string (*second)();
};
const Two kTwo[] = {
    {"write lock, write lock", [] { return lock(open_x(), F_SETLK, F_WRLCK, 0, 0); },
     [] { return lock(open_x(), F_SETLK, F_WRLCK, 0, 0); }},
    {"read lock, read lock", [] { return lock(open_x(), F_SETLK, F_RDLCK, 0, 0); },
     [] { return lock(open_x(), F_SETLK, F_RDLCK, 0, 0); }},
    {"read lock, write lock", [] { return lock(open_x(), F_SETLK, F_RDLCK, 0, 0); },
     [] { return lock(open_x(), F_SETLK, F_WRLCK, 0, 0); }},
    {"write locks beside each other", [] { return lock(open_x(), F_SETLK, F_WRLCK, 0, 10); },
     [] { return lock(open_x(), F_SETLK, F_WRLCK, 10, 10); }},
    {"write lock, query", [] { return lock(open_x(), F_SETLK, F_WRLCK, 3, 10); },
     [] { return lock(open_x(), F_GETLK, F_RDLCK, 0, 0); }},
    {"write lock split, query",
     [] {
         const int file = open_x();
         return lock(file, F_SETLK, F_WRLCK, 0, 10) + lock(file, F_SETLK, F_UNLCK, 4, 2);
     },
     [] { return lock(open_x(), F_GETLK, F_RDLCK, 5, 0); }},
    {"lock lost by closing another descriptor",
     [] {
         const std::string text = lock(open_x(), F_SETLK, F_WRLCK, 0, 0);
         ::close(open_x());
         return text;
     },
     [] { return lock(open_x(), F_GETLK, F_WRLCK, 0, 0); }},
    {"lock of a description, lock of a process",
     [] { return lock(open_x(), F_OFD_SETLK, F_WRLCK, 0, 0); },
     [] { return lock(open_x(), F_SETLK, F_WRLCK, 0, 0); }},
    {"flock LOCK_EX, LOCK_EX", [] { return answer(::flock(open_x(), LOCK_EX | LOCK_NB)); },
     [] { return answer(::flock(open_x(), LOCK_EX | LOCK_NB)); }},
    {"flock LOCK_SH, LOCK_SH", [] { return answer(::flock(open_x(), LOCK_SH | LOCK_NB)); },
     [] { return answer(::flock(open_x(), LOCK_SH | LOCK_NB)); }},
    {"flock LOCK_SH, LOCK_EX", [] { return answer(::flock(open_x(), LOCK_SH | LOCK_NB)); },
     [] { return answer(::flock(open_x(O_RDONLY), LOCK_EX | LOCK_NB)); }},
    {"flock LOCK_EX, write lock", [] { return answer(::flock(open_x(), LOCK_EX | LOCK_NB)); },
     [] { return lock(open_x(), F_SETLK, F_WRLCK, 0, 0); }},
    {"open for writing, read lease", [] { return answer(open_x()); },
     [] { return answer(::fcntl(open_x(O_RDONLY), F_SETLEASE, F_RDLCK)); }},
    {"open for reading, write lease", [] { return answer(open_x(O_RDONLY)); },
     [] { return answer(::fcntl(open_x(O_RDONLY), F_SETLEASE, F_WRLCK)); }},
    {"open for reading, read lease", [] { return answer(open_x(O_RDONLY)); },
     [] { return answer(::fcntl(open_x(O_RDONLY), F_SETLEASE, F_RDLCK)); }},
    {"write lease, open", [] { return answer(::fcntl(open_x(O_RDONLY), F_SETLEASE, F_WRLCK)); },
     [] {
         // The lease's holder does not give way: it only waits for this process.
         return answer(open_x(O_RDONLY | O_NONBLOCK));
     }},
};

void add_locks(Trials& trials) {
    for (const Two& two : kTwo) {
        trials.add_alone(
            two.name, Caller::root, [](Scene& scene) { scene.file("x"); },
            [&two] {
                ::signal(SIGIO, SIG_IGN);
                return with_other_process(two.first, two.second);
            });
    }
    for (Caller caller : kAllCallers) {
        for (int type : {F_RDLCK, F_WRLCK}) {
            trials.add_alone(
                std::string("lease ") + (type == F_RDLCK ? "for reading" : "for writing"), caller,
                [](Scene& scene) {
                    scene.belong_to(kOwner, kGroup);
                    scene.file("x", 0666);
                },
                [type] { return answer(::fcntl(open_x(O_RDONLY), F_SETLEASE, type)); });
        }
    }
}

}  // namespace

void add_use_trials(Trials& trials) {
    add_execution(trials);
    add_locks(trials);
    for (const char* call : {"link", "rename"}) {
        trials.add_alone(
            std::string(call) + ", another file system", Caller::root,
            [](Scene& scene) { scene.file("x"); },
            [call] {
                return answer(std::strcmp(call, "link") == 0 ? ::link("x", "/proc/x")
                                                             : ::rename("x", "/proc/x"));
            });
    }
}

}  // namespace tiffin::conformance
