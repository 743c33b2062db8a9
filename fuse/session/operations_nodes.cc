// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Finding nodes, letting go of them, and their attributes.
#include <sys/stat.h>

#include <cstring>

#include "fuse/session/convert.h"
#include "fuse/session/operations.h"
#include "fuse/session/privilege_change.h"
#include "fuse/session/request.h"
#include "fuse/session/session.h"

namespace tiffin::fuse {
namespace {

void initialise(void* user_data, fuse_conn_info* connection) {
    static_cast<Session*>(user_data)->initialise(*connection);
}

void lookup(fuse_req_t handle, fuse_ino_t parent, const char* name) {
    Request request(handle, Operation::lookup);
    vfs::FileSystem& file_system = request.file_system();
    if (std::strcmp(name, ".") == 0) {
        // From exported file handles: any node, also one that is no directory.
        return request.entry(file_system.find_node(parent, 0));
    }
    Result<vfs::Attributes> found = file_system.lookup(parent, to_name(name));
    if (!found.ok() && found.error() == Error::enoent) {
        return request.missing_entry(parent);
    }
    request.entry(found);
}

void forget(fuse_req_t handle, fuse_ino_t node, uint64_t count) {
    Request request(handle, Operation::forget);
    request.file_system().forget(node, count);
    request.no_answer();
}

void forget_multi(fuse_req_t handle, size_t count, fuse_forget_data* forgets) {
    Request request(handle, Operation::forget);
    for (size_t i = 0; i < count; ++i) {
        request.file_system().forget(forgets[i].ino, forgets[i].nlookup);
    }
    request.no_answer();
}

void get_attributes(fuse_req_t handle, fuse_ino_t node, fuse_file_info* file) {
    Request request(handle, Operation::get_attributes);
    if (file != nullptr) {
        const auto refused = request.session().refused_pages().refuses(request.file_system(), node);
        if (refused.has_value()) {
            return request.fail(*refused);
        }
    }
    request.attributes(request.session().get_attributes(node));
}

#if TIFFIN_FUSE_HAS_STATX
void get_extended_attributes(fuse_req_t handle, fuse_ino_t node, int /*flags*/, int /*mask*/,
                             fuse_file_info* /*file*/) {
    Request request(handle, Operation::get_extended_attributes);
    request.extended_attributes(request.session().get_attributes(node));
}
#endif

vfs::AttributeChange to_change(const struct stat& status, int to_set) {
    using Change = vfs::AttributeChange;
    Change change;
    auto has = [&](int bit) { return (to_set & bit) != 0; };
    if (has(FUSE_SET_ATTR_MODE)) {
        change.valid |= Change::mode_bit;
        change.mode = status.st_mode & vfs::mode::permission_mask;
    }
    if (has(FUSE_SET_ATTR_UID)) {
        change.valid |= Change::user_id_bit;
        change.user_id = status.st_uid;
    }
    if (has(FUSE_SET_ATTR_GID)) {
        change.valid |= Change::group_id_bit;
        change.group_id = status.st_gid;
    }
    if (has(FUSE_SET_ATTR_SIZE)) {
        change.valid |= Change::size_bit;
        change.size_bytes = static_cast<uint64_t>(status.st_size);
    }
    if (has(FUSE_SET_ATTR_ATIME_NOW)) {
        change.valid |= Change::access_now_bit;
    } else if (has(FUSE_SET_ATTR_ATIME)) {
        change.valid |= Change::access_time_bit;
        change.access_time = to_timestamp(status.st_atim);
    }
    if (has(FUSE_SET_ATTR_MTIME_NOW)) {
        change.valid |= Change::modification_now_bit;
    } else if (has(FUSE_SET_ATTR_MTIME)) {
        change.valid |= Change::modification_time_bit;
        change.modification_time = to_timestamp(status.st_mtim);
    }
    if (has(FUSE_SET_ATTR_CTIME)) {
        change.valid |= Change::change_time_bit;
        change.change_time = to_timestamp(status.st_ctim);
    }
    // The kernel has one bit for all privileges (FATTR_KILL_SUIDGID); libfuse calls it this.
    constexpr int kKillPrivileges = 1 << 11;
    if (has(kKillPrivileges)) {
        change.valid |= Change::kill_privileges_bit;
    }
    return change;
}

void set_attributes(fuse_req_t handle, fuse_ino_t node, struct stat* status, int to_set,
                    fuse_file_info* /*file*/) {
    Request request(handle, Operation::set_attributes);
    vfs::AttributeChange change = to_change(*status, to_set);
    if (Result<void> completed = complete_change(request, node, change); !completed.ok()) {
        return request.fail(completed.error());
    }
    request.attributes(request.file_system().set_attributes(request.caller(), node, change));
}

void read_link(fuse_req_t handle, fuse_ino_t node) {
    Request request(handle, Operation::read_link);
    char target[vfs::kSymlinkMaxBytes + 1];
    Result<size_t> length = request.file_system().read_link(
        node, {reinterpret_cast<unsigned char*>(target), vfs::kSymlinkMaxBytes});
    if (!length.ok()) {
        return request.fail(length.error());
    }
    TIFFIN_ASSERT(length.value() <= vfs::kSymlinkMaxBytes);
    target[length.value()] = '\0';
    request.link_target(target, length.value());
}

}  // namespace

void add_node_operations(fuse_lowlevel_ops& operations) {
    operations.init = initialise;
    operations.lookup = lookup;
    operations.forget = forget;
    operations.forget_multi = forget_multi;
    operations.getattr = get_attributes;
#if TIFFIN_FUSE_HAS_STATX
    operations.statx = get_extended_attributes;
#endif
    operations.setattr = set_attributes;
    operations.readlink = read_link;
}

fuse_lowlevel_ops make_operations() {
    fuse_lowlevel_ops operations{};
    add_node_operations(operations);
    add_name_operations(operations);
    add_data_operations(operations);
    add_directory_operations(operations);
    add_xattr_operations(operations);
    add_control_operations(operations);
    return operations;
}

}  // namespace tiffin::fuse
