// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/hello/hello.h"

#include "fs/base/allocate.h"

namespace tiffin::hello {
namespace {

using vfs::Attributes;
using vfs::NodeId;

constexpr NodeId kFileNode = 2;
constexpr vfs::Name kFileName = "hello";
constexpr size_t kCapacityBytes = 4096;
constexpr char kGreeting[] = "Hello from Tiffin. Write something here.\n";

class HelloFileSystem final : public vfs::FileSystem {
  public:
    HelloFileSystem() : size_bytes_(sizeof(kGreeting) - 1), changed_(now()) {
        __builtin_memcpy(content_, kGreeting, size_bytes_);
    }

    // ---- Mounting: everything is in memory, so there is nothing to write back.
    Result<void> unmount() override { return {}; }
    Result<void> sync(bool /*wait*/) override { return {}; }
    Result<vfs::FileSystemStatistics> statistics() override {
        vfs::FileSystemStatistics statistics;
        statistics.total_blocks = 1;
        statistics.total_nodes = 2;
        return statistics;
    }

    // ---- Nodes: two that always exist, so references need not be counted.
    Result<Attributes> lookup(NodeId parent, vfs::Name name) override {
        if (parent != vfs::kRootNode) {
            return Error::enotdir;
        }
        if (name.size_bytes > vfs::kNameMaxBytes) {
            return Error::enametoolong;
        }
        if (name == vfs::Name(".") || name == vfs::Name("..")) {
            return get_attributes(vfs::kRootNode);
        }
        return name == kFileName ? get_attributes(kFileNode) : Result<Attributes>(Error::enoent);
    }
    void forget(NodeId /*node*/, uint64_t /*count*/) override {}

    Result<Attributes> get_attributes(NodeId node) override {
        if (node != vfs::kRootNode && node != kFileNode) {
            return Error::estale;
        }
        MutexLock lock(mutex_);
        Attributes attributes;
        attributes.node = node;
        attributes.mode =
            node == vfs::kRootNode ? vfs::mode::directory | 0755U : vfs::mode::regular | 0644U;
        attributes.link_count = node == vfs::kRootNode ? 2 : 1;
        attributes.size_bytes = node == vfs::kRootNode ? 0 : size_bytes_;
        attributes.access_time = attributes.modification_time = attributes.change_time =
            attributes.birth_time = changed_;
        return attributes;
    }

    // Truncating is what `echo text > hello` does first.
    Result<Attributes> set_attributes(const vfs::Caller& /*caller*/, NodeId node,
                                      const vfs::AttributeChange& change) override {
        if ((change.valid & vfs::AttributeChange::size_bit) != 0) {
            MutexLock lock(mutex_);
            if (change.size_bytes > kCapacityBytes) {
                return Error::efbig;
            }
            if (change.size_bytes > size_bytes_) {
                __builtin_memset(content_ + size_bytes_, 0, change.size_bytes - size_bytes_);
            }
            size_bytes_ = change.size_bytes;
            changed_ = now();
        }
        return get_attributes(node);
    }

    // ---- Data.
    Result<size_t> read(NodeId node, vfs::Handle /*handle*/, uint64_t offset_bytes,
                        Span<const vfs::IoVector> buffers) override {
        if (node != kFileNode) {
            return Error::eisdir;
        }
        MutexLock lock(mutex_);
        size_t done = 0;
        for (const vfs::IoVector& buffer : buffers) {
            if (offset_bytes + done >= size_bytes_) {
                break;
            }
            size_t left = size_bytes_ - (offset_bytes + done);
            size_t count = left < buffer.size_bytes ? left : buffer.size_bytes;
            __builtin_memcpy(buffer.data, content_ + offset_bytes + done, count);
            done += count;
        }
        return done;
    }

    Result<size_t> write(NodeId node, vfs::Handle /*handle*/, uint64_t offset_bytes,
                         Span<const vfs::IoVector> buffers, uint32_t flags) override {
        if (node != kFileNode) {
            return Error::eisdir;
        }
        MutexLock lock(mutex_);
        if ((flags & vfs::write_flag::append) != 0) {
            offset_bytes = size_bytes_;
        }
        size_t total = 0;
        for (const vfs::IoVector& buffer : buffers) {
            total += buffer.size_bytes;
        }
        if (offset_bytes > kCapacityBytes || total > kCapacityBytes - offset_bytes) {
            return Error::efbig;
        }
        if (offset_bytes > size_bytes_) {
            __builtin_memset(content_ + size_bytes_, 0, offset_bytes - size_bytes_);
        }
        size_t done = 0;
        for (const vfs::IoVector& buffer : buffers) {
            __builtin_memcpy(content_ + offset_bytes + done, buffer.data, buffer.size_bytes);
            done += buffer.size_bytes;
        }
        if (offset_bytes + done > size_bytes_) {
            size_bytes_ = offset_bytes + done;
        }
        changed_ = now();
        return done;
    }
    Result<void> fsync(NodeId /*node*/, bool /*data_only*/) override { return {}; }

    // ---- The directory: an entry's cookie says where reading goes on after it.
    Result<void> read_directory(NodeId node, vfs::Handle /*handle*/, uint64_t cookie,
                                bool with_attributes, vfs::DirectorySink& sink) override {
        if (node != vfs::kRootNode) {
            return Error::enotdir;
        }
        const vfs::Name names[] = {".", "..", kFileName};
        for (uint64_t i = cookie; i < 3; ++i) {
            Attributes attributes = TRY(get_attributes(i == 2 ? kFileNode : vfs::kRootNode));
            vfs::DirectoryEntry entry;
            entry.name = names[i];
            entry.node = attributes.node;
            entry.type_mode = attributes.mode & vfs::mode::type_mask;
            entry.next_cookie = i + 1;
            entry.attributes = with_attributes ? &attributes : nullptr;
            if (!sink.add(entry)) {
                return {};
            }
        }
        return {};
    }

  private:
    static vfs::Timestamp now() {
        return {host::realtime_ns() / 1'000'000'000,
                static_cast<uint32_t>(host::realtime_ns() % 1'000'000'000)};
    }

    host::Mutex mutex_{host::LockClass::leaf};
    char content_[kCapacityBytes] GUARDED_BY(mutex_);
    uint64_t size_bytes_ GUARDED_BY(mutex_);
    vfs::Timestamp changed_ GUARDED_BY(mutex_);
};

}  // namespace

Result<vfs::FileSystem*> create() {
    vfs::FileSystem* file_system = make_object<HelloFileSystem>();
    if (file_system == nullptr) {
        return Error::enomem;
    }
    return file_system;
}

void destroy(vfs::FileSystem* file_system) {
    destroy_object(static_cast<HelloFileSystem*>(file_system));
}

}  // namespace tiffin::hello
