// SPDX-License-Identifier: MIT OR GPL-2.0-only
// One request of the kernel: its caller, and every way to answer. Answering also records the
// statistics: the time from the request's arrival until its answer is ready for the kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/vfs/file_system.h"
#include "fuse/session/statistics.h"

struct fuse_req;
struct fuse_file_info;
struct iovec;
struct statvfs;

namespace tiffin::fuse {

class Session;

// Owned by the function that answers it; answered exactly once. Answers that return bool tell whether the
// kernel took it: it does not when the caller was killed meanwhile, and then references and handles
// in the answer have to be taken back.
class Request {
  public:
    Request(fuse_req* handle, Operation operation);
    Request(Request&& other) noexcept;
    ~Request();
    Request(const Request&) = delete;
    Request& operator=(const Request&) = delete;
    Request& operator=(Request&&) = delete;

    Session& session() const;
    vfs::FileSystem& file_system() const;
    // The identity of the process that asks. `umask` counts in requests that create only.
    vfs::Caller caller() const;
    // The thread that asks, in the daemon's process name space; 0 when it is not visible there.
    int32_t process_id() const;
    // Whether the caller has CAP_SYS_ADMIN, as far as that can be seen; for commands, which are rare.
    bool caller_may_administrate() const;
    // Whether the caller is a member of `group_id`.
    bool caller_is_in_group(uint32_t group_id) const;

    // ---- Answers ----------------------------------------------------------------------------
    void fail(Error error) { fail(errno_value(error)); }
    void fail(int error_number);
    // "No such thing", without counting it as an error.
    void say_missing(Error error);
    // Says once and for all that the operation is not implemented; not counted as an error.
    void decline();
    void succeed();
    // succeed() or fail().
    void finish(const Result<void>& result);
    // For forgets, which have no answer.
    void no_answer();

    // Answers with an entry, or fails. Takes the reference back when the answer was not received.
    void entry(const Result<vfs::Attributes>& result);
    // The name does not exist in `parent`, and the kernel may remember that.
    void missing_entry(vfs::NodeId parent);
    [[nodiscard]] bool created(const vfs::Attributes& attributes, const fuse_file_info& file);
    [[nodiscard]] bool opened(const fuse_file_info& file);
    void attributes(const Result<vfs::Attributes>& result);
    void extended_attributes(const Result<vfs::Attributes>& result);
    // `target` is terminated by NUL.
    void link_target(const char* target, size_t size_bytes);
    [[nodiscard]] bool data(const void* data, size_t size_bytes);
    void data(const iovec* pieces, size_t count, size_t size_bytes);
    void written(size_t size_bytes);
    void offset(uint64_t offset_bytes);
    void xattr_size(size_t size_bytes);
    void file_system_statistics(const struct statvfs& statistics);
    void control_result(const void* output, size_t size_bytes);

  private:
    // Records the answer; returns the handle for sending it.
    fuse_req* answer(uint64_t bytes, bool failed);

    fuse_req* handle_;
    Session* session_;
    Operation operation_;
    uint64_t start_ns_;
};

}  // namespace tiffin::fuse
