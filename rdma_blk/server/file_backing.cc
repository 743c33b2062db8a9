// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/server/file_backing.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "fs/vfs/host.h"
#include "rdma_blk/server/backing_check.h"

namespace tiffin::rdma_blk {
namespace {

using host::kPageBytes;

UniqueDescriptor open_direct(const std::string& path, int extra_flags) {
    const int flags = O_RDWR | O_CLOEXEC | extra_flags;
    UniqueDescriptor file(::open(path.c_str(), flags | O_DIRECT, 0600));
    if (!file.valid() && errno == EINVAL) {
        // A file system without direct access, such as tmpfs: the sync after each flush makes up for it. What
        // the first attempt may have left behind is opened.
        file.reset(::open(path.c_str(), flags & ~O_EXCL, 0600));
    }
    return file;
}

// A new file, whose name is durable. Below /dev there are devices only, and one that is missing today may be
// there tomorrow. Invalid: errno says why.
UniqueDescriptor make_file(const std::string& path) {
    const std::string folder_path = path.substr(0, path.rfind('/') + 1);
    char* resolved = realpath(folder_path.c_str(), nullptr);
    if (resolved == nullptr) {
        return {};
    }
    const bool is_below_dev = (std::string(resolved) + "/").rfind("/dev/", 0) == 0;
    std::free(resolved);
    if (is_below_dev) {
        errno = ENOENT;
        return {};
    }
    UniqueDescriptor file = open_direct(path, O_CREAT | O_EXCL);
    const UniqueDescriptor folder(::open(folder_path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (file.valid() && (!folder.valid() || fsync(folder.get()) != 0)) {
        const int error = errno;
        file.reset();
        errno = error;
    }
    return file;
}

// udev takes a lock for a moment whenever it looks at a disk that has changed, as one has that was closed by a server which
// had it for writing.
bool lock_in_time(int file) {
    int attempts = 40;
    while (flock(file, LOCK_EX | LOCK_NB) != 0) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || --attempts == 0) {
            return false;
        }
        usleep(25'000);
    }
    return true;
}

}  // namespace

Result<std::shared_ptr<FileBacking>> FileBacking::open(const std::string& path, uint64_t size_bytes,
                                                       BackingContent content,
                                                       std::string& problem) {
    const bool is_new = content != BackingContent::of_this_volume;
    std::shared_ptr<FileBacking> backing(new FileBacking());
    const auto failed = [&](const char* what) {
        const auto error = static_cast<Error>(errno);
        problem = path + ": " + what + ": " + std::strerror(errno);
        return error;
    };
    // A disk that is mounted, or used by anybody else who says so, is refused by the kernel. Links are followed:
    // the lasting names of disks (/dev/disk/by-id) are links.
    struct stat before {};
    const bool seems_disk = stat(path.c_str(), &before) == 0 && S_ISBLK(before.st_mode);
    backing->file_ = open_direct(path, seems_disk ? O_EXCL : 0);
    if (!backing->file_.valid() && errno == ENOENT && is_new) {
        backing->file_ = make_file(path);
        backing->new_path_ = backing->file_.valid() ? path : "";
    }
    struct stat status {};
    if (!backing->file_.valid() || fstat(backing->file_.get(), &status) != 0) {
        return failed("cannot be opened");
    }
    if (!lock_in_time(backing->file_.get())) {
        const bool is_used = errno == EWOULDBLOCK;
        return is_used ? (problem =
                              path +
                              ": is in use: another program has it open (is it mounted?), or it is "
                              "another volume's backing",
                          Error::ebusy)
                       : failed("cannot be locked");
    }
    backing->is_disk_ = S_ISBLK(status.st_mode);
    if (!backing->is_disk_ && !S_ISREG(status.st_mode)) {
        problem = path + ": is neither a file nor a disk";
        return Error::einval;
    }
    if (backing->is_disk_) {
        int sector_bytes = 0;
        if (ioctl(backing->file_.get(), BLKSSZGET, &sector_bytes) != 0) {
            return failed("its sector size cannot be found");
        }
        backing->write_unit_bytes_ = static_cast<uint32_t>(std::clamp(sector_bytes, 512, 4096));
    }
    backing->buffers_ =
        static_cast<unsigned char*>(std::aligned_alloc(kPageBytes, kBufferBytes * kBufferCount));
    if (backing->buffers_ == nullptr) {
        problem = path + ": there is no memory for its buffers";
        backing->discard_new_file();
        return Error::enomem;
    }
    if (is_new && backing->new_path_.empty()) {
        TRY(backing->check_found(path, content, problem));
    }
    if (is_new) {
        const Result<void> provided = backing->provide(size_bytes);
        if (!provided.ok()) {
            problem = path + ": has no room for the volume";
            backing->discard_new_file();
            return provided.error();
        }
    } else {
        Result<uint64_t> present = backing->present_bytes();
        if (!present.ok() || *present < size_bytes) {
            problem = path + ": has " + std::to_string(present.ok() ? *present : 0) +
                      " bytes, the volume has " + std::to_string(size_bytes);
            return present.ok() ? Error::enospc : present.error();
        }
    }
    if (io_setup(kBufferCount, &backing->context_) != 0) {
        problem = path + ": asynchronous requests cannot be set up";
        return Error::enomem;
    }
    for (size_t number = 0; number < kBufferCount; number++) {
        backing->free_[backing->free_count_++] = number;
    }
    return backing;
}

FileBacking::~FileBacking() {
    stop();
    if (context_ != nullptr) {
        io_destroy(context_);
    }
    std::free(buffers_);
}

void FileBacking::discard_new_file() {
    if (!new_path_.empty()) {
        (void)unlink(new_path_.c_str());
    }
}

Result<uint64_t> FileBacking::present_bytes() const {
    uint64_t disk_bytes = 0;
    if (is_disk_) {
        return ioctl(file_.get(), BLKGETSIZE64, &disk_bytes) == 0 ? Result<uint64_t>(disk_bytes)
                                                                  : Error::eio;
    }
    struct stat status {};
    return fstat(file_.get(), &status) == 0
               ? Result<uint64_t>(static_cast<uint64_t>(status.st_size))
               : Error::eio;
}

Result<void> FileBacking::check_found(const std::string& path, BackingContent content,
                                      std::string& problem) const {
    struct stat status {};
    if (fstat(file_.get(), &status) != 0) {
        return static_cast<Error>(errno);
    }
    if (const std::string user = find_user_of_backing(status); !user.empty()) {
        problem = path + ": is in use (" + user + "): end that first, or choose another path";
        return Error::ebusy;
    }
    if (content == BackingContent::anything) {
        return {};
    }
    Result<uint64_t> size = present_bytes();
    Result<bool> is_foreign = size.ok()
                                  ? holds_foreign_data(file_.get(), *size, buffers_, kBufferBytes)
                                  : Result<bool>(size.error());
    if (!is_foreign.ok()) {
        problem = path + ": cannot be read";
        return is_foreign.error();
    }
    if (*is_foreign) {
        problem = path +
                  ": holds data that are not a Tiffin file system; nothing was changed. Choose "
                  "another path. If a volume left these data there, 'tiffin volume create' makes a "
                  "volume with them when it is told so by --force";
        return Error::eexist;
    }
    return {};
}

Result<void> FileBacking::provide(uint64_t size_bytes) {
    const uint64_t present = TRY(present_bytes());
    if (present >= size_bytes) {
        return {};
    }
    if (is_disk_) {
        return Error::enospc;
    }
    // Reserved, so that no flush finds the disk full; where that cannot be done, at least the size is right.
    if (fallocate(file_.get(), 0, 0, static_cast<off_t>(size_bytes)) == 0) {
        return fsync(file_.get()) == 0 ? Result<void>() : Error::eio;
    }
    if (errno != EOPNOTSUPP || ftruncate(file_.get(), static_cast<off_t>(size_bytes)) != 0) {
        return Error::enospc;
    }
    return fsync(file_.get()) == 0 ? Result<void>() : Error::eio;
}

Result<void> FileBacking::read(unsigned char* memory, uint64_t begin, uint64_t end) {
    // Not one of buffers_: a flush may be under way.
    const std::unique_ptr<void, decltype(&std::free)> buffer(
        std::aligned_alloc(kPageBytes, kBufferBytes), &std::free);
    if (buffer == nullptr) {
        return Error::enomem;
    }
    for (uint64_t offset = begin; offset < end;) {
        const size_t piece = std::min<uint64_t>(kBufferBytes, end - offset);
        const ssize_t count = pread(file_.get(), buffer.get(), piece, static_cast<off_t>(offset));
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0 || static_cast<uint64_t>(count) % 512 != 0) {
            return Error::eio;
        }
        const auto bytes = static_cast<size_t>(count);
        std::memcpy(memory + offset, buffer.get(), bytes);
        offset += bytes;
    }
    return {};
}

// ---- Flushes ----------------------------------------------------------------------------------------------

Result<void> FileBacking::start_thread(Volume& volume) {
    volume_ = &volume;
    return thread_.start(
        "tiffind-backing", [](void* self) { static_cast<FileBacking*>(self)->run(); }, this);
}

void FileBacking::stop() {
    if (!thread_.running()) {
        return;
    }
    // What is not flushed by then has no answer: its clients send it again, to the next server. A fenced session has none.
    std::deque<FlushJob> left;
    {
        MutexLock lock(mutex_);
        stopping_.store(true);
        left.swap(queue_);
        changed_.notify_all();
    }
    thread_.join();
    for (const FlushJob& job : left) {
        if (job.session->is_fenced()) {
            job.session->finish_flush(job, Error::estale);
        }
    }
}

void FileBacking::start(FlushJob job) {
    MutexLock lock(mutex_);
    queue_.push_back(std::move(job));
    changed_.notify_one();
}

void FileBacking::run() {
    while (true) {
        FlushJob job;
        {
            MutexLock lock(mutex_);
            while (queue_.empty() && !stopping_.load()) {
                changed_.wait(mutex_);
            }
            if (queue_.empty()) {
                return;
            }
            job = std::move(queue_.front());
            queue_.pop_front();
        }
        const Result<void> flushed = flush(job);
        if (!stopping_.load() || job.session->is_fenced()) {
            job.session->finish_flush(job, flushed);
        }
    }
}

Result<void> FileBacking::flush(const FlushJob& job) {
    if (job.request.space == static_cast<uint8_t>(AddressSpace::control)) {
        return volume_->save_words();
    }
    failed_ = false;
    Result<void> result;
    if (job.ranges.empty()) {
        result = write_range(job.session.get(), 0, job.session->access().data_bytes);
    }
    // In their order, and none twice, whatever a client has asked for.
    std::vector<std::pair<uint64_t, uint64_t>> ranges;
    for (const wire::FlushRange& range : job.ranges) {
        if (range.length_bytes > 0) {
            const uint64_t end = range.offset_bytes + range.length_bytes + kPageBytes - 1;
            ranges.emplace_back(range.offset_bytes / kPageBytes * kPageBytes,
                                end / kPageBytes * kPageBytes);
        }
    }
    std::sort(ranges.begin(), ranges.end());
    uint64_t written_end = 0;
    for (const auto& [begin, end] : ranges) {
        if (result.ok() && end > written_end) {
            result = write_range(job.session.get(), std::max(begin, written_end), end);
            written_end = end;
        }
    }
    return finish_writing(result);
}

Result<void> FileBacking::flush_all(uint64_t size_bytes) {
    failed_ = false;
    return finish_writing(write_range(nullptr, 0, size_bytes));
}

Result<void> FileBacking::finish_writing(Result<void> result) {
    // All buffers come back, whatever happened.
    const Result<void> reaped = reap(kBufferCount - free_count_);
    if (!result.ok() && result.error() == Error::estale) {
        return result;  // fenced meanwhile: nothing is wrong with the disk
    }
    if (!result.ok() || !reaped.ok() || failed_ || fdatasync(file_.get()) != 0) {
        host::log(host::LogLevel::error,
                  ("volume " + volume_->name() + ": a flush to its backing failed").c_str());
        return Error::eio;
    }
    return {};
}

Result<void> FileBacking::write_range(VolumeSession* session, uint64_t begin, uint64_t end) {
    for (uint64_t offset = begin; offset < end;) {
        if (session != nullptr && stopping_.load()) {
            return Error::estale;
        }
        if (free_count_ == 0) {
            TRY(reap(1));
        }
        const size_t number = free_[--free_count_];
        const size_t piece = std::min<uint64_t>(kBufferBytes, end - offset);
        unsigned char* buffer = buffers_ + number * kBufferBytes;
        const unsigned char* source = volume_->memory().data + offset;
        if (session == nullptr) {
            std::memcpy(buffer, source, piece);
        } else if (!session->copy_stable(buffer, source, piece)) {
            free_[free_count_++] = number;
            return Error::estale;
        }
        iocb* request = &requests_[number];
        io_prep_pwrite(request, file_.get(), buffer, piece, static_cast<long long>(offset));
        if (io_submit(context_, 1, &request) != 1) {
            free_[free_count_++] = number;
            return Error::eio;
        }
        count(volume_->counters().flushed_bytes, piece);
        offset += piece;
    }
    return {};
}

// Waits for at least that many requests; a short or failed one is remembered.
Result<void> FileBacking::reap(size_t least) {
    io_event events[kBufferCount];
    while (least > 0) {
        const int count = io_getevents(context_, 1, kBufferCount, events, nullptr);
        if (count == -EINTR) {
            continue;
        }
        if (count <= 0) {
            return Error::eio;
        }
        for (int index = 0; index < count; index++) {
            const iocb* request = events[index].obj;
            failed_ = failed_ || events[index].res != request->u.c.nbytes;
            free_[free_count_++] = static_cast<size_t>(request - requests_);
        }
        least -= std::min(least, static_cast<size_t>(count));
    }
    return {};
}

}  // namespace tiffin::rdma_blk
