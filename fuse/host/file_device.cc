// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/file_device.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "fuse/host/device_file.h"
#include "fuse/host/device_request.h"

namespace tiffin::fuse {
namespace {

// After this many lines in the log, errors of one device are only returned.
constexpr uint32_t kMaxLoggedErrors = 20;

// Walks over the pieces of a request while the system takes as much as it likes at a time.
class TransferCursor {
  public:
    TransferCursor(const vfs::IoVector* buffers, size_t buffer_count)
        : buffers_(buffers), buffer_count_(buffer_count) {}

    // The next pieces, at most kMaxPieces; returns how many.
    static constexpr int kMaxPieces = 64;
    int next(iovec (&pieces)[kMaxPieces]) const {
        int count = 0;
        size_t skip = done_in_first_;
        for (size_t i = first_; i < buffer_count_ && count < kMaxPieces; ++i, skip = 0) {
            if (buffers_[i].size_bytes > skip) {
                pieces[count].iov_base = static_cast<unsigned char*>(buffers_[i].data) + skip;
                pieces[count].iov_len = buffers_[i].size_bytes - skip;
                ++count;
            }
        }
        return count;
    }

    void advance(size_t size_bytes) {
        size_bytes += done_in_first_;
        while (first_ < buffer_count_ && size_bytes >= buffers_[first_].size_bytes) {
            size_bytes -= buffers_[first_].size_bytes;
            ++first_;
        }
        done_in_first_ = size_bytes;
    }

  private:
    const vfs::IoVector* buffers_;
    size_t buffer_count_;
    size_t first_ = 0;
    size_t done_in_first_ = 0;
};

// Moves `length_bytes` with `call` (preadv or pwritev). Returns 0 or an errno number; the end of the
// file is EIO, since the range was inside the device when it was opened.
template <typename Call>
int transfer(Call call, int descriptor, uint64_t offset_bytes, uint64_t length_bytes,
             const vfs::IoVector* buffers, size_t buffer_count) {
    TransferCursor cursor(buffers, buffer_count);
    while (length_bytes > 0) {
        iovec pieces[TransferCursor::kMaxPieces];
        const int count = cursor.next(pieces);
        const ssize_t done = call(descriptor, pieces, count, static_cast<off_t>(offset_bytes));
        if (done < 0) {
            if (errno == EINTR) {
                continue;
            }
            return errno;
        }
        if (done == 0) {
            return EIO;
        }
        cursor.advance(static_cast<size_t>(done));
        offset_bytes += static_cast<uint64_t>(done);
        length_bytes -= static_cast<uint64_t>(done);
    }
    return 0;
}

}  // namespace

OrProblem<std::unique_ptr<FileDevice>> FileDevice::open(const std::string& path,
                                                        const Options& options) {
    DeviceFile::Access access = DeviceFile::Access::read_write;
    if (options.read_only) {
        access = options.may_write_later ? DeviceFile::Access::read_first
                                         : DeviceFile::Access::read_only;
    }
    OrProblem<DeviceFile> file = DeviceFile::open(path, access, options.create_size_bytes);
    if (!file.ok()) {
        return file.problem();
    }
    return std::unique_ptr<FileDevice>(new FileDevice(path, std::move(*file)));
}

FileDevice::FileDevice(std::string path, DeviceFile file)
    : path_(std::move(path)),
      file_(std::move(file)),
      geometries_{file_.geometry()},
      workers_(*this) {
    geometry_.store(&geometries_.back(), std::memory_order_release);
}

FileDevice::~FileDevice() { workers_.stop(); }

Result<uint64_t> FileDevice::update_size() {
    const std::optional<uint64_t> size_bytes = file_.size_bytes();
    if (!size_bytes.has_value()) {
        return failed("size", 0, errno);
    }
    if (*size_bytes < geometry().size_bytes) {
        host::log(
            host::LogLevel::error,
            (path_ + ": has become shorter: its end has been cut off; make it as long again (" +
             std::to_string(geometry().size_bytes) + " bytes), and unmount")
                .c_str());
        return Error::eio;
    }
    if (*size_bytes > geometry().size_bytes) {
        geometries_.push_back(geometry());
        geometries_.back().size_bytes = *size_bytes;
        geometry_.store(&geometries_.back(), std::memory_order_release);
    }
    return geometry().size_bytes;
}

Result<void> FileDevice::start_writing() {
    if (geometry().read_only) {
        return Error::erofs;
    }
    if (int error = file_.take_for_writing(path_); error != 0) {
        return static_cast<Error>(error);
    }
    if (!geometry().supports_discard && file_.can_discard()) {
        geometries_.push_back(geometry());
        geometries_.back().supports_discard = true;
        geometry_.store(&geometries_.back(), std::memory_order_release);
    }
    return {};
}

void FileDevice::submit(vfs::IoRequest& request) { workers_.submit(request); }

Result<void> FileDevice::read(uint64_t offset_bytes, const vfs::IoVector* buffers,
                              size_t buffer_count) {
    const uint64_t length_bytes =
        TRY(check_transfer(geometry(), false, offset_bytes, buffers, buffer_count));
    const int error =
        transfer(::preadv, file_.descriptor(), offset_bytes, length_bytes, buffers, buffer_count);
    if (error != 0) {
        return failed("read", offset_bytes, error);
    }
    return {};
}

Result<void> FileDevice::write(uint64_t offset_bytes, const vfs::IoVector* buffers,
                               size_t buffer_count) {
    const uint64_t length_bytes =
        TRY(check_transfer(geometry(), true, offset_bytes, buffers, buffer_count));
    const int error =
        transfer(::pwritev, file_.descriptor(), offset_bytes, length_bytes, buffers, buffer_count);
    if (error != 0) {
        return failed("write", offset_bytes, error);
    }
    return {};
}

Result<void> FileDevice::flush() {
    // Nothing was written through a read-only descriptor.
    if (geometry().read_only) {
        return {};
    }
    MutexLock lock(flush_mutex_);
    if (flush_failed_) {
        return Error::eio;
    }
    int error = 0;
    do {
        error = fdatasync(file_.descriptor()) == 0 ? 0 : errno;
    } while (error == EINTR);
    if (error != 0) {
        flush_failed_ = true;
        return failed("flush", 0, error);
    }
    return {};
}

Result<void> FileDevice::discard(uint64_t offset_bytes, uint64_t length_bytes) {
    TRY(check_discard(geometry(), offset_bytes, length_bytes));
    if (length_bytes == 0) {
        return {};
    }
    const int error = file_.discard(offset_bytes, length_bytes);
    if (error == EOPNOTSUPP) {
        return Error::eopnotsupp;
    }
    if (error != 0) {
        return failed("discard", offset_bytes, error);
    }
    return {};
}

Error FileDevice::failed(const char* what, uint64_t offset_bytes, int error_number) {
    if (logged_errors_.fetch_add(1, std::memory_order_relaxed) < kMaxLoggedErrors) {
        std::string text = path_ + ": " + what + " at byte " + std::to_string(offset_bytes) +
                           " failed: " + system_error_text(error_number);
        if (error_number == ENOSPC || error_number == EDQUOT) {
            text += " (of the file system that holds the image: make room there)";
        }
        host::log(host::LogLevel::error, text.c_str());
    }
    return Error::eio;
}

}  // namespace tiffin::fuse
