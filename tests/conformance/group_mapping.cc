// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Files mapped into memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/conformance/answer.h"
#include "tests/conformance/groups.h"

namespace tiffin::conformance {
namespace {

struct Action {
    const char* name;
    std::string (*run)();
};

int open_x(int flags = O_RDWR) { return ::open("x", flags | O_CLOEXEC); }

char* map(size_t size, int protection, int flags, int open_flags) {
    void* address = ::mmap(nullptr, size, protection, flags, open_x(open_flags), 0);
    return address == MAP_FAILED ? nullptr : static_cast<char*>(address);
}

const Action kMappings[] = {
    {"load behind the end, same page",
     [] {
         const char* bytes = map(8192, PROT_READ, MAP_SHARED, O_RDONLY);
         return "ok " + std::to_string(static_cast<const volatile char*>(bytes)[4095]);
     }},
    {"load behind the last page",
     [] {
         const char* bytes = map(8192, PROT_READ, MAP_SHARED, O_RDONLY);
         return "ok " + std::to_string(static_cast<const volatile char*>(bytes)[4096]);
     }},
    {"load after truncation",
     [] {
         const char* bytes = map(4096, PROT_READ, MAP_SHARED, O_RDONLY);
         ::truncate("x", 0);
         return "ok " + std::to_string(static_cast<const volatile char*>(bytes)[0]);
     }},
    {"store to a read-only mapping",
     [] {
         char* bytes = map(4096, PROT_READ, MAP_SHARED, O_RDWR);
         static_cast<volatile char*>(bytes)[0] = 'M';
         return std::string("ok");
     }},
    {"mprotect beyond the descriptor",
     [] {
         return answer(
             ::mprotect(map(4096, PROT_READ, MAP_SHARED, O_RDONLY), 4096, PROT_READ | PROT_WRITE));
     }},
    {"store to a private mapping",
     [] {
         char* bytes = map(4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, O_RDONLY);
         static_cast<volatile char*>(bytes)[0] = 'M';
         return answer(::msync(bytes, 4096, MS_SYNC));
     }},
    {"store, then read by descriptor",
     [] {
         char* bytes = map(4096, PROT_READ | PROT_WRITE, MAP_SHARED, O_RDWR);
         static_cast<volatile char*>(bytes)[1] = 'M';
         char content[8] = {};
         const std::string text = counted(::read(open_x(), content, 7));
         return text + " " + quoted(content);
     }},
    {"msync with both flags",
     [] {
         return answer(::msync(map(4096, PROT_READ, MAP_SHARED, O_RDWR), 4096, MS_SYNC | MS_ASYNC));
     }},
    {"msync of an odd address",
     [] { return answer(::msync(map(4096, PROT_READ, MAP_SHARED, O_RDWR) + 1, 100, MS_SYNC)); }},
    {"msync of nothing mapped",
     [] {
         char* bytes = map(4096, PROT_READ, MAP_SHARED, O_RDWR);
         ::munmap(bytes, 4096);
         return answer(::msync(bytes, 4096, MS_SYNC));
     }},
    {"write from a mapping of the same file",
     [] {
         const char* bytes = map(4096, PROT_READ, MAP_SHARED, O_RDWR);
         return counted(::pwrite(open_x(), bytes, 5, 5));
     }},
    {"read into a mapping of the same file",
     [] {
         char* bytes = map(4096, PROT_READ | PROT_WRITE, MAP_SHARED, O_RDWR);
         return counted(::pread(open_x(), bytes + 1, 3, 0));
     }},
};

}  // namespace

void add_mapping_trials(Trials& trials) {
    for (const Action& action : kMappings) {
        trials.add_alone(
            action.name, Caller::root, [](Scene& scene) { scene.file("x"); }, action.run);
    }
}

}  // namespace tiffin::conformance
