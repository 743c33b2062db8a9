// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Keys and values.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "fuse/check/describe.h"
#include "fuse/check/text.h"

namespace tiffin::check {

using tiffinfs::Key;
using tiffinfs::Kind;

namespace {

// Bytes of content that are shown.
constexpr size_t kShownBytes = 64;

template <typename T>
bool read_exactly(ByteSpan value, T& result) {
    if (value.size() != sizeof(T)) {
        return false;
    }
    std::memcpy(&result, value.data(), sizeof(T));
    return true;
}

Json raw(ByteSpan value) {
    Json json;
    json["malformed"] = true;
    json["bytes"] = value.size();
    json["hex"] = hex_text(value.data(), std::min(value.size(), kShownBytes));
    return json;
}

Json content(ByteSpan value) {
    Json json;
    json["bytes"] = value.size();
    json["text"] = escape_name(as_text(value.first(std::min(value.size(), kShownBytes))));
    return json;
}

std::string inode_flags_text(uint32_t flags) {
    static constexpr struct {
        uint32_t flag;
        const char* name;
    } kFlags[] = {
        {tiffinfs::inode_flag::inline_data, "inline-data"},
        {tiffinfs::inode_flag::has_xattrs, "has-xattrs"},
        {tiffinfs::inode_flag::has_capability, "has-capability"},
        {tiffinfs::inode_flag::has_access_acl, "has-access-acl"},
        {tiffinfs::inode_flag::has_default_acl, "has-default-acl"},
        {tiffinfs::inode_flag::orphan, "orphan"},
        {tiffinfs::inode_flag::has_intent, "has-intent"},
    };
    std::string text;
    for (const auto& known : kFlags) {
        if ((flags & known.flag) != 0) {
            text += (text.empty() ? "" : " ") + std::string(known.name);
            flags &= ~known.flag;
        }
    }
    return flags == 0 ? text : fmt::format("{}{}{:#x}", text, text.empty() ? "" : " ", flags);
}

Json describe_inode(ByteSpan value) {
    tiffinfs::InodeValue inode;
    if (!read_exactly(value, inode)) {
        return raw(value);
    }
    Json json;
    json["mode"] = fmt::format("{:07o}", inode.mode);
    json["mode_text"] = mode_text(inode.mode);
    json["link_count"] = inode.link_count;
    json["user_id"] = inode.user_id;
    json["group_id"] = inode.group_id;
    json["file_flags"] = inode.file_flags;
    json["inode_flags"] = inode_flags_text(inode.inode_flags);
    if (vfs::mode::is_device(inode.mode)) {
        json["device"] = fmt::format("{}:{}", inode.device_major, inode.device_minor);
    }
    json[vfs::mode::is_directory(inode.mode) ? "entries" : "size_bytes"] = inode.size_bytes;
    json["allocated_blocks"] = inode.allocated_blocks;
    json["generation"] = inode.generation;
    if (vfs::mode::is_directory(inode.mode)) {
        json["parent"] = inode.parent;
    }
    json["access_time"] = time_text(inode.access_time);
    json["modification_time"] = time_text(inode.modification_time);
    json["change_time"] = time_text(inode.change_time);
    json["birth_time"] = time_text(inode.birth_time);
    json["change_counter"] = tiffinfs::change_counter(inode);
    return json;
}

Json describe_entry(ByteSpan value) {
    tiffinfs::EntryValue entry;
    if (value.size() < sizeof entry) {
        return raw(value);
    }
    std::memcpy(&entry, value.data(), sizeof entry);
    Json json;
    json["name"] = escape_name(as_text(value.subspan(sizeof entry)));
    json["node"] = uint64_t{entry.node};
    json["type"] = mode_text(uint32_t{entry.type} << 12).substr(0, 1);
    if (entry.name_bytes != value.size() - sizeof entry) {
        json["malformed"] = true;
    }
    return json;
}

Json describe_extent(ByteSpan value) {
    tiffinfs::ExtentValue extent;
    if (value.size() < sizeof extent) {
        return raw(value);
    }
    std::memcpy(&extent, value.data(), sizeof extent);
    Json json;
    json["physical_block"] = extent.physical_block;
    json["block_count"] = extent.block_count;
    json["birth_generation"] = extent.birth_generation;
    json["unwritten"] = (extent.flags & tiffinfs::extent_flag::unwritten) != 0;
    if ((extent.flags & tiffinfs::extent_flag::lost) != 0) {
        json["lost"] = true;
    }
    if ((extent.flags & ~(tiffinfs::extent_flag::unwritten | tiffinfs::extent_flag::lost)) != 0) {
        json["flags"] = extent.flags;
    }
    const ByteSpan checksums = value.subspan(sizeof extent);
    json["checksums"] = checksums.size() / sizeof(uint32_t);
    if (checksums.size() >= sizeof(uint32_t)) {
        uint32_t first = 0;
        std::memcpy(&first, checksums.data(), sizeof first);
        json["first_checksum"] = fmt::format("{:#010x}", first);
    }
    return json;
}

Json describe_xattr(Key key, ByteSpan value) {
    tiffinfs::XattrValue header;
    if ((key.offset() & 0xff) != 0) {
        return content(value);
    }
    if (value.size() < sizeof header) {
        return raw(value);
    }
    std::memcpy(&header, value.data(), sizeof header);
    const ByteSpan rest = value.subspan(sizeof header);
    const size_t name_bytes = std::min<size_t>(header.name_bytes, rest.size());
    Json json;
    json["name"] = escape_name(as_text(rest.first(name_bytes)));
    json["value_bytes"] = uint32_t{header.value_bytes};
    json["here"] = content(rest.subspan(name_bytes));
    return json;
}

Json describe_intent(ByteSpan value) {
    tiffinfs::IntentValue intent;
    if (!read_exactly(value, intent)) {
        return raw(value);
    }
    Json json;
    switch (intent.type) {
        case tiffinfs::IntentType::truncate:
            json["type"] = "truncate";
            break;
        case tiffinfs::IntentType::shift_down:
            json["type"] = "shift-down";
            break;
        case tiffinfs::IntentType::shift_up:
            json["type"] = "shift-up";
            break;
        default:
            json["type"] = static_cast<uint32_t>(intent.type);
            break;
    }
    json["first_block"] = intent.first_block;
    json["shift_blocks"] = intent.shift_blocks;
    json["next_block"] = intent.next_block;
    return json;
}

}  // namespace

Json describe_key(Key key) {
    Json json;
    json["node"] = key.node;
    json["kind"] = kind_text(key.kind());
    json["offset"] = key.offset();
    return json;
}

Json describe_value(Key key, ByteSpan value) {
    switch (key.kind()) {
        case Kind::inode:
            return describe_inode(value);
        case Kind::entry:
            return describe_entry(value);
        case Kind::extent:
            return describe_extent(value);
        case Kind::xattr:
            return describe_xattr(key, value);
        case Kind::inline_data:
        case Kind::symlink:
            return content(value);
        case Kind::orphan:
            return value.empty() ? Json::object() : raw(value);
        case Kind::intent:
            return describe_intent(value);
    }
    return raw(value);
}

}  // namespace tiffin::check
