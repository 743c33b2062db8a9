// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/suite/tree_snapshot.h"

#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "tests/suite/helpers.h"

namespace tiffin::suite {

namespace {

constexpr size_t kPieceBytes = 4096;

class Hash {
  public:
    void add(const void* data, size_t size) {
        const auto* bytes = static_cast<const unsigned char*>(data);
        for (size_t i = 0; i < size; ++i) {
            value_ = (value_ ^ bytes[i]) * 0x100000001b3ULL;
        }
    }
    void add(uint64_t number) { add(&number, sizeof number); }
    std::string text() const {
        char buffer[17];
        std::snprintf(buffer, sizeof buffer, "%016llx", static_cast<unsigned long long>(value_));
        return buffer;
    }

  private:
    uint64_t value_ = 0xcbf29ce484222325ULL;
};

// The next place at or after `offset` that may hold anything but zeros, or -1.
int64_t next_data(FileSystemUnderTest& fs, int file, int64_t offset, int64_t size) {
    if (offset >= size) {
        return -1;
    }
    if (!fs.has(Feature::seek_data)) {
        return offset;
    }
    int64_t data = fs.lseek(file, offset, SEEK_DATA);
    return data >= 0 ? data / static_cast<int64_t>(kPieceBytes) * static_cast<int64_t>(kPieceBytes)
           : data == -ENXIO ? -1
                            : offset;
}

// A hash of all bytes that are not zero and where they are: holes and zeros look the same.
std::string content_of(FileSystemUnderTest& fs, const std::string& path, int64_t size) {
    int64_t file = fs.open(path, O_RDONLY | O_NOFOLLOW);
    if (file < 0) {
        return "open " + answer_text(file);
    }
    auto number = static_cast<int>(file);
    Hash hash;
    std::string piece(kPieceBytes, '\0');
    const std::string zeros(kPieceBytes, '\0');
    std::string result;
    for (int64_t at = next_data(fs, number, 0, size); at >= 0;) {
        int64_t answer = fs.pread(number, piece.data(), piece.size(), at);
        if (answer <= 0) {
            result = "read " + answer_text(answer);
            break;
        }
        auto count = static_cast<size_t>(answer);
        bool is_zero = std::memcmp(piece.data(), zeros.data(), count) == 0;
        if (!is_zero) {
            hash.add(static_cast<uint64_t>(at));
            // Zeros behind the last byte that is none do not matter: the size is known.
            hash.add(piece.data(), count);
        }
        int64_t next = at + answer;
        at = is_zero ? next_data(fs, number, next, size) : next < size ? next : -1;
    }
    fs.close(number);
    return result.empty() ? hash.text() : result;
}

std::string xattrs_of(FileSystemUnderTest& fs, const std::string& path) {
    std::string list(65536, '\0');
    int64_t size = fs.list_xattr(path, list.data(), list.size());
    if (size < 0) {
        return size == -EOPNOTSUPP ? "" : answer_text(size);
    }
    std::map<std::string, std::string> values;
    std::string value(65536, '\0');
    for (size_t at = 0; at < static_cast<size_t>(size);) {
        std::string name = list.c_str() + at;
        at += name.size() + 1;
        int64_t length = fs.get_xattr(path, name, value.data(), value.size());
        Hash hash;
        hash.add(value.data(), static_cast<size_t>(std::max<int64_t>(length, 0)));
        values[name] = answer_text(length) + ":" + hash.text();
    }
    std::string text;
    for (const auto& [name, description] : values) {
        text += " " + name + "=" + description;
    }
    return text;
}

class SnapshotTaker {
  public:
    SnapshotTaker(FileSystemUnderTest& fs, const SnapshotOptions& options, TreeSnapshot& snapshot)
        : fs_(fs), options_(options), snapshot_(snapshot) {}

