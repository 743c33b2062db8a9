// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What most cases need: files with known content, and questions with one answer. Helpers end the
// case when the file system does not answer as it must; they name the caller's line.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/suite/case.h"

namespace tiffin::suite {

// The caller's place, as std::source_location, which clang 14 does not know.
struct Location {
    const char* file;
    int line;

    static constexpr Location current(const char* file = __builtin_FILE(),
                                      int line = __builtin_LINE()) {
        return {file, line};
    }
};

// `size` bytes that look like nothing else and depend on `seed`; no byte is zero, so that zeros
// where there should be data, and data where there should be zeros, show.
std::string pattern(size_t size, uint64_t seed = 1);

// An open file that closes itself.
class File {
  public:
    // Ends the case when the file cannot be opened.
    File(FileSystemUnderTest& fs, const std::string& path, int flags, uint32_t mode = 0644,
         Location location = Location::current());
    ~File();
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    operator int() const { return number_; }  // NOLINT: stands wherever a descriptor does
    void close(Location location = Location::current());

  private:
    FileSystemUnderTest& fs_;
    int number_;
};

// Acts as an ordinary user while it lives.
class ActingAs {
  public:
    ActingAs(FileSystemUnderTest& fs, uint32_t user_id, uint32_t group_id) : fs_(fs) {
        fs_.become(user_id, group_id);
    }
    ~ActingAs() { fs_.become(0, 0); }
    ActingAs(const ActingAs&) = delete;
    ActingAs& operator=(const ActingAs&) = delete;

  private:
    FileSystemUnderTest& fs_;
};

// Creates or replaces the file (mode 0644) with `data`.
void write_file(FileSystemUnderTest& fs, const std::string& path, const std::string& data,
                Location location = Location::current());
// All of the file's content.
std::string read_file(FileSystemUnderTest& fs, const std::string& path,
                      Location location = Location::current());
// `size` bytes from `offset`, less at the end of file.
std::string read_at(FileSystemUnderTest& fs, int file, int64_t offset, size_t size,
                    Location location = Location::current());
void write_at(FileSystemUnderTest& fs, int file, int64_t offset, const std::string& data,
              Location location = Location::current());

// Compares content and says where the first difference is instead of printing it all.
void check_content(const std::string& actual, const std::string& expected,
                   Location location = Location::current());
void check_file(FileSystemUnderTest& fs, const std::string& path, const std::string& expected,
                Location location = Location::current());

// lstat and fstat that must succeed.
FileStatus status_of(FileSystemUnderTest& fs, const std::string& path,
                     Location location = Location::current());
FileStatus status_of(FileSystemUnderTest& fs, int file, Location location = Location::current());
bool exists(FileSystemUnderTest& fs, const std::string& path);

// All records of a directory, in its order, "." and ".." included.
std::vector<DirectoryRecord> list_directory(FileSystemUnderTest& fs, const std::string& path,
                                            Location location = Location::current());
// The names in a directory, sorted, without "." and "..", separated by spaces.
std::string names_in(FileSystemUnderTest& fs, const std::string& path,
                     Location location = Location::current());
// Removes everything below `path`, and `path` itself unless it is the root ("").
void remove_tree(FileSystemUnderTest& fs, const std::string& path,
                 Location location = Location::current());

// Appends to the file, chunk by chunk, until the volume is full; returns the size it has then. The last
// chunk may be there in part. Where writes go to a cache first, fsync says that there is no space.
int64_t fill_volume(FileSystemUnderTest& fs, const std::string& path, size_t chunk_bytes,
                    Location location = Location::current());

// Extended attributes as strings.
std::string xattr_of(FileSystemUnderTest& fs, const std::string& path, const std::string& name,
                     Location location = Location::current());
int64_t set_xattr(FileSystemUnderTest& fs, const std::string& path, const std::string& name,
                  const std::string& value, int flags = 0);
// The names, sorted.
std::vector<std::string> xattr_names(FileSystemUnderTest& fs, const std::string& path,
                                     Location location = Location::current());

// Times. Two operations may fall into one tick of a file system's clock; this returns when a change
// made afterwards is sure to carry a later time than any made before.
void let_the_clock_move(FileSystemUnderTest& fs);
bool earlier(const timespec& a, const timespec& b);
bool same(const timespec& a, const timespec& b);
std::string time_text(const timespec& time);

// Sets access and modification time to this many seconds (0 nanoseconds).
void set_times(FileSystemUnderTest& fs, const std::string& path, int64_t access_s,
               int64_t modification_s, Location location = Location::current());

// Which of a file's times an action moved: some of "a", "m" and "c", or "". It puts access and
// modification time far into the past first. Symlinks are not followed; `path` is not the root.
std::string times_moved_by(FileSystemUnderTest& fs, const std::string& path,
                           const std::function<void()>& action,
                           Location location = Location::current());

// Runs `body(thread)` in `count` threads and waits for them. A thread that ends the case ends itself.
void run_threads(int count, const std::function<void(int thread)>& body);

}  // namespace tiffin::suite
