// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The key of a remote volume: 32 bytes, as 64 hexadecimal digits in a file, as `tiffin volume create`
// prints it. Each server makes its own: the key file of a striped volume has a line for each server, in
// the order of the address. Before the digits of a key that allows only to read there is "reader:".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fuse/host/problem.h"

namespace tiffin::fuse {

inline constexpr char kReaderKeyPrefix[] = "reader:";

// Wiped when it goes.
struct VolumeKey {
    VolumeKey() = default;
    VolumeKey(const VolumeKey&) = default;
    VolumeKey& operator=(const VolumeKey&) = default;
    ~VolumeKey();

    uint8_t bytes[32] = {};
    bool is_reader = false;
};

// Reads `key_file`; when that is empty, the first that exists of $XDG_CONFIG_HOME/tiffin/keys/VOLUME.key
// (without that variable, $HOME/.config/tiffin/...) and /etc/tiffin/keys/VOLUME.key. A file that all users
// may read or others than its owner may write is refused. Returns `server_count` keys; a file with a single
// line is good for all of them. All lines are keys of the same right.
OrProblem<std::vector<VolumeKey>> read_volume_keys(const std::string& volume,
                                                   const std::string& key_file,
                                                   size_t server_count);

}  // namespace tiffin::fuse
