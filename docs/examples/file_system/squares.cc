// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A file system outside of Tiffin's sources, built against the package tiffin-dev (or `cmake --install BUILD
// --component development`): a folder of files 0 to 999, each of which holds the square of its name.
//
//     make && ./mount.squares /mnt && cat /mnt/12        # 144
//
// Nothing in it changes, so it has no locks, and what is always there needs no counted references. It is mounted
// read-only, so the kernel itself refuses changes. docs/tutorial.md explains the calls.
#include "fs/vfs/buffer_cursor.h"
#include "fs/vfs/file_system.h"
#include "fuse/tools/common/mount_program.h"

#include <cstdio>
#include <string>
#include <vector>

namespace {

using tiffin::Error;
using tiffin::Result;
using tiffin::Span;
namespace vfs = tiffin::vfs;
namespace fuse = tiffin::fuse;

constexpr vfs::NodeId kFirstNode = vfs::kRootNode + 1;  // the inode number of file 0
constexpr uint64_t kFiles = 1000;

std::string content_of(vfs::NodeId node) {
    const uint64_t number = node - kFirstNode;
    return std::to_string(number * number) + "\n";
}

class Squares final : public vfs::FileSystem {
  public:
    Result<void> unmount() override { return {}; }
    Result<void> sync(bool /*wait*/) override { return {}; }
    Result<vfs::FileSystemStatistics> statistics() override {
        vfs::FileSystemStatistics statistics;
        statistics.total_nodes = kFiles + 1;
        return statistics;
    }

    Result<vfs::Attributes> lookup(vfs::NodeId parent, vfs::Name name) override {
        if (parent != vfs::kRootNode) {
            return Error::enotdir;
        }
        if (name == vfs::Name(".") || name == vfs::Name("..")) {
            return get_attributes(vfs::kRootNode);
        }
        uint64_t number = 0;
        for (const char digit : std::string(name.data, name.size_bytes)) {
            if (digit < '0' || digit > '9' || number >= kFiles) {
                return Error::enoent;
            }
            number = 10 * number + static_cast<uint64_t>(digit - '0');
        }
        // "012" is no name of a file, though it is a number.
        const std::string canonical = std::to_string(number);
        if (number >= kFiles || !(name == vfs::Name(canonical.data(), canonical.size()))) {
            return Error::enoent;
        }
        return get_attributes(kFirstNode + number);
    }
    void forget(vfs::NodeId /*node*/, uint64_t /*count*/) override {}

    Result<vfs::Attributes> get_attributes(vfs::NodeId node) override {
        if (node < vfs::kRootNode || node >= kFirstNode + kFiles) {
            return Error::estale;
        }
        vfs::Attributes attributes;
        attributes.node = node;
        attributes.mode = vfs::mode::directory | 0555U;
        attributes.link_count = 2;
        if (node != vfs::kRootNode) {
            attributes.mode = vfs::mode::regular | 0444U;
            attributes.link_count = 1;
            attributes.size_bytes = content_of(node).size();
        }
        return attributes;
    }

    // A cookie is the number of entries before the next one: ".", "..", and the files.
    Result<void> read_directory(vfs::NodeId node, vfs::Handle /*handle*/, uint64_t cookie,
                                bool with_attributes, vfs::DirectorySink& sink) override {
        if (node != vfs::kRootNode) {
            return Error::enotdir;
        }
        for (uint64_t i = cookie; i < kFiles + 2; ++i) {
            const std::string name = i == 0 ? "." : i == 1 ? ".." : std::to_string(i - 2);
            const vfs::Attributes attributes =
                TRY(get_attributes(i < 2 ? vfs::kRootNode : kFirstNode + i - 2));
            vfs::DirectoryEntry entry;
            entry.name = vfs::Name(name.data(), name.size());
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

    Result<size_t> read(vfs::NodeId node, vfs::Handle /*handle*/, uint64_t offset_bytes,
                        Span<const vfs::IoVector> buffers) override {
        if (node == vfs::kRootNode) {
            return Error::eisdir;
        }
        const std::string content = content_of(node);
        if (offset_bytes >= content.size()) {
            return size_t{0};
        }
        tiffin::BufferCursor cursor(buffers);
        cursor.limit(content.size() - offset_bytes);
        const size_t count = cursor.remaining();
        cursor.copy_from(content.data() + offset_bytes, count);
        return count;
    }
};

Result<vfs::FileSystem*> mount_squares(vfs::BlockDevice* /*device*/,
                                       const fuse::FileSystemOptions& /*options*/) {
    return new Squares;
}
void destroy_squares(vfs::FileSystem* file_system) { delete static_cast<Squares*>(file_system); }

}  // namespace

// The options of mount.tiffin, with another file system.
int main(int argc, char** argv) {
    const fuse::FileSystemType types[] = {
        {"squares", false, nullptr, mount_squares, destroy_squares}};
    std::vector<char*> arguments(argv, argv + argc);
    char options[] = "-oro";
    arguments.push_back(options);
    return fuse::mount_program(static_cast<int>(arguments.size()), arguments.data(), types);
}