    void add(const std::string& path) {
        FileStatus status;
        if (int64_t answer = fs_.lstat(path, status); answer < 0) {
            snapshot_[path] = "lstat " + answer_text(answer);
            return;
        }
        std::string& line = snapshot_[path];
        line = attributes_of(path, status);
        if (S_ISREG(status.mode)) {
            line += " content " + content_of(fs_, path, static_cast<int64_t>(status.size_bytes));
        } else if (S_ISLNK(status.mode)) {
            std::string target(4096, '\0');
            int64_t size = fs_.readlink(path, target.data(), target.size());
            line += size < 0 ? " readlink " + answer_text(size)
                             : " -> " + target.substr(0, static_cast<size_t>(size));
        }
        line += xattrs_of(fs_, path);
        if (S_ISDIR(status.mode)) {
            add_children(path, line);
        }
    }

  private:
    std::string attributes_of(const std::string& path, const FileStatus& status) {
        char mode[16];
        std::snprintf(mode, sizeof mode, "%06o", status.mode);
        std::string text = std::string("mode ") + mode + " links " +
                           std::to_string(status.link_count) + " owner " +
                           std::to_string(status.user_id) + ":" + std::to_string(status.group_id);
        if (S_ISBLK(status.mode) || S_ISCHR(status.mode)) {
            text += " device " + std::to_string(status.device_major) + ":" +
                    std::to_string(status.device_minor);
        }
        if (!S_ISDIR(status.mode) || options_.directory_sizes) {
            text += " size " + std::to_string(status.size_bytes);
        }
        if (options_.allocated) {
            text += " allocated " + std::to_string(status.allocated_bytes);
        }
        if (options_.nodes) {
            text += " node " + std::to_string(status.node);
        } else if (status.link_count > 1 && !S_ISDIR(status.mode)) {
            text += " same as " + first_names_.emplace(status.node, path).first->second;
        }
        if (options_.times) {
            text += " modified " + time_text(status.modification_time) + " changed " +
                    time_text(status.change_time) + " born " + time_text(status.birth_time);
        }
        return text;
    }

    void add_children(const std::string& path, std::string& line) {
        int64_t file = fs_.open(path, O_RDONLY | O_DIRECTORY);
        if (file < 0) {
            line += " open " + answer_text(file);
            return;
        }
        std::vector<DirectoryRecord> records;
        int64_t answer = 0;
        while ((answer = fs_.read_directory(static_cast<int>(file), 65536, records)) > 0) {
        }
        fs_.close(static_cast<int>(file));
        if (answer < 0) {
            line += " readdir " + answer_text(answer);
        }
        std::set<std::string> names;
        for (const DirectoryRecord& record : records) {
            if (record.name != "." && record.name != ".." && !names.insert(record.name).second) {
                line += " twice " + record.name;
            }
        }
        line += " entries " + std::to_string(names.size());
        for (const std::string& name : names) {
            add(path.empty() ? name : path + "/" + name);
        }
    }

    FileSystemUnderTest& fs_;
    const SnapshotOptions& options_;
    TreeSnapshot& snapshot_;
    std::map<uint64_t, std::string> first_names_;
};

}  // namespace

TreeSnapshot take_snapshot(FileSystemUnderTest& fs, const SnapshotOptions& options) {
    TreeSnapshot snapshot;
    SnapshotTaker(fs, options, snapshot).add("");
    return snapshot;
}

std::vector<std::string> compare_snapshots(const TreeSnapshot& before, const TreeSnapshot& after,
                                           size_t limit) {
    std::vector<std::string> differences;
    for (const auto& [path, line] : before) {
        auto found = after.find(path);
        if (found == after.end()) {
            differences.push_back("/" + path + ": lost: " + line);
        } else if (found->second != line) {
            differences.push_back("/" + path + ":\n    expected: " + line +
                                  "\n    got:      " + found->second);
        }
    }
    for (const auto& [path, line] : after) {
        if (before.find(path) == before.end()) {
            differences.push_back("/" + path + ": appeared: " + line);
        }
    }
    if (differences.size() > limit) {
        differences.resize(limit);
        differences.push_back("(more differences were left out)");
    }
    return differences;
}

}  // namespace tiffin::suite
