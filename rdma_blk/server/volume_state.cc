// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/server/volume_state.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>

#include "fs/vfs/host.h"
#include "rdma_blk/wire/control_area.h"
#include "rdma_blk/wire/hexadecimal.h"

namespace tiffin::rdma_blk {
namespace {

constexpr char kSuffix[] = ".volume";
constexpr char kTemporarySuffix[] = ".new";
constexpr char kServerUuidFile[] = "server-uuid";
constexpr char kLockFile[] = "lock";
constexpr size_t kMaxFileBytes = 16384;

Error system_error() { return static_cast<Error>(errno); }

bool ends_with(const std::string& text, const std::string& end) {
    return text.size() >= end.size() &&
           text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::string number_line(const char* key, uint64_t value) {
    return std::string(key) + " " + std::to_string(value) + "\n";
}

std::string checksum_line(const std::string& text) {
    char line[32];
    std::snprintf(line, sizeof(line), "checksum %08x\n", host::crc32c(0, text.data(), text.size()));
    return line;
}

std::string to_text(const VolumeState& state) {
    std::string text = "tiffind-volume 1\n";
    text += "name " + state.name + "\n";
    text += "uuid " + to_hexadecimal(ByteSpan(state.uuid)) + "\n";
    text += "key " + to_hexadecimal(ByteSpan(state.key.bytes)) + "\n";
    text += number_line("data_bytes", state.data_bytes);
    text += number_line("words_bytes", state.words_bytes);
    text += "backing " + state.backing + "\n";
    text += number_line("epoch", state.epoch);
    text += "epoch_owner " + to_hexadecimal(ByteSpan(state.epoch_owner)) + "\n";
    text += number_line("content_incarnation", state.content_incarnation);
    text += number_line("empty_since_incarnation", state.empty_since_incarnation);
    text += state.is_flushed ? "is_flushed 1\n" : "";
    if (state.words_are_known) {
        text += "words " + to_hexadecimal(ByteSpan(state.words.data(), state.words.size())) + "\n";
    }
    return text + checksum_line(text);
}

using Lines = std::map<std::string, std::string>;

bool find_number(const Lines& lines, const char* key, uint64_t& value) {
    const auto found = lines.find(key);
    if (found == lines.end()) {
        return false;
    }
    const char* end = found->second.data() + found->second.size();
    const auto parsed = std::from_chars(found->second.data(), end, value);
    return parsed.ec == std::errc() && parsed.ptr == end;
}

Result<VolumeState> from_text(const std::string& text) {
    const size_t last = text.rfind("checksum ");
    if (last == std::string::npos || checksum_line(text.substr(0, last)) != text.substr(last)) {
        return Error::euclean;
    }
    Lines lines;
    for (size_t begin = 0; begin < last;) {
        const size_t end = text.find('\n', begin);
        const std::string line = text.substr(begin, end - begin);
        const size_t space = line.find(' ');
        if (space == std::string::npos) {
            return Error::euclean;
        }
        lines[line.substr(0, space)] = line.substr(space + 1);
        begin = end + 1;
    }
    VolumeState state;
    state.name = lines["name"];
    state.backing = lines["backing"];
    if (lines["tiffind-volume"] != "1" || !is_volume_name(state.name) ||
        !from_hexadecimal(lines["uuid"], MutableByteSpan(state.uuid)) ||
        !from_hexadecimal(lines["key"], MutableByteSpan(state.key.bytes)) ||
        !find_number(lines, "data_bytes", state.data_bytes) ||
        !find_number(lines, "words_bytes", state.words_bytes) ||
        !find_number(lines, "epoch", state.epoch) ||
        !find_number(lines, "content_incarnation", state.content_incarnation) ||
        !find_number(lines, "empty_since_incarnation", state.empty_since_incarnation)) {
        return Error::euclean;
    }
    if (lines.count("epoch_owner") != 0 &&
        !from_hexadecimal(lines["epoch_owner"], MutableByteSpan(state.epoch_owner))) {
        return Error::euclean;
    }
    state.is_flushed = lines.count("is_flushed") != 0;
    const auto words = lines.find("words");
    state.words_are_known = words != lines.end();
    if (state.words_are_known && !words->second.empty()) {
        state.words.resize(wire::kDurableWordsBytes);
        if (!from_hexadecimal(words->second,
                              MutableByteSpan(state.words.data(), state.words.size()))) {
            return Error::euclean;
        }
    }
    return state;
}

Result<std::string> read_file(const std::string& path) {
    const UniqueDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.valid()) {
        return system_error();
    }
    std::string text(kMaxFileBytes, '\0');
    size_t size = 0;
    while (size < text.size()) {
        const ssize_t count = read(file.get(), text.data() + size, text.size() - size);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            return system_error();
        }
        if (count == 0) {
            text.resize(size);
            return text;
        }
        size += static_cast<size_t>(count);
    }
    return Error::euclean;
}

Result<void> write_all(int file, const std::string& content) {
    size_t written = 0;
    while (written < content.size()) {
        const ssize_t count = write(file, content.data() + written, content.size() - written);
        if (count < 0 && errno != EINTR) {
            return system_error();
        }
        written += count > 0 ? static_cast<size_t>(count) : 0;
    }
    return {};
}

}  // namespace

