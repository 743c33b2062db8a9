// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/unit/hello/shelf.h"

#include "fs/base/allocate.h"
#include "fs/vfs/buffer_cursor.h"

namespace tiffin::shelf {
namespace {

using vfs::AttributeChange;
using vfs::Attributes;
using vfs::NodeId;

constexpr uint32_t kFileCount = 16;
constexpr size_t kCapacityBytes = 4096;

// A place on the shelf. It is free when attributes.node is 0.
struct File {
    Attributes attributes;
    uint64_t references = 0;
    size_t name_bytes = 0;  // 0: it has no name any more
    char name[vfs::kNameMaxBytes];
    unsigned char content[kCapacityBytes];
};

class ShelfFileSystem final : public vfs::FileSystem {
  public:
    ShelfFileSystem() : root_(new_node(vfs::kRootNode, vfs::mode::directory | 0777U, 2)) {}

    Result<void> unmount() override { return {}; }
    Result<void> sync(bool /*wait*/) override { return {}; }
    Result<void> fsync(NodeId /*node*/, bool /*data_only*/) override { return {}; }
    Result<vfs::FileSystemStatistics> statistics() override {
        MutexLock lock(mutex_);
        vfs::FileSystemStatistics statistics;
        statistics.total_blocks = kFileCount;
        statistics.total_nodes = kFileCount + 1;
        for (const File& file : files_) {
            statistics.free_blocks += file.attributes.node == 0 ? 1 : 0;
        }
        statistics.available_blocks = statistics.free_nodes = statistics.free_blocks;
        return statistics;
    }

    // ---- Nodes: each one that is handed out is referenced once more.
    Result<Attributes> lookup(NodeId parent, vfs::Name name) override {
        MutexLock lock(mutex_);
        TRY(check_directory(parent));
        if (name.size_bytes > vfs::kNameMaxBytes) {
            return Error::enametoolong;
        }
        if (name == vfs::Name(".") || name == vfs::Name("..")) {
            return root_;
        }
        File* file = find_name(name);
        if (file == nullptr) {
            return Error::enoent;
        }
        ++file->references;
        return file->attributes;
    }

    void forget(NodeId node, uint64_t count) override {
        MutexLock lock(mutex_);
        File* file = find_file(node);
        if (file != nullptr) {
            file->references -= count < file->references ? count : file->references;
            delete_if_unused(*file);
        }
    }

    Result<Attributes> get_attributes(NodeId node) override {
        MutexLock lock(mutex_);
        return *TRY(find(node));
    }

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
            File& file = *TRY(find_regular(node));
            TRY(set_size(file, change.size_bytes));
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

    // ---- Creating and removing.
    Result<Attributes> create(const vfs::Caller& caller, NodeId parent, vfs::Name name,
                              uint32_t mode, uint32_t /*device_major*/, uint32_t /*device_minor*/,
                              Span<const vfs::InitialXattr> xattrs) override {
        MutexLock lock(mutex_);
        if (!xattrs.empty()) {
            return Error::eopnotsupp;
        }
        TRY(check_directory(parent));
        if (name.size_bytes > vfs::kNameMaxBytes) {
            return Error::enametoolong;
        }
        const uint32_t type = mode & vfs::mode::type_mask;
        const uint32_t special = vfs::mode::permission_mask & ~0777U;
        if ((type != 0 && type != vfs::mode::regular) || (mode & special) != 0) {
            return Error::eopnotsupp;
        }
        if (find_name(name) != nullptr) {
            return Error::eexist;
        }
        for (File& file : files_) {
            if (file.attributes.node == 0) {
                // Numbers are not used again: a handle of a deleted file must not find a new one.
                const uint32_t permissions = mode & 0777U & ~caller.umask;
                file.attributes = new_node(next_node_++, vfs::mode::regular | permissions, 1);
                file.attributes.user_id = caller.user_id;
                file.attributes.group_id = caller.group_id;
                file.references = 1;
                file.name_bytes = name.size_bytes;
                __builtin_memcpy(file.name, name.data, name.size_bytes);
                root_.modification_time = root_.change_time = now();
                return file.attributes;
            }
        }
        return Error::enospc;
    }

    Result<void> unlink(const vfs::Caller& /*caller*/, NodeId parent, vfs::Name name) override {
        MutexLock lock(mutex_);
        TRY(check_directory(parent));
        File* file = find_name(name);
        if (file == nullptr) {
            return Error::enoent;
        }
        file->name_bytes = 0;
        file->attributes.link_count = 0;
        file->attributes.change_time = root_.modification_time = root_.change_time = now();
        delete_if_unused(*file);
        return {};
    }

    // ---- Data.
    Result<size_t> read(NodeId node, vfs::Handle /*handle*/, uint64_t offset_bytes,
                        Span<const vfs::IoVector> buffers) override {
        MutexLock lock(mutex_);
        File& file = *TRY(find_regular(node));
        if (offset_bytes >= file.attributes.size_bytes) {
            return size_t{0};
        }
        BufferCursor cursor(buffers);
        cursor.limit(file.attributes.size_bytes - offset_bytes);
        size_t count = cursor.remaining();
        cursor.copy_from(file.content + offset_bytes, count);
        return count;
    }

