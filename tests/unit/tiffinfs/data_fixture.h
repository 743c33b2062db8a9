// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A mounted tiffinfs and the calls that tests of file data make, with text for bytes.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fs/tiffinfs/objects/file_system.h"
#include "fs/tiffinfs/tiffinfs.h"
#include "fs/vfs/file_system.h"
#include "fuse/host/memory_device.h"
#include "tests/support/crash_device.h"
#include "tests/support/findings.h"

namespace tiffin::tiffinfs {

// Text that differs between seeds and has no repeated blocks.
inline std::string pattern_text(size_t size_bytes, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::string text(size_bytes, '\0');
    for (size_t i = 0; i < size_bytes; i += 8) {
        uint64_t word = random();
        text.replace(i, std::min<size_t>(8, size_bytes - i),
                     std::string(reinterpret_cast<char*>(&word), 8), 0,
                     std::min<size_t>(8, size_bytes - i));
    }
    return text;
}

inline std::unique_ptr<vfs::BlockDevice> make_memory_device(uint64_t size_bytes) {
    auto device = fuse::MemoryDevice::create(size_bytes);
    EXPECT_TRUE(device.ok());
    return std::move(device.value());
}

class DataVolume {
  public:
    // Makes a file system on `device` and mounts it.
    explicit DataVolume(std::unique_ptr<vfs::BlockDevice> device) : device_(std::move(device)) {
        EXPECT_TRUE(make_file_system(*device_, {}).ok());
        mount();
    }
    // Mounts what is on `device` already, if it can be mounted.
    DataVolume(std::unique_ptr<vfs::BlockDevice> device, const MountOptions& options)
        : device_(std::move(device)) {
        Result<vfs::FileSystem*> mounted = tiffinfs::mount(*device_, options);
        if (mounted.ok()) {
            file_system_ = static_cast<TiffinFileSystem*>(mounted.value());
        }
    }
    ~DataVolume() { unmount(); }
    DataVolume(const DataVolume&) = delete;
    DataVolume& operator=(const DataVolume&) = delete;

    void mount(uint64_t cache_bytes = VolumeOptions().cache_bytes) {
        MountOptions options;
        options.volume.cache_bytes = cache_bytes;
        options.access_time = AccessTimePolicy::noatime;
        options.volume.commit_interval_ms = 0;
        Result<vfs::FileSystem*> mounted = tiffinfs::mount(*device_, options);
        ASSERT_TRUE(mounted.ok());
        file_system_ = static_cast<TiffinFileSystem*>(mounted.value());
    }
    void unmount() {
        if (file_system_ != nullptr) {
            EXPECT_EQ(file_system_->volume().pool().overdrawn_nodes(), 0U);
            EXPECT_TRUE(file_system_->unmount().ok());
            destroy(file_system_);
            file_system_ = nullptr;
        }
    }
    void remount(uint64_t cache_bytes = VolumeOptions().cache_bytes) {
        unmount();
        mount(cache_bytes);
    }
    bool mounted() const { return file_system_ != nullptr; }
    // Ends the mount of a damaged volume; what that answers does not matter.
    void abandon() {
        (void)file_system_->unmount().ok();
        destroy(file_system_);
        file_system_ = nullptr;
    }
    // Everything durable so far survives; what is not, may not.
    void crash() {
        destroy(file_system_);
        file_system_ = nullptr;
        mount();
    }
    // Ends the mount and returns what the checker finds wrong.
    std::string check() {
        unmount();
        return tiffin::test::findings_of(*device_);
    }
    TiffinFileSystem& fs() { return *file_system_; }
    vfs::BlockDevice& device() { return *device_; }
    Volume& volume() { return file_system_->volume(); }

