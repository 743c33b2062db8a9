// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/conformance/answer.h"

#include <cstdint>
#include <cstdio>
#include <cstring>

namespace tiffin::conformance {

std::string error_name(int error) {
    const char* name = ::strerrorname_np(error);
    return name != nullptr ? name : std::to_string(error);
}

std::string answer(long result) { return result < 0 ? error_name(errno) : "ok"; }

std::string counted(long result) {
    return result < 0 ? error_name(errno) : "ok " + std::to_string(result);
}

std::string octal(unsigned mode) {
    char text[16];
    std::snprintf(text, sizeof text, "%o", mode);
    return text;
}

std::string quoted(const std::string& text) {
    constexpr size_t longest_bytes = 40;
    if (text.size() > longest_bytes) {
        uint32_t hash = 2166136261;  // FNV-1a
        for (unsigned char byte : text) {
            hash = (hash ^ byte) * 16777619;
        }
        char summary[48];
        std::snprintf(summary, sizeof summary, "%zu bytes #%08x", text.size(), hash);
        return summary;
    }
    std::string result = "'";
    for (unsigned char byte : text) {
        if (byte > ' ' && byte < 0x7f && byte != '\'' && byte != '\\') {
            result += static_cast<char>(byte);
        } else {
            char code[8];
            std::snprintf(code, sizeof code, "\\%02x", byte);
            result += code;
        }
    }
    return result + "'";
}

bool Steps::step(const char* name, const std::string& step_answer) {
    text_ += (text_.empty() ? "" : ", ") + std::string(name) + " " + step_answer;
    return step_answer.compare(0, 2, "ok") == 0;
}

}  // namespace tiffin::conformance
