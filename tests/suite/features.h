// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a file system, or the host that serves it, may lack. A case names the features it needs; a
// target declares the ones it has. What is declared must work: features are not probed, so one that
// is lost makes its cases fail instead of disappear.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace tiffin::suite {

enum class Feature : uint32_t {
    access_on_read,     // reading moves the access time (relatime at least)
    access_on_readdir,  // the same for directories
    acl,                // POSIX ACLs
    atomic_blocks,      // a read never sees a part of a write of one block
    birth_time,
    chown_of_nothing,  // chown() that changes nothing is seen by the file system
    collapse_insert,   // fallocate: collapse and insert range
    copy_file_range,
    direct_io,              // O_DIRECT
    exact_directory_links,  // a directory's link count is 2 + its sub-directories
    exact_names,            // names are bytes: no normalisation, no forbidden characters
    exact_space,            // statfs moves at once by what is written and freed
    file_flags,             // immutable, append-only
    flags_at_open,          // flags forbid opening, not only writing
    flags_change_time,      // setting flags moves the change time
    generation,             // FS_IOC_GETVERSION
    huge_files,             // sizes beyond 8 TiB
    large_device_numbers,   // 12 bits of major and 20 of minor number
    long_symlinks,          // targets of more than 1023 bytes
    many_xattrs,            // 1000 on one file
    mmap,
    mmap_tail,  // stores behind the end of file do not come back
    node_ids_never_reused,
    permissions,  // somebody checks permissions
    punch_hole,   // and keep_size
    read_only_remount,
    rename_exchange,
    rename_whiteout,
    seek_data,           // SEEK_DATA and SEEK_HOLE know holes
    set_id_clearing,     // writing by an ordinary user clears set-user-id
    shutdown,            // FS_IOC_SHUTDOWN; the target can be given up afterwards
    small_volume,        // can be filled within seconds
    synchronous_enospc,  // write() itself says that the volume is full
    tmpfile,             // O_TMPFILE
    xattr_64k,           // values of 64 KiB
    xattr_security,
    xattr_trusted,
    xattr_user,
    zero_range,
    count,
};

class FeatureSet {
  public:
    FeatureSet() = default;
    FeatureSet(std::initializer_list<Feature> features) {
        for (Feature feature : features) {
            add(feature);
        }
    }
    static FeatureSet all() {
        FeatureSet set;
        set.bits_ = (1ULL << static_cast<uint32_t>(Feature::count)) - 1;
        return set;
    }

    void add(Feature feature) { bits_ |= bit(feature); }
    void remove(Feature feature) { bits_ &= ~bit(feature); }
    bool contains(Feature feature) const { return (bits_ & bit(feature)) != 0; }
    bool empty() const { return bits_ == 0; }
    // What is in this set and not in `other`.
    FeatureSet without(const FeatureSet& other) const {
        FeatureSet set;
        set.bits_ = bits_ & ~other.bits_;
        return set;
    }
    // Names, separated by ", ".
    std::string text() const;

  private:
    static uint64_t bit(Feature feature) { return 1ULL << static_cast<uint32_t>(feature); }

    uint64_t bits_ = 0;
};

const char* feature_name(Feature feature);
// Returns false when there is no such feature.
bool parse_feature(const std::string& name, Feature& feature);

}  // namespace tiffin::suite
