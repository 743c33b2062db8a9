// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "tests/conformance/answer.h"
#include "tests/conformance/calls.h"

namespace tiffin::conformance {
namespace {

// Longer paths than a socket's address holds are given through a descriptor of the directory; those are
// tried with mknod.
std::string bind_socket(const char* path, bool connecting) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const size_t length = std::strlen(path);
    if (length >= sizeof address.sun_path) {
        return "too long for an address";
    }
    std::memcpy(address.sun_path, path, length);
    const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto* name = reinterpret_cast<const sockaddr*>(&address);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length + 1);
    // An empty path would be a name that the kernel chooses.
    if (length == 0) {
        return "no address";
    }
    return answer(connecting ? ::connect(socket, name, size) : ::bind(socket, name, size));
}

struct NodeType {
    const char* name;
    mode_t mode;
    dev_t device;
};
constexpr NodeType kNodeTypes[] = {
    {"mknod regular", S_IFREG | 06666, 0},
    {"mknod 0", 0644, 0},
    {"mknod fifo", S_IFIFO | 0666, 0},
    {"mknod socket", S_IFSOCK | 01666, 0},
    {"mknod char", S_IFCHR | 0600, 0x103},
    {"mknod whiteout", S_IFCHR | 0600, 0},
    {"mknod block", S_IFBLK | 0600, 0xfff00105},
    {"mknod directory", S_IFDIR | 0755, 0},
    {"mknod symlink", S_IFLNK | 0777, 0},
    {"mknod unknown type", 0170000 | 0644, 0},
    {"mknod regular with a device", S_IFREG | 0644, 0x103},
};

std::vector<PathCall> make_name_calls() {
    std::vector<PathCall> calls;
    auto add = [&](const char* name, std::function<std::string(const char*)> run) {
        calls.push_back({name, std::move(run)});
    };
    add("mkdir 0755", [](const char* path) { return answer(::mkdir(path, 0755)); });
    add("mkdir 07777", [](const char* path) { return answer(::mkdir(path, 07777)); });
    for (const NodeType& type : kNodeTypes) {
        add(type.name,
            [&type](const char* path) { return answer(::mknod(path, type.mode, type.device)); });
    }
    add("symlink", [](const char* path) { return answer(::symlink("target", path)); });
    add("symlink to nothing", [](const char* path) { return answer(::symlink("", path)); });
    add("bind", [](const char* path) { return bind_socket(path, false); });
    add("connect", [](const char* path) { return bind_socket(path, true); });
    add("unlink", [](const char* path) { return answer(::unlink(path)); });
    add("rmdir", [](const char* path) { return answer(::rmdir(path)); });
    add("unlinkat unknown flag",
        [](const char* path) { return answer(::unlinkat(AT_FDCWD, path, 1)); });
    add("remove", [](const char* path) { return answer(::remove(path)); });
    return calls;
}

std::string rename2(const char* from, const char* to, unsigned flags) {
    return answer(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags));
}

std::string link2(const char* from, const char* to, int flags) {
    return answer(::linkat(AT_FDCWD, from, AT_FDCWD, to, flags));
}

}  // namespace

const std::vector<PathCall>& name_calls() {
    static const std::vector<PathCall> calls = make_name_calls();
    return calls;
}

const std::vector<PairCall>& pair_calls() {
    static const std::vector<PairCall> calls = {
        {"link", [](const char* from, const char* to) { return link2(from, to, 0); }},
        {"linkat AT_SYMLINK_FOLLOW",
         [](const char* from, const char* to) { return link2(from, to, AT_SYMLINK_FOLLOW); }},
        {"rename", [](const char* from, const char* to) { return answer(::rename(from, to)); }},
        {"renameat2 RENAME_NOREPLACE",
         [](const char* from, const char* to) { return rename2(from, to, RENAME_NOREPLACE); }},
        {"renameat2 RENAME_EXCHANGE",
         [](const char* from, const char* to) { return rename2(from, to, RENAME_EXCHANGE); }},
        {"renameat2 RENAME_WHITEOUT",
         [](const char* from, const char* to) { return rename2(from, to, RENAME_WHITEOUT); }},
        {"renameat2 RENAME_WHITEOUT|RENAME_NOREPLACE",
         [](const char* from, const char* to) {
             return rename2(from, to, RENAME_WHITEOUT | RENAME_NOREPLACE);
         }},
        {"renameat2 RENAME_WHITEOUT|RENAME_EXCHANGE",
         [](const char* from, const char* to) {
             return rename2(from, to, RENAME_WHITEOUT | RENAME_EXCHANGE);
         }},
        {"renameat2 RENAME_NOREPLACE|RENAME_EXCHANGE",
         [](const char* from, const char* to) {
             return rename2(from, to, RENAME_NOREPLACE | RENAME_EXCHANGE);
         }},
        {"renameat2 unknown flag",
         [](const char* from, const char* to) { return rename2(from, to, 8); }},
    };
    return calls;
}

}  // namespace tiffin::conformance
