// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/common/known_contents.h"

#include <blkid/blkid.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "fs/tiffinfs/tiffinfs.h"
#include "fs/vfs/types.h"
#include "fuse/host/memory_device.h"
#include "rdma_blk/server/unique_descriptor.h"

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

// `name`: of what is looked at, for messages. `probe` has it; nullptr: errno says why not.
OrProblem<Contents> ask_libblkid(const std::string& name, const Probe& probe) {
    if (probe == nullptr) {
        return unreadable(name, errno != 0 ? errno : EIO);
    }
    // Also what has a wrong checksum: people may want to save what is left of it.
    if (blkid_probe_enable_superblocks(probe.get(), 1) != 0 ||
        blkid_probe_set_superblocks_flags(
            probe.get(), BLKID_SUBLKS_TYPE | BLKID_SUBLKS_USAGE | BLKID_SUBLKS_BADCSUM) != 0 ||
        blkid_probe_enable_partitions(probe.get(), 1) != 0) {
        return unreadable(name, ENOMEM);
    }
    switch (blkid_do_safeprobe(probe.get())) {
        case 0:
            return Contents(describe(probe));
        case 1:
            return Contents();
        case -2:
            return Contents("traces of several file systems (wipefs lists them)");
        default:
            return unreadable(name, errno != 0 ? errno : EIO);
    }
}

OrProblem<Contents> look_at_file(const std::string& path) {
    errno = 0;
    // It opens the file a second time; our lock (flock) belongs to the first time and stays.
    return ask_libblkid(path, Probe(blkid_new_probe_from_filename(path.c_str())));
}

// Copies [begin, end) of the device to the same place of the file, but for pieces of zeros.
Result<void> copy_range(vfs::BlockDevice& device, int file, uint64_t begin, uint64_t end) {
    constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
    std::vector<char> piece(kPieceBytes);
    for (uint64_t offset = begin; offset < end; offset += kPieceBytes) {
        const auto bytes = static_cast<size_t>(std::min(kPieceBytes, end - offset));
        TRY(device.read(offset, piece.data(), bytes));
        const bool is_empty = std::all_of(piece.begin(), piece.begin() + static_cast<long>(bytes),
                                          [](char byte) { return byte == 0; });
        if (!is_empty && pwrite(file, piece.data(), bytes, static_cast<off_t>(offset)) !=
                             static_cast<ssize_t>(bytes)) {
            return Error::eio;
        }
    }
    return {};
}

// libblkid reads files only: it gets one with both ends of the device, where it looks for signatures. Of those that
// it knows, that of VMFS lies deepest, at 2 MiB.
OrProblem<Contents> look_at_ends(vfs::BlockDevice& device) {
    constexpr uint64_t kEndBytes = uint64_t{4} << 20;
    const std::string name = "the volume";
    const uint64_t size_bytes = device.geometry().size_bytes;
    const uint64_t first_end = std::min(size_bytes, kEndBytes);
    const uint64_t last_begin = std::max(first_end, size_bytes - first_end);
    const rdma_blk::UniqueDescriptor file(memfd_create("ends", MFD_CLOEXEC));
    if (!file.valid() || ftruncate(file.get(), static_cast<off_t>(size_bytes)) != 0) {
        return unreadable(name, errno);
    }
    Result<void> copied = copy_range(device, file.get(), 0, first_end);
    if (copied.ok()) {
        copied = copy_range(device, file.get(), last_begin, size_bytes);
    }
    if (!copied.ok()) {
        return unreadable(name, errno_value(copied.error()));
    }
    errno = 0;
    const Probe probe(blkid_new_probe());
    if (probe == nullptr || blkid_probe_set_device(probe.get(), file.get(), 0, 0) != 0) {
        return unreadable(name, errno != 0 ? errno : ENOMEM);
    }
    return ask_libblkid(name, probe);
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
    if (dynamic_cast<const MemoryDevice*>(&device) != nullptr) {
        return Contents();
    }
    if (holds_bcachefs(device)) {
        return Contents("a file system (bcachefs)");
    }
    return path.empty() ? look_at_ends(device) : look_at_file(path);
}

std::optional<Problem> erase_other_signatures(const std::string& path) {
    constexpr int kMost = 10000;  // ZFS has hundreds, which go one by one
    const rdma_blk::UniqueDescriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
    const Probe probe(blkid_new_probe());
    errno = 0;
    bool works = file.valid() && probe != nullptr &&
                 blkid_probe_set_device(probe.get(), file.get(), 0, 0) == 0 &&
                 blkid_probe_enable_superblocks(probe.get(), 1) == 0 &&
                 blkid_probe_set_superblocks_flags(
                     probe.get(), BLKID_SUBLKS_MAGIC | BLKID_SUBLKS_BADCSUM) == 0 &&
                 blkid_probe_enable_partitions(probe.get(), 1) == 0 &&
                 blkid_probe_set_partitions_flags(probe.get(), BLKID_PARTS_MAGIC) == 0;
    int found = 0;
    for (int count = 0; works && count < kMost && found == 0; ++count) {
        found = blkid_do_probe(probe.get());
        works = found == 1 || (found == 0 && blkid_do_wipe(probe.get(), 0) == 0);
    }
    if (!works || found != 1) {
        return Problem{"the file system is made, but what " + path +
                       " held before may still be taken for its content: wipefs lists it" +
                       (errno != 0 ? "; " + system_error_text(errno) : "")};
    }
    return std::nullopt;
}

}  // namespace tiffin::fuse
