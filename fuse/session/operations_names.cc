// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Creating, removing and renaming.
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "fuse/session/convert.h"
#include "fuse/session/open_files.h"
#include "fuse/session/operations.h"
#include "fuse/session/request.h"
#include "fuse/session/session.h"

namespace tiffin::fuse {
namespace {

// With -o dirsync a change of a directory is durable before it is answered.
Result<void> settle(Session& session, vfs::NodeId directory) {
    if (!session.options().directory_sync) [[likely]] {
        return {};
    }
    return session.file_system().fsync(directory, false);
}

// The same after a creation: the reference is given back when it fails.
Result<vfs::Attributes> settle(Session& session, vfs::NodeId directory,
                               Result<vfs::Attributes> created) {
    if (created.ok()) {
        Result<void> settled = settle(session, directory);
        if (!settled.ok()) {
            session.file_system().forget(created.value().node, 1);
            return settled.error();
        }
    }
    return created;
}

void make_node(fuse_req_t handle, fuse_ino_t parent, const char* name, mode_t mode, dev_t device) {
    Request request(handle, Operation::make_node);
    request.entry(settle(request.session(), parent,
                         request.file_system().create(request.caller(), parent, to_name(name), mode,
                                                      major(device), minor(device), {})));
}

void make_directory(fuse_req_t handle, fuse_ino_t parent, const char* name, mode_t mode) {
    Request request(handle, Operation::make_directory);
    request.entry(settle(
        request.session(), parent,
        request.file_system().make_directory(request.caller(), parent, to_name(name), mode, {})));
}

void make_symlink(fuse_req_t handle, const char* target, fuse_ino_t parent, const char* name) {
    Request request(handle, Operation::make_symlink);
    request.entry(settle(request.session(), parent,
                         request.file_system().make_symlink(request.caller(), parent, to_name(name),
                                                            to_name(target), {})));
}

// Answers a creation that also opens.
void answer_created(Request& request, Result<vfs::Attributes> created, fuse_file_info& file) {
    if (!created.ok()) {
        return request.fail(created.error());
    }
    vfs::FileSystem& file_system = request.file_system();
    vfs::NodeId node = created.value().node;
    Result<bool> opened = open_file(request.session(), node, file);
    if (!opened.ok()) {
        file_system.forget(node, 1);
        return request.fail(opened.error());
    }
    if (!request.created(created.value(), file)) {
        if (opened.value()) {
            file_system.release(node, file.fh);
        }
        file_system.forget(node, 1);
    }
}

void create(fuse_req_t handle, fuse_ino_t parent, const char* name, mode_t mode,
            fuse_file_info* file) {
    Request request(handle, Operation::create);
    uint32_t file_mode = vfs::mode::regular | (mode & vfs::mode::permission_mask);
    answer_created(request,
                   settle(request.session(), parent,
                          request.file_system().create(request.caller(), parent, to_name(name),
                                                       file_mode, 0, 0, {})),
                   *file);
}

#if TIFFIN_FUSE_HAS_TMPFILE
void make_temporary(fuse_req_t handle, fuse_ino_t parent, mode_t mode, fuse_file_info* file) {
    Request request(handle, Operation::make_temporary);
    answer_created(request,
                   request.file_system().make_temporary(request.caller(), parent,
                                                        mode & vfs::mode::permission_mask, {}),
                   *file);
}
#endif

void link(fuse_req_t handle, fuse_ino_t node, fuse_ino_t new_parent, const char* new_name) {
    Request request(handle, Operation::link);
    request.entry(
        settle(request.session(), new_parent,
               request.file_system().link(request.caller(), node, new_parent, to_name(new_name))));
}

void unlink(fuse_req_t handle, fuse_ino_t parent, const char* name) {
    Request request(handle, Operation::unlink);
    Result<void> result = request.file_system().unlink(request.caller(), parent, to_name(name));
    request.finish(result.ok() ? settle(request.session(), parent) : result.error());
}

void remove_directory(fuse_req_t handle, fuse_ino_t parent, const char* name) {
    Request request(handle, Operation::remove_directory);
    Result<void> result =
        request.file_system().remove_directory(request.caller(), parent, to_name(name));
    request.finish(result.ok() ? settle(request.session(), parent) : result.error());
}

Result<void> rename_and_settle(Request& request, fuse_ino_t parent, const char* name,
                               fuse_ino_t new_parent, const char* new_name, uint32_t flags) {
    Session& session = request.session();
    TRY(session.file_system().rename(request.caller(), parent, to_name(name), new_parent,
                                     to_name(new_name), flags));
    TRY(settle(session, new_parent));
    return parent == new_parent ? Result<void>() : settle(session, parent);
}

void rename(fuse_req_t handle, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
            const char* new_name, unsigned flags) {
    Request request(handle, Operation::rename);
    request.finish(rename_and_settle(request, parent, name, new_parent, new_name, flags));
}

}  // namespace

void add_name_operations(fuse_lowlevel_ops& operations) {
    operations.mknod = make_node;
    operations.mkdir = make_directory;
    operations.symlink = make_symlink;
    operations.create = create;
#if TIFFIN_FUSE_HAS_TMPFILE
    operations.tmpfile = make_temporary;
#endif
    operations.link = link;
    operations.unlink = unlink;
    operations.rmdir = remove_directory;
    operations.rename = rename;
}

}  // namespace tiffin::fuse
