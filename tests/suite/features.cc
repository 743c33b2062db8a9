// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/suite/features.h"

namespace tiffin::suite {

namespace {

constexpr const char* kNames[] = {
    "access_on_read",
    "access_on_readdir",
    "acl",
    "atomic_blocks",
    "birth_time",
    "chown_of_nothing",
    "collapse_insert",
    "copy_file_range",
    "direct_io",
    "exact_directory_links",
    "exact_names",
    "exact_space",
    "file_flags",
    "flags_at_open",
    "flags_change_time",
    "generation",
    "huge_files",
    "large_device_numbers",
    "long_symlinks",
    "many_xattrs",
    "mmap",
    "mmap_tail",
    "node_ids_never_reused",
    "permissions",
    "punch_hole",
    "read_only_remount",
    "rename_exchange",
    "rename_whiteout",
    "seek_data",
    "set_id_clearing",
    "shutdown",
    "small_volume",
    "synchronous_enospc",
    "tmpfile",
    "xattr_64k",
    "xattr_security",
    "xattr_trusted",
    "xattr_user",
    "zero_range",
};
static_assert(sizeof(kNames) / sizeof(kNames[0]) == static_cast<size_t>(Feature::count));

}  // namespace

const char* feature_name(Feature feature) { return kNames[static_cast<uint32_t>(feature)]; }

bool parse_feature(const std::string& name, Feature& feature) {
    for (uint32_t i = 0; i < static_cast<uint32_t>(Feature::count); ++i) {
        if (name == kNames[i]) {
            feature = static_cast<Feature>(i);
            return true;
        }
    }
    return false;
}

std::string FeatureSet::text() const {
    std::string text;
    for (uint32_t i = 0; i < static_cast<uint32_t>(Feature::count); ++i) {
        if (contains(static_cast<Feature>(i))) {
            text += text.empty() ? "" : ", ";
            text += kNames[i];
        }
    }
    return text;
}

}  // namespace tiffin::suite
