// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffin status, tiffin version.
#include <cstdio>

#include "fuse/session/version.h"
#include "fuse/tools/common/control_client.h"
#include "fuse/tools/tiffin/commands.h"

namespace tiffin::fuse {

std::optional<Problem> print_status(const std::string& mount_point) {
    auto client = ControlClient::open(mount_point);
    if (!client.ok()) {
        return client.problem();
    }
    auto text = client->text(TextKind::status);
    if (!text.ok()) {
        return text.problem();
    }
    fputs(text->c_str(), stdout);
    return std::nullopt;
}

// Of the programs, and of a mount, which may still run an older one.
std::optional<Problem> print_version(const std::string& mount_point) {
    printf("tiffin %s\n", kVersion);
    if (mount_point.empty()) {
        return std::nullopt;
    }
    auto client = ControlClient::open(mount_point);
    if (!client.ok()) {
        return client.problem();
    }
    auto text = client->text(TextKind::version);
    if (!text.ok()) {
        return text.problem();
    }
    printf("%s %s\n", mount_point.c_str(), text->c_str());
    return std::nullopt;
}

}  // namespace tiffin::fuse
