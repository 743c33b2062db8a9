// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <climits>

#include "tests/conformance/answer.h"
#include "tests/conformance/descriptor_calls.h"

// Newer than the C library's headers.
#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20
#endif
#ifndef RWF_ATOMIC
#define RWF_ATOMIC 0x40
#endif
#ifndef RWF_DONTCACHE
#define RWF_DONTCACHE 0x80
#endif

namespace tiffin::conformance {
namespace {

struct Flags {
    const char* name;
    int flags;
};
constexpr Flags kTransferFlags[] = {
    {"0", 0},
    {"RWF_HIPRI", RWF_HIPRI},
    {"RWF_DSYNC", RWF_DSYNC},
    {"RWF_SYNC", RWF_SYNC},
    {"RWF_APPEND", RWF_APPEND},
    {"RWF_NOAPPEND", RWF_NOAPPEND},
    {"RWF_APPEND|RWF_NOAPPEND", RWF_APPEND | RWF_NOAPPEND},
    {"RWF_ATOMIC", RWF_ATOMIC},
    {"unknown flag", 1 << 30},
};

constexpr Flags kAllocation[] = {
    {"0", 0},
    {"KEEP_SIZE", FALLOC_FL_KEEP_SIZE},
    {"PUNCH_HOLE", FALLOC_FL_PUNCH_HOLE},
    {"PUNCH_HOLE|KEEP_SIZE", FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE},
    {"ZERO_RANGE", FALLOC_FL_ZERO_RANGE},
    {"ZERO_RANGE|KEEP_SIZE", FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE},
    {"ZERO_RANGE|PUNCH_HOLE", FALLOC_FL_ZERO_RANGE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE},
    {"COLLAPSE_RANGE", FALLOC_FL_COLLAPSE_RANGE},
    {"COLLAPSE_RANGE|KEEP_SIZE", FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_KEEP_SIZE},
    {"INSERT_RANGE", FALLOC_FL_INSERT_RANGE},
    {"UNSHARE_RANGE", FALLOC_FL_UNSHARE_RANGE},
    {"NO_HIDE_STALE", FALLOC_FL_NO_HIDE_STALE},
    {"unknown flag", 1 << 20},
};

struct Seek {
    const char* name;
    off_t offset;
    int whence;
};
constexpr Seek kSeeks[] = {
    {"SEEK_SET 3", 3, SEEK_SET},
    {"SEEK_SET -1", -1, SEEK_SET},
    {"SEEK_SET largest", INT64_MAX, SEEK_SET},
    {"SEEK_CUR 0", 0, SEEK_CUR},
    {"SEEK_CUR -1", -1, SEEK_CUR},
    {"SEEK_CUR largest", INT64_MAX, SEEK_CUR},
    {"SEEK_END 2", 2, SEEK_END},
    {"SEEK_END -6", -6, SEEK_END},
    {"SEEK_DATA 0", 0, SEEK_DATA},
    {"SEEK_DATA 5", 5, SEEK_DATA},
    {"SEEK_DATA -1", -1, SEEK_DATA},
    {"SEEK_HOLE 0", 0, SEEK_HOLE},
    {"SEEK_HOLE 5", 5, SEEK_HOLE},
    {"SEEK_HOLE -1", -1, SEEK_HOLE},
    {"unknown whence", 0, 9},
};

std::string read_some(int file, size_t size) {
    char buffer[64];
    const ssize_t count = ::read(file, buffer, size);
    return count < 0 ? error_name(errno)
                     : "ok " + quoted(std::string(buffer, static_cast<size_t>(count)));
}

// A descriptor's position is not to be seen in the file itself.
std::string with_position(int file, const std::string& result) {
    const off_t position = ::lseek(file, 0, SEEK_CUR);
    return result + (position < 0 ? "" : " at " + std::to_string(position));
}

std::string write_vector(int file, off_t offset, int flags) {
    char text[] = "abcdef";
    const iovec pieces[2] = {{text, 2}, {text + 2, 2}};
    return with_position(file, counted(::pwritev2(file, pieces, 2, offset, flags)));
}

std::string read_vector(int file, off_t offset, int flags) {
    char text[8] = {};
    const iovec pieces[2] = {{text, 2}, {text + 2, 2}};
    const ssize_t count = ::preadv2(file, pieces, 2, offset, flags);
    const std::string result = count < 0 ? error_name(errno) : "ok " + quoted(text);
    return with_position(file, result);
}

int new_file(const char* name) { return ::open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0666); }

int full_pipe() {
    int ends[2];
    if (::pipe2(ends, O_NONBLOCK | O_CLOEXEC) < 0 || ::write(ends[1], "piped", 5) != 5) {
        return -1;
    }
    return ends[0];
}

int empty_pipe() {
    int ends[2];
    return ::pipe2(ends, O_NONBLOCK | O_CLOEXEC) < 0 ? -1 : ends[1];
}

using Calls = std::vector<DescriptorCall>;

void add_transfers(Calls& calls) {
    auto add = [&](const char* name, std::function<std::string(int)> run) {
        calls.push_back({name, std::move(run)});
    };
    add("read", [](int file) { return with_position(file, read_some(file, 64)); });
    add("read of nothing", [](int file) { return read_some(file, 0); });
    add("read bad address", [](int file) { return answer(::syscall(SYS_read, file, 1, 5)); });
    add("write", [](int file) { return with_position(file, counted(::write(file, "ab", 2))); });
    add("write of nothing", [](int file) { return counted(::write(file, "", 0)); });
    add("write bad address", [](int file) { return answer(::syscall(SYS_write, file, 1, 5)); });
    add("pread", [](int file) {
        char buffer[4];
        return counted(::pread(file, buffer, 4, 3));
    });
    add("pread -1", [](int file) {
        char buffer[4];
        return counted(::pread(file, buffer, 4, -1));
    });
    add("pread beyond the end", [](int file) {
        char buffer[4];
        return counted(::pread(file, buffer, 4, 1 << 20));
    });
    add("pwrite",
        [](int file) { return with_position(file, counted(::pwrite(file, "ab", 2, 7))); });
    add("pwrite -1", [](int file) { return counted(::pwrite(file, "ab", 2, -1)); });
    add("pwrite at the largest offset",
        [](int file) { return counted(::pwrite(file, "ab", 2, INT64_MAX)); });
    for (const Flags& entry : kTransferFlags) {
        calls.push_back({std::string("pwritev2 ") + entry.name,
                         [&entry](int file) { return write_vector(file, 1, entry.flags); }});
        calls.push_back({std::string("preadv2 ") + entry.name,
                         [&entry](int file) { return read_vector(file, 1, entry.flags); }});
    }
    add("pwritev2 at the position", [](int file) { return write_vector(file, -1, 0); });
    add("preadv2 at the position", [](int file) { return read_vector(file, -1, 0); });
    add("pwritev2 -2", [](int file) { return write_vector(file, -2, 0); });
    add("readv too many", [](int file) {
        const iovec piece = {nullptr, 0};
        return answer(::syscall(SYS_readv, file, &piece, IOV_MAX + 1));
    });
    add("writev of no pieces", [](int file) { return counted(::writev(file, nullptr, 0)); });
}

void add_sizes(Calls& calls) {
    for (const Seek& seek : kSeeks) {
        calls.push_back({std::string("lseek ") + seek.name, [&seek](int file) {
                             return counted(::lseek(file, seek.offset, seek.whence));
                         }});
    }
    struct Size {
        const char* name;
        off_t bytes;
    };
    static constexpr Size sizes[] = {{"ftruncate 3", 3},
                                     {"ftruncate 5", 5},
                                     {"ftruncate 9000", 9000},
                                     {"ftruncate -1", -1},
                                     {"ftruncate largest", INT64_MAX}};
    for (const Size& size : sizes) {
        calls.push_back(
            {size.name, [&size](int file) { return answer(::ftruncate(file, size.bytes)); }});
    }
    for (const Flags& mode : kAllocation) {
        calls.push_back({std::string("fallocate ") + mode.name, [&mode](int file) {
                             return answer(::fallocate(file, mode.flags, 0, 4096));
                         }});
    }
    calls.push_back(
        {"fallocate of nothing", [](int file) { return answer(::fallocate(file, 0, 0, 0)); }});
    calls.push_back(
        {"fallocate -1", [](int file) { return answer(::fallocate(file, 0, -1, 10)); }});
    calls.push_back({"fallocate beyond the largest size",
                     [](int file) { return answer(::fallocate(file, 0, INT64_MAX, 10)); }});
}

void add_copies(Calls& calls) {
    auto add = [&](const char* name, std::function<std::string(int)> run) {
        calls.push_back({name, std::move(run)});
    };
    add("copy_file_range from it", [](int file) {
        return counted(::copy_file_range(file, nullptr, new_file("new"), nullptr, 100, 0));
    });
    // What is not to be written back first: nothing else makes the kernel ask for times again.
    add("fsync and copy_file_range from it", [](int file) {
        ::fsync(file);
        return counted(::copy_file_range(file, nullptr, new_file("new"), nullptr, 100, 0));
    });
    add("copy_file_range to it", [](int file) {
        const int source = new_file("new");
        return ::pwrite(source, "source", 6, 0) != 6
                   ? "no source"
                   : counted(::copy_file_range(source, nullptr, file, nullptr, 100, 0));
    });
    add("copy_file_range within it", [](int file) {
        off_t from = 0;
        off_t to = 10;
        return counted(::copy_file_range(file, &from, file, &to, 3, 0));
    });
    add("copy_file_range over itself", [](int file) {
        off_t from = 0;
        off_t to = 2;
        return counted(::copy_file_range(file, &from, file, &to, 3, 0));
    });
    add("copy_file_range unknown flag", [](int file) {
        return counted(::copy_file_range(file, nullptr, new_file("new"), nullptr, 100, 1));
    });
    add("sendfile from it",
        [](int file) { return counted(::sendfile(new_file("new"), file, nullptr, 100)); });
    add("sendfile to it", [](int file) {
        const int source = new_file("new");
        return ::pwrite(source, "source", 6, 0) != 6
                   ? "no source"
                   : counted(::sendfile(file, source, nullptr, 100));
    });
    add("splice to a pipe", [](int file) {
        return counted(::splice(file, nullptr, empty_pipe(), nullptr, 100, SPLICE_F_NONBLOCK));
    });
    add("splice from a pipe", [](int file) {
        return counted(::splice(full_pipe(), nullptr, file, nullptr, 100, SPLICE_F_NONBLOCK));
    });
    add("splice from a pipe at an offset", [](int file) {
        off_t offset = 2;
        return counted(::splice(full_pipe(), nullptr, file, &offset, 100, SPLICE_F_NONBLOCK));
    });
}

}  // namespace

const std::vector<DescriptorCall>& content_calls() {
    static const std::vector<DescriptorCall> calls = [] {
        std::vector<DescriptorCall> made;
        add_transfers(made);
        add_sizes(made);
        add_copies(made);
        return made;
    }();
    return calls;
}

}  // namespace tiffin::conformance
