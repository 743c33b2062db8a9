// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/suite/helpers.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace tiffin::suite {

namespace {

// Far before anything a case does, and not on a second's boundary.
constexpr int64_t kLongAgoSeconds = 1'000'000'000;

int64_t must(const Location& location, const char* what, const std::string& path, int64_t answer) {
    std::string text = std::string(what) + "(\"" + path + "\")";
    return require_ok(location.file, location.line, text.c_str(), answer);
}

int64_t must(const Location& location, const char* what, int file, int64_t answer) {
    return must(location, what, "file " + std::to_string(file), answer);
}

void fail(const Location& location, const std::string& text) {
    record_failure(location.file, location.line, text);
}

}  // namespace

std::string pattern(size_t size, uint64_t seed) {
    std::string data(size, '\0');
    uint64_t state = seed * 0x9e3779b97f4a7c15ULL + 1;
    for (char& byte : data) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        byte = static_cast<char>(1 + (state >> 40) % 255);
    }
    return data;
}

File::File(FileSystemUnderTest& fs, const std::string& path, int flags, uint32_t mode,
           Location location)
    : fs_(fs),
      number_(static_cast<int>(must(location, "open", path, fs.open(path, flags, mode)))) {}

File::~File() {
    if (number_ >= 0) {
        fs_.close(number_);
    }
}

void File::close(Location location) {
    int number = number_;
    number_ = -1;
    must(location, "close", number, fs_.close(number));
}

void write_file(FileSystemUnderTest& fs, const std::string& path, const std::string& data,
                Location location) {
    File file(fs, path, O_WRONLY | O_CREAT | O_TRUNC, 0644, location);
    write_at(fs, file, 0, data, location);
    file.close(location);
}

std::string read_file(FileSystemUnderTest& fs, const std::string& path, Location location) {
    File file(fs, path, O_RDONLY, 0, location);
    std::string data;
    std::string piece(256 * 1024, '\0');
    for (;;) {
        int64_t size = must(location, "read", path, fs.read(file, piece.data(), piece.size()));
        if (size == 0) {
            return data;
        }
        data.append(piece, 0, static_cast<size_t>(size));
    }
}

std::string read_at(FileSystemUnderTest& fs, int file, int64_t offset, size_t size,
                    Location location) {
    std::string data(size, '\0');
    size_t done = 0;
    while (done < size) {
        int64_t answer = must(
            location, "pread", file,
            fs.pread(file, data.data() + done, size - done, offset + static_cast<int64_t>(done)));
        if (answer == 0) {
            break;
        }
        done += static_cast<size_t>(answer);
    }
    data.resize(done);
    return data;
}

void write_at(FileSystemUnderTest& fs, int file, int64_t offset, const std::string& data,
              Location location) {
    size_t done = 0;
    while (done < data.size()) {
        done += static_cast<size_t>(must(location, "pwrite", file,
                                         fs.pwrite(file, data.data() + done, data.size() - done,
                                                   offset + static_cast<int64_t>(done))));
    }
}

void check_content(const std::string& actual, const std::string& expected, Location location) {
    if (actual == expected) {
        return;
    }
    size_t end = std::min(actual.size(), expected.size());
    size_t first = 0;
    while (first < end && actual[first] == expected[first]) {
        ++first;
    }
    std::string text = "content: expected " + std::to_string(expected.size()) + " bytes, got " +
                       std::to_string(actual.size()) + "; first difference at byte " +
                       std::to_string(first);
    if (first < end) {
        text += ": expected " + std::to_string(static_cast<unsigned char>(expected[first])) +
                ", got " + std::to_string(static_cast<unsigned char>(actual[first]));
    }
    fail(location, text);
}

void check_file(FileSystemUnderTest& fs, const std::string& path, const std::string& expected,
                Location location) {
    check_content(read_file(fs, path, location), expected, location);
    uint64_t size = status_of(fs, path, location).size_bytes;
    if (size != expected.size()) {
        fail(location, "size of " + path + ": expected " + std::to_string(expected.size()) +
                           ", got " + std::to_string(size));
    }
}

FileStatus status_of(FileSystemUnderTest& fs, const std::string& path, Location location) {
    FileStatus status;
    must(location, "lstat", path, fs.lstat(path, status));
    return status;
}

FileStatus status_of(FileSystemUnderTest& fs, int file, Location location) {
    FileStatus status;
    must(location, "fstat", file, fs.fstat(file, status));
    return status;
}

bool exists(FileSystemUnderTest& fs, const std::string& path) {
    FileStatus status;
    return fs.lstat(path, status) >= 0;
}

std::vector<DirectoryRecord> list_directory(FileSystemUnderTest& fs, const std::string& path,
                                            Location location) {
    File directory(fs, path, O_RDONLY | O_DIRECTORY, 0, location);
    std::vector<DirectoryRecord> records;
    while (must(location, "read_directory", path,
                fs.read_directory(directory, 32 * 1024, records)) > 0) {
    }
    return records;
}

std::string names_in(FileSystemUnderTest& fs, const std::string& path, Location location) {
    std::vector<std::string> names;
    for (const DirectoryRecord& record : list_directory(fs, path, location)) {
        if (record.name != "." && record.name != "..") {
            names.push_back(record.name);
        }
    }
    std::sort(names.begin(), names.end());
    std::string text;
    for (const std::string& name : names) {
        text += text.empty() ? "" : " ";
        text += name;
    }
    return text;
}

