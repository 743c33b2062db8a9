// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What can be seen of a path, and what has changed between two looks.
#pragma once

#include <sys/stat.h>

#include <ctime>
#include <string>

namespace tiffin::conformance {

struct Snapshot {
    bool exists = false;
    struct statx status {};
    // Where the file system, asked again without the kernel's cache, said something else: which.
    std::string stale;
};

// Does not follow symlinks and moves no times. With `ask_again` attributes are fetched a second time
// past any cache.
Snapshot look_at(const std::string& path, bool ask_again);

// The stretch of time in which a call was made.
struct Period {
    timespec begin;
    timespec end;
};

// "" when nothing has changed. Times that moved into `period` are named by their letter (a, m, c);
// others have their value. Sizes of directories, link counts of directories on file systems that do not
// count, and blocks are not compared: they are each file system's own. `path` is for the content of a file
// that was modified and the target of a new symlink; look at everything before, since that may move times.
std::string describe_change(const std::string& path, const Snapshot& before, const Snapshot& after,
                            const Period& period);

// "f", "d", "l", "p", "s", "c", "b".
char type_letter(unsigned mode);

}  // namespace tiffin::conformance
