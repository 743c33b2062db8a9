// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Opening and closing.
#include <cerrno>

#include "tests/suite/core_detail.h"
#include "tests/suite/core_under_test.h"

namespace tiffin::suite {

int64_t CoreUnderTest::open_at(int directory, const std::string& path, int flags, uint32_t mode) {
    bool temporary = (flags & O_TMPFILE) == O_TMPFILE;
    if (temporary && (flags & O_ACCMODE) == O_RDONLY) {
        return -EINVAL;
    }
    OpenFilePointer start;
    for (;;) {
        Place place;
        bool follow =
            (flags & O_NOFOLLOW) == 0 && (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL);
        int64_t answer = 0;
        if (directory == AT_FDCWD) {
            answer = walk(path, follow, place);
        } else {
            start = file_of(directory);
            if (start == nullptr) {
                return -EBADF;
            }
            answer = walk(NodeReference::borrowed(*file_system_, start->node.attributes()), path,
                          follow, place);
        }
        if (answer < 0) {
            return answer;
        }
        if (temporary) {
            return open_temporary(place, flags, mode);
        }
        NodeReference node;
        bool created = false;
        answer = open_place(place, flags, mode, node, created);
        if (answer == -EAGAIN) {
            continue;  // somebody else created it meanwhile
        }
        return answer < 0 ? answer : finish_open(std::move(node), flags, created);
    }
}

int64_t CoreUnderTest::open_temporary(const Place& place, int flags, uint32_t mode) {
    if (!place.node.valid()) {
        return -ENOENT;
    }
    if (!vfs::mode::is_directory(place.node.attributes().mode)) {
        return -ENOTDIR;
    }
    Result<vfs::Attributes> made =
        file_system_->make_temporary(caller(), place.node.node(), mode & 07777, {});
    if (!made.ok()) {
        return -errno_value(made.error());
    }
    int64_t number = finish_open(NodeReference(*file_system_, made.value()),
                                 flags & ~(O_TMPFILE | O_EXCL), true);
    if (number >= 0) {
        file_of(static_cast<int>(number))->linkable = (flags & O_EXCL) == 0;
    }
    return number;
}

int64_t CoreUnderTest::open_place(Place& place, int flags, uint32_t mode, NodeReference& node,
                                  bool& created) {
    if (place.node.valid()) {
        if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL)) {
            return -EEXIST;
        }
        node = std::move(place.node);
        return 0;
    }
    if ((flags & O_CREAT) == 0) {
        return -ENOENT;
    }
    if (place.must_be_directory) {
        return -EISDIR;
    }
    Result<vfs::Attributes> made =
        file_system_->create(caller(), place.parent.node(), name_of(place.name),
                             vfs::mode::regular | (mode & 07777), 0, 0, {});
    if (!made.ok()) {
        bool lost_race = made.error() == Error::eexist && (flags & O_EXCL) == 0;
        return lost_race ? -EAGAIN : -errno_value(made.error());
    }
    node = NodeReference(*file_system_, made.value());
    created = true;
    return 0;
}

int64_t CoreUnderTest::check_open(const vfs::Attributes& attributes, int flags,
                                  bool created) const {
    bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
    if (vfs::mode::is_symlink(attributes.mode)) {
        return -ELOOP;
    }
    if (vfs::mode::is_directory(attributes.mode)) {
        return (writes || (flags & O_CREAT) != 0) ? -EISDIR : 0;
    }
    if ((flags & O_DIRECTORY) != 0) {
        return -ENOTDIR;
    }
    if (!vfs::mode::is_regular(attributes.mode)) {
        return -ENXIO;  // a kernel would hand over to the device or pipe
    }
    if (!writes || created) {
        return 0;
    }
    if (read_only_) {
        return -EROFS;
    }
    if ((attributes.flags & vfs::file_flag::immutable) != 0) {
        return -EPERM;
    }
    if ((attributes.flags & vfs::file_flag::append_only) != 0 &&
        ((flags & O_APPEND) == 0 || (flags & O_TRUNC) != 0)) {
        return -EPERM;
    }
    return 0;
}

int64_t CoreUnderTest::finish_open(NodeReference node, int flags, bool created) {
    if (int64_t answer = check_open(node.attributes(), flags, created); answer < 0) {
        return answer;
    }
    auto file = std::make_shared<OpenFile>();
    file->flags = flags;
    if (opens_needed_) {
        Result<vfs::Handle> handle = file_system_->open(node.node(), static_cast<uint32_t>(flags));
        if (handle.ok()) {
            file->handle = handle.value();
        } else if (handle.error() == Error::enosys) {
            opens_needed_ = false;
        } else {
            return -errno_value(handle.error());
        }
    }
    if ((flags & O_TRUNC) != 0 && !created) {
        vfs::AttributeChange cut;
        cut.valid = vfs::AttributeChange::size_bit | vfs::AttributeChange::modification_now_bit;
        if (int64_t answer = change(node.node(), cut); answer < 0) {
            return answer;
        }
    }
    file->node = std::move(node);
    return add_file(std::move(file));
}

int64_t CoreUnderTest::close(int number) {
    OpenFilePointer file = file_of(number);
    if (file == nullptr) {
        return -EBADF;
    }
    {
        std::lock_guard<std::mutex> lock(files_mutex_);
        files_[static_cast<size_t>(number)] = nullptr;
    }
    if (file->handle != 0) {
        file_system_->release(file->node.node(), file->handle);
    }
    return 0;
}

}  // namespace tiffin::suite
