// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/mkfs_tiffin/known_contents.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "fs/tiffinfs/tiffinfs.h"
#include "fs/vfs/types.h"

namespace tiffin::fuse {
namespace {

using namespace std::string_view_literals;  // NOLINT

struct Signature {
    uint64_t offset_bytes;
    std::string_view magic;
    const char* name;
};

// Names before partition tables: a boot sector of FAT looks like one.
constexpr Signature kSignatures[] = {
    {1080, "\x53\xef"sv, "ext2, ext3 or ext4"},
    {0, "XFSB"sv, "XFS"},
    {65600, "_BHRfS_M"sv, "Btrfs"},
    {1024, "\x10\x20\xf5\xf2"sv, "F2FS"},
    {1024, "\xe2\xe1\xf5\xe0"sv, "EROFS"},
    {4120, "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"sv, "bcachefs"},
    {4086, "SWAPSPACE2"sv, "swap space"},
    {4086, "SWAP-SPACE"sv, "swap space"},
    {0, "LUKS\xba\xbe"sv, "a LUKS volume"},
    {536, "LVM2 001"sv, "an LVM physical volume"},
    {4096, "\xfc\x4e\x2b\xa9"sv, "a member of a RAID array"},
    {0, "\xfc\x4e\x2b\xa9"sv, "a member of a RAID array"},
    {131072, "\x0c\xb1\xba\x00\x00\x00\x00\x00"sv, "ZFS"},
    {135168, "\x0c\xb1\xba\x00\x00\x00\x00\x00"sv, "ZFS"},
    {0, "hsqs"sv, "SquashFS"},
    {32769, "CD001"sv, "ISO 9660"},
    {32768, "JFS1"sv, "JFS"},
    {65588, "ReIsEr"sv, "ReiserFS"},
    {3, "NTFS    "sv, "NTFS"},
    {3, "EXFAT   "sv, "exFAT"},
    {82, "FAT32   "sv, "FAT"},
    {54, "FAT1"sv, "FAT"},
    {512, "EFI PART"sv, "a GPT partition table"},
    {510, "\x55\xaa"sv, "a partition table or boot sector"},
};

}  // namespace

OrProblem<std::optional<std::string>> find_known_contents(vfs::BlockDevice& device) {
    Result<bool> ours = tiffinfs::holds_file_system(device);
    if (ours.ok() && *ours) {
        return std::optional<std::string>("tiffinfs");
    }
    constexpr uint64_t kLookedAt = 160U << 10;
    const uint64_t unit = vfs::kBlockBytes;
    const uint64_t size = std::min(kLookedAt, device.geometry().size_bytes / unit * unit);
    std::vector<char> start(size);
    if (size == 0) {
        return std::optional<std::string>();
    }
    const Result<void> read = device.read(0, start.data(), start.size());
    if (!read.ok()) {
        return Problem{"the device cannot be read: " + system_error_text(errno_value(read.error())),
                       read.error()};
    }
    for (const Signature& signature : kSignatures) {
        if (signature.offset_bytes + signature.magic.size() <= size &&
            std::memcmp(start.data() + signature.offset_bytes, signature.magic.data(),
                        signature.magic.size()) == 0) {
            return std::optional<std::string>(signature.name);
        }
    }
    return std::optional<std::string>();
}

}  // namespace tiffin::fuse
