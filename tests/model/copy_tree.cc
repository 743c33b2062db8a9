// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/model/copy_tree.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/suite/case.h"

namespace tiffin::model {

namespace {

constexpr size_t kPieceBytes = 65536;

int64_t must(int64_t answer, const char* what, const std::string& path) {
    if (answer < 0) {
        throw std::runtime_error(std::string("copying the tree: ") + what + " " + path + ": " +
                                 suite::answer_text(answer));
    }
    return answer;
}

class TreeCopier {
  public:
    TreeCopier(suite::FileSystemUnderTest& from, suite::FileSystemUnderTest& to)
        : from_(from), to_(to) {}

    void copy() {
        copy_children("");
        copy_attributes("");
        // Flags come last: they forbid what the copy still has to do.
        for (const auto& [path, flags] : flags_) {
            int file = open(to_, path, O_RDONLY);
            must(to_.set_flags(file, flags), "set_flags", path);
            to_.close(file);
        }
    }

  private:
    static int open(suite::FileSystemUnderTest& fs, const std::string& path, int flags) {
        return static_cast<int>(must(fs.open(path, flags, 0600), "open", path));
    }

    void copy_children(const std::string& directory) {
        int file = open(from_, directory, O_RDONLY | O_DIRECTORY);
        std::vector<suite::DirectoryRecord> records;
        while (must(from_.read_directory(file, kPieceBytes, records), "readdir", directory) > 0) {
        }
        from_.close(file);
        for (const suite::DirectoryRecord& record : records) {
            if (record.name != "." && record.name != "..") {
                copy_entry(directory.empty() ? record.name : directory + "/" + record.name);
            }
        }
    }

    void copy_entry(const std::string& path) {
        suite::FileStatus status;
        must(from_.lstat(path, status), "lstat", path);
        if (!S_ISDIR(status.mode) && status.link_count > 1) {
            auto [first, is_new] = first_names_.emplace(status.node, path);
            if (!is_new) {
                must(to_.link(first->second, path), "link", path);
                return;
            }
        }
        if (S_ISDIR(status.mode)) {
            must(to_.mkdir(path, 0700), "mkdir", path);
            copy_children(path);
        } else if (S_ISREG(status.mode)) {
            copy_content(path, static_cast<int64_t>(status.size_bytes));
        } else if (S_ISLNK(status.mode)) {
            std::string target(5000, '\0');
            target.resize(static_cast<size_t>(
                must(from_.readlink(path, target.data(), target.size()), "readlink", path)));
            must(to_.symlink(target, path), "symlink", path);
        } else {
            must(to_.mknod(path, status.mode, status.device_major, status.device_minor), "mknod",
                 path);
        }
        copy_attributes(path);
    }

    void copy_content(const std::string& path, int64_t size) {
        int source = open(from_, path, O_RDONLY);
        int destination = open(to_, path, O_WRONLY | O_CREAT | O_EXCL);
        must(to_.ftruncate(destination, size), "ftruncate", path);
        std::string piece(kPieceBytes, '\0');
        for (int64_t at = from_.lseek(source, 0, SEEK_DATA); at >= 0;) {
            int64_t end = must(from_.lseek(source, at, SEEK_HOLE), "SEEK_HOLE", path);
            while (at < end) {
                size_t wanted = std::min<size_t>(piece.size(), static_cast<size_t>(end - at));
                int64_t count = must(from_.pread(source, piece.data(), wanted, at), "read", path);
                if (count == 0) {
                    break;
                }
                must(to_.pwrite(destination, piece.data(), static_cast<size_t>(count), at), "write",
                     path);
                at += count;
            }
            at = from_.lseek(source, end, SEEK_DATA);
        }
        from_.close(source);
        to_.close(destination);
    }

    void copy_attributes(const std::string& path) {
        suite::FileStatus status;
        must(from_.lstat(path, status), "lstat", path);
        copy_xattrs(path);
        must(to_.lchown(path, status.user_id, status.group_id), "chown", path);
        if (!S_ISLNK(status.mode)) {
            must(to_.chmod(path, status.mode & 07777), "chmod", path);
        }
        if (S_ISREG(status.mode) || S_ISDIR(status.mode)) {
            int file = open(from_, path, O_RDONLY);
            uint32_t flags = 0;
            must(from_.get_flags(file, flags), "get_flags", path);
            from_.close(file);
            if (flags != 0) {
                flags_.emplace_back(path, flags);
            }
        }
    }

    void copy_xattrs(const std::string& path) {
        std::string list(kPieceBytes, '\0');
        int64_t size = must(from_.list_xattr(path, list.data(), list.size()), "list_xattr", path);
        std::string value(kPieceBytes, '\0');
        for (int64_t at = 0; at < size;) {
            std::string name = list.c_str() + at;
            at += static_cast<int64_t>(name.size()) + 1;
            int64_t length =
                must(from_.get_xattr(path, name, value.data(), value.size()), "get_xattr", path);
            must(to_.set_xattr(path, name, value.data(), static_cast<size_t>(length), 0),
                 "set_xattr", path);
        }
    }

    suite::FileSystemUnderTest& from_;
    suite::FileSystemUnderTest& to_;
    std::map<uint64_t, std::string> first_names_;
    std::vector<std::pair<std::string, uint32_t>> flags_;
};

}  // namespace

void copy_tree(suite::FileSystemUnderTest& from, suite::FileSystemUnderTest& to) {
    TreeCopier(from, to).copy();
}

}  // namespace tiffin::model
