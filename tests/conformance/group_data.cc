// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Content: ranges of files of several shapes that are read, written, sought, allocated and copied.
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "tests/conformance/answer.h"
#include "tests/conformance/groups.h"

namespace tiffin::conformance {
namespace {

constexpr off_t kBlock = 4096;

// Files whose blocks are data and holes in different orders.
struct Shape {
    const char* name;
    void (*prepare)();  // makes "x"
};

void write_pieces(off_t size, std::initializer_list<off_t> blocks) {
    const int file = ::open("x", O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    const std::string data(kBlock, 'd');
    for (off_t block : blocks) {
        if (::pwrite(file, data.data(), data.size(), block * kBlock) != kBlock) {
            broken("write x");
        }
    }
    if (file < 0 || ::ftruncate(file, size) < 0) {
        broken("make x");
    }
    ::close(file);
}

const Shape kShapes[] = {
    {"empty", [] { write_pieces(0, {}); }},
    {"5 bytes", [] { write_pieces(5, {0}); }},
    {"2000 bytes", [] { write_pieces(2000, {0}); }},
    {"4 blocks",
     [] {
         write_pieces(4 * kBlock, {0, 1, 2, 3});
     }},
    {"4 blocks and a bit",
     [] {
         write_pieces(3 * kBlock + 100, {0, 1, 2, 3});
     }},
    {"hole of 4 blocks", [] { write_pieces(4 * kBlock, {}); }},
    {"hole in the middle",
     [] {
         write_pieces(4 * kBlock, {0, 3});
     }},
    {"hole at the end", [] { write_pieces(4 * kBlock, {0}); }},
    {"hole at the beginning", [] { write_pieces(4 * kBlock, {3}); }},
};

// Without holes between them; the ends of pages are what goes wrong.
constexpr off_t kOffsets[] = {0,
                              1,
                              4,
                              5,
                              6,
                              1999,
                              2000,
                              kBlock - 1,
                              kBlock,
                              kBlock + 1,
                              3 * kBlock,
                              3 * kBlock + 99,
                              4 * kBlock - 1,
                              4 * kBlock,
                              4 * kBlock + 1,
                              1 << 20};

void prepare(Scene& scene, const Shape& shape) {
    shape.prepare();
    scene.watch("x");
}

int open_x(int flags) { return ::open("x", flags | O_CLOEXEC); }

void add_seeks(Trials& trials) {
    for (const Shape& shape : kShapes) {
        for (off_t offset : kOffsets) {
            trials.add(
                "lseek from " + std::to_string(offset) + ", " + shape.name, Caller::root,
                [&shape](Scene& scene) { prepare(scene, shape); },
                [offset] {
                    const int file = open_x(O_RDONLY);
                    const std::string text = "data " + counted(::lseek(file, offset, SEEK_DATA));
                    return text + ", hole " + counted(::lseek(file, offset, SEEK_HOLE));
                });
        }
    }
}

struct Mode {
    const char* name;
    int flags;
};
constexpr Mode kModes[] = {
    {"fallocate", 0},
    {"fallocate keeping the size", FALLOC_FL_KEEP_SIZE},
    {"punch", FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE},
    {"zero", FALLOC_FL_ZERO_RANGE},
    {"zero keeping the size", FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE},
    {"collapse", FALLOC_FL_COLLAPSE_RANGE},
    {"insert", FALLOC_FL_INSERT_RANGE},
};
struct Range {
    off_t offset;
    off_t length;
};
constexpr Range kRanges[] = {{0, 3},           {2, kBlock},     {0, kBlock},
                             {kBlock, kBlock}, {0, 4 * kBlock}, {3 * kBlock, 3 * kBlock},
                             {5 * kBlock, 10}, {1, 5 * kBlock}, {4 * kBlock, kBlock}};

void add_allocations(Trials& trials) {
    for (const Mode& mode : kModes) {
        for (const Shape& shape : kShapes) {
            for (const Range& range : kRanges) {
                trials.add(
                    std::string(mode.name) + " " + std::to_string(range.length) + " at " +
                        std::to_string(range.offset) + ", " + shape.name,
                    Caller::root, [&shape](Scene& scene) { prepare(scene, shape); },
                    [&mode, &range] {
                        return answer(
                            ::fallocate(open_x(O_RDWR), mode.flags, range.offset, range.length));
                    });
            }
        }
    }
}

void add_writes(Trials& trials) {
    for (const Shape& shape : kShapes) {
        for (off_t offset : kOffsets) {
            trials.add(
                "pwrite at " + std::to_string(offset) + ", " + shape.name, Caller::root,
                [&shape](Scene& scene) { prepare(scene, shape); },
                [offset] { return counted(::pwrite(open_x(O_WRONLY), "written", 7, offset)); });
            trials.add(
                "truncate to " + std::to_string(offset) + ", " + shape.name, Caller::root,
                [&shape](Scene& scene) { prepare(scene, shape); },
                [offset] { return answer(::truncate("x", offset)); });
            trials.add(
                "store by mapping at " + std::to_string(offset) + ", " + shape.name, Caller::root,
                [&shape](Scene& scene) { prepare(scene, shape); },
                [offset] {
                    void* address = ::mmap(nullptr, 2 << 20, PROT_READ | PROT_WRITE, MAP_SHARED,
                                           open_x(O_RDWR), 0);
                    if (address == MAP_FAILED) {
                        return error_name(errno);
                    }
                    static_cast<volatile char*>(address)[offset] = 'M';
                    return answer(::msync(address, 2 << 20, MS_SYNC));
                });
        }
    }
}

void add_copies(Trials& trials) {
    for (const Shape& shape : kShapes) {
        for (const Range& from : kRanges) {
            for (off_t to : {off_t{0}, off_t{3}, 2 * kBlock}) {
                trials.add(
                    "copy " + std::to_string(from.length) + " from " + std::to_string(from.offset) +
                        " to " + std::to_string(to) + ", " + shape.name,
                    Caller::root,
                    [&shape](Scene& scene) {
                        prepare(scene, shape);
                        scene.file("y", 0644, std::string(6000, 'y'));
                    },
                    [&from, to] {
                        off_t source = from.offset;
                        off_t target = to;
                        return counted(::copy_file_range(open_x(O_RDONLY), &source,
                                                         ::open("y", O_WRONLY), &target,
                                                         static_cast<size_t>(from.length), 0));
                    });
            }
        }
    }
}

void limit_size(rlim_t bytes) {
    const rlimit limit = {bytes, bytes};
    ::setrlimit(RLIMIT_FSIZE, &limit);
}

// Beyond a process's limit: a signal, or EFBIG when it is ignored; what fits is written.
void add_limits(Trials& trials) {
    struct Action {
        const char* name;
        std::string (*run)();
    };
    static constexpr Action actions[] = {
        {"write across it",
         [] { return counted(::pwrite(open_x(O_WRONLY), "0123456789", 10, 2045)); }},
        {"write behind it", [] { return counted(::pwrite(open_x(O_WRONLY), "x", 1, 2048)); }},
        {"append", [] { return counted(::write(open_x(O_WRONLY | O_APPEND), "0123", 4)); }},
        {"truncate", [] { return answer(::truncate("x", 2049)); }},
        {"truncate to it", [] { return answer(::truncate("x", 2048)); }},
        {"ftruncate", [] { return answer(::ftruncate(open_x(O_WRONLY), 5000)); }},
        {"fallocate", [] { return answer(::fallocate(open_x(O_WRONLY), 0, 0, 5000)); }},
        {"fallocate keeping the size",
         [] { return answer(::fallocate(open_x(O_WRONLY), FALLOC_FL_KEEP_SIZE, 0, 5000)); }},
        {"copy", [] {
             off_t from = 0;
             off_t to = 2040;
             return counted(
                 ::copy_file_range(::open("y", O_RDONLY), &from, open_x(O_WRONLY), &to, 100, 0));
         }}};
    for (const Action& action : actions) {
        for (bool ignored : {false, true}) {
            for (size_t size : {size_t{5}, size_t{2048}, size_t{4000}}) {
                trials.add_alone(
                    std::string("limit of 2048, ") + action.name + ", file of " +
                        std::to_string(size) + (ignored ? ", signal ignored" : ""),
                    Caller::root,
                    [size](Scene& scene) {
                        scene.file("x", 0644, std::string(size, 'a'));
                        scene.file("y", 0644, std::string(3000, 'y'));
                    },
                    [&action, ignored] {
                        if (ignored) {
                            ::signal(SIGXFSZ, SIG_IGN);
                        }
                        limit_size(2048);
                        return action.run();
                    });
            }
        }
    }
}

}  // namespace

void add_data_trials(Trials& trials) {
    add_seeks(trials);
    add_allocations(trials);
    add_writes(trials);
    add_copies(trials);
    add_limits(trials);
}

}  // namespace tiffin::conformance
