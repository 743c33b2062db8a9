// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffin grow: a mounted file system takes into use what its image or disk has gained in size.
#include <cstdio>

#include "fuse/host/size_text.h"
#include "fuse/tools/common/control_client.h"
#include "fuse/tools/tiffin/commands.h"

namespace tiffin::fuse {

std::optional<Problem> grow(const std::string& mount_point) {
    auto client = ControlClient::open(mount_point);
    if (!client.ok()) {
        return client.problem();
    }
    const OrProblem<GrowCommand> grown = client->grow();
    if (!grown.ok()) {
        return grown.problem();
    }
    const std::string size = format_size(grown->to_bytes);
    if (grown->from_bytes == grown->to_bytes) {
        printf(
            "%s: %s, all that the device has; make the image longer first (truncate -s), or the "
            "volume larger (tiffin volume resize)\n",
            mount_point.c_str(), size.c_str());
    } else {
        printf("%s: grown from %s to %s\n", mount_point.c_str(),
               format_size(grown->from_bytes).c_str(), size.c_str());
    }
    return std::nullopt;
}

}  // namespace tiffin::fuse
