// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/session/request.h"

#include <pthread.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "fs/vfs/host.h"
#include "fuse/session/convert.h"
#include "fuse/session/libfuse.h"
#include "fuse/session/request_loop.h"
#include "fuse/session/session.h"

namespace tiffin::fuse {

Request::Request(fuse_req* handle, Operation operation)
    : handle_(handle),
      session_(static_cast<Session*>(fuse_req_userdata(handle))),
      operation_(operation),
      start_ns_(host::monotonic_ns()) {
    // libfuse ends its threads by cancelling them, which would leave this without an answer. Those that read from /dev/fuse
    // have it off while they serve; those of its io_uring never.
    if (session_->options().io_uring) {
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    }
}

Request::Request(Request&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)),
      session_(other.session_),
      operation_(other.operation_),
      start_ns_(other.start_ns_) {}

Request::~Request() { TIFFIN_ASSERT(handle_ == nullptr); }

Session& Request::session() const { return *session_; }

vfs::FileSystem& Request::file_system() const { return session_->file_system(); }

vfs::Caller Request::caller() const {
    const fuse_ctx* context = fuse_req_ctx(handle_);
    return {context->uid, context->gid, context->umask};
}

int32_t Request::process_id() const { return fuse_req_ctx(handle_)->pid; }

namespace {

// In a user namespace of its own a process has all capabilities, which are worth nothing outside. Where this process may not look
// into the caller's, as one that is not root may not into root's, the caller counts as one of the same.
bool is_in_this_user_namespace(int32_t process_id) {
    struct stat own {};
    struct stat other {};
    const std::string path = "/proc/" + std::to_string(process_id) + "/ns/user";
    if (stat("/proc/self/ns/user", &own) != 0) {
        return errno == ENOENT;  // a kernel without any
    }
    if (stat(path.c_str(), &other) != 0) {
        return errno == EACCES && geteuid() != 0;
    }
    return own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

}  // namespace

// The kernel asks for no capability before it sends a file's ioctl. User 0 in a container has most of root's rights on files,
// and no right to change mounts.
bool Request::caller_may_administrate() const {
    constexpr int kSysAdmin = 21;
    if (!is_in_this_user_namespace(process_id())) {
        return false;
    }
    std::ifstream status("/proc/" + std::to_string(process_id()) + "/status");
    std::string key;
    while (status >> key) {
        if (key == "CapEff:") {
            uint64_t capabilities = 0;
            status >> std::hex >> capabilities;
            return !status.fail() && (capabilities >> kSysAdmin & 1) != 0;
        }
        status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
    }
    return false;
}

bool Request::caller_is_in_group(uint32_t group_id) const {
    if (fuse_req_ctx(handle_)->gid == group_id) {
        return true;
    }
    // This reads /proc and is slow: only for rare requests.
    std::vector<gid_t> groups(64);
    int count = fuse_req_getgroups(handle_, static_cast<int>(groups.size()), groups.data());
    if (count > static_cast<int>(groups.size())) {
        groups.resize(static_cast<size_t>(count));
        count = fuse_req_getgroups(handle_, count, groups.data());
    }
    for (int i = 0; i < count && i < static_cast<int>(groups.size()); ++i) {
        if (groups[static_cast<size_t>(i)] == group_id) {
            return true;
        }
    }
    return false;
}

fuse_req* Request::answer(uint64_t bytes, bool failed) {
    // Recorded before the answer is sent, so that a program that got it finds it counted.
    session_->statistics().record(operation_, host::monotonic_ns() - start_ns_, bytes, failed);
    TIFFIN_ASSERT(handle_ != nullptr);
    RequestLoop::answered();
    return std::exchange(handle_, nullptr);
}

void Request::fail(int error_number) { fuse_reply_err(answer(0, true), error_number); }

void Request::say_missing(Error error) { fuse_reply_err(answer(0, false), errno_value(error)); }

void Request::decline() { fuse_reply_err(answer(0, false), ENOSYS); }

void Request::succeed() { fuse_reply_err(answer(0, false), 0); }

void Request::finish(const Result<void>& result) {
    if (result.ok()) {
        succeed();
    } else {
        fail(result.error());
    }
}

void Request::no_answer() { fuse_reply_none(answer(0, false)); }

void Request::entry(const Result<vfs::Attributes>& result) {
    if (!result.ok()) {
        return fail(result.error());
    }
    vfs::FileSystem& owner = file_system();
    session_->note_flags(result.value().flags);
    fuse_entry_param entry = to_entry(result.value());
    if (fuse_reply_entry(answer(0, false), &entry) != 0) {
        owner.forget(result.value().node, 1);
    }
}

void Request::missing_entry(vfs::NodeId parent) {
    fuse_entry_param entry{};
    entry.entry_timeout = session_->missing_name_seconds(parent);
    fuse_reply_entry(answer(0, false), &entry);
}

bool Request::created(const vfs::Attributes& attributes, const fuse_file_info& file) {
    fuse_entry_param entry = to_entry(attributes);
    return fuse_reply_create(answer(0, false), &entry, &file) == 0;
}

bool Request::opened(const fuse_file_info& file) {
    return fuse_reply_open(answer(0, false), &file) == 0;
}

void Request::attributes(const Result<vfs::Attributes>& result) {
    if (!result.ok()) {
        return fail(result.error());
    }
    struct stat status = to_stat(result.value());
    fuse_reply_attr(answer(0, false), &status, cache_seconds(result.value()));
}

void Request::extended_attributes(const Result<vfs::Attributes>& result) {
#if TIFFIN_FUSE_HAS_STATX
    if (!result.ok()) {
        return fail(result.error());
    }
    struct statx status = to_statx(result.value());
    fuse_reply_statx(answer(0, false), 0, &status, cache_seconds(result.value()));
#else
    attributes(result);
#endif
}

void Request::link_target(const char* target, size_t size_bytes) {
    fuse_reply_readlink(answer(size_bytes, false), target);
}

bool Request::data(const void* data, size_t size_bytes) {
    return fuse_reply_buf(answer(size_bytes, false), static_cast<const char*>(data), size_bytes) ==
           0;
}

void Request::data(const iovec* pieces, size_t count, size_t size_bytes) {
    fuse_req* handle = answer(size_bytes, false);
    if (count <= 1) {
        // Without the list that libfuse would allocate.
        fuse_reply_buf(handle, count == 0 ? nullptr : static_cast<const char*>(pieces[0].iov_base),
                       size_bytes);
    } else {
        fuse_reply_iov(handle, pieces, static_cast<int>(count));
    }
}

void Request::written(size_t size_bytes) {
    fuse_reply_write(answer(size_bytes, false), size_bytes);
}

void Request::offset(uint64_t offset_bytes) {
    fuse_reply_lseek(answer(0, false), static_cast<off_t>(offset_bytes));
}

void Request::xattr_size(size_t size_bytes) { fuse_reply_xattr(answer(0, false), size_bytes); }

void Request::file_system_statistics(const struct statvfs& statistics) {
    fuse_reply_statfs(answer(0, false), &statistics);
}

void Request::control_result(const void* output, size_t size_bytes) {
    fuse_reply_ioctl(answer(size_bytes, false), 0, output, size_bytes);
}

}  // namespace tiffin::fuse
