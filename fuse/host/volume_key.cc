// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/volume_key.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "rdma_blk/wire/hexadecimal.h"

namespace tiffin::fuse {
namespace {

constexpr size_t kDigits = 2 * sizeof(VolumeKey::bytes);
constexpr size_t kMaxKeys = 16;

std::vector<std::string> usual_places(const std::string& volume) {
    std::vector<std::string> places;
    const std::string file = "/tiffin/keys/" + volume + ".key";
    const char* configuration = getenv("XDG_CONFIG_HOME");
    const char* home = getenv("HOME");
    if (configuration != nullptr && configuration[0] == '/') {
        places.push_back(configuration + file);
    } else if (home != nullptr && home[0] == '/') {
        places.push_back(std::string(home) + "/.config" + file);
    }
    places.push_back("/etc" + file);
    return places;
}

// Keys, each on a line of its own; the last newline may be missing, and one of another system be there. Empty: not
// understood.
std::vector<VolumeKey> understand(std::string_view text) {
    std::vector<VolumeKey> keys;
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        line.remove_suffix(line.ends_with('\r') ? 1 : 0);
        VolumeKey key;
        key.is_reader = line.starts_with(kReaderKeyPrefix);
        line.remove_prefix(key.is_reader ? std::strlen(kReaderKeyPrefix) : 0);
        if (line.size() != kDigits ||
            !rdma_blk::from_hexadecimal(line, MutableByteSpan(key.bytes))) {
            return {};
        }
        keys.push_back(key);
    }
    return keys;
}

OrProblem<std::vector<VolumeKey>> read_file(int descriptor, const std::string& path,
                                            size_t server_count) {
    struct stat status {};
    if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
        return Problem{path + " is not a file with a key", Error::einval};
    }
    if ((status.st_mode & (S_IRWXO | S_IWGRP)) != 0) {
        return Problem{
            path + " is open to others, so the key in it is no secret: chmod 600 " + path,
            Error::eacces};
    }
    char text[kMaxKeys * (sizeof kReaderKeyPrefix + kDigits) + 1];
    const ssize_t size_bytes = read(descriptor, text, sizeof text);
    const int error = errno;
    std::vector<VolumeKey> keys;
    if (size_bytes > 0 && static_cast<size_t>(size_bytes) < sizeof text) {
        keys = understand(std::string_view(text, static_cast<size_t>(size_bytes)));
    }
    explicit_bzero(text, sizeof text);
    if (size_bytes < 0) {
        return Problem{path + " cannot be read: " + system_error_text(error), Error::eio};
    }
    if (keys.empty()) {
        return Problem{
            path +
            " does not hold a key: 64 hexadecimal digits are expected, after \"reader:\" "
            "if it allows only to read"};
    }
    if (std::any_of(keys.begin(), keys.end(), [&](const VolumeKey& key) {
            return key.is_reader != keys.front().is_reader;
        })) {
        return Problem{
            path + " holds keys of different rights: with \"reader:\" all lines begin, or none"};
    }
    if (keys.size() == 1) {
        keys.resize(server_count, keys[0]);
    }
    if (keys.size() != server_count) {
        return Problem{path + " holds " + std::to_string(keys.size()) + " keys for " +
                       std::to_string(server_count) + " servers: one line for each is expected"};
    }
    return keys;
}

}  // namespace

VolumeKey::~VolumeKey() { explicit_bzero(bytes, sizeof bytes); }

OrProblem<std::vector<VolumeKey>> read_volume_keys(const std::string& volume,
                                                   const std::string& key_file,
                                                   size_t server_count) {
    const std::vector<std::string> places =
        key_file.empty() ? usual_places(volume) : std::vector<std::string>{key_file};
    std::string tried;
    for (const std::string& path : places) {
        const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (descriptor >= 0) {
            OrProblem<std::vector<VolumeKey>> keys = read_file(descriptor, path, server_count);
            (void)close(descriptor);
            return keys;
        }
        const int error = errno;
        if (error != ENOENT && error != ENOTDIR) {
            return Problem{
                path + ", the key of the volume, cannot be opened: " + system_error_text(error),
                static_cast<Error>(error)};
        }
        tried += (tried.empty() ? "" : " and ") + path;
    }
    return Problem{"there is no key of the volume " + volume + ": looked for " + tried,
                   Error::enoent};
}

}  // namespace tiffin::fuse
