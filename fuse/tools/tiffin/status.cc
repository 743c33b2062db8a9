// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffin status, tiffin version.
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string_view>

#include <nlohmann/json.hpp>

#include "fuse/host/status_text.h"
#include "fuse/session/version.h"
#include "fuse/tools/common/control_client.h"
#include "fuse/tools/tiffin/commands.h"

namespace tiffin::fuse {
namespace {

// Their values are the user's: a label of digits is no number.
bool is_text(std::string_view key) {
    constexpr std::string_view kTexts[] = {"label", "device", "mount point", "options"};
    return std::ranges::find(kTexts, key) != std::end(kTexts);
}

// Lines "key: value"; what is a whole number becomes one.
std::string json_of(std::string_view text) {
    nlohmann::ordered_json document = nlohmann::ordered_json::object();
    for_each_status_line(text, [&](std::string_view key, std::string_view value) {
        const std::optional<uint64_t> number = whole_number(value);
        if (number.has_value() && !is_text(key)) {
            document[std::string(key)] = *number;
        } else {
            document[std::string(key)] = value;
        }
    });
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