bool is_volume_name(const std::string& name) {
    return !name.empty() && name.size() <= wire::kMaxVolumeNameBytes && name[0] != '.' &&
           std::all_of(name.begin(), name.end(), [](char letter) {
               return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                      (letter >= '0' && letter <= '9') || letter == '.' || letter == '_' ||
                      letter == '-';
           });
}

bool StateDirectory::has_for_itself(const std::string& path) const {
    std::error_code error;
    const std::filesystem::path file =
        std::filesystem::weakly_canonical(std::filesystem::path(path), error);
    const std::filesystem::path folder = std::filesystem::weakly_canonical(path_, error);
    const std::string name = file.filename();
    return file.parent_path() == folder &&
           (ends_with(name, kSuffix) || ends_with(name, kTemporarySuffix) || name == kLockFile ||
            name == kServerUuidFile);
}

Result<void> StateDirectory::prepare() const {
    return mkdir(path_.c_str(), 0700) == 0 || errno == EEXIST ? Result<void>() : system_error();
}

Result<void> StateDirectory::remove_leftovers() const {
    DIR* folder = opendir(path_.c_str());
    if (folder == nullptr) {
        return system_error();
    }
    while (const dirent* entry = readdir(folder)) {
        // Only what replace() makes: others may have files here, such as a backing.
        const std::string file = entry->d_name;
        if (ends_with(file, std::string(kSuffix) + kTemporarySuffix) ||
            file == std::string(kServerUuidFile) + kTemporarySuffix) {
            (void)unlinkat(dirfd(folder), entry->d_name, 0);
        }
    }
    closedir(folder);
    return {};
}

Result<UniqueDescriptor> StateDirectory::lock() const {
    UniqueDescriptor file(
        open((path_ + "/" + kLockFile).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file.valid()) {
        return system_error();
    }
    if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
        return errno == EWOULDBLOCK ? Error::ebusy : system_error();
    }
    return file;
}

Result<std::vector<std::string>> StateDirectory::list() const {
    DIR* folder = opendir(path_.c_str());
    if (folder == nullptr) {
        return system_error();
    }
    std::vector<std::string> names;
    while (const dirent* entry = readdir(folder)) {
        const std::string file = entry->d_name;
        if (ends_with(file, kSuffix)) {
            names.push_back(file.substr(0, file.size() - sizeof(kSuffix) + 1));
        }
    }
    closedir(folder);
    std::sort(names.begin(), names.end());
    return names;
}

std::string StateDirectory::readable_by_others(const std::string& name) const {
    constexpr mode_t kEnter = S_IXGRP | S_IXOTH;
    constexpr mode_t kRead = S_IRGRP | S_IROTH;
    const std::string path = path_ + "/" + name + kSuffix;
    struct stat folder {};
    struct stat file {};
    const bool is_readable = stat(path_.c_str(), &folder) == 0 && stat(path.c_str(), &file) == 0 &&
                             (folder.st_mode & kEnter) != 0 && (file.st_mode & kRead) != 0;
    return is_readable ? path : "";
}

Result<VolumeState> StateDirectory::load(const std::string& name) const {
    const std::string text = TRY(read_file(path_ + "/" + name + kSuffix));
    VolumeState state = TRY(from_text(text));
    if (state.name != name) {
        return Error::euclean;
    }
    return state;
}

Result<void> StateDirectory::save(const VolumeState& state) const {
    return replace(state.name + kSuffix, to_text(state));
}

Result<void> StateDirectory::replace(const std::string& file, const std::string& content) const {
    const std::string path = path_ + "/" + file;
    const std::string temporary = path + kTemporarySuffix;
    {
        const UniqueDescriptor descriptor(
            open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
        if (!descriptor.valid()) {
            return system_error();
        }
        TRY(write_all(descriptor.get(), content));
        if (fsync(descriptor.get()) != 0) {
            return system_error();
        }
    }
    if (rename(temporary.c_str(), path.c_str()) != 0) {
        return system_error();
    }
    return sync_folder();
}

Result<void> StateDirectory::sync_folder() const {
    const UniqueDescriptor folder(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder.valid() || fsync(folder.get()) != 0) {
        return system_error();
    }
    return {};
}

Result<void> StateDirectory::remove(const std::string& name) const {
    if (unlink((path_ + "/" + name + kSuffix).c_str()) != 0) {
        return system_error();
    }
    return sync_folder();
}

Result<void> StateDirectory::server_uuid(unsigned char uuid[16]) const {
    Result<std::string> text = read_file(path_ + "/" + kServerUuidFile);
    if (text.ok()) {
        if (text->size() != 33 ||
            !from_hexadecimal(text->substr(0, 32), MutableByteSpan(uuid, 16))) {
            return Error::euclean;
        }
        return {};
    }
    if (text.error() != Error::enoent) {
        return text.error();
    }
    host::random_bytes(uuid, 16);
    return replace(kServerUuidFile, to_hexadecimal(ByteSpan(uuid, 16)) + "\n");
}

}  // namespace tiffin::rdma_blk
