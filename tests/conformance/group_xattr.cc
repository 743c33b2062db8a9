// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Extended attributes: name spaces by kind of object and caller, lengths, flags; and ACLs.
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "tests/conformance/answer.h"
#include "tests/conformance/groups.h"

namespace tiffin::conformance {
namespace {

struct Object {
    const char* name;
    void (*make)(Scene& scene);
};
const Object kObjects[] = {
    {"file", [](Scene& scene) { scene.file("x", 0664); }},
    {"directory", [](Scene& scene) { scene.directory("x", 0775); }},
    {"sticky directory", [](Scene& scene) { scene.directory("x", 01777); }},
    {"symlink", [](Scene& scene) { scene.symlink("t", "x"); }},
    {"fifo", [](Scene& scene) { scene.node("x", S_IFIFO | 0666); }},
    {"char device", [](Scene& scene) { scene.node("x", S_IFCHR | 0666, 1, 3); }},
    {"socket", [](Scene& scene) { scene.node("x", S_IFSOCK | 0666); }},
};

const std::string kNames[] = {
    "user.a",
    "user.",
    "user",
    "trusted.a",
    "trusted.",
    "security.a",
    "security.",
    "system.a",
    "system.",
    "other.a",
    "a",
    "",
    ".",
    "user." + std::string(250, 'n'),  // 255 bytes: the longest
    "user." + std::string(251, 'n'),
    "trusted." + std::string(247, 'n'),
    "USER.a",
};

std::string short_name(const std::string& name) {
    return name.size() < 40 ? "'" + name + "'"
                            : name.substr(0, name.find('.') + 1) + "~ of " +
                                  std::to_string(name.size()) + " bytes";
}

void add_names(Trials& trials) {
    for (const Object& object : kObjects) {
        for (const std::string& name : kNames) {
            for (Caller caller : {Caller::root, Caller::owner, Caller::group, Caller::other}) {
                auto make = [&object](Scene& scene) {
                    scene.belong_to(kOwner, kGroup);
                    object.make(scene);
                };
                const std::string end = short_name(name) + ", " + object.name;
                trials.add("lsetxattr " + end, caller, make, [&name] {
                    return answer(::lsetxattr("x", name.c_str(), "value", 5, 0));
                });
                trials.add("lgetxattr " + end, caller, make,
                           [&name] { return counted(::lgetxattr("x", name.c_str(), nullptr, 0)); });
                trials.add("lremovexattr " + end, caller, make,
                           [&name] { return answer(::lremovexattr("x", name.c_str())); });
            }
        }
    }
}

std::string get(const char* name, size_t size) {
    char value[64];
    const ssize_t length = ::lgetxattr("x", name, value, size);
    return length < 0 ? error_name(errno)
                      : "ok " + std::to_string(length) + " " +
                            quoted(std::string(value, size == 0 ? 0 : static_cast<size_t>(length)));
}

// The order of names is the file system's.
std::string list(size_t size) {
    std::vector<char> buffer(size + 1);
    const ssize_t length = ::llistxattr("x", buffer.data(), size);
    if (length < 0) {
        return error_name(errno);
    }
    std::vector<std::string> names;
    for (ssize_t at = 0; size != 0 && at < length;) {
        names.emplace_back(buffer.data() + at);
        at += static_cast<ssize_t>(names.back().size()) + 1;
    }
    std::sort(names.begin(), names.end());
    std::string text = "ok " + std::to_string(length);
    for (const std::string& name : names) {
        text += " " + name;
    }
    return text;
}

void add_existing(Trials& trials) {
    struct Action {
        const char* name;
        std::string (*run)();
    };
    static constexpr Action actions[] = {
        {"get", [] { return get("user.a", 64); }},
        {"get the size", [] { return get("user.a", 0); }},
        {"get into the exact size", [] { return get("user.a", 5); }},
        {"get into too little", [] { return get("user.a", 4); }},
        {"get what is empty", [] { return get("user.empty", 64); }},
        {"get trusted", [] { return get("trusted.a", 64); }},
        {"get security", [] { return get("security.a", 64); }},
        {"get missing", [] { return get("user.no", 64); }},
        {"list", [] { return list(1000); }},
        {"list the size", [] { return list(0); }},
        {"list into too little", [] { return list(8); }},
        {"create existing",
         [] { return answer(::lsetxattr("x", "user.a", "n", 1, XATTR_CREATE)); }},
        {"create new", [] { return answer(::lsetxattr("x", "user.n", "n", 1, XATTR_CREATE)); }},
        {"replace existing",
         [] { return answer(::lsetxattr("x", "user.a", "n", 1, XATTR_REPLACE)); }},
        {"replace missing",
         [] { return answer(::lsetxattr("x", "user.n", "n", 1, XATTR_REPLACE)); }},
        {"create and replace",
         [] { return answer(::lsetxattr("x", "user.a", "n", 1, XATTR_CREATE | XATTR_REPLACE)); }},
        {"set the same", [] { return answer(::lsetxattr("x", "user.a", "value", 5, 0)); }},
        {"set to nothing", [] { return answer(::lsetxattr("x", "user.a", "", 0, 0)); }},
        {"set by a null address", [] { return answer(::lsetxattr("x", "user.a", nullptr, 0, 0)); }},
        {"set from a bad address",
         [] { return answer(::syscall(SYS_lsetxattr, "x", "user.a", 1, 5, 0)); }},
        {"set 65537 bytes",
         [] {
             return answer(::lsetxattr("x", "user.a", std::string(65537, 'v').data(), 65537, 0));
         }},
        {"set 2000 bytes",
         [] { return answer(::lsetxattr("x", "user.a", std::string(2000, 'v').data(), 2000, 0)); }},
        {"remove", [] { return answer(::lremovexattr("x", "user.a")); }},
        {"remove trusted", [] { return answer(::lremovexattr("x", "trusted.a")); }},
        {"remove missing", [] { return answer(::lremovexattr("x", "user.no")); }},
    };
    for (const Action& action : actions) {
        for (Caller caller : kAllCallers) {
            for (mode_t mode : {0644, 0666, 0600, 0222}) {
                trials.add(
                    std::string(action.name) + ", file " + octal(mode), caller,
                    [mode](Scene& scene) {
                        scene.belong_to(kOwner, kGroup);
                        scene.file("x", mode);
                        scene.xattr("x", "user.a", "value");
                        scene.xattr("x", "user.empty", "");
                        scene.xattr("x", "trusted.a", "value");
                        scene.xattr("x", "security.a", "value");
                    },
                    action.run);
            }
        }
    }
}

// An ACL as the kernel takes it: version, then tag, permissions and identity of each entry.
std::string acl(std::initializer_list<std::array<uint32_t, 3>> entries) {
    std::string bytes("\2\0\0\0", 4);
    for (const auto& [tag, permissions, identity] : entries) {
        const uint16_t head[2] = {static_cast<uint16_t>(tag), static_cast<uint16_t>(permissions)};
        bytes.append(reinterpret_cast<const char*>(head), sizeof head);
        bytes.append(reinterpret_cast<const char*>(&identity), sizeof identity);
    }
    return bytes;
}

constexpr uint32_t kUserObject = 1;
constexpr uint32_t kUser = 2;
constexpr uint32_t kGroupObject = 4;
constexpr uint32_t kGroupEntry = 8;
constexpr uint32_t kMask = 16;
constexpr uint32_t kOtherEntry = 32;
constexpr uint32_t kNone = 0xffffffff;

struct List {
    const char* name;
    std::string value;
};
const List kLists[] = {
    {"three entries",
     acl({{kUserObject, 6, kNone}, {kGroupObject, 4, kNone}, {kOtherEntry, 0, kNone}})},
    {"a user", acl({{kUserObject, 6, kNone},
                    {kUser, 7, 1004},
                    {kGroupObject, 4, kNone},
                    {kMask, 6, kNone},
                    {kOtherEntry, 0, kNone}})},
    {"a group", acl({{kUserObject, 6, kNone},
                     {kGroupObject, 0, kNone},
                     {kGroupEntry, 6, 1004},
                     {kMask, 2, kNone},
                     {kOtherEntry, 0, kNone}})},
    {"no mask", acl({{kUserObject, 6, kNone},
                     {kUser, 7, 1004},
                     {kGroupObject, 4, kNone},
                     {kOtherEntry, 0, kNone}})},
    {"wrong order",
     acl({{kOtherEntry, 6, kNone}, {kGroupObject, 4, kNone}, {kUserObject, 0, kNone}})},
    {"two entries", acl({{kUserObject, 6, kNone}, {kOtherEntry, 4, kNone}})},
    {"permissions beyond rwx",
     acl({{kUserObject, 8, kNone}, {kGroupObject, 4, kNone}, {kOtherEntry, 0, kNone}})},
    {"no entries", acl({})},
    {"nothing", ""},
    {"half an entry", std::string("\2\0\0\0\1\0", 6)},
    {"another version", std::string("\1\0\0\0", 4)},
};

std::string open_both_ways() {
    return "reading " + answer(::access("x", R_OK)) + ", writing " + answer(::access("x", W_OK));
}

void add_lists(Trials& trials) {
    for (const char* name : {"system.posix_acl_access", "system.posix_acl_default"}) {
        for (const List& entries : kLists) {
            for (const Object& object : kObjects) {
                for (Caller caller : {Caller::root, Caller::owner, Caller::other}) {
                    auto make = [&object](Scene& scene) {
                        scene.belong_to(kOwner, kGroup);
                        object.make(scene);
                    };
                    trials.add(std::string("set ") + (name + 17) + " ACL of " + entries.name +
                                   ", " + object.name,
                               caller, make, [name, &entries] {
                                   std::string text = answer(::lsetxattr(
                                       "x", name, entries.value.data(), entries.value.size(), 0));
                                   return text + ", size " +
                                          counted(::lgetxattr("x", name, nullptr, 0));
                               });
                }
            }
        }
    }
    for (const List* entries : {&kLists[1], &kLists[2]}) {
        for (Caller caller : kAllCallers) {
            trials.add(
                std::string("access by an ACL of ") + entries->name, caller,
                [entries](Scene& scene) {
                    scene.belong_to(kOwner, kGroup);
                    scene.file("x", 0600);
                    scene.xattr("x", "system.posix_acl_access", entries->value);
                },
                open_both_ways);
            trials.add(
                std::string("chmod below an ACL of ") + entries->name, caller,
                [entries](Scene& scene) {
                    scene.belong_to(kOwner, kGroup);
                    scene.file("x", 0600);
                    scene.xattr("x", "system.posix_acl_access", entries->value);
                },
                [] { return answer(::chmod("x", 0751)); });
            for (bool directory : {false, true}) {
                trials.add(
                    std::string(directory ? "mkdir" : "creation") + " below a default ACL of " +
                        entries->name,
                    caller,
                    [entries](Scene& scene) {
                        scene.directory("d", 0777);
                        scene.xattr("d", "system.posix_acl_default", entries->value);
                        scene.watch("d/new");
                    },
                    [directory] {
                        return directory ? answer(::mkdir("d/new", 0777))
                                         : answer(::mknod("d/new", S_IFREG | 0666, 0));
                    });
            }
        }
    }
}

}  // namespace

void add_xattr_trials(Trials& trials) {
    add_names(trials);
    add_existing(trials);
    add_lists(trials);
}

}  // namespace tiffin::conformance
