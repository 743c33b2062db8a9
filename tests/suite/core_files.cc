// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The calls on open files and on attributes.
#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "tests/suite/core_detail.h"
#include "tests/suite/core_under_test.h"

namespace tiffin::suite {

namespace {

// Cuts a buffer at odd places, since a host hands over scattered memory too.
size_t scatter(void* buffer, size_t size, vfs::IoVector (&pieces)[3]) {
    auto* bytes = static_cast<unsigned char*>(buffer);
    if (size < 1000) {
        pieces[0] = {bytes, size};
        return 1;
    }
    size_t first = size / 3 - 1;
    size_t second = size / 2 + 1;
    pieces[0] = {bytes, first};
    pieces[1] = {bytes + first, second};
    pieces[2] = {bytes + first + second, size - first - second};
    return 3;
}

// What getdents64 would need for a record.
size_t record_bytes(const std::string& name) { return (19 + name.size() + 1 + 7) / 8 * 8; }

class RecordSink final : public vfs::DirectorySink {
  public:
    RecordSink(size_t buffer_bytes, bool with_attributes, std::vector<DirectoryRecord>& records,
               std::vector<vfs::NodeId>& references)
        : room_bytes_(buffer_bytes),
          with_attributes_(with_attributes),
          records_(records),
          references_(references) {}

    bool add(const vfs::DirectoryEntry& entry) override {
        std::string name(entry.name.data, entry.name.size_bytes);
        size_t needed = record_bytes(name);
        if (needed > room_bytes_) {
            full_ = true;
            return false;
        }
        room_bytes_ -= needed;
        if (with_attributes_ && name != "." && name != "..") {
            consistent_ = consistent_ && entry.attributes != nullptr &&
                          entry.attributes->node == entry.node &&
                          (entry.attributes->mode & vfs::mode::type_mask) == entry.type_mode;
            references_.push_back(entry.node);
        }
        records_.push_back({name, entry.node, static_cast<uint8_t>(IFTODT(entry.type_mode)),
                            static_cast<int64_t>(entry.next_cookie)});
        return true;
    }

    bool full() const { return full_; }
    bool consistent() const { return consistent_; }

