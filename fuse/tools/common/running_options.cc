// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/common/running_options.h"

#include <sstream>
#include <string_view>

#include "fuse/tools/common/control_client.h"

namespace tiffin::fuse {

OrProblem<std::string> running_options(const std::string& mount_point) {
    OrProblem<ControlClient> client = ControlClient::open(mount_point);
    if (!client.ok()) {
        return client.problem();
    }
    OrProblem<std::string> status = client->text(TextKind::status);
    if (!status.ok()) {
        return status.problem();
    }
    constexpr std::string_view kKey = "options: ";
    std::istringstream lines(status.value());
    std::string line;
    while (std::getline(lines, line)) {
        if (line.starts_with(kKey)) {
            std::string text = line.substr(kKey.size());
            return text == "none" ? "" : text;
        }
    }
    return std::string();
}

}  // namespace tiffin::fuse
