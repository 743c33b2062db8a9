// SPDX-License-Identifier: MIT OR GPL-2.0-only
// JSON for people: indented lines instead of brackets.
#include <algorithm>
#include <string>

#include "fuse/check/describe.h"

namespace tiffin::check {
namespace {

std::string scalar_text(const Json& json) {
    return json.is_string() ? json.get<std::string>() : json.dump();
}

bool is_scalar(const Json& json) { return !json.is_structured(); }

// Small enough for one line: a scalar, or an object of scalars.
bool is_flat(const Json& json) {
    return is_scalar(json) ||
           (json.is_object() && std::all_of(json.begin(), json.end(), is_scalar));
}

std::string flat_text(const Json& json) {
    if (is_scalar(json)) {
        return scalar_text(json);
    }
    std::string text;
    for (const auto& [name, value] : json.items()) {
        text += (text.empty() ? "" : "  ") + name + " " + scalar_text(value);
    }
    return text;
}

void append(std::string& text, const Json& json, size_t indent);

void append_list(std::string& text, const Json& json, size_t indent) {
    const std::string margin(indent, ' ');
    for (const Json& item : json) {
        if (is_flat(item)) {
            text += margin + flat_text(item) + "\n";
            continue;
        }
        text += margin + "-\n";
        append(text, item, indent + 2);
    }
}

void append(std::string& text, const Json& json, size_t indent) {
    const std::string margin(indent, ' ');
    if (json.is_array()) {
        append_list(text, json, indent);
        return;
    }
    if (!json.is_object()) {
        text += margin + scalar_text(json) + "\n";
        return;
    }
    for (const auto& [name, value] : json.items()) {
        if (is_scalar(value)) {
            text += margin + name + ": " + scalar_text(value) + "\n";
        } else if (value.is_array() && std::all_of(value.begin(), value.end(), is_scalar)) {
            text += margin + name + ":";
            for (const Json& item : value) {
                text += " " + scalar_text(item);
            }
            text += "\n";
        } else if (value.is_object() && value.size() <= 3 && is_flat(value)) {
            text += margin + name + ": " + flat_text(value) + "\n";
        } else {
            text += margin + name + ":\n";
            append(text, value, indent + 2);
        }
    }
}

}  // namespace

std::string to_text(const Json& json) {
    std::string text;
    append(text, json, 0);
    return text;
}

}  // namespace tiffin::check
