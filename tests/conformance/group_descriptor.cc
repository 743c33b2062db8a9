// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Every call with a descriptor, on every kind of open file.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "tests/conformance/answer.h"
#include "tests/conformance/descriptor_calls.h"
#include "tests/conformance/groups.h"

namespace tiffin::conformance {
namespace {

struct OpenKind {
    const char* name;
    void (*prepare)(Scene& scene);
    int (*open)();
};

void one_file(Scene& scene) { scene.file("x"); }
void one_directory(Scene& scene) {
    scene.directory("x");
    scene.watch("x/new");
}

int open_x(int flags) { return ::open("x", flags | O_NONBLOCK | O_CLOEXEC); }

const OpenKind kOpenKinds[] = {
    {"no descriptor", [](Scene&) {}, [] { return -1; }},
    {"closed descriptor", [](Scene&) {}, [] { return 1000; }},
    {"file O_RDONLY", one_file, [] { return open_x(O_RDONLY); }},
    {"file O_WRONLY", one_file, [] { return open_x(O_WRONLY); }},
    {"file O_RDWR", one_file, [] { return open_x(O_RDWR); }},
    {"file O_RDWR|O_APPEND", one_file, [] { return open_x(O_RDWR | O_APPEND); }},
    {"file O_PATH", one_file, [] { return open_x(O_PATH); }},
    {"empty file", [](Scene& scene) { scene.file("x", 0644, ""); }, [] { return open_x(O_RDWR); }},
    {"file of 10000 bytes", [](Scene& scene) { scene.file("x", 0644, std::string(10000, 'a')); },
     [] { return open_x(O_RDWR); }},
    {"unlinked file", one_file,
     [] {
         const int file = open_x(O_RDWR);
         ::unlink("x");
         return file;
     }},
    {"temporary file", [](Scene& scene) { scene.watch("new"); },
     [] { return ::open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0644); }},
    {"directory", one_directory, [] { return open_x(O_RDONLY); }},
    {"directory O_PATH", one_directory, [] { return open_x(O_PATH); }},
    {"removed directory", one_directory,
     [] {
         const int file = open_x(O_RDONLY);
         ::rmdir("x");
         return file;
     }},
    {"symlink O_PATH", [](Scene& scene) { scene.symlink("target", "x"); },
     [] { return open_x(O_PATH | O_NOFOLLOW); }},
    {"fifo", [](Scene& scene) { scene.fifo("x"); }, [] { return open_x(O_RDWR); }},
    {"char device", [](Scene& scene) { scene.node("x", S_IFCHR | 0666, 1, 3); },
     [] { return open_x(O_RDWR); }},
    {"socket O_PATH", [](Scene& scene) { scene.socket("x"); }, [] { return open_x(O_PATH); }},
};

bool is_closed(const OpenKind& kind) {
    return std::strcmp(kind.name, "no descriptor") == 0 ||
           std::strcmp(kind.name, "closed descriptor") == 0;
}

// A descriptor that could not be had is not what is tried here.
std::string run(const DescriptorCall& call, const OpenKind& kind) {
    const int file = kind.open();
    if (file < 0 && !is_closed(kind)) {
        return "not opened: " + error_name(errno);
    }
    return call.run(file);
}

}  // namespace

void add_descriptor_trials(Trials& trials) {
    for (const auto* calls : {&content_calls(), &control_calls()}) {
        for (const DescriptorCall& call : *calls) {
            for (const OpenKind& kind : kOpenKinds) {
                trials.add(
                    call.name + ", " + kind.name, Caller::root,
                    [&kind](Scene& scene) {
                        scene.watch("new");
                        scene.file("other");
                        kind.prepare(scene);
                    },
                    [&call, &kind] { return run(call, kind); });
            }
        }
    }
}

}  // namespace tiffin::conformance
