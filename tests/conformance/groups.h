// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The groups of trials. Each is a file.
#pragma once

#include "tests/conformance/trial.h"

namespace tiffin::conformance {

void add_path_trials(Trials& trials);  // every call with a path, on every kind of path
void add_pair_trials(Trials& trials);  // link and rename, on every pair of kinds
void add_descriptor_trials(
    Trials& trials);                     // every call with a descriptor, on every kind of open file
void add_access_trials(Trials& trials);  // permissions of files and directories, by mode and caller
void add_sticky_trials(Trials& trials);  // sticky and set-group-id directories
void add_owner_trials(Trials& trials);   // chmod, chown: who may, and what they clear
void add_time_trials(Trials& trials);    // utimensat, and which call moves which time
void add_data_trials(Trials& trials);    // reading, writing, seeking, allocating, copying
void add_xattr_trials(Trials& trials);   // extended attributes: name spaces, kinds, sizes
void add_directory_trials(Trials& trials);  // reading directories
void add_use_trials(Trials& trials);        // execution, locks, leases
void add_mapping_trials(Trials& trials);    // files in memory
void add_flag_trials(Trials& trials);       // immutable and append-only
void add_limit_trials(Trials& trials);      // lengths, depths and counts
void add_mount_trials(Trials& trials);      // mount points, and what lies beyond them
void add_read_only_trials(Trials& trials);  // what other groups try, on a read-only file system

}  // namespace tiffin::conformance
