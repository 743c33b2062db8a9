// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/common/running_options.h"

#include <sstream>

#include "fuse/tools/common/control_client.h"

namespace tiffin::fuse {

OrProblem<std::string> running_status(const std::string& path, const std::string& key) {
    OrProblem<ControlClient> client = ControlClient::open(path);
    if (!client.ok()) {
        return client.problem();
    }
    OrProblem<std::string> status = client->text(TextKind::status);
    if (!status.ok()) {
        return status.problem();
    }
    std::istringstream lines(status.value());
    std::string line;
    while (std::getline(lines, line)) {
        if (line.starts_with(key + ": ")) {
            return line.substr(key.size() + 2);
        }
    }
    return std::string();
}

OrProblem<std::string> running_options(const std::string& path) {
    OrProblem<std::string> options = running_status(path, "options");
    if (options.ok() && options.value() == "none") {
        return std::string();
    }
    return options;
}

}  // namespace tiffin::fuse
