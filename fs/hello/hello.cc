// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/hello/hello.h"

#include "fs/base/allocate.h"
#include "fs/vfs/buffer_cursor.h"

namespace tiffin::hello {
namespace {

using vfs::AttributeChange;
using vfs::Attributes;
using vfs::NodeId;

constexpr NodeId kFileNode = 2;
constexpr vfs::Name kFileName = "hello";
constexpr size_t kCapacityBytes = 4096;
constexpr char kGreeting[] = "Hello from Tiffin. Write something here.\n";

class HelloFileSystem final : public vfs::FileSystem {
  public:
    HelloFileSystem()
        : root_(new_node(vfs::kRootNode, vfs::mode::directory | 0755U, 2)),
          file_(new_node(kFileNode, vfs::mode::regular | 0644U, 1)) {
        file_.size_bytes = sizeof(kGreeting) - 1;
        __builtin_memcpy(content_, kGreeting, file_.size_bytes);
    }

    // ---- Mounting: everything is in memory, so there is nothing to write back.
    Result<void> unmount() override { return {}; }
    Result<void> sync(bool /*wait*/) override { return {}; }
    Result<void> fsync(NodeId /*node*/, bool /*data_only*/) override { return {}; }
    Result<vfs::FileSystemStatistics> statistics() override {
        vfs::FileSystemStatistics statistics;
        statistics.total_blocks = 1;
        statistics.total_nodes = 2;
        return statistics;
    }

    // ---- Nodes: two that always exist, so references need not be counted.
    Result<Attributes> lookup(NodeId parent, vfs::Name name) override {
        if (parent != vfs::kRootNode) {
            return parent == kFileNode ? Error::enotdir : Error::estale;
        }
        if (name.size_bytes > vfs::kNameMaxBytes) {
            return Error::enametoolong;
        }
        if (name == vfs::Name(".") || name == vfs::Name("..")) {
            return get_attributes(vfs::kRootNode);
        }
        if (!(name == kFileName)) {
            return Error::enoent;
        }
        return get_attributes(kFileNode);
    }
    void forget(NodeId /*node*/, uint64_t /*count*/) override {}

    Result<Attributes> get_attributes(NodeId node) override {
        MutexLock lock(mutex_);
        return *TRY(find(node));
    }

    // Truncating is what `echo text > hello` does first; write-back sends times afterwards. Owner
    // and permissions are fixed: what is not kept is refused.
    Result<Attributes> set_attributes(const vfs::Caller& /*caller*/, NodeId node,
                                      const AttributeChange& change) override {
        constexpr uint32_t kRefused = AttributeChange::mode_bit | AttributeChange::user_id_bit |
                                      AttributeChange::group_id_bit;
        MutexLock lock(mutex_);
        Attributes& attributes = *TRY(find(node));
        if ((change.valid & kRefused) != 0) {
            return Error::eopnotsupp;
        }
        if ((change.valid & AttributeChange::size_bit) != 0) {
            TRY(set_size(node, change.size_bytes));
            attributes.modification_time = now();
        }
        if ((change.valid & AttributeChange::access_time_bit) != 0) {
            attributes.access_time = change.access_time;
        } else if ((change.valid & AttributeChange::access_now_bit) != 0) {
            attributes.access_time = now();
        }
        if ((change.valid & AttributeChange::modification_time_bit) != 0) {
            attributes.modification_time = change.modification_time;
        } else if ((change.valid & AttributeChange::modification_now_bit) != 0) {
            attributes.modification_time = now();
        }
        const bool given = (change.valid & AttributeChange::change_time_bit) != 0;
        attributes.change_time = given ? change.change_time : now();
        return attributes;
    }

    // ---- Data.
    Result<size_t> read(NodeId node, vfs::Handle /*handle*/, uint64_t offset_bytes,
                        Span<const vfs::IoVector> buffers) override {
        MutexLock lock(mutex_);
        TRY(find_file(node));
        if (offset_bytes >= file_.size_bytes) {
            return size_t{0};
        }
        BufferCursor cursor(buffers);
        cursor.limit(file_.size_bytes - offset_bytes);
        size_t count = cursor.remaining();
        cursor.copy_from(content_ + offset_bytes, count);
        return count;
    }

    Result<size_t> write(NodeId node, vfs::Handle /*handle*/, uint64_t offset_bytes,
                         Span<const vfs::IoVector> buffers, uint32_t flags) override {
        MutexLock lock(mutex_);
        TRY(find_file(node));
        if ((flags & vfs::write_flag::append) != 0) {
            offset_bytes = file_.size_bytes;
        }
        BufferCursor cursor(buffers);
        size_t count = cursor.remaining();
        if (offset_bytes > kCapacityBytes || count > kCapacityBytes - offset_bytes) {
            return Error::efbig;
        }
        if (offset_bytes + count > file_.size_bytes) {
            TRY(set_size(node, offset_bytes + count));
        }
        cursor.copy_to(content_ + offset_bytes, count);
        if ((flags & vfs::write_flag::keep_times) == 0) {
            file_.modification_time = file_.change_time = now();
        }
        return count;
    }

    // ---- The directory: an entry's cookie says where reading goes on after it.
    Result<void> read_directory(NodeId node, vfs::Handle /*handle*/, uint64_t cookie,
                                bool with_attributes, vfs::DirectorySink& sink) override {
        if (node != vfs::kRootNode) {
            return node == kFileNode ? Error::enotdir : Error::estale;
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
                break;
            }
        }
        return {};
    }

  private:
    static vfs::Timestamp now() {
        int64_t time_ns = host::realtime_ns();
        return {time_ns / 1'000'000'000, static_cast<uint32_t>(time_ns % 1'000'000'000)};
    }

    static Attributes new_node(NodeId node, uint32_t mode, uint32_t link_count) {
        Attributes attributes;
        attributes.node = node;
        attributes.mode = mode;
        attributes.link_count = link_count;
        attributes.access_time = attributes.modification_time = attributes.change_time =
            attributes.birth_time = now();
        return attributes;
    }

    Result<Attributes*> find(NodeId node) REQUIRES(mutex_) {
        if (node != vfs::kRootNode && node != kFileNode) {
            return Error::estale;
        }
        return node == vfs::kRootNode ? &root_ : &file_;
    }
    Result<void> find_file(NodeId node) REQUIRES(mutex_) {
        TRY(find(node));
        return node == kFileNode ? Result<void>() : Error::eisdir;
    }

    // What comes into the file by growing is zeros, whatever was there before it shrank.
    Result<void> set_size(NodeId node, uint64_t size_bytes) REQUIRES(mutex_) {
        TRY(find_file(node));
        if (size_bytes > kCapacityBytes) {
            return Error::efbig;
        }
        if (size_bytes > file_.size_bytes) {
            __builtin_memset(content_ + file_.size_bytes, 0, size_bytes - file_.size_bytes);
        }
        file_.size_bytes = size_bytes;
        return {};
    }

    host::Mutex mutex_{host::LockClass::leaf};
    Attributes root_ GUARDED_BY(mutex_);
    Attributes file_ GUARDED_BY(mutex_);
    unsigned char content_[kCapacityBytes] GUARDED_BY(mutex_);
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
