// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffin link: links to the memory server of a mounted volume come and go.
#include "fuse/tools/common/control_client.h"
#include "fuse/tools/tiffin/commands.h"

namespace tiffin::fuse {

std::optional<Problem> change_link(const std::string& mount_point, bool adds,
                                   const std::string& link) {
    auto client = ControlClient::open(mount_point);
    return client.ok() ? client->change_link(adds, link) : client.problem();
}

}  // namespace tiffin::fuse
