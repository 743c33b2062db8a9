// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Everything that can be seen of a tree, in a form that compares: to tell whether it is the same after
// a remount, a crash, or on another file system.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/suite/under_test.h"

namespace tiffin::suite {

struct SnapshotOptions {
    bool times = true;  // modification, change and birth; never access, which looking moves
    bool nodes = true;  // node numbers; without them, which names are links of one file
    bool allocated = true;
    bool directory_sizes = true;
};

// Path (from the root, "" for the root itself) to a line of text that tells all about it. Content of
// files is in it as a hash.
using TreeSnapshot = std::map<std::string, std::string>;

// Reads the whole tree. What cannot be read stands there with its error.
TreeSnapshot take_snapshot(FileSystemUnderTest& fs, const SnapshotOptions& options);

// The differences, at most `limit` of them, each as one line; empty when there are none.
std::vector<std::string> compare_snapshots(const TreeSnapshot& before, const TreeSnapshot& after,
                                           size_t limit = 10);

}  // namespace tiffin::suite
