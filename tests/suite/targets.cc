// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/suite/targets.h"

#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "tests/suite/case.h"

namespace tiffin::suite {

namespace {

constexpr long kXfsMagic = 0x58465342;
constexpr long kKernelTiffinMagic = 0x54494646;  // kmod/vfs

FeatureSet all_but(std::initializer_list<Feature> missing) {
    return FeatureSet::all().without(FeatureSet(missing));
}

// Which cases may stay out, by the beginning of their names. Every line must be of use.
struct AcceptedGap {
    const char* target;
    const char* prefix;
};
constexpr AcceptedGap kAcceptedGaps[] = {
    // In process there is no kernel: no mappings, no page cache, no permissions.
    {"core", "direct."},
    {"core", "mmap."},
    {"core", "permissions."},
    {"core", "acl.is_obeyed"},
    {"memory", "direct."},
    {"memory", "mmap."},
    {"memory", "permissions."},
    {"memory", "acl."},
    {"memory", "times.access_time_of_directories"},
    // FUSE has no message for collapse and insert.
    {"fuse", "collapse."},
    {"fuse", "insert."},
    // Reads come from the kernel's page cache, and Linux reads it without a lock.
    {"fuse", "threads.reading_while_another_writes"},
    // The cache answers reads without telling anybody.
    {"fuse", "times.access_time_of_files"},
    // The kernel keeps change times itself, and does not see that flags are set.
    {"fuse", "times.setting_flags"},
    // The kernel's cache takes the data before the file system sees it.
    {"fuse", "full.write_says_so"},
    // Runs only when it is asked for, since the mount is of no use afterwards.
    {"fuse", "shutdown."},
    {"kernel", "shutdown."},
    {"kernel", "threads.reading_while_another_writes"},
};

}  // namespace

// The kernel's part is missing in process: memory mappings, O_DIRECT, and permissions.
Target core_target() {
    return {"core",
            all_but({Feature::direct_io, Feature::mmap, Feature::mmap_tail, Feature::permissions})};
}

Target memory_target() {
    return {"memory", core_target().features.without({Feature::access_on_readdir, Feature::acl})};
}

Target mounted_target(const std::string& directory) {
    struct statfs status {};
    if (::statfs(directory.c_str(), &status) < 0) {
        throw std::runtime_error(directory + ": " + std::strerror(errno));
    }
    // A mount that is shut down serves nobody afterwards: the caller adds the feature on purpose.
    switch (static_cast<long>(status.f_type)) {
        case FUSE_SUPER_MAGIC:
            // Where the kernel's part of FUSE decides; the accepted gaps above say why.
            return {"fuse", all_but({Feature::shutdown, Feature::collapse_insert,
                                     Feature::atomic_blocks, Feature::synchronous_enospc,
                                     Feature::access_on_read, Feature::flags_change_time})};
        case kKernelTiffinMagic:
            return {"kernel", all_but({Feature::shutdown, Feature::atomic_blocks})};
        case TMPFS_MAGIC:
            return {"tmpfs",
                    all_but({Feature::shutdown, Feature::atomic_blocks, Feature::mmap_tail,
                             Feature::collapse_insert, Feature::zero_range, Feature::generation,
                             Feature::many_xattrs, Feature::node_ids_never_reused})};
        case EXT4_SUPER_MAGIC:
            return {"ext4", all_but({Feature::shutdown, Feature::atomic_blocks, Feature::xattr_64k,
                                     Feature::many_xattrs, Feature::node_ids_never_reused,
                                     Feature::exact_space, Feature::synchronous_enospc})};
        case kXfsMagic:
            return {"xfs", all_but({Feature::shutdown, Feature::long_symlinks,
                                    Feature::large_device_numbers, Feature::node_ids_never_reused,
                                    Feature::exact_space, Feature::synchronous_enospc})};
        default:
            throw std::runtime_error(directory +
                                     " is on a kind of file system that the suite has "
                                     "no expectations for");
    }
}

std::vector<std::string> unexpected_not_run(const Target& target) {
    std::vector<std::string> differences;
    if (target.name != "core" && target.name != "memory" && target.name != "fuse" &&
        target.name != "kernel") {
        return differences;
    }
    const std::vector<std::string> missing = cases_not_run(target.features);
    auto starts_with = [](const std::string& line, const char* prefix) {
        return line.rfind(prefix, 0) == 0;
    };
    for (const std::string& line : missing) {
        bool accepted = std::any_of(
            std::begin(kAcceptedGaps), std::end(kAcceptedGaps), [&](const AcceptedGap& gap) {
                return target.name == gap.target && starts_with(line, gap.prefix);
            });
        if (!accepted) {
            differences.push_back("does not run: " + line);
        }
    }
    for (const AcceptedGap& gap : kAcceptedGaps) {
        bool used = std::any_of(missing.begin(), missing.end(), [&](const std::string& line) {
            return starts_with(line, gap.prefix);
        });
        if (target.name == gap.target && !used) {
            differences.push_back(std::string("accepted as missing, but nothing is: ") +
                                  gap.prefix);
        }
    }
    return differences;
}

}  // namespace tiffin::suite
