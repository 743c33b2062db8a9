// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include <sys/xattr.h>

#include "tests/conformance/answer.h"
#include "tests/conformance/calls.h"

namespace tiffin::conformance {

const std::vector<PathCall>& xattr_calls() {
    static const std::vector<PathCall> calls = {
        {"setxattr user.a",
         [](const char* path) { return answer(::setxattr(path, "user.a", "v", 1, 0)); }},
        {"lsetxattr user.a",
         [](const char* path) { return answer(::lsetxattr(path, "user.a", "v", 1, 0)); }},
        {"lsetxattr trusted.a",
         [](const char* path) { return answer(::lsetxattr(path, "trusted.a", "v", 1, 0)); }},
        {"setxattr XATTR_REPLACE",
         [](const char* path) {
             return answer(::setxattr(path, "user.a", "v", 1, XATTR_REPLACE));
         }},
        {"setxattr unknown flag",
         [](const char* path) { return answer(::setxattr(path, "user.a", "v", 1, 4)); }},
        {"getxattr user.a",
         [](const char* path) { return counted(::getxattr(path, "user.a", nullptr, 0)); }},
        {"lgetxattr trusted.a",
         [](const char* path) { return counted(::lgetxattr(path, "trusted.a", nullptr, 0)); }},
        {"listxattr", [](const char* path) { return counted(::listxattr(path, nullptr, 0)); }},
        {"llistxattr", [](const char* path) { return counted(::llistxattr(path, nullptr, 0)); }},
        {"removexattr user.a",
         [](const char* path) { return answer(::removexattr(path, "user.a")); }},
        {"lremovexattr user.a",
         [](const char* path) { return answer(::lremovexattr(path, "user.a")); }},
    };
    return calls;
}

}  // namespace tiffin::conformance