    uint64_t create(const std::string& name) {
        Result<vfs::Attributes> made = file_system_->create(
            {}, vfs::kRootNode, vfs::Name(name.data(), name.size()), 0644, 0, 0, {});
        EXPECT_TRUE(made.ok());
        return made.ok() ? made->node : 0;
    }
    uint64_t lookup(const std::string& name) {
        Result<vfs::Attributes> found =
            file_system_->lookup(vfs::kRootNode, vfs::Name(name.data(), name.size()));
        EXPECT_TRUE(found.ok());
        return found.ok() ? found->node : 0;
    }
    vfs::Attributes attributes(uint64_t node) {
        Result<vfs::Attributes> attributes = file_system_->get_attributes(node);
        EXPECT_TRUE(attributes.ok());
        return attributes.ok() ? attributes.value() : vfs::Attributes{};
    }

    // Answers are the count of bytes, or the negative errno.
    int64_t write(uint64_t node, uint64_t offset, const std::string& text, uint32_t flags = 0) {
        vfs::IoVector buffer{const_cast<char*>(text.data()), text.size()};
        return answer(
            file_system_->write(node, 0, offset, Span<const vfs::IoVector>(&buffer, 1), flags));
    }
    // The same in buffers of `piece_bytes`.
    int64_t write_pieces(uint64_t node, uint64_t offset, const std::string& text,
                         size_t piece_bytes) {
        std::vector<vfs::IoVector> buffers =
            pieces_of(const_cast<char*>(text.data()), text.size(), piece_bytes);
        return answer(file_system_->write(
            node, 0, offset, Span<const vfs::IoVector>(buffers.data(), buffers.size()), 0));
    }
    int64_t read(uint64_t node, uint64_t offset, std::string& text, size_t piece_bytes = SIZE_MAX) {
        std::vector<vfs::IoVector> buffers = pieces_of(text.data(), text.size(), piece_bytes);
        return answer(file_system_->read(
            node, 0, offset, Span<const vfs::IoVector>(buffers.data(), buffers.size())));
    }
    // What is at `offset`; "error N" when it cannot be read.
    std::string text_at(uint64_t node, uint64_t offset, size_t size_bytes) {
        std::string text(size_bytes, '?');
        int64_t count = read(node, offset, text);
        if (count < 0) {
            return "error " + std::to_string(-count);
        }
        text.resize(static_cast<size_t>(count));
        return text;
    }
    std::string content(uint64_t node) {
        return text_at(node, 0, attributes(node).size_bytes + 10);
    }
    int64_t truncate(uint64_t node, uint64_t size_bytes) {
        vfs::AttributeChange change;
        change.valid = vfs::AttributeChange::size_bit;
        change.size_bytes = size_bytes;
        return answer(file_system_->set_attributes({}, node, change));
    }
    int64_t allocate(uint64_t node, uint32_t mode, uint64_t offset, uint64_t length) {
        return answer(file_system_->allocate(node, mode, offset, length));
    }
    int64_t seek(uint64_t node, uint64_t offset, vfs::SeekTarget target) {
        return answer(file_system_->seek(node, offset, target));
    }

    // Runs a scrub to its end.
    vfs::ScrubProgress scrub() { return tiffin::test::scrub(*file_system_); }

  private:
    static std::vector<vfs::IoVector> pieces_of(char* data, size_t size_bytes, size_t piece_bytes) {
        std::vector<vfs::IoVector> buffers;
        for (size_t at = 0; at < size_bytes; at += std::min(piece_bytes, size_bytes - at)) {
            buffers.push_back({data + at, std::min(piece_bytes, size_bytes - at)});
        }
        return buffers;
    }
    template <typename T>
    static int64_t answer(const Result<T>& result) {
        if (!result.ok()) {
            return -int64_t{errno_value(result.error())};
        }
        if constexpr (std::is_integral_v<T>) {
            return static_cast<int64_t>(result.value());
        } else {
            return 0;
        }
    }

    std::unique_ptr<vfs::BlockDevice> device_;
    TiffinFileSystem* file_system_ = nullptr;
};

}  // namespace tiffin::tiffinfs
