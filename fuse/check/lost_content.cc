// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/check/lost_content.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "fuse/check/links.h"

namespace tiffin::check {

using tiffinfs::ExtentValue;
using tiffinfs::InodeValue;
using tiffinfs::Kind;
using tiffinfs::make_key;

namespace {

std::string describe(const LostContent& lost) {
    constexpr size_t kShown = 3;
    std::string text = fmt::format("it counts {} blocks and has {}", lost.inode.allocated_blocks,
                                   lost.mapped_blocks);
    if ((lost.inode.inode_flags & tiffinfs::inode_flag::inline_data) != 0) {
        return "its content is gone; reading it will fail";
    }
    if (lost.blocks.empty()) {
        return text + ": content is gone, and nothing says where";
    }
    text += ": what was in blocks";
    for (size_t i = 0; i < std::min(lost.blocks.size(), kShown); ++i) {
        text += fmt::format("{} {} to {}", i == 0 ? "" : ",", lost.blocks[i].first,
                            lost.blocks[i].end - 1);
    }
    if (lost.blocks.size() > kShown) {
        text += fmt::format(", and in {} more places,", lost.blocks.size() - kShown);
    }
    return text + " is gone; reading it will fail";
}

void mark(Repairs& repairs, const LostContent& lost) {
    InodeValue& inode = repairs.inode(lost.node, lost.inode);
    inode.allocated_blocks = lost.mapped_blocks;
    mark_lost(repairs, lost.node, lost.blocks);
    inode.inode_flags &= ~tiffinfs::inode_flag::inline_data;
}

}  // namespace

void mark_lost(Repairs& repairs, uint64_t node, const std::vector<FileBlocks>& ranges) {
    for (const FileBlocks& range : ranges) {
        for (uint64_t first = range.first; first < range.end;) {
            const uint64_t count =
                std::min<uint64_t>(range.end - first, tiffinfs::kLostExtentMaximumBlocks);
            const ExtentValue value{0, 0, static_cast<uint32_t>(count),
                                    tiffinfs::extent_flag::lost};
            const auto* bytes = reinterpret_cast<const unsigned char*>(&value);
            repairs.put(make_key(node, Kind::extent, first), {bytes, bytes + sizeof value});
            first += count;
        }
    }
}

void report_lost_content(Context& context, KeySpace& keys, Objects& objects, Repairs& repairs) {
    for (const LostContent& lost : objects.lost_content) {
        if (context.found(Code::content_missing, path_text(keys, objects, lost.node),
                          describe(lost))) {
            mark(repairs, lost);
        } else if (!lost.blocks.empty()) {
            context.withhold();  // it would read as zeros
        }
    }
    for (const LostNames& lost : objects.lost_names) {
        if (context.found(Code::entries_missing, path_text(keys, objects, lost.node),
                          fmt::format("it counts {} entries and has {}: names are gone",
                                      lost.inode.size_bytes, lost.entries))) {
            repairs.inode(lost.node, lost.inode).size_bytes = lost.entries;
        }
    }
    for (const Objects::LostAttributes& lost : objects.lost_attributes) {
        if (context.found(Code::xattrs_missing, path_text(keys, objects, lost.node),
                          lost.lost_flags != 0
                              ? "its ACL is gone: others may do now what it forbade"
                              : "extended attributes may be gone that it had") &&
            lost.lost_flags != 0) {
            repairs.inode(lost.node, lost.inode).inode_flags &= ~lost.lost_flags;
        }
    }
    for (const MarkedContent& marked : objects.marked_content) {
        context.found_for_good(
            Code::content_lost, path_text(keys, objects, marked.node),
            marked.blocks == 0
                ? std::string("its target is lost: make the link anew")
                : fmt::format("{} blocks are lost, and reading them fails: write them anew, or "
                              "restore or remove the file",
                              marked.blocks));
    }
    for (const uint64_t node : objects.new_inodes) {
        context.note(Code::inode_new, path_text(keys, objects, node),
                     "its inode is new: size, owner, mode and times are guesses");
    }
}

}  // namespace tiffin::check
