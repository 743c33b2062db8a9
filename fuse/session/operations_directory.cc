// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Reading directories.
#include <algorithm>
#include <cstring>
#include <vector>

#include "fs/vfs/host.h"
#include "fuse/session/convert.h"
#include "fuse/session/operations.h"
#include "fuse/session/request.h"
#include "fuse/session/session.h"
#include "fuse/session/thread_buffer.h"
#include "fuse/session/thread_object.h"

namespace tiffin::fuse {
namespace {

void open_directory(fuse_req_t handle, fuse_ino_t /*node*/, fuse_file_info* file) {
    Request request(handle, Operation::open_directory);
    if (request.session().kernel_skips_open_directory()) {
        // From now on the kernel neither opens nor releases directories, and caches their entries.
        return request.decline();
    }
    file->fh = 0;
    // There is nothing to release.
    (void)request.opened(*file);
}

void release_directory(fuse_req_t handle, fuse_ino_t /*node*/, fuse_file_info* /*file*/) {
    Request(handle, Operation::release_directory).succeed();
}

bool is_dot_or_dot_dot(const vfs::Name& name) {
    return name == vfs::Name(".") || name == vfs::Name("..");
}

// Packs entries into the kernel's format as they come.
class EntryPacker final : public vfs::DirectorySink {
  public:
    EntryPacker(fuse_req_t handle, Session& session, char* buffer, size_t size_bytes,
                bool with_attributes, std::vector<vfs::NodeId>& referenced)
        : handle_(handle),
          session_(session),
          buffer_(buffer),
          size_bytes_(size_bytes),
          with_attributes_(with_attributes),
          referenced_(referenced) {}

    bool add(const vfs::DirectoryEntry& entry) override {
        TIFFIN_ASSERT(entry.name.size_bytes <= vfs::kNameMaxBytes);
        char name[vfs::kNameMaxBytes + 1];
        std::memcpy(name, entry.name.data, entry.name.size_bytes);
        name[entry.name.size_bytes] = '\0';
        char* place = buffer_ + used_bytes_;
        size_t room = size_bytes_ - used_bytes_;
        auto cookie = static_cast<off_t>(entry.next_cookie);
        size_t taken = with_attributes_ ? pack_plus(place, room, name, entry, cookie)
                                        : pack(place, room, name, entry, cookie);
        if (taken > room) {
            return false;
        }
        used_bytes_ += taken;
        return true;
    }

    size_t used_bytes() const { return used_bytes_; }

  private:
    size_t pack(char* place, size_t room, const char* name, const vfs::DirectoryEntry& entry,
                off_t cookie) {
        struct stat status {};
        status.st_ino = entry.node;
        status.st_mode = entry.type_mode;
        return fuse_add_direntry(handle_, place, room, name, &status, cookie);
    }

    size_t pack_plus(char* place, size_t room, const char* name, const vfs::DirectoryEntry& entry,
                     off_t cookie) {
        fuse_entry_param parameters{};
        bool is_reference = entry.attributes != nullptr && !is_dot_or_dot_dot(entry.name);
        if (is_reference) {
            session_.note_flags(entry.attributes->flags);
            parameters = to_entry(*entry.attributes);
        } else {
            // Node 0: the kernel takes the name only.
            parameters.attr.st_ino = entry.node;
            parameters.attr.st_mode = entry.type_mode;
        }
        size_t taken = fuse_add_direntry_plus(handle_, place, room, name, &parameters, cookie);
        if (is_reference && taken <= room) {
            referenced_.push_back(entry.node);
        }
        return taken;
    }

    fuse_req_t handle_;
    Session& session_;
    char* buffer_;
    size_t size_bytes_;
    size_t used_bytes_ = 0;
    bool with_attributes_;
    std::vector<vfs::NodeId>& referenced_;
};

void read_entries(fuse_req_t handle, Operation operation, fuse_ino_t node, size_t size,
                  off_t cookie, bool with_attributes) {
    Request request(handle, operation);
    vfs::FileSystem& file_system = request.file_system();
    size = std::min<size_t>(size, kMaxRequestBytes);
    auto* buffer = reinterpret_cast<char*>(thread_buffer(size));
    // Nodes of the answer being made, to take their references back should it not be received. Kept for
    // each thread: it allocates only while it grows.
    auto* references = ThreadObject<std::vector<vfs::NodeId>>::get();
    if (buffer == nullptr || references == nullptr) {
        return request.fail(Error::enomem);
    }
    references->clear();
    EntryPacker packer(handle, request.session(), buffer, size, with_attributes, *references);
    Result<void> result =
        file_system.read_directory(node, 0, static_cast<uint64_t>(cookie), with_attributes, packer);
    // Entries that came before an error are a good answer; the next request meets the error again.
    if (!result.ok() && packer.used_bytes() == 0) {
        return request.fail(result.error());
    }
    if (!request.data(buffer, packer.used_bytes())) {
        for (vfs::NodeId reference : *references) {
            file_system.forget(reference, 1);
        }
    }
}

void read_directory(fuse_req_t handle, fuse_ino_t node, size_t size, off_t cookie,
                    fuse_file_info* /*file*/) {
    read_entries(handle, Operation::read_directory, node, size, cookie, false);
}

void read_directory_plus(fuse_req_t handle, fuse_ino_t node, size_t size, off_t cookie,
                         fuse_file_info* /*file*/) {
    read_entries(handle, Operation::read_directory_plus, node, size, cookie, true);
}

void fsync_directory(fuse_req_t handle, fuse_ino_t node, int data_only, fuse_file_info* /*file*/) {
    Request request(handle, Operation::fsync_directory);
    request.finish(request.file_system().fsync(node, data_only != 0));
}

}  // namespace

void add_directory_operations(fuse_lowlevel_ops& operations) {
    operations.opendir = open_directory;
    operations.releasedir = release_directory;
    operations.readdir = read_directory;
    operations.readdirplus = read_directory_plus;
    operations.fsyncdir = fsync_directory;
}

}  // namespace tiffin::fuse
