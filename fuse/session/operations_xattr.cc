// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Extended attributes.
#include <algorithm>
#include <cstring>

#include "fuse/session/convert.h"
#include "fuse/session/operations.h"
#include "fuse/session/request.h"
#include "fuse/session/session.h"
#include "fuse/session/thread_buffer.h"

namespace tiffin::fuse {
namespace {

// Whether changing this ACL takes the set-group-id bit away: the caller is neither root nor a member
// of the file's group. The kernel says so in the request, but libfuse does not pass it on.
bool kills_set_group_id(const Request& request, vfs::NodeId node, const vfs::Name& name) {
    uint32_t user_id = request.caller().user_id;
    if (user_id == 0 || name != vfs::Name("system.posix_acl_access")) {
        return false;
    }
    Result<vfs::Attributes> attributes = request.file_system().get_attributes(node);
    return attributes.ok() && (attributes.value().mode & vfs::mode::set_group_id) != 0 &&
           !request.caller_is_in_group(attributes.value().group_id);
}

void set_xattr(fuse_req_t handle, fuse_ino_t node, const char* name_text, const char* value,
               size_t size, int flags) {
    Request request(handle, Operation::set_xattr);
    vfs::Name name = to_name(name_text);
    auto contract_flags =
        static_cast<uint32_t>(flags) & (vfs::xattr_flag::create | vfs::xattr_flag::replace);
    if (kills_set_group_id(request, node, name)) {
        contract_flags |= vfs::xattr_flag::kill_set_group_id;
    }
    request.finish(request.file_system().set_xattr(
        request.caller(), node, name, {reinterpret_cast<const unsigned char*>(value), size},
        contract_flags));
}

bool is_acl(const vfs::Name& name) {
    return name == vfs::Name("system.posix_acl_access") ||
           name == vfs::Name("system.posix_acl_default");
}

// Absent attributes are asked for all the time.
void fail_or_say_missing(Request& request, Error error) {
    if (error == Error::enodata || error == Error::eopnotsupp) {
        return request.say_missing(error);
    }
    request.fail(error);
}

void get_xattr(fuse_req_t handle, fuse_ino_t node, const char* name_text, size_t size) {
    Request request(handle, Operation::get_xattr);
    vfs::Name name = to_name(name_text);
    size = std::min(size, vfs::kXattrValueMaxBytes);
    unsigned char* buffer = size == 0 ? nullptr : thread_buffer(size);
    if (size != 0 && buffer == nullptr) {
        return request.fail(Error::enomem);
    }
    Result<size_t> length = request.file_system().get_xattr(node, name, {buffer, size});
    if (!length.ok()) {
        // The kernel asks for ACLs whenever it checks permissions. A file system that has none must
        // not say "not supported", which would be the answer to the check.
        bool has_no_acls = length.error() == Error::eopnotsupp && is_acl(name);
        return fail_or_say_missing(request, has_no_acls ? Error::enodata : length.error());
    }
    if (size == 0) {
        return request.xattr_size(length.value());
    }
    TIFFIN_ASSERT(length.value() <= size);
    // A killed reader needs nothing to be taken back.
    (void)request.data(buffer, length.value());
}

// Removes the names that only administrators may see, in place; returns what is left in bytes.
size_t without_trusted(unsigned char* names, size_t size_bytes) {
    constexpr char kPrefix[] = "trusted.";
    constexpr size_t kPrefixBytes = sizeof kPrefix - 1;
    size_t kept = 0;
    size_t position = 0;
    while (position < size_bytes) {
        size_t length = strnlen(reinterpret_cast<char*>(names) + position, size_bytes - position);
        size_t with_end = std::min(length + 1, size_bytes - position);
        if (length < kPrefixBytes || std::memcmp(names + position, kPrefix, kPrefixBytes) != 0) {
            std::memmove(names + kept, names + position, with_end);
            kept += with_end;
        }
        position += with_end;
    }
    return kept;
}

// What root is told, all of it at once.
void list_everything(Request& request, vfs::NodeId node, size_t size) {
    size = std::min(size, vfs::kXattrValueMaxBytes);
    unsigned char* buffer = size == 0 ? nullptr : thread_buffer(size);
    if (size != 0 && buffer == nullptr) {
        return request.fail(Error::enomem);
    }
    Result<size_t> length = request.file_system().list_xattr(node, {buffer, size});
    if (!length.ok()) {
        return fail_or_say_missing(request, length.error());
    }
    if (size == 0) {
        return request.xattr_size(length.value());
    }
    TIFFIN_ASSERT(length.value() <= size);
    (void)request.data(buffer, length.value());
}

// The names for all other callers. The room that the caller has is compared with what is left.
void list_without_trusted(Request& request, vfs::NodeId node, size_t size) {
    constexpr size_t room = vfs::kXattrValueMaxBytes;
    unsigned char* buffer = thread_buffer(room);
    if (buffer == nullptr) {
        return request.fail(Error::enomem);
    }
    Result<size_t> length = request.file_system().list_xattr(node, {buffer, room});
    if (!length.ok()) {
        return fail_or_say_missing(request, length.error());
    }
    TIFFIN_ASSERT(length.value() <= room);
    const size_t kept = without_trusted(buffer, length.value());
    if (size == 0) {
        return request.xattr_size(kept);
    }
    if (kept > size) {
        return request.fail(Error::erange);
    }
    (void)request.data(buffer, kept);
}

void list_xattr(fuse_req_t handle, fuse_ino_t node, size_t size) {
    Request request(handle, Operation::list_xattr);
    if (request.caller().user_id == 0) {
        list_everything(request, node, size);
    } else {
        list_without_trusted(request, node, size);
    }
}

void remove_xattr(fuse_req_t handle, fuse_ino_t node, const char* name) {
    Request request(handle, Operation::remove_xattr);
    request.finish(request.file_system().remove_xattr(request.caller(), node, to_name(name)));
}

}  // namespace

void add_xattr_operations(fuse_lowlevel_ops& operations) {
    operations.setxattr = set_xattr;
    operations.getxattr = get_xattr;
    operations.listxattr = list_xattr;
    operations.removexattr = remove_xattr;
}

}  // namespace tiffin::fuse
