// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Many files, or one file of many extents, on a mounted file system: what an operation costs in each tenth of
// the way.
//
//     scale_load FOLDER PHASE COUNT [PROCESS]
//
// Phases, in this order: create-flat list-flat lookup-flat unlink-flat (COUNT files of 1 KiB in one directory),
// create-tree list-tree lookup-tree unlink-tree (in directories of 1000), write-extents read-extents
// truncate-extents delete-extents (a file of COUNT extents, one block in each MiB; half of it is truncated step
// by step, the rest goes with the file). bench/scale mounts anew between them, so that nothing is cached.
// Prints ten times in microseconds per operation, and the last one divided by the first one; then the same in
// processor time, this program's and that of PROCESS, which serves the mount: other work on the machine hardly
// shows there.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/must_call.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kTenths = 10;
constexpr uint64_t kFilesInADirectory = 1000;
constexpr size_t kFileBytes = 1024;
constexpr size_t kBlockBytes = 4096;
constexpr uint64_t kExtentStrideBytes = 1U << 20;
// No divisor of any count: a walk in steps of this comes to every number, in no order that is stored.
constexpr uint64_t kStride = 611'953;

clockid_t g_server_clock = CLOCK_PROCESS_CPUTIME_ID;

double seconds_of(clockid_t clock) {
    timespec time;
    MUST_CALL(clock_gettime(clock, &time));
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double processor_seconds() {
    const double own = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    return g_server_clock == CLOCK_PROCESS_CPUTIME_ID ? own : own + seconds_of(g_server_clock);
}

// A stop watch for tenths; prints them.
class Tenths {
  public:
    Tenths() { start(); }

    void start() {
        start_ = Clock::now();
        processor_start_ = processor_seconds();
    }
    // What has passed since the last one, or start(), was so many operations.
    void add(uint64_t operations) {
        const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
        const double microseconds = 1e6 / static_cast<double>(operations);
        times_.push_back(seconds * microseconds);
        processor_times_.push_back((processor_seconds() - processor_start_) * microseconds);
        start();
    }
    void print(const std::string& phase) const {
        print_line(phase, times_);
        print_line("  processor", processor_times_);
    }

  private:
    static void print_line(const std::string& name, const std::vector<double>& times) {
        std::printf("%-18s", name.c_str());
        for (const double time : times) {
            std::printf(" %8.2f", time);
        }
        std::printf("   %5.2f\n", times.back() / times.front());
    }

    Clock::time_point start_;
    double processor_start_ = 0;
    std::vector<double> times_;
    std::vector<double> processor_times_;
};

Tenths for_each(uint64_t count, const std::function<void(uint64_t)>& operation) {
    Tenths tenths;
    for (uint64_t tenth = 0; tenth < kTenths; ++tenth) {
        const uint64_t begin = count * tenth / kTenths;
        const uint64_t end = count * (tenth + 1) / kTenths;
        for (uint64_t i = begin; i < end; ++i) {
            operation(i);
        }
        tenths.add(end - begin);
    }
    return tenths;
}

// ---- Files ----------------------------------------------------------------------------------------

// Where file `number` lies below a folder.
class Layout {
  public:
    Layout(std::string folder, bool is_tree)
        : folder_(folder + (is_tree ? "/tree" : "/flat")), is_tree_(is_tree) {}

    const std::string& folder() const { return folder_; }
    std::string directory(uint64_t number) const {
        return is_tree_ ? folder_ + "/directory-" + std::to_string(number / kFilesInADirectory)
                        : folder_;
    }
    std::string path(uint64_t number) const {
        return directory(number) + "/file-" + std::to_string(number);
    }
    bool begins_directory(uint64_t number) const {
        return is_tree_ && number % kFilesInADirectory == 0;
    }

  private:
    std::string folder_;
    bool is_tree_;
};

Tenths create(const Layout& layout, uint64_t count) {
    MUST_CALL(mkdir(layout.folder().c_str(), 0755));
    const std::string content(kFileBytes, 'c');
    return for_each(count, [&](uint64_t i) {
        if (layout.begins_directory(i)) {
            MUST_CALL(mkdir(layout.directory(i).c_str(), 0755));
        }
        const int file = MUST_CALL(open(layout.path(i).c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644));
        MUST_CALL(write(file, content.data(), content.size()));
        MUST_CALL(close(file));
    });
}

// Counts entries, so that a tenth is a tenth of them, in one directory or in many.
Tenths list(const Layout& layout, uint64_t count) {
    Tenths tenths;
    uint64_t seen = 0;
    uint64_t next = count / kTenths;
    uint64_t begin = 0;
    for (uint64_t i = 0; i < count; i += layout.begins_directory(0) ? kFilesInADirectory : count) {
        DIR* directory = opendir(layout.directory(i).c_str());
        if (directory == nullptr) {
            std::perror("opendir");
            std::exit(1);
        }
        while (const dirent* entry = readdir(directory)) {
            if (entry->d_name[0] == '.') {
                continue;
            }
            if (++seen == next) {
                tenths.add(seen - begin);
                begin = seen;
                next += count / kTenths;
            }
        }
        closedir(directory);
    }
    if (seen != count) {
        std::fprintf(stderr, "scale_load: %lu entries instead of %lu\n", seen, count);
        std::exit(1);
    }
    return tenths;
}

Tenths look_up(const Layout& layout, uint64_t count) {
    return for_each(count, [&](uint64_t i) {
        struct stat status;
        MUST_CALL(stat(layout.path(i * kStride % count).c_str(), &status));
        if (status.st_size != kFileBytes) {
            std::exit(1);
        }
    });
}

Tenths remove(const Layout& layout, uint64_t count) {
    Tenths tenths = for_each(count, [&](uint64_t i) {
        MUST_CALL(unlink(layout.path(i).c_str()));
        if (layout.begins_directory(i + 1)) {
            MUST_CALL(rmdir(layout.directory(i).c_str()));
        }
    });
    return tenths;
}

// ---- Extents --------------------------------------------------------------------------------------

class Blocks {
  public:
    Blocks(const std::string& path, int flags)
        : file_(MUST_CALL(open(path.c_str(), flags | O_DIRECT, 0644))),
          memory_(static_cast<char*>(std::aligned_alloc(kBlockBytes, kBlockBytes))) {}
    ~Blocks() {
        close(file_);
        std::free(memory_);
    }
    Blocks(const Blocks&) = delete;
    Blocks& operator=(const Blocks&) = delete;

    void write(uint64_t number) {
        fill(number);
        MUST_CALL(pwrite(file_, memory_, kBlockBytes, offset(number)));
    }
    void read(uint64_t number) {
        MUST_CALL(pread(file_, memory_, kBlockBytes, offset(number)));
        if (reinterpret_cast<uint64_t*>(memory_)[7] != number) {
            std::fprintf(stderr, "scale_load: block %lu has other content\n", number);
            std::exit(1);
        }
    }

  private:
    static off_t offset(uint64_t number) { return static_cast<off_t>(number * kExtentStrideBytes); }
    void fill(uint64_t number) {
        for (size_t i = 0; i < kBlockBytes / sizeof(uint64_t); ++i) {
            reinterpret_cast<uint64_t*>(memory_)[i] = number;
        }
    }

    int file_;
    char* memory_;
};

Tenths write_extents(const std::string& path, uint64_t count) {
    Blocks blocks(path, O_WRONLY | O_CREAT | O_EXCL);
    return for_each(count, [&](uint64_t i) { blocks.write(i); });
}

Tenths read_extents(const std::string& path, uint64_t count) {
    Blocks blocks(path, O_RDONLY);
    return for_each(count, [&](uint64_t i) { blocks.read(i * kStride % count); });
}

// In ten steps down to the half; times are for each extent.
Tenths truncate_extents(const std::string& path, uint64_t count) {
    Tenths tenths;
    for (uint64_t i = 1; i <= kTenths; ++i) {
        MUST_CALL(truncate(path.c_str(),
                           static_cast<off_t>((count - count * i / 20) * kExtentStrideBytes)));
        tenths.add(count / 20);
    }
    return tenths;
}

uint64_t free_blocks(const std::string& folder) {
    struct statvfs status;
    MUST_CALL(statvfs(folder.c_str(), &status));
    return status.f_bfree;
}

// unlink() returns at once: the time is that until the blocks are free, in tenths of them.
Tenths delete_extents(const std::string& folder, const std::string& path) {
    struct stat status;
    MUST_CALL(stat(path.c_str(), &status));
    const uint64_t blocks = static_cast<uint64_t>(status.st_blocks) * 512 / kBlockBytes;
    const uint64_t free_before = free_blocks(folder);
    Tenths tenths;
    MUST_CALL(unlink(path.c_str()));
    for (uint64_t i = 1; i <= kTenths; ++i) {
        while (free_blocks(folder) < free_before + blocks * i / kTenths) {
            usleep(200);
        }
        tenths.add(blocks / kTenths);
    }
    return tenths;
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 4 && count != 5) {
        std::fprintf(stderr, "usage: %s FOLDER PHASE COUNT [PROCESS]\n", arguments[0]);
        return 2;
    }
    if (count == 5 && clock_getcpuclockid(std::atoi(arguments[4]), &g_server_clock) != 0) {
        std::fprintf(stderr, "%s: there is no process %s\n", arguments[0], arguments[4]);
        return 2;
    }
    const std::string folder = arguments[1];
    const std::string phase = arguments[2];
    const uint64_t operations = std::strtoull(arguments[3], nullptr, 10);
    if (operations < 10'000 || operations % 10'000 != 0) {
        std::fprintf(stderr, "%s: COUNT is a multiple of 10000\n", arguments[0]);
        return 2;
    }
    const Layout flat(folder, false);
    const Layout tree(folder, true);
    const std::string file = folder + "/extents";
    const std::map<std::string, std::function<Tenths()>> phases = {
        {"create-flat", [&] { return create(flat, operations); }},
        {"list-flat", [&] { return list(flat, operations); }},
        {"lookup-flat", [&] { return look_up(flat, operations); }},
        {"unlink-flat", [&] { return remove(flat, operations); }},
        {"create-tree", [&] { return create(tree, operations); }},
        {"list-tree", [&] { return list(tree, operations); }},
        {"lookup-tree", [&] { return look_up(tree, operations); }},
        {"unlink-tree", [&] { return remove(tree, operations); }},
        {"write-extents", [&] { return write_extents(file, operations); }},
        {"read-extents", [&] { return read_extents(file, operations); }},
        {"truncate-extents", [&] { return truncate_extents(file, operations); }},
        {"delete-extents", [&] { return delete_extents(folder, file); }},
    };
    const auto found = phases.find(phase);
    if (found == phases.end()) {
        std::fprintf(stderr, "%s: no phase is called '%s'\n", arguments[0], phase.c_str());
        return 2;
    }
    found->second().print(phase);
    return 0;
}
