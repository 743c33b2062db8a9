// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/common/volume_identity.h"

#include <blkid/blkid.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <strings.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <vector>

#include "fs/tiffinfs/format.h"
#include "fuse/check/superblocks.h"
#include "fuse/check/text.h"

namespace tiffin::fuse {
namespace {

// The paths of all disks and partitions.
std::vector<std::string> all_disks() {
    std::vector<std::string> paths;
    std::ifstream file("/proc/partitions");
    std::string line;
    while (std::getline(file, line)) {
        std::istringstream words(line);
        uint64_t major = 0;
        uint64_t minor = 0;
        uint64_t blocks = 0;
        std::string name;
        if (words >> major >> minor >> blocks >> name && blocks > 1) {  // 1: an extended partition
            paths.push_back("/dev/" + name);
        }
    }
    return paths;
}

// The name of a link in /dev/disk/by-*: udev replaces what a file name or a shell would stumble over.
std::string link_name(const std::string& value) {
    std::string encoded(4 * value.size() + 1, '\0');
    if (blkid_encode_string(value.c_str(), encoded.data(), encoded.size()) != 0) {
        return "";
    }
    encoded.resize(std::strlen(encoded.c_str()));
    return encoded;
}

}  // namespace

OrProblem<VolumeIdentity> read_volume_identity(const std::string& path) {
    alignas(tiffinfs::Superblock) char front[2 * tiffinfs::kBlockBytes] = {};
    errno = 0;
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const ssize_t count = file < 0 ? -1 : pread(file, front, sizeof front, 0);
    const int error = errno;
    if (file >= 0) {
        (void)close(file);
    }
    if (count < 0) {
        return Problem{path + " cannot be read: " + system_error_text(error),
                       static_cast<Error>(error)};
    }
    tiffinfs::Superblock newest{};
    for (size_t slot = 0; slot < 2; ++slot) {
        tiffinfs::Superblock found{};
        std::memcpy(&found, front + slot * tiffinfs::kBlockBytes, sizeof found);
        if (found.magic == tiffinfs::kSuperblockMagic &&
            found.checksum == check::superblock_checksum(found) &&
            found.generation > newest.generation) {
            newest = found;
        }
    }
    if (newest.generation == 0) {
        return Problem{path + " holds no Tiffin file system", Error::einval};
    }
    return VolumeIdentity{check::uuid_text(newest.uuid),
                          {newest.label, strnlen(newest.label, sizeof newest.label)},
                          newest.version};
}

OrProblem<std::string> resolve_volume_tag(const std::string& text) {
    const bool by_uuid = text.starts_with("UUID=");
    if (!by_uuid && !text.starts_with("LABEL=")) {
        return text;
    }
    std::string value = text.substr(text.find('=') + 1);
    if (value.size() > 1 && value.front() == '"' && value.back() == '"') {
        value = value.substr(1, value.size() - 2);
    }
    if (value.empty()) {
        return Problem{text + ": the value is missing", Error::einval};
    }
    std::error_code error;
    const std::filesystem::path link =
        std::string("/dev/disk/by-") + (by_uuid ? "uuid/" : "label/") + link_name(value);
    const std::filesystem::path target = std::filesystem::canonical(link, error);
    if (!error) {
        return target.string();
    }
    std::string found;
    bool all_readable = true;
    for (const std::string& path : all_disks()) {
        const OrProblem<VolumeIdentity> identity = read_volume_identity(path);
        if (!identity.ok()) {
            all_readable = all_readable && identity.problem().code != Error::eacces;
            continue;
        }
        if (by_uuid ? strcasecmp(identity->uuid.c_str(), value.c_str()) != 0
                    : identity->label != value) {
            continue;
        }
        if (!found.empty()) {
            return Problem{
                fmt::format("{} and {} both have {}: name the device", found, path, text),
                Error::eexist};
        }
        found = path;
    }
    if (found.empty()) {
        return Problem{"no disk has a Tiffin file system with " + text +
                           (all_readable ? "" : ", as far as this user can read the disks"),
                       Error::enoent};
    }
    return found;
}

}  // namespace tiffin::fuse