void remove_tree(FileSystemUnderTest& fs, const std::string& path, Location location) {
    for (const DirectoryRecord& record : list_directory(fs, path, location)) {
        if (record.name == "." || record.name == "..") {
            continue;
        }
        std::string child = path.empty() ? record.name : path + "/" + record.name;
        if (mode_t mode = status_of(fs, child, location).mode; S_ISDIR(mode)) {
            remove_tree(fs, child, location);
        } else {
            must(location, "unlink", child, fs.unlink(child));
        }
    }
    if (!path.empty()) {
        must(location, "rmdir", path, fs.rmdir(path));
    }
}

int64_t fill_volume(FileSystemUnderTest& fs, const std::string& path, size_t chunk_bytes,
                    Location location) {
    int64_t created = fs.open(path, O_WRONLY | O_CREAT, 0644);
    if (created == -ENOSPC) {
        return 0;
    }
    fs.close(static_cast<int>(must(location, "open", path, created)));
    SpaceStatus space;
    must(location, "statfs", path, fs.statfs(space));
    // So that a file system that never says so does not keep the case forever.
    const uint64_t most = space.total_blocks * space.block_bytes * 2;
    File file(fs, path, O_WRONLY | O_APPEND, 0, location);
    const std::string chunk = pattern(chunk_bytes, chunk_bytes);
    uint64_t unsynced = 0;
    for (uint64_t written = 0; written < most;) {
        int64_t answer = fs.write(file, chunk.data(), chunk.size());
        if (answer == -ENOSPC || answer == 0) {
            break;
        }
        written += static_cast<uint64_t>(must(location, "write", path, answer));
        unsynced += static_cast<uint64_t>(answer);
        if (unsynced >= chunk_bytes * 16) {
            unsynced = 0;
            if (int64_t synced = fs.fsync(file); synced == -ENOSPC) {
                break;
            } else {
                must(location, "fsync", path, synced);
            }
        }
    }
    if (int64_t answer = fs.fsync(file); answer != -ENOSPC) {
        must(location, "fsync", path, answer);
    }
    uint64_t size = status_of(fs, file, location).size_bytes;
    if (size >= most) {
        fail(location, "the volume took more than it can hold");
    }
    return static_cast<int64_t>(size);
}

std::string xattr_of(FileSystemUnderTest& fs, const std::string& path, const std::string& name,
                     Location location) {
    std::string value(65536, '\0');
    value.resize(static_cast<size_t>(
        must(location, "get_xattr", path, fs.get_xattr(path, name, value.data(), value.size()))));
    return value;
}

int64_t set_xattr(FileSystemUnderTest& fs, const std::string& path, const std::string& name,
                  const std::string& value, int flags) {
    return fs.set_xattr(path, name, value.data(), value.size(), flags);
}

std::vector<std::string> xattr_names(FileSystemUnderTest& fs, const std::string& path,
                                     Location location) {
    int64_t size = must(location, "list_xattr", path, fs.list_xattr(path, nullptr, 0));
    std::string list(static_cast<size_t>(size), '\0');
    if (size > 0) {
        size = must(location, "list_xattr", path, fs.list_xattr(path, list.data(), list.size()));
    }
    std::vector<std::string> names;
    for (size_t at = 0; at < static_cast<size_t>(size);) {
        names.emplace_back(list.c_str() + at);
        at += names.back().size() + 1;
    }
    std::sort(names.begin(), names.end());
    return names;
}

void let_the_clock_move(FileSystemUnderTest& fs) {
    // A directory, whose times come from the file system. Those of a regular file may come from a kernel
    // that caches it, and whose clock can be ahead by a part of a tick. So the first tick may come to a time
    // before one of that kernel's; the second does not.
    constexpr int kTicks = 2;
    const std::string path = ".clock";
    CHECK_OK(fs.mkdir(path, 0700));
    for (int tick = 0; tick < kTicks; tick++) {
        timespec before = status_of(fs, path).change_time;
        do {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            CHECK_OK(fs.chmod(path, 0700));
            // A clock that stands still would make this wait forever; the runner's limit ends it then.
        } while (!earlier(before, status_of(fs, path).change_time));
    }
    REQUIRE_OK(fs.rmdir(path));
}

bool earlier(const timespec& a, const timespec& b) {
    return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

bool same(const timespec& a, const timespec& b) {
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

std::string time_text(const timespec& time) {
    std::string nanoseconds = std::to_string(time.tv_nsec);
    return std::to_string(time.tv_sec) + "." +
           std::string(9 - std::min<size_t>(9, nanoseconds.size()), '0') + nanoseconds;
}

void set_times(FileSystemUnderTest& fs, const std::string& path, int64_t access_s,
               int64_t modification_s, Location location) {
    timespec times[2] = {{access_s, 0}, {modification_s, 0}};
    must(location, "utimens", path, fs.utimens(path, times, AT_SYMLINK_NOFOLLOW));
}

std::string times_moved_by(FileSystemUnderTest& fs, const std::string& path,
                           const std::function<void()>& action, Location location) {
    // Access before modification: relatime then moves the access time at the next read.
    set_times(fs, path, kLongAgoSeconds, kLongAgoSeconds + 1, location);
    let_the_clock_move(fs);
    FileStatus before = status_of(fs, path, location);
    action();
    FileStatus after = status_of(fs, path, location);
    std::string moved;
    moved += same(before.access_time, after.access_time) ? "" : "a";
    moved += same(before.modification_time, after.modification_time) ? "" : "m";
    moved += same(before.change_time, after.change_time) ? "" : "c";
    return moved;
}

void run_threads(int count, const std::function<void(int thread)>& body) {
    std::vector<std::thread> threads;
    threads.reserve(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
        threads.emplace_back([&body, i] {
            try {
                body(i);
            } catch (const CaseEnded&) {
                // Its reason is recorded.
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

}  // namespace tiffin::suite
