// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The calls on names and extended attributes, and on the whole file system.
#include "tests/suite/core_under_test.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/suite/core_detail.h"

namespace tiffin::suite {

namespace {

constexpr size_t kTargetMaxBytes = 4096;

struct Credentials {
    uint32_t user_id = 0;
    uint32_t group_id = 0;
};
thread_local Credentials credentials;

// Linux allows attributes of users on files and directories only.
bool is_unwelcome(const std::string& name, const vfs::Attributes& attributes) {
    return name.rfind("user.", 0) == 0 && !vfs::mode::is_regular(attributes.mode) &&
           !vfs::mode::is_directory(attributes.mode);
}

bool is_dot_name(const std::string& name) { return name == "." || name == ".."; }

}  // namespace

void CoreUnderTest::attach(vfs::FileSystem& file_system) {
    detach();
    file_system_ = &file_system;
    read_only_ = false;
    opens_needed_ = true;
}

void CoreUnderTest::detach() {
    std::vector<OpenFilePointer> files;
    {
        std::lock_guard<std::mutex> lock(files_mutex_);
        files.swap(files_);
    }
    for (const OpenFilePointer& file : files) {
        if (file != nullptr && file->handle != 0) {
            file_system_->release(file->node.node(), file->handle);
        }
    }
    files.clear();
    file_system_ = nullptr;
}

size_t CoreUnderTest::open_files() const {
    std::lock_guard<std::mutex> lock(files_mutex_);
    return static_cast<size_t>(std::count_if(files_.begin(), files_.end(),
                                             [](const auto& file) { return file != nullptr; }));
}

void CoreUnderTest::become(uint32_t user_id, uint32_t group_id) {
    credentials = {user_id, group_id};
}

vfs::Caller CoreUnderTest::caller() const {
    return vfs::Caller{credentials.user_id, credentials.group_id, umask_};
}

// ---- Names -------------------------------------------------------------------------------------

int64_t CoreUnderTest::link(const std::string& path, const std::string& new_path) {
    NodeReference node;
    if (int64_t answer = find(path, false, node); answer < 0) {
        return answer;
    }
    Place place;
    if (int64_t answer = find_free(new_path, place); answer < 0) {
        return answer;
    }
    return take_node(file_system_->link({}, node.node(), place.parent.node(), name_of(place.name)),
                     *file_system_);
}

int64_t CoreUnderTest::link_file(int number, const std::string& new_path) {
    OpenFilePointer file = file_of(number);
    if (file == nullptr) {
        return -EBADF;
    }
    Result<vfs::Attributes> attributes = file_system_->get_attributes(file->node.node());
    if (!attributes.ok()) {
        return -errno_value(attributes.error());
    }
    if (attributes->link_count == 0 && !file->linkable) {
        return -ENOENT;
    }
    Place place;
    if (int64_t answer = find_free(new_path, place); answer < 0) {
        return answer;
    }
    int64_t answer = take_node(
        file_system_->link({}, file->node.node(), place.parent.node(), name_of(place.name)),
        *file_system_);
    if (answer == 0) {
        file->linkable = false;
    }
    return answer;
}

int64_t CoreUnderTest::unlink(const std::string& path) {
    Place place;
    if (int64_t answer = walk(path, false, place); answer < 0) {
        return answer;
    }
    if (is_dot_name(place.name)) {
        return -EISDIR;
    }
    // The reference of the walk must not keep alive what the last name gives up.
    place.node.reset();
    return answer_of(file_system_->unlink({}, place.parent.node(), name_of(place.name)));
}

int64_t CoreUnderTest::mkdir(const std::string& path, uint32_t mode) {
    Place place;
    if (int64_t answer = find_free(path, place); answer < 0) {
        return answer;
    }
    return take_node(file_system_->make_directory(caller(), place.parent.node(),
                                                  name_of(place.name), mode & 01777, {}),
                     *file_system_);
}

int64_t CoreUnderTest::rmdir(const std::string& path) {
    Place place;
    if (int64_t answer = walk(path, false, place); answer < 0) {
        return answer;
    }
    if (is_dot_name(place.name)) {
        return place.name == "." ? -EINVAL : -ENOTEMPTY;
    }
    place.node.reset();
    return answer_of(file_system_->remove_directory({}, place.parent.node(), name_of(place.name)));
}

int64_t CoreUnderTest::rename(const std::string& path, const std::string& new_path,
                              unsigned flags) {
    Place from;
    if (int64_t answer = walk(path, false, from); answer < 0) {
        return answer;
    }
    Place to;
    if (int64_t answer = walk(new_path, false, to); answer < 0) {
        return answer;
    }
    if (is_dot_name(from.name) || is_dot_name(to.name)) {
        return -EBUSY;
    }
    from.node.reset();
    to.node.reset();
    return answer_of(file_system_->rename({}, from.parent.node(), name_of(from.name),
                                          to.parent.node(), name_of(to.name), flags));
}

int64_t CoreUnderTest::symlink(const std::string& target, const std::string& path) {
    if (target.empty()) {
        return -ENOENT;
    }
    Place place;
    if (int64_t answer = find_free(path, place); answer < 0) {
        return answer;
    }
    return take_node(file_system_->make_symlink(caller(), place.parent.node(), name_of(place.name),
                                                name_of(target), {}),
                     *file_system_);
}

int64_t CoreUnderTest::readlink(const std::string& path, char* buffer, size_t size) {
    NodeReference node;
    if (int64_t answer = find(path, false, node); answer < 0) {
        return answer;
    }
    std::string target(kTargetMaxBytes, '\0');
    Result<size_t> length = file_system_->read_link(node.node(), bytes_of(target));
    if (!length.ok()) {
        return -errno_value(length.error());
    }
    size_t copied = std::min(size, length.value());
    std::memcpy(buffer, target.data(), copied);
    return static_cast<int64_t>(copied);
}

int64_t CoreUnderTest::mknod(const std::string& path, uint32_t mode, uint32_t device_major,
                             uint32_t device_minor) {
    Place place;
    if (int64_t answer = find_free(path, place); answer < 0) {
        return answer;
    }
    return take_node(file_system_->create(caller(), place.parent.node(), name_of(place.name), mode,
                                          device_major, device_minor, {}),
                     *file_system_);
}

// ---- Extended attributes -----------------------------------------------------------------------

int64_t CoreUnderTest::get_xattr(const std::string& path, const std::string& name, void* buffer,
                                 size_t size) {
    NodeReference node;
    if (int64_t answer = find(path, false, node); answer < 0) {
        return answer;
    }
    if (is_unwelcome(name, node.attributes())) {
        return -ENODATA;
    }
    return size_answer_of(file_system_->get_xattr(
        node.node(), name_of(name), MutableByteSpan(static_cast<unsigned char*>(buffer), size)));
}

int64_t CoreUnderTest::set_xattr(const std::string& path, const std::string& name,
                                 const void* value, size_t size, int flags) {
    if (size > vfs::kXattrValueMaxBytes) {
        return -E2BIG;
    }
    NodeReference node;
    if (int64_t answer = find(path, false, node); answer < 0) {
        return answer;
    }
    if (is_unwelcome(name, node.attributes())) {
        return -EPERM;
    }
    return answer_of(file_system_->set_xattr(
        {}, node.node(), name_of(name), ByteSpan(static_cast<const unsigned char*>(value), size),
        static_cast<uint32_t>(flags)));
}

int64_t CoreUnderTest::list_xattr(const std::string& path, char* buffer, size_t size) {
    NodeReference node;
    if (int64_t answer = find(path, false, node); answer < 0) {
        return answer;
    }
    return size_answer_of(file_system_->list_xattr(
        node.node(), MutableByteSpan(reinterpret_cast<unsigned char*>(buffer), size)));
}

int64_t CoreUnderTest::remove_xattr(const std::string& path, const std::string& name) {
    NodeReference node;
    if (int64_t answer = find(path, false, node); answer < 0) {
        return answer;
    }
    if (is_unwelcome(name, node.attributes())) {
        return -EPERM;
    }
    return answer_of(file_system_->remove_xattr({}, node.node(), name_of(name)));
}

// ---- The whole file system -----------------------------------------------------------------------

int64_t CoreUnderTest::statfs(SpaceStatus& status) {
    Result<vfs::FileSystemStatistics> result = file_system_->statistics();
    if (!result.ok()) {
        return -errno_value(result.error());
    }
    status.block_bytes = result->block_bytes;
    status.total_blocks = result->total_blocks;
    status.free_blocks = result->free_blocks;
    status.available_blocks = result->available_blocks;
    status.total_nodes = result->total_nodes;
    status.free_nodes = result->free_nodes;
    status.name_max_bytes = result->name_max_bytes;
    return 0;
}

int64_t CoreUnderTest::remount(bool read_only) {
    int64_t answer = answer_of(file_system_->remount(read_only));
    if (answer == 0) {
        read_only_ = read_only;
    }
    return answer;
}

int64_t CoreUnderTest::shutdown(uint32_t mode) {
    return answer_of(file_system_->shutdown(static_cast<vfs::ShutdownMode>(mode)));
}

int64_t CoreUnderTest::map(int /*file*/, int64_t /*offset*/, size_t /*length*/, int /*protection*/,
                           unsigned char*& /*memory*/) {
    return -ENODEV;
}

int64_t CoreUnderTest::unmap(unsigned char* /*memory*/, size_t /*length*/) { return -ENODEV; }

int64_t CoreUnderTest::sync_map(unsigned char* /*memory*/, size_t /*length*/) { return -ENODEV; }

}  // namespace tiffin::suite
