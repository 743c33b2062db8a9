// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A mounted tiffinfs for tests of names, attributes and what damaged volumes do to them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fs/tiffinfs/names/directory.h"
#include "fs/tiffinfs/objects/file_system.h"
#include "fs/tiffinfs/tiffinfs.h"
#include "fs/tiffinfs/volume/transaction.h"
#include "fuse/check/check.h"
#include "fuse/host/memory_device.h"

namespace tiffin::tiffinfs {

inline vfs::Name name_of(const std::string& text) { return vfs::Name(text.data(), text.size()); }

// The errno of a failure, 0 for success.
template <typename T>
int code(const Result<T>& result) {
    return result.ok() ? 0 : errno_value(result.error());
}
inline int code(Error error) { return errno_value(error); }

// Collects what read_directory() hands out, at most `limit` entries at a time.
class NameList final : public vfs::DirectorySink {
  public:
    explicit NameList(size_t limit = SIZE_MAX) : limit_(limit) {}
    bool add(const vfs::DirectoryEntry& entry) override {
        if (names.size() == limit_) {
            return false;
        }
        names.emplace_back(entry.name.data, entry.name.size_bytes);
        nodes.push_back(entry.node);
        last_cookie = entry.next_cookie;
        return true;
    }

    std::vector<std::string> names;
    std::vector<uint64_t> nodes;
    uint64_t last_cookie = 0;

  private:
    size_t limit_;
};

class NamesVolume {
  public:
    explicit NamesVolume(const MountOptions& options = quiet_options()) : options_(options) {
        auto device = fuse::MemoryDevice::create(64U << 20);
        EXPECT_TRUE(device.ok());
        device_ = std::move(device.value());
        EXPECT_TRUE(make_file_system(*device_, {}).ok());
        mount();
    }
    ~NamesVolume() { unmount(); }
    NamesVolume(const NamesVolume&) = delete;
    NamesVolume& operator=(const NamesVolume&) = delete;

    // Without timers; damage does not turn the volume read-only, so that tests can go on.
    static MountOptions quiet_options() {
        MountOptions options;
        options.access_time = AccessTimePolicy::noatime;
        options.volume.commit_interval_ms = 0;
        options.volume.errors = ErrorsPolicy::continue_running;
        return options;
    }

    void mount() {
        Result<vfs::FileSystem*> mounted = tiffinfs::mount(*device_, options_);
        ASSERT_TRUE(mounted.ok());
        fs_ = static_cast<TiffinFileSystem*>(mounted.value());
    }
    void unmount() {
        if (fs_ != nullptr) {
            EXPECT_TRUE(fs_->unmount().ok());
            destroy(fs_);
            fs_ = nullptr;
        }
    }
    void remount() {
        unmount();
        mount();
    }
    // As a crash does it, but with everything so far durable.
    void crash() {
        EXPECT_TRUE(fs_->sync(true).ok());
        destroy(fs_);
        fs_ = nullptr;
        mount();
    }
    // Ends the mount as a crash does; what is not durable is lost.
    void lose() {
        destroy(fs_);
        fs_ = nullptr;
    }
    // Ends the mount, unless it has ended; what the checker finds wrong, empty when all is well.
    std::string check() {
        unmount();
        std::string text;
        for (const check::Finding& finding : check::check_file_system(*device_, {}).findings) {
            if (finding.severity != check::Severity::note) {
                text += finding.line() + "\n";
            }
        }
        return text;
    }

    TiffinFileSystem& fs() { return *fs_; }
    Volume& volume() { return fs_->volume(); }

    // Each keeps one reference to what it returns; 0 after a failure, which fails the test too.
    uint64_t create(uint64_t parent, const std::string& name) {
        return node_of(fs_->create({}, parent, name_of(name), 0644, 0, 0, {}));
    }
    uint64_t make_directory(uint64_t parent, const std::string& name) {
        return node_of(fs_->make_directory({}, parent, name_of(name), 0755, {}));
    }
    uint64_t lookup(uint64_t parent, const std::string& name) {
        return node_of(fs_->lookup(parent, name_of(name)));
    }
    int lookup_error(uint64_t parent, const std::string& name) {
        return code(fs_->lookup(parent, name_of(name)));
    }
    vfs::Attributes attributes(uint64_t node) {
        Result<vfs::Attributes> attributes = fs_->get_attributes(node);
        EXPECT_TRUE(attributes.ok());
        return attributes.ok() ? attributes.value() : vfs::Attributes{};
    }
    std::vector<std::string> list(uint64_t directory) {
        NameList sink;
        EXPECT_EQ(code(fs_->read_directory(directory, 0, 0, false, sink)), 0);
        return sink.names;
    }

    // ---- What no operation does ----
    void put(Key key, ByteSpan value) {
        change([&](Transaction& transaction) { return transaction.put(key, value); });
    }
    template <typename T>
    void put_value(Key key, const T& value) {
        put(key, ByteSpan(reinterpret_cast<const unsigned char*>(&value), sizeof(value)));
    }
    void erase(Key key) {
        change([&](Transaction& transaction) { return transaction.erase(key); });
    }
    bool exists(Key key) {
        unsigned char value[kMaximumValueBytes];
        return volume().tree().get(key, MutableByteSpan(value, sizeof(value))).ok();
    }
    // The inode in the tree.
    InodeValue inode(uint64_t node) {
        InodeValue value{};
        EXPECT_TRUE(volume().tree().get_value(make_key(node, Kind::inode, 0), value).ok());
        return value;
    }
    void put_inode(uint64_t node, const InodeValue& value) {
        put_value(make_key(node, Kind::inode, 0), value);
    }
    void put_entry(uint64_t directory, const std::string& name, uint64_t node, uint32_t type_mode) {
        change([&](Transaction& transaction) {
            const uint64_t hash = entry_hash(volume().superblock().hash_key, name_of(name));
            return stage_entry(transaction, directory, hash << kEntrySlotBits, node, type_mode,
                               name_of(name));
        });
    }

  private:
    static uint64_t node_of(Result<vfs::Attributes> attributes) {
        EXPECT_TRUE(attributes.ok());
        return attributes.ok() ? attributes->node : 0;
    }
    template <typename Function>
    void change(Function stage) {
        Transaction transaction(volume());
        ASSERT_TRUE(transaction.begin(SpacePriority::normal, {.scattered = 1}).ok());
        ASSERT_TRUE(stage(transaction).ok());
        ASSERT_TRUE(transaction.prepare().ok());
        transaction.commit();
    }

    MountOptions options_;
    std::unique_ptr<vfs::BlockDevice> device_;
    TiffinFileSystem* fs_ = nullptr;
};

}  // namespace tiffin::tiffinfs
