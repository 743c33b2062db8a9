// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/common/known_contents.h"

#include <blkid/blkid.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include "fs/tiffinfs/tiffinfs.h"
#include "fs/vfs/types.h"

namespace tiffin::fuse {
namespace {

using Contents = std::optional<std::string>;

struct FreeProbe {
    void operator()(blkid_probe probe) const { blkid_free_probe(probe); }
};
using Probe = std::unique_ptr<struct blkid_struct_probe, FreeProbe>;

std::string_view value_of(const Probe& probe, const char* name) {
    const char* value = nullptr;
    return blkid_probe_lookup_value(probe.get(), name, &value, nullptr) == 0 ? value : "";
}

std::string describe(const Probe& probe) {
    const std::string_view type = value_of(probe, "TYPE");
    if (type.empty()) {
        return fmt::format("a partition table ({})", value_of(probe, "PTTYPE"));
    }
    const std::string_view usage = value_of(probe, "USAGE");
    const std::string_view what = usage == "filesystem" ? "a file system"
                                  : usage == "raid"     ? "a part of a volume or an array"
                                  : usage == "crypto"   ? "an encrypted volume"
                                                        : "data of another system";
    return fmt::format("{} ({})", what, type);
}

Problem unreadable(const std::string& path, int error_number) {
    return Problem{fmt::format("{} cannot be looked at for what it holds: {}", path,
                               system_error_text(error_number)),
                   static_cast<Error>(error_number)};
}

OrProblem<Contents> ask_libblkid(const std::string& path) {
    errno = 0;
    // It opens the file a second time; our lock (flock) belongs to the first time and stays.
    const Probe probe(blkid_new_probe_from_filename(path.c_str()));
    if (probe == nullptr) {
        return unreadable(path, errno != 0 ? errno : EIO);
    }
    // Also what has a wrong checksum: people may want to save what is left of it.
    if (blkid_probe_enable_superblocks(probe.get(), 1) != 0 ||
        blkid_probe_set_superblocks_flags(
            probe.get(), BLKID_SUBLKS_TYPE | BLKID_SUBLKS_USAGE | BLKID_SUBLKS_BADCSUM) != 0 ||
        blkid_probe_enable_partitions(probe.get(), 1) != 0) {
        return unreadable(path, ENOMEM);
    }
    switch (blkid_do_safeprobe(probe.get())) {
        case 0:
            return Contents(describe(probe));
        case 1:
            return Contents();
        case -2:
            return Contents("traces of several file systems (wipefs lists them)");
        default:
            return unreadable(path, errno != 0 ? errno : EIO);
    }
}

// libblkid knows it from 2.39 on, and Debian 12 has 2.38.
bool holds_bcachefs(vfs::BlockDevice& device) {
    constexpr std::string_view kMagic =
        "\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";
    constexpr size_t kMagicOffset = 24;
    alignas(vfs::kBlockBytes) char block[vfs::kBlockBytes];
    return device.geometry().size_bytes >= uint64_t{2} * vfs::kBlockBytes &&
           device.read(vfs::kBlockBytes, block, sizeof block).ok() &&
           std::memcmp(block + kMagicOffset, kMagic.data(), kMagic.size()) == 0;
}

}  // namespace

OrProblem<Contents> find_known_contents(vfs::BlockDevice& device, const std::string& path) {
    Result<bool> ours = tiffinfs::holds_file_system(device);
    if (ours.ok() && *ours) {
        return Contents("tiffinfs");
    }
    if (path.empty()) {
        return Contents();
    }
    return holds_bcachefs(device) ? Contents("a file system (bcachefs)") : ask_libblkid(path);
}

}  // namespace tiffin::fuse
