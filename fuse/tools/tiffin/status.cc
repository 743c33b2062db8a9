// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffin status, tiffin version.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string_view>

#include <nlohmann/json.hpp>

#include "fuse/session/version.h"
#include "fuse/tools/common/control_client.h"
#include "fuse/tools/tiffin/commands.h"

namespace tiffin::fuse {
namespace {

// Lines "key: value"; what is a whole number becomes one.
std::string json_of(std::string_view text) {
    nlohmann::ordered_json document = nlohmann::ordered_json::object();
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        const size_t colon = line.find(": ");
        if (colon == std::string_view::npos) {
            continue;
        }
        const std::string key(line.substr(0, colon));
        const std::string_view value = line.substr(colon + 2);
        uint64_t number = 0;
        const auto [end, error] =
            std::from_chars(value.data(), value.data() + value.size(), number);
        if (error == std::errc() && end == value.data() + value.size()) {
            document[key] = number;
        } else {
            document[key] = value;
        }
    }
    return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

std::optional<Problem> print_status(const std::string& mount_point, bool as_json) {
    auto client = ControlClient::open(mount_point);
    if (!client.ok()) {
        return client.problem();
    }
    auto text = client->text(TextKind::status);
    if (!text.ok()) {
        return text.problem();
    }
    fputs(as_json ? json_of(*text).c_str() : text->c_str(), stdout);
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
