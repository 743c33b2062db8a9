// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/model/player.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "tests/suite/helpers.h"

namespace tiffin::model {

using suite::FileStatus;

namespace {

std::string attributes_text(const FileStatus& status) {
    char mode[16];
    std::snprintf(mode, sizeof mode, "%06o", status.mode);
    std::string text =
        std::string("mode ") + mode + " links " + std::to_string(status.link_count) + " owner " +
        std::to_string(status.user_id) + ":" + std::to_string(status.group_id) + " device " +
        std::to_string(status.device_major) + ":" + std::to_string(status.device_minor);
    // The size of a directory is the file system's own affair.
    return S_ISDIR(status.mode) ? text : text + " size " + std::to_string(status.size_bytes);
}

Outcome told(int64_t answer, const FileStatus& status) {
    return answer < 0 ? Outcome{answer, ""} : Outcome{0, attributes_text(status)};
}

}  // namespace

std::string Outcome::text() const {
    std::string line = suite::answer_text(answer);
    if (data.empty()) {
        return line;
    }
    bool readable =
        std::all_of(data.begin(), data.end(), [](char byte) { return byte >= 32 && byte < 127; });
    if (readable && data.size() < 2000) {
        return line + " (" + data + ")";
    }
    return line + " (" + std::to_string(data.size()) + " bytes of data)";
}

void Player::close_all() {
    for (int& slot : slots_) {
        if (slot >= 0) {
            fs_.close(slot);
            slot = -1;
        }
    }
}

Outcome Player::play(const Operation& operation) {
    if (operation.as_user) {
        fs_.become(1000, 1000);
    }
    Outcome outcome;
    if (operation.kind <= OperationKind::seek) {
        outcome = play_file(operation);
    } else if (operation.kind <= OperationKind::make_node) {
        outcome = play_name(operation);
    } else {
        outcome = play_attribute(operation);
    }
    if (operation.as_user) {
        fs_.become(0, 0);
    }
    return outcome;
}

int Player::open_slot(int wanted) const {
    for (int i = 0; i < kSlots; ++i) {
        int slot = (wanted + i) % kSlots;
        if (slots_[slot] >= 0) {
            return slot;
        }
    }
    return wanted;
}

Outcome Player::play_file(const Operation& chosen) {
    Operation operation = chosen;
    if (operation.kind != OperationKind::open && operation.kind != OperationKind::open_temporary) {
        operation.slot = open_slot(chosen.slot);
        operation.other_slot = open_slot(chosen.other_slot);
    }
    const int file = slots_[operation.slot];
    switch (operation.kind) {
        case OperationKind::open:
        case OperationKind::open_temporary:
            return open(operation);
        case OperationKind::close: {
            slots_[operation.slot] = -1;
            return {file < 0 ? 0 : fs_.close(file), ""};
        }
        case OperationKind::write: {
            std::string data =
                suite::pattern(static_cast<size_t>(operation.length), operation.seed);
            return {fs_.pwrite(file, data.data(), data.size(), operation.offset), ""};
        }
        case OperationKind::append: {
            int64_t opened = fs_.open(operation.path, O_WRONLY | O_APPEND);
            if (opened < 0) {
                return {opened, ""};
            }
            std::string data =
                suite::pattern(static_cast<size_t>(operation.length), operation.seed);
            int64_t answer = fs_.write(static_cast<int>(opened), data.data(), data.size());
            fs_.close(static_cast<int>(opened));
            return {answer, ""};
        }
        case OperationKind::read:
            return read(operation);
        case OperationKind::truncate_file:
            return {fs_.ftruncate(file, operation.offset), ""};
        case OperationKind::truncate_path:
            return {fs_.truncate(operation.path, operation.offset), ""};
        case OperationKind::allocate:
            return {fs_.fallocate(file, static_cast<int>(operation.flags), operation.offset,
                                  operation.length),
                    ""};
        case OperationKind::copy:
            return copy(operation);
        case OperationKind::fsync:
            return {operation.seed % 2 == 0 ? fs_.fsync(file) : fs_.fdatasync(file), ""};
        default:
            return seek(operation);
    }
}

Outcome Player::open(const Operation& operation) {
    int& slot = slots_[operation.slot];
    if (slot >= 0) {
        fs_.close(slot);
        slot = -1;
    }
    int flags = static_cast<int>(operation.flags);
    if (operation.kind == OperationKind::open_temporary) {
        flags |= O_TMPFILE | O_RDWR;
    }
    int64_t answer = fs_.open(operation.path, flags, operation.number);
    if (answer < 0) {
        return {answer, ""};
    }
    slot = static_cast<int>(answer);
    FileStatus status;
    return told(fs_.fstat(slot, status), status);
}

Outcome Player::read(const Operation& operation) {
    std::string data(static_cast<size_t>(operation.length), '\0');
    int64_t answer = fs_.pread(slots_[operation.slot], data.data(), data.size(), operation.offset);
    data.resize(static_cast<size_t>(std::max<int64_t>(answer, 0)));
    return {answer, data};
}

// May copy less than it was asked for, so it is called until it is done.
Outcome Player::copy(const Operation& operation) {
    int64_t done = 0;
    while (done < operation.length) {
        int64_t answer = fs_.copy_file_range(
            slots_[operation.slot], operation.offset + done, slots_[operation.other_slot],
            operation.other_offset + done, static_cast<uint64_t>(operation.length - done));
        if (answer < 0) {
            return {answer, std::to_string(done)};
        }
        if (answer == 0) {
            break;
        }
        done += answer;
    }
    return {done, ""};
}

// Where holes are is the file system's own affair, but data must be found: all bytes that SEEK_DATA
// skips read as zeros.
Outcome Player::seek(const Operation& operation) {
    const int file = slots_[operation.slot];
    int64_t data = fs_.lseek(file, operation.offset, SEEK_DATA);
    FileStatus status;
    if (file < 0 || fs_.fstat(file, status) < 0 || !S_ISREG(status.mode)) {
        return {0, "not a file"};
    }
    auto size = static_cast<int64_t>(status.size_bytes);
    int64_t end = data >= 0 ? data : size;
    int64_t skipped = std::min<int64_t>(end - operation.offset, 1 << 20);
    if (skipped > 0) {
        std::string bytes(static_cast<size_t>(skipped), '\0');
        int64_t answer = fs_.pread(file, bytes.data(), bytes.size(), operation.offset);
        if (answer >= 0 && bytes.find_first_not_of('\0') != std::string::npos) {
            return {0, "SEEK_DATA skipped data"};
        }
    }
    int64_t hole = fs_.lseek(file, operation.offset, SEEK_HOLE);
    bool inside = operation.offset < size;
    if (inside != (hole >= 0) || (hole >= 0 && (hole < operation.offset || hole > size))) {
        return {hole, "SEEK_HOLE is outside of the file"};
    }
    return {0, "consistent"};
}

Outcome Player::play_name(const Operation& operation) {
    FileStatus status;
    switch (operation.kind) {
        case OperationKind::stat:
            return told(operation.seed % 2 == 0 ? fs_.stat(operation.path, status)
                                                : fs_.lstat(operation.path, status),
                        status);
        case OperationKind::stat_file:
            return told(fs_.fstat(slots_[open_slot(operation.slot)], status), status);
        case OperationKind::list:
            return list(operation);
        case OperationKind::link:
            return {fs_.link(operation.path, operation.other), ""};
        case OperationKind::link_file:
            return {fs_.link_file(slots_[open_slot(operation.slot)], operation.path), ""};
        case OperationKind::unlink:
            return {fs_.unlink(operation.path), ""};
        case OperationKind::make_directory:
            return {fs_.mkdir(operation.path, 0755), ""};
        case OperationKind::remove_directory:
            return {fs_.rmdir(operation.path), ""};
        case OperationKind::rename:
            return {fs_.rename(operation.path, operation.other, operation.flags), ""};
        case OperationKind::make_symlink:
            return {fs_.symlink(operation.other, operation.path), ""};
        case OperationKind::read_symlink: {
            std::string target(5000, '\0');
            int64_t answer = fs_.readlink(operation.path, target.data(), target.size());
            target.resize(static_cast<size_t>(std::max<int64_t>(answer, 0)));
            return {answer, target};
        }
        default: {
            const bool device = S_ISCHR(operation.number) || S_ISBLK(operation.number);
            return {fs_.mknod(operation.path, operation.number, device ? 1 : 0, device ? 3 : 0),
                    ""};
        }
    }
}

Outcome Player::list(const Operation& operation) {
    int64_t file = fs_.open(operation.path, O_RDONLY | O_DIRECTORY);
    if (file < 0) {
        return {file, ""};
    }
    std::vector<suite::DirectoryRecord> records;
    int64_t answer = 0;
    size_t buffer_bytes = 300 + operation.seed % 3000;
    while ((answer = fs_.read_directory(static_cast<int>(file), buffer_bytes, records)) > 0) {
    }
    fs_.close(static_cast<int>(file));
    std::vector<std::string> lines;
    for (const suite::DirectoryRecord& record : records) {
        lines.push_back(record.name + ":" + std::to_string(record.type) + " ");
    }
    std::sort(lines.begin(), lines.end());
    std::string text;
    for (const std::string& line : lines) {
        text += line;
    }
    return {answer, text};
}

Outcome Player::play_attribute(const Operation& operation) {
    switch (operation.kind) {
        case OperationKind::change_mode:
            return {fs_.chmod(operation.path, operation.number), ""};
        case OperationKind::change_owner:
            return {fs_.lchown(operation.path, operation.number, operation.number + 10), ""};
        case OperationKind::set_times:
            return set_times(operation);
        case OperationKind::set_xattr: {
            std::string value =
                suite::pattern(static_cast<size_t>(operation.length), operation.seed);
            return {suite::set_xattr(fs_, operation.path, operation.other, value,
                                     static_cast<int>(operation.flags)),
                    ""};
        }
        case OperationKind::get_xattr: {
            std::string value(operation.seed % 4 == 0 ? 100 : 65536, '\0');
            int64_t answer =
                fs_.get_xattr(operation.path, operation.other, value.data(), value.size());
            value.resize(static_cast<size_t>(std::max<int64_t>(answer, 0)));
            return {answer, value};
        }
        case OperationKind::list_xattr:
            return list_xattr(operation);
        case OperationKind::remove_xattr:
            return {fs_.remove_xattr(operation.path, operation.other), ""};
        case OperationKind::set_flags:
            return set_flags(operation);
        default: {
            int64_t root = fs_.open("", O_RDONLY | O_DIRECTORY);
            int64_t answer = root < 0 ? root : fs_.syncfs(static_cast<int>(root));
            fs_.close(static_cast<int>(root));
            return {answer, ""};
        }
    }
}

Outcome Player::set_times(const Operation& operation) {
    timespec times[2] = {{static_cast<time_t>(operation.seed % 4'000'000'000),
                          static_cast<long>(operation.seed % 7)},
                         {static_cast<time_t>(operation.seed % 3'000'000'000), 999'999'999}};
    int64_t answer = fs_.utimens(operation.path, times, AT_SYMLINK_NOFOLLOW);
    FileStatus status;
    if (answer < 0 || fs_.lstat(operation.path, status) < 0) {
        return {answer, ""};
    }
    return {answer, suite::time_text(status.access_time) + " " +
                        suite::time_text(status.modification_time)};
}

Outcome Player::set_flags(const Operation& operation) {
    int64_t file = fs_.open(operation.path, O_RDONLY | O_NOFOLLOW);
    if (file < 0) {
        return {file, ""};
    }
    uint32_t before = 0;
    int64_t answer = fs_.get_flags(static_cast<int>(file), before);
    if (answer == 0 && operation.flags != before) {
        answer = fs_.set_flags(static_cast<int>(file), operation.flags);
    }
    fs_.close(static_cast<int>(file));
    return {answer, std::to_string(before)};
}

Outcome Player::list_xattr(const Operation& operation) {
    std::string list(10000, '\0');
    int64_t answer = fs_.list_xattr(operation.path, list.data(), list.size());
    std::vector<std::string> names;
    for (int64_t at = 0; at < answer; at += static_cast<int64_t>(names.back().size()) + 1) {
        names.emplace_back(list.c_str() + at);
    }
    std::sort(names.begin(), names.end());
    std::string text;
    for (const std::string& name : names) {
        text += name + " ";
    }
    return {answer, text};
}

}  // namespace tiffin::model
