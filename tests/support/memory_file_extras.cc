// SPDX-License-Identifier: MIT OR GPL-2.0-only
// MemoryFileSystem's extended attributes and administration.
#include <algorithm>
#include <mutex>

#include "tests/support/memory_file_system.h"

namespace tiffin::testing {
namespace {

Result<void> check_xattr_name(vfs::Name name) {
    std::string text(name.data, name.size_bytes);
    if (text.size() > vfs::kXattrNameMaxBytes) {
        return Error::erange;
    }
    for (const char* prefix : {"user.", "trusted.", "security."}) {
        if (text.starts_with(prefix)) {
            return {};
        }
    }
    return Error::eopnotsupp;
}

}  // namespace

Result<void> MemoryFileSystem::unmount() { return {}; }

Result<vfs::FileSystemStatistics> MemoryFileSystem::statistics() {
    if (options_.is_mute) {
        return Error::eio;
    }
    std::shared_lock lock(mutex_);
    vfs::FileSystemStatistics statistics;
    statistics.total_blocks = options_.capacity_bytes / vfs::kBlockBytes;
    statistics.free_blocks = statistics.total_blocks - used_blocks_;
    statistics.available_blocks = statistics.free_blocks;
    statistics.total_nodes = uint64_t{1} << 32;
    statistics.free_nodes = statistics.total_nodes - nodes_.size();
    return statistics;
}

Result<void> MemoryFileSystem::sync(bool /*wait*/) { return {}; }

Result<void> MemoryFileSystem::remount(bool read_only) {
    std::unique_lock lock(mutex_);
    options_.read_only = read_only;
    return {};
}

Result<size_t> MemoryFileSystem::get_xattr(vfs::NodeId id, vfs::Name name, MutableByteSpan buffer) {
    std::shared_lock lock(mutex_);
    Node* node = TRY(find(id));
    TRY(check_xattr_name(name));
    auto found = node->xattrs.find({name.data, name.size_bytes});
    if (found == node->xattrs.end()) {
        return Error::enodata;
    }
    const std::vector<unsigned char>& value = found->second;
    if (!buffer.empty()) {
        if (buffer.size() < value.size()) {
            return Error::erange;
        }
        std::copy(value.begin(), value.end(), buffer.begin());
    }
    return value.size();
}

Result<void> MemoryFileSystem::set_xattr(const vfs::Caller& /*caller*/, vfs::NodeId id,
                                         vfs::Name name, ByteSpan value, uint32_t flags) {
    std::unique_lock lock(mutex_);
    TRY(check_writable());
    Node* node = TRY(find(id));
    TRY(check_xattr_name(name));
    TRY(check_changeable(*node));
    if (value.size() > vfs::kXattrValueMaxBytes) {
        return Error::e2big;
    }
    std::string key(name.data, name.size_bytes);
    bool exists = node->xattrs.contains(key);
    if (exists && (flags & vfs::xattr_flag::create) != 0) {
        return Error::eexist;
    }
    if (!exists && (flags & vfs::xattr_flag::replace) != 0) {
        return Error::enodata;
    }
    node->xattrs[key].assign(value.begin(), value.end());
    touch_change(*node);
    return {};
}

Result<size_t> MemoryFileSystem::list_xattr(vfs::NodeId id, MutableByteSpan buffer) {
    std::shared_lock lock(mutex_);
    Node* node = TRY(find(id));
    std::string names;
    for (const auto& [name, value] : node->xattrs) {
        names.append(name.c_str(), name.size() + 1);
    }
    if (!buffer.empty()) {
        if (buffer.size() < names.size()) {
            return Error::erange;
        }
        std::copy(names.begin(), names.end(), buffer.begin());
    }
    return names.size();
}

Result<void> MemoryFileSystem::remove_xattr(const vfs::Caller& /*caller*/, vfs::NodeId id,
                                            vfs::Name name) {
    std::unique_lock lock(mutex_);
    TRY(check_writable());
    Node* node = TRY(find(id));
    TRY(check_xattr_name(name));
    TRY(check_changeable(*node));
    if (node->xattrs.erase({name.data, name.size_bytes}) == 0) {
        return Error::enodata;
    }
    touch_change(*node);
    return {};
}

Result<uint64_t> MemoryFileSystem::trim(uint64_t /*offset_bytes*/, uint64_t /*length_bytes*/,
                                        uint64_t /*minimum_bytes*/) {
    std::shared_lock lock(mutex_);
    return options_.capacity_bytes - used_blocks_ * vfs::kBlockBytes;
}

Result<void> MemoryFileSystem::shutdown(vfs::ShutdownMode /*mode*/) {
    std::unique_lock lock(mutex_);
    shut_down_ = true;
    return {};
}

// One object at a time: its cursor is the next node.
Result<void> MemoryFileSystem::scrub(vfs::ScrubProgress& progress) {
    std::shared_lock lock(mutex_);
    progress.total_bytes = used_blocks_ * vfs::kBlockBytes;
    auto next = nodes_.lower_bound(progress.cursor[0]);
    if (next == nodes_.end()) {
        progress.finished = true;
        return {};
    }
    progress.checked_bytes += next->second.blocks.size() * vfs::kBlockBytes;
    progress.cursor[0] = next->first + 1;
    return {};
}

Result<void> MemoryFileSystem::describe(vfs::ByteSink& sink) {
    std::string text = "objects: " + std::to_string(node_count()) +
                       "\nreferences: " + std::to_string(reference_count()) + "\n";
    sink.append(text.data(), text.size());
    return {};
}

}  // namespace tiffin::testing
