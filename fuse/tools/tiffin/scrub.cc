// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffin scrub: reads and verifies everything that a mounted file system stores.
#include <cstdio>

#include "fuse/host/size_text.h"
#include "fuse/tools/common/control_client.h"
#include "fuse/tools/common/progress_bar.h"
#include "fuse/tools/tiffin/commands.h"

namespace tiffin::fuse {

std::optional<Problem> scrub(const std::string& mount_point, bool quiet) {
    auto client = ControlClient::open(mount_point);
    if (!client.ok()) {
        return client.problem();
    }
    ScrubCommand progress;
    ProgressBar bar(stderr, "scrubbing");
    while (progress.finished == 0) {
        if (std::optional<Problem> problem = client->scrub(progress)) {
            bar.clear();
            return problem;
        }
        if (!quiet) {
            bar.show(progress.checked_bytes, progress.total_bytes);
        }
    }
    bar.clear();
    if (progress.errors_found != 0) {
        return Problem{std::to_string(progress.errors_found) +
                           (progress.errors_found == 1 ? " error in " : " errors in ") +
                           format_size(progress.checked_bytes) +
                           ": the log of the mount names the nodes (find " + mount_point +
                           " -inum NODE shows a file). Restore those files; for anything else, "
                           "unmount and run fsck.tiffin -f",
                       Error::euclean};
    }
    if (!quiet) {
        printf("%s: %s checked, no errors\n", mount_point.c_str(),
               format_size(progress.checked_bytes).c_str());
    }
    return std::nullopt;
}

}  // namespace tiffin::fuse
