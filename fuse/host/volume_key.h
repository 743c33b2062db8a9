// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The key of a remote volume: 32 bytes, as 64 hexadecimal digits in a file, as `tiffin volume create`
// prints it.
#pragma once

#include <cstdint>
#include <string>

#include "fuse/host/problem.h"

namespace tiffin::fuse {

// Wiped when it goes.
struct VolumeKey {
    VolumeKey() = default;
    VolumeKey(const VolumeKey&) = default;
    VolumeKey& operator=(const VolumeKey&) = default;
    ~VolumeKey();

    uint8_t bytes[32] = {};
};

// Reads `key_file`; when that is empty, the first that exists of $XDG_CONFIG_HOME/tiffin/keys/VOLUME.key
// (without that variable, $HOME/.config/tiffin/...) and /etc/tiffin/keys/VOLUME.key. A file that everybody
// may read or others than its owner may write is refused.
OrProblem<VolumeKey> read_volume_key(const std::string& volume, const std::string& key_file);

}  // namespace tiffin::fuse