  private:
    size_t room_bytes_;
    bool with_attributes_;
    bool full_ = false;
    bool consistent_ = true;
    std::vector<DirectoryRecord>& records_;
    std::vector<vfs::NodeId>& references_;
};

}  // namespace

CoreUnderTest::OpenFilePointer CoreUnderTest::file_of(int file) const {
    std::lock_guard<std::mutex> lock(files_mutex_);
    if (file < 0 || static_cast<size_t>(file) >= files_.size()) {
        return nullptr;
    }
    return files_[static_cast<size_t>(file)];
}

int64_t CoreUnderTest::add_file(OpenFilePointer file) {
    std::lock_guard<std::mutex> lock(files_mutex_);
    auto free = std::find(files_.begin(), files_.end(), nullptr);
    if (free == files_.end()) {
        free = files_.insert(files_.end(), nullptr);
    }
    *free = std::move(file);
    return free - files_.begin();
}

// ---- Reading and writing -----------------------------------------------------------------------

int64_t CoreUnderTest::read_at(OpenFile& file, void* buffer, size_t size, int64_t offset) {
    if (!file.readable()) {
        return -EBADF;
    }
    if (offset < 0) {
        return -EINVAL;
    }
    if (file.is_directory()) {
        return -EISDIR;
    }
    vfs::IoVector pieces[3];
    size_t count = scatter(buffer, size, pieces);
    return size_answer_of(file_system_->read(file.node.node(), file.handle,
                                             static_cast<uint64_t>(offset),
                                             Span<const vfs::IoVector>(pieces, count)));
}

int64_t CoreUnderTest::write_at(OpenFile& file, const void* buffer, size_t size, int64_t offset) {
    if (!file.writable()) {
        return -EBADF;
    }
    if (offset < 0) {
        return -EINVAL;
    }
    if (size == 0) {
        return 0;
    }
    if (offset > INT64_MAX - static_cast<int64_t>(size)) {
        return -EFBIG;
    }
    uint32_t flags = 0;
    if ((file.flags & O_APPEND) != 0) {
        flags |= vfs::write_flag::append;
    }
    if ((file.flags & O_DSYNC) != 0) {  // O_SYNC contains it
        flags |= vfs::write_flag::synchronous;
    }
    if (caller().user_id != 0) {
        flags |= vfs::write_flag::kill_privileges;
    }
    vfs::IoVector pieces[3];
    // The contract reads from the memory only, but IoVector serves both directions.
    size_t count = scatter(const_cast<void*>(buffer), size, pieces);
    return size_answer_of(file_system_->write(file.node.node(), file.handle,
                                              static_cast<uint64_t>(offset),
                                              Span<const vfs::IoVector>(pieces, count), flags));
}

int64_t CoreUnderTest::read(int number, void* buffer, size_t size) {
    OpenFilePointer file = file_of(number);
    if (file == nullptr) {
        return -EBADF;
    }
    std::lock_guard<std::mutex> lock(file->position_mutex);
    int64_t answer = read_at(*file, buffer, size, file->position);
    file->position += std::max<int64_t>(answer, 0);
    return answer;
}

int64_t CoreUnderTest::write(int number, const void* buffer, size_t size) {
    OpenFilePointer file = file_of(number);
    if (file == nullptr) {
        return -EBADF;
    }
    std::lock_guard<std::mutex> lock(file->position_mutex);
    int64_t answer = write_at(*file, buffer, size, file->position);
    if (answer > 0 && (file->flags & O_APPEND) != 0) {
        Result<vfs::Attributes> attributes = file_system_->get_attributes(file->node.node());
        file->position = attributes.ok() ? static_cast<int64_t>(attributes->size_bytes) : 0;
    } else {
        file->position += std::max<int64_t>(answer, 0);
    }
    return answer;
}

int64_t CoreUnderTest::pread(int number, void* buffer, size_t size, int64_t offset) {
    OpenFilePointer file = file_of(number);
    return file == nullptr ? -EBADF : read_at(*file, buffer, size, offset);
}

int64_t CoreUnderTest::pwrite(int number, const void* buffer, size_t size, int64_t offset) {
    OpenFilePointer file = file_of(number);
    return file == nullptr ? -EBADF : write_at(*file, buffer, size, offset);
}

int64_t CoreUnderTest::lseek(int number, int64_t offset, int whence) {
    OpenFilePointer file = file_of(number);
    if (file == nullptr) {
        return -EBADF;
    }
    std::lock_guard<std::mutex> lock(file->position_mutex);
    int64_t position = offset;
    if (whence == SEEK_CUR) {
        position += file->position;
    } else if (whence == SEEK_END) {
        Result<vfs::Attributes> attributes = file_system_->get_attributes(file->node.node());
        if (!attributes.ok()) {
            return -errno_value(attributes.error());
        }
        position += static_cast<int64_t>(attributes->size_bytes);
    } else if (whence == SEEK_DATA || whence == SEEK_HOLE) {
        if (offset < 0) {
            return -ENXIO;
        }
        position = size_answer_of(file_system_->seek(
            file->node.node(), static_cast<uint64_t>(offset),
            whence == SEEK_DATA ? vfs::SeekTarget::data : vfs::SeekTarget::hole));
        if (position < 0) {
            return position;
        }
    } else if (whence != SEEK_SET) {
        return -EINVAL;
    }
    if (position < 0) {
        return -EINVAL;
    }
    file->position = position;
    return position;
}

int64_t CoreUnderTest::fallocate(int number, int mode, int64_t offset, int64_t length) {
    OpenFilePointer file = file_of(number);
    if (file == nullptr || !file->writable()) {
        return file != nullptr && (offset < 0 || length <= 0) ? -EINVAL : -EBADF;
    }
    if (offset < 0 || length <= 0) {
        return -EINVAL;
    }
    if (offset > INT64_MAX - length) {
        return -EFBIG;
    }
    Result<void> result =
        file_system_->allocate(file->node.node(), static_cast<uint32_t>(mode),
                               static_cast<uint64_t>(offset), static_cast<uint64_t>(length));
    return result.ok() ? after_change(file->node.node(), 0) : -errno_value(result.error());
}

int64_t CoreUnderTest::copy_file_range(int source, int64_t source_offset, int destination,
                                       int64_t destination_offset, uint64_t length) {
    OpenFilePointer from = file_of(source);
    OpenFilePointer to = file_of(destination);
    if (from == nullptr || to == nullptr) {
        return -EBADF;
    }
    if (from->is_directory() || to->is_directory()) {
        return -EISDIR;
    }
    if (!from->readable() || !to->writable() || (to->flags & O_APPEND) != 0) {
        return -EBADF;
    }
    if (source_offset < 0 || destination_offset < 0) {
        return -EINVAL;
    }
    Result<uint64_t> copied = file_system_->copy_range(
        from->node.node(), static_cast<uint64_t>(source_offset), to->node.node(),
        static_cast<uint64_t>(destination_offset), length);
    return copied.ok() ? after_change(to->node.node(), static_cast<int64_t>(copied.value()))
                       : -errno_value(copied.error());
}

int64_t CoreUnderTest::fsync(int number) {
    OpenFilePointer file = file_of(number);
    return file == nullptr ? -EBADF : answer_of(file_system_->fsync(file->node.node(), false));
}

int64_t CoreUnderTest::fdatasync(int number) {
    OpenFilePointer file = file_of(number);
    return file == nullptr ? -EBADF : answer_of(file_system_->fsync(file->node.node(), true));
}

int64_t CoreUnderTest::syncfs(int number) {
    return file_of(number) == nullptr ? -EBADF : answer_of(file_system_->sync(true));
}

int64_t CoreUnderTest::read_directory(int number, size_t buffer_bytes,
                                      std::vector<DirectoryRecord>& records) {
    OpenFilePointer file = file_of(number);
    if (file == nullptr) {
        return -EBADF;
    }
    std::lock_guard<std::mutex> lock(file->position_mutex);
    // Both forms are in use by hosts, so both are exercised.
    bool with_attributes = directory_reads_++ % 2 == 0;
    std::vector<vfs::NodeId> references;
    size_t before = records.size();
    RecordSink sink(buffer_bytes, with_attributes, records, references);
    Result<void> result =
        file_system_->read_directory(file->node.node(), file->handle,
                                     static_cast<uint64_t>(file->position), with_attributes, sink);
    for (vfs::NodeId node : references) {
        file_system_->forget(node, 1);
    }
    if (!result.ok()) {
        return -errno_value(result.error());
    }
    if (!sink.consistent()) {
        return -EUCLEAN;
    }
    size_t count = records.size() - before;
    if (count == 0) {
        return sink.full() ? -EINVAL : 0;
    }
    file->position = records.back().cookie;
    return static_cast<int64_t>(count);
}

}  // namespace tiffin::suite