    Result<size_t> write(NodeId node, vfs::Handle /*handle*/, uint64_t offset_bytes,
                         Span<const vfs::IoVector> buffers, uint32_t flags) override {
        MutexLock lock(mutex_);
        File& file = *TRY(find_regular(node));
        Attributes& attributes = file.attributes;
        if ((flags & vfs::write_flag::append) != 0) {
            offset_bytes = attributes.size_bytes;
        }
        BufferCursor cursor(buffers);
        size_t count = cursor.remaining();
        if (offset_bytes > kCapacityBytes || count > kCapacityBytes - offset_bytes) {
            return Error::efbig;
        }
        if (offset_bytes + count > attributes.size_bytes) {
            TRY(set_size(file, offset_bytes + count));
        }
        cursor.copy_to(file.content + offset_bytes, count);
        if ((flags & vfs::write_flag::keep_times) == 0) {
            attributes.modification_time = attributes.change_time = now();
        }
        return count;
    }

    // ---- The directory: cookie 1 is behind ".", 2 behind "..", and place i is between i + 2 and
    // i + 3. A file keeps its place, so a cookie means the same whatever comes and goes.
    Result<void> read_directory(NodeId node, vfs::Handle /*handle*/, uint64_t cookie,
                                bool with_attributes, vfs::DirectorySink& sink) override {
        {
            MutexLock lock(mutex_);
            TRY(check_directory(node));
        }
        for (uint64_t i = cookie; i < kFileCount + 2; ++i) {
            if (!add_entry(i, with_attributes, sink)) {
                break;
            }
        }
        return {};
    }

  private:
    // Gives the entry at place i to `sink`, if there is one; false: it has no more room. A sink is called
    // without locks, so the file is held by a reference meanwhile.
    bool add_entry(uint64_t i, bool with_attributes, vfs::DirectorySink& sink) {
        File* file = i < 2 ? nullptr : &files_[i - 2];
        char name[vfs::kNameMaxBytes];
        vfs::DirectoryEntry entry;
        Attributes attributes;
        {
            MutexLock lock(mutex_);
            if (file != nullptr && file->name_bytes == 0) {
                return true;
            }
            attributes = file == nullptr ? root_ : file->attributes;
            entry.name = i == 0 ? vfs::Name(".") : vfs::Name("..");
            if (file != nullptr) {
                __builtin_memcpy(name, file->name, file->name_bytes);
                entry.name = vfs::Name(name, file->name_bytes);
                ++file->references;
            }
        }
        entry.node = attributes.node;
        entry.type_mode = attributes.mode & vfs::mode::type_mask;
        entry.next_cookie = i + 1;
        entry.attributes = with_attributes ? &attributes : nullptr;
        const bool taken = sink.add(entry);
        if (file != nullptr && !(taken && with_attributes)) {
            forget(attributes.node, 1);
        }
        return taken;
    }

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

    Result<void> check_directory(NodeId node) REQUIRES(mutex_) {
        TRY(find(node));
        return node == vfs::kRootNode ? Result<void>() : Error::enotdir;
    }
    File* find_file(NodeId node) REQUIRES(mutex_) {
        for (File& file : files_) {
            if (node != 0 && file.attributes.node == node) {
                return &file;
            }
        }
        return nullptr;
    }
    File* find_name(vfs::Name name) REQUIRES(mutex_) {
        for (File& file : files_) {
            if (file.name_bytes > 0 && vfs::Name(file.name, file.name_bytes) == name) {
                return &file;
            }
        }
        return nullptr;
    }
    Result<File*> find_regular(NodeId node) REQUIRES(mutex_) {
        if (node == vfs::kRootNode) {
            return Error::eisdir;
        }
        File* file = find_file(node);
        return file != nullptr ? Result<File*>(file) : Error::estale;
    }
    Result<Attributes*> find(NodeId node) REQUIRES(mutex_) {
        return node == vfs::kRootNode ? &root_ : &TRY(find_regular(node))->attributes;
    }

    // A file lives as long as it has a name or somebody refers to it.
    static void delete_if_unused(File& file) {
        if (file.references == 0 && file.attributes.link_count == 0) {
            file.attributes = {};
        }
    }

    // What comes into the file by growing is zeros, whatever was there before it shrank.
    static Result<void> set_size(File& file, uint64_t size_bytes) {
        uint64_t& size = file.attributes.size_bytes;
        if (size_bytes > kCapacityBytes) {
            return Error::efbig;
        }
        if (size_bytes > size) {
            __builtin_memset(file.content + size, 0, size_bytes - size);
        }
        size = size_bytes;
        return {};
    }

    host::Mutex mutex_{host::LockClass::leaf};
    Attributes root_ GUARDED_BY(mutex_);
    File files_[kFileCount] GUARDED_BY(mutex_);
    NodeId next_node_ GUARDED_BY(mutex_) = vfs::kRootNode + 1;
};

}  // namespace

Result<vfs::FileSystem*> create() {
    vfs::FileSystem* file_system = make_object<ShelfFileSystem>();
    if (file_system == nullptr) {
        return Error::enomem;
    }
    return file_system;
}

void destroy(vfs::FileSystem* file_system) {
    destroy_object(static_cast<ShelfFileSystem*>(file_system));
}

}  // namespace tiffin::shelf
