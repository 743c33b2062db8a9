// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Trials of other groups, with the same preparation, on a file system that is read-only when the calls are made:
// what is refused, and with which error when there are several reasons to refuse it.
#include "tests/conformance/groups.h"

namespace tiffin::conformance {

void add_read_only_trials(Trials& trials) {
    struct Part {
        const char* prefix;
        void (*add)(Trials& trials);
    };
    // The calls of the others mostly open for writing first, and nothing but that would be seen.
    static constexpr Part parts[] = {
        {"path ", add_path_trials},
        {"pair ", add_pair_trials},
        {"descriptor ", add_descriptor_trials},
        {"access ", add_access_trials},
        {"sticky ", add_sticky_trials},
        {"owner ", add_owner_trials},
        {"time ", add_time_trials},
        {"xattr ", add_xattr_trials},
        {"flag ", add_flag_trials},
        {"use ", add_use_trials},
    };
    for (const Part& part : parts) {
        trials.prefix(part.prefix);
        part.add(trials);
    }
    trials.prefix("");
}

}  // namespace tiffin::conformance
