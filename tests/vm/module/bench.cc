// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/vm/module/bench.h"

#include "fs/base/text.h"

namespace tiffin::vm {
namespace {

const vfs::Caller kRoot{};

// The byte at `offset_bytes` of a file that was filled from `seed`.
unsigned char byte_at(uint64_t seed, uint64_t offset_bytes) {
    const uint64_t word = (seed ^ (offset_bytes >> 3)) * 0x9e3779b97f4a7c15;
    return static_cast<unsigned char>((word ^ (word >> 32)) >> (8 * (offset_bytes & 7) / 2));
}

const char* base_name(const char* path) {
    const char* name = path;
    for (; *path != '\0'; ++path) {
        name = *path == '/' ? path + 1 : name;
    }
    return name;
}

class EntryCounter final : public vfs::DirectorySink {
  public:
    bool add(const vfs::DirectoryEntry& entry) override {
        if (taken_ == kAtOnce) {
            return false;
        }
        ++taken_;
        cookie_ = entry.next_cookie;
        if (!(entry.name == vfs::Name(".")) && !(entry.name == vfs::Name(".."))) {
            ++entries_;
        }
        return true;
    }
    // Room for the next ones; false when none came since the last call.
    bool go_on() {
        const bool came = taken_ != 0;
        taken_ = 0;
        return came;
    }
    uint64_t cookie() const { return cookie_; }
    uint32_t entries() const { return entries_; }

  private:
    static constexpr uint32_t kAtOnce = 20;
    uint32_t taken_ = 0;
    uint32_t entries_ = 0;
    uint64_t cookie_ = 0;
};

}  // namespace

Error failed(const char* file, int line, const char* what) {
    log_line(host::LogLevel::error, base_name(file), ":", line, ": check failed: ", what);
    return Error::eio;
}

Error failed_with(const char* file, int line, const char* what, Error error) {
    log_line(host::LogLevel::error, base_name(file), ":", line, ": ", what, " gave error ",
             errno_value(error));
    return error;
}

Result<void> Buffer::open() {
    data_ = static_cast<unsigned char*>(host::allocate_pages(kBufferBytes));
    return data_ == nullptr ? Error::enomem : Result<void>();
}

void Buffer::fill(uint64_t seed, uint64_t offset_bytes, size_t size_bytes) {
    for (size_t i = 0; i < size_bytes; ++i) {
        data_[i] = byte_at(seed, offset_bytes + i);
    }
}

bool Buffer::matches(uint64_t seed, uint64_t offset_bytes, size_t size_bytes) const {
    for (size_t i = 0; i < size_bytes; ++i) {
        if (data_[i] != byte_at(seed, offset_bytes + i)) {
            return false;
        }
    }
    return true;
}

bool Buffer::is_zero(size_t size_bytes) const {
    for (size_t i = 0; i < size_bytes; ++i) {
        if (data_[i] != 0) {
            return false;
        }
    }
    return true;
}

NumberedName::NumberedName(const char* text, uint32_t number) {
    TextWriter writer(text_, sizeof text_);
    writer.append(text);
    writer.append(number);
    size_ = writer.size_bytes();
}

Result<void> Bench::mount() {
    tiffinfs::MountOptions options;
    // Small and often, so that eviction, the timer and checkpoints have their part in a short test.
    options.volume.cache_bytes = 1U << 20;
    options.volume.commit_interval_ms = 50;
    options.maximum_objects = 256;
    file_system = CHECK_OK(tiffinfs::mount(device, options));
    return {};
}

Result<void> Bench::unmount() {
    const Result<void> unmounted = file_system->unmount();
    tiffinfs::destroy(file_system);
    file_system = nullptr;
    CHECK_OK(unmounted);
    return {};
}

Result<void> Bench::crash() {
    device.stop();
    const Result<void> unmounted = file_system->unmount();
    tiffinfs::destroy(file_system);
    file_system = nullptr;
    device.start();
    // What was written before it may all be durable already, and then nothing is amiss.
    CHECK(unmounted.ok() || unmounted.error() == Error::eio);
    return {};
}

Result<size_t> Bench::read(vfs::NodeId node, uint64_t offset_bytes, size_t size_bytes) {
    const vfs::IoVector whole{buffer.data(), size_bytes};
    __builtin_memset(buffer.data(), 0x55, size_bytes);
    return file_system->read(node, 0, offset_bytes, Span<const vfs::IoVector>(&whole, 1));
}

Result<void> Bench::write(vfs::NodeId node, uint64_t offset_bytes, uint64_t size_bytes,
                          uint64_t seed) {
    while (size_bytes > 0) {
        const size_t piece = size_bytes < kBufferBytes ? size_bytes : kBufferBytes;
        buffer.fill(seed, offset_bytes, piece);
        const vfs::IoVector whole{buffer.data(), piece};
        const size_t written =
            TRY(file_system->write(node, 0, offset_bytes, Span<const vfs::IoVector>(&whole, 1), 0));
        if (written != piece) {
            return Error::enospc;
        }
        offset_bytes += piece;
        size_bytes -= piece;
    }
    return {};
}

Result<void> Bench::verify(vfs::NodeId node, uint64_t offset_bytes, uint64_t size_bytes,
                           uint64_t seed) {
    while (size_bytes > 0) {
        const size_t piece = size_bytes < kBufferBytes ? size_bytes : kBufferBytes;
        CHECK(CHECK_OK(read(node, offset_bytes, piece)) == piece);
        CHECK(buffer.matches(seed, offset_bytes, piece));
        offset_bytes += piece;
        size_bytes -= piece;
    }
    return {};
}

Result<void> Bench::verify_zeros(vfs::NodeId node, uint64_t offset_bytes, uint64_t size_bytes) {
    CHECK(size_bytes <= kBufferBytes);
    CHECK(CHECK_OK(read(node, offset_bytes, size_bytes)) == size_bytes);
    CHECK(buffer.is_zero(size_bytes));
    return {};
}

Result<vfs::NodeId> Bench::create(vfs::NodeId parent, vfs::Name name) {
    return TRY(file_system->create(kRoot, parent, name, vfs::mode::regular | 0644, 0, 0, {})).node;
}

Result<vfs::NodeId> Bench::make_directory(vfs::NodeId parent, vfs::Name name) {
    return TRY(file_system->make_directory(kRoot, parent, name, 0755, {})).node;
}

Result<vfs::NodeId> Bench::find(vfs::NodeId parent, vfs::Name name) {
    return TRY(file_system->lookup(parent, name)).node;
}

Result<uint64_t> Bench::size_of(vfs::NodeId node) {
    return TRY(file_system->get_attributes(node)).size_bytes;
}

Result<uint32_t> Bench::count_entries(vfs::NodeId directory) {
    EntryCounter counter;
    do {
        TRY(file_system->read_directory(directory, 0, counter.cookie(), false, counter));
    } while (counter.go_on());
    return counter.entries();
}

}  // namespace tiffin::vm
