// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The calls on attributes and sizes.
#include <sys/stat.h>

#include <cerrno>

#include "tests/suite/core_detail.h"
#include "tests/suite/core_under_test.h"

namespace tiffin::suite {

namespace {

using vfs::AttributeChange;

vfs::Timestamp timestamp_of(const timespec& time) {
    return {time.tv_sec, static_cast<uint32_t>(time.tv_nsec)};
}

bool valid_time(const timespec& time) {
    return time.tv_nsec == UTIME_NOW || time.tv_nsec == UTIME_OMIT ||
           (time.tv_nsec >= 0 && time.tv_nsec < 1'000'000'000);
}

}  // namespace

int64_t CoreUnderTest::change(vfs::NodeId node, AttributeChange change) {
    if ((change.valid & AttributeChange::size_bit) != 0 && caller().user_id != 0) {
        change.valid |= AttributeChange::kill_privileges_bit;
    }
    Result<vfs::Attributes> result = file_system_->set_attributes(caller(), node, change);
    return result.ok() ? 0 : -errno_value(result.error());
}

int64_t CoreUnderTest::after_change(vfs::NodeId node, int64_t answer) {
    if (caller().user_id == 0) {
        return answer;
    }
    AttributeChange kill;
    kill.valid = AttributeChange::kill_privileges_bit;
    const int64_t killed = change(node, kill);
    return killed < 0 ? killed : answer;
}

int64_t CoreUnderTest::ftruncate(int number, int64_t size) {
    OpenFilePointer file = file_of(number);
    if (file == nullptr) {
        return -EBADF;
    }
    if (size < 0 || !file->writable()) {
        return -EINVAL;
    }
    AttributeChange cut;
    cut.valid = AttributeChange::size_bit | AttributeChange::modification_now_bit;
    cut.size_bytes = static_cast<uint64_t>(size);
    return change(file->node.node(), cut);
}

int64_t CoreUnderTest::truncate(const std::string& path, int64_t size) {
    if (size < 0) {
        return -EINVAL;
    }
    NodeReference node;
    if (int64_t answer = find(path, true, node); answer < 0) {
        return answer;
    }
    AttributeChange cut;
    cut.valid = AttributeChange::size_bit;
    cut.size_bytes = static_cast<uint64_t>(size);
    return change(node.node(), cut);
}

int64_t CoreUnderTest::status(vfs::NodeId node, FileStatus& status) {
    Result<vfs::Attributes> result = file_system_->get_attributes(node);
    if (!result.ok()) {
        return -errno_value(result.error());
    }
    const vfs::Attributes& attributes = result.value();
    status.node = attributes.node;
    status.mode = attributes.mode;
    status.link_count = attributes.link_count;
    status.user_id = attributes.user_id;
    status.group_id = attributes.group_id;
    status.device_major = attributes.device_major;
    status.device_minor = attributes.device_minor;
    status.size_bytes = attributes.size_bytes;
    status.allocated_bytes = attributes.allocated_bytes;
    status.access_time = time_of(attributes.access_time);
    status.modification_time = time_of(attributes.modification_time);
    status.change_time = time_of(attributes.change_time);
    status.has_birth_time = true;
    status.birth_time = time_of(attributes.birth_time);
    return 0;
}

int64_t CoreUnderTest::stat(const std::string& path, FileStatus& status_out) {
    NodeReference node;
    int64_t answer = find(path, true, node);
    return answer < 0 ? answer : status(node.node(), status_out);
}

int64_t CoreUnderTest::lstat(const std::string& path, FileStatus& status_out) {
    NodeReference node;
    int64_t answer = find(path, false, node);
    return answer < 0 ? answer : status(node.node(), status_out);
}

int64_t CoreUnderTest::fstat(int number, FileStatus& status_out) {
    OpenFilePointer file = file_of(number);
    return file == nullptr ? -EBADF : status(file->node.node(), status_out);
}

int64_t CoreUnderTest::chmod(const std::string& path, uint32_t mode) {
    NodeReference node;
    if (int64_t answer = find(path, true, node); answer < 0) {
        return answer;
    }
    AttributeChange wanted;
    wanted.valid = AttributeChange::mode_bit;
    wanted.mode = mode & 07777;
    return change(node.node(), wanted);
}

int64_t CoreUnderTest::fchmod(int number, uint32_t mode) {
    OpenFilePointer file = file_of(number);
    if (file == nullptr) {
        return -EBADF;
    }
    AttributeChange wanted;
    wanted.valid = AttributeChange::mode_bit;
    wanted.mode = mode & 07777;
    return change(file->node.node(), wanted);
}

int64_t CoreUnderTest::change_owner(const std::string& path, bool follow, uint32_t user_id,
                                    uint32_t group_id) {
    constexpr uint32_t keep = 0xffffffff;
    NodeReference node;
    if (int64_t answer = find(path, follow, node); answer < 0) {
        return answer;
    }
    AttributeChange wanted;
    wanted.valid = (user_id != keep ? AttributeChange::user_id_bit : 0U) |
                   (group_id != keep ? AttributeChange::group_id_bit : 0U);
    wanted.user_id = user_id;
    wanted.group_id = group_id;
    return wanted.valid == 0 ? 0 : change(node.node(), wanted);
}

int64_t CoreUnderTest::chown(const std::string& path, uint32_t user_id, uint32_t group_id) {
    return change_owner(path, true, user_id, group_id);
}

int64_t CoreUnderTest::lchown(const std::string& path, uint32_t user_id, uint32_t group_id) {
    return change_owner(path, false, user_id, group_id);
}

int64_t CoreUnderTest::change_times(vfs::NodeId node, const timespec times[2]) {
    if (!valid_time(times[0]) || !valid_time(times[1])) {
        return -EINVAL;
    }
    AttributeChange wanted;
    if (times[0].tv_nsec == UTIME_NOW) {
        wanted.valid |= AttributeChange::access_now_bit;
    } else if (times[0].tv_nsec != UTIME_OMIT) {
        wanted.valid |= AttributeChange::access_time_bit;
        wanted.access_time = timestamp_of(times[0]);
    }
    if (times[1].tv_nsec == UTIME_NOW) {
        wanted.valid |= AttributeChange::modification_now_bit;
    } else if (times[1].tv_nsec != UTIME_OMIT) {
        wanted.valid |= AttributeChange::modification_time_bit;
        wanted.modification_time = timestamp_of(times[1]);
    }
    return wanted.valid == 0 ? 0 : change(node, wanted);
}

int64_t CoreUnderTest::utimens(const std::string& path, const timespec times[2], int flags) {
    NodeReference node;
    if (int64_t answer = find(path, (flags & AT_SYMLINK_NOFOLLOW) == 0, node); answer < 0) {
        return answer;
    }
    return change_times(node.node(), times);
}

int64_t CoreUnderTest::futimens(int number, const timespec times[2]) {
    OpenFilePointer file = file_of(number);
    return file == nullptr ? -EBADF : change_times(file->node.node(), times);
}

int64_t CoreUnderTest::get_flags(int number, uint32_t& flags) {
    OpenFilePointer file = file_of(number);
    if (file == nullptr) {
        return -EBADF;
    }
    Result<vfs::Attributes> attributes = file_system_->get_attributes(file->node.node());
    if (!attributes.ok()) {
        return -errno_value(attributes.error());
    }
    flags = attributes->flags;
    return 0;
}

int64_t CoreUnderTest::set_flags(int number, uint32_t flags) {
    OpenFilePointer file = file_of(number);
    return file == nullptr ? -EBADF
                           : answer_of(file_system_->set_flags({}, file->node.node(), flags));
}

int64_t CoreUnderTest::get_generation(int number, uint64_t& generation) {
    OpenFilePointer file = file_of(number);
    if (file == nullptr) {
        return -EBADF;
    }
    Result<vfs::Attributes> attributes = file_system_->get_attributes(file->node.node());
    if (!attributes.ok()) {
        return -errno_value(attributes.error());
    }
    generation = attributes->generation;
    return 0;
}

}  // namespace tiffin::suite
