// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Tree, objects, journal and bitmaps.
#include "fuse/check/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "fs/tiffinfs/journal/journal.h"
#include "fs/tiffinfs/space/bitmap_block.h"
#include "fs/tiffinfs/tree/node.h"
#include "fs/vfs/types.h"
#include "fuse/check/block_io.h"
#include "fuse/check/journal_replay.h"
#include "fuse/check/superblocks.h"
#include "fuse/check/text.h"
#include "fuse/check/tree_reader.h"

namespace tiffin::check {

using fuse::OrProblem;
using fuse::Problem;
using tiffinfs::InnerEntry;
using tiffinfs::Key;
using tiffinfs::Kind;
using tiffinfs::make_key;
using tiffinfs::NodeHeader;
using tiffinfs::Superblock;

namespace {

OrProblem<Superblock> newest_superblock(vfs::BlockDevice& device) {
    const SuperblockCopies copies = read_superblock_copies(device);
    if (copies.generations.empty()) {
        return Problem{
            "no tiffinfs is here, or none of its superblocks can be used (dump "
            "superblock shows what is there)"};
    }
    return copies.generations.front();
}

NodeHeader header_of(const Block& page) {
    NodeHeader header;
    std::memcpy(&header, page.bytes, sizeof header);
    return header;
}

// The smallest key of a sound node.
std::string first_key_text(const Block& page) {
    const NodeHeader header = header_of(page);
    if (header.count == 0) {
        return "";
    }
    return key_text(header.level == 0 ? tiffinfs::leaf_key(page.bytes, 0)
                                      : Key(tiffinfs::inner_entries(page.bytes)[0].key));
}

Json describe_header(const NodeHeader& header) {
    Json json;
    json["magic"] = fmt::format("{:#010x}", header.magic);
    json["checksum"] = fmt::format("{:#010x}", header.checksum);
    json["volume_nonce"] = fmt::format("{:#018x}", header.volume_nonce);
    json["block"] = header.block;
    json["generation"] = header.generation;
    json["level"] = header.level;
    json["count"] = header.count;
    if (header.level == 0) {
        json["values_begin"] = header.values_begin;
        json["values_bytes"] = header.values_bytes;
    }
    return json;
}

Json key_and_value(Key key, ByteSpan value) {
    Json json;
    json["key"] = describe_key(key);
    json["value"] = describe_value(key, value);
    return json;
}

void add_problems(Json& json, const TreeReader& reader) {
    if (!reader.problems().empty()) {
        json["problems"] = reader.problems();
    }
}

Json describe_record(const tiffinfs::RecordIterator::Record& record) {
    static constexpr const char* kTypes[] = {"?",     "put",        "erase", "write-extent",
                                             "unmap", "erase-range"};
    const auto type = static_cast<size_t>(record.type);
    Json json;
    json["type"] = type < std::size(kTypes) ? kTypes[type] : "?";
    json["key"] = describe_key(record.key);
    switch (record.type) {
        case tiffinfs::RecordType::put:
        case tiffinfs::RecordType::write_extent:
            json["value"] = describe_value(record.key, record.value);
            break;
        case tiffinfs::RecordType::unmap: {
            uint64_t count = 0;
            std::memcpy(&count, record.value.data(), sizeof count);
            json["block_count"] = count;
            break;
        }
        case tiffinfs::RecordType::erase_range: {
            Key end;
            std::memcpy(&end, record.value.data(), sizeof end);
            json["end"] = describe_key(end);
            break;
        }
        case tiffinfs::RecordType::erase:
            break;
    }
    json["ends_transaction"] = record.ends_transaction;
    return json;
}

Json describe_frame(const tiffinfs::FrameHeader& header, ByteSpan payload) {
    Json json;
    json["sequence"] = header.sequence;
    json["incarnation"] = header.incarnation;
    json["generation"] = header.generation;
    json["checksum"] = fmt::format("{:#010x}", header.checksum);
    json["previous_checksum"] = fmt::format("{:#010x}", header.previous_checksum);
    json["payload_bytes"] = header.payload_bytes;
    json["transactions"] = header.transaction_count;
    Json records = Json::array();
    tiffinfs::RecordIterator iterator(payload);
    tiffinfs::RecordIterator::Record record;
    while (true) {
        const Result<bool> more = iterator.next(record);
        if (!more.ok()) {
            json["malformed"] = true;
        }
        if (!more.ok() || !more.value()) {
            break;
        }
        records.push_back(describe_record(record));
    }
    json["records"] = records;
    return json;
}

std::string used_ranges(const tiffinfs::BitmapBlock& bitmap, uint64_t group, uint32_t blocks) {
    std::string text;
    for (uint32_t bit = 0; bit < blocks;) {
        uint32_t end = bit;
        while (end < blocks && (bitmap.bits[end / 8] >> end % 8 & 1) != 0) {
            ++end;
        }
        if (end > bit) {
            const uint64_t first = group * tiffinfs::kBlocksPerGroup + bit;
            const uint64_t last = group * tiffinfs::kBlocksPerGroup + end - 1;
            text += text.empty() ? "" : " ";
            text += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
        }
        bit = end + 1;
    }
    return text;
}

}  // namespace

OrProblem<Json> describe_tree(vfs::BlockDevice& device) {
    const OrProblem<Superblock> superblock = newest_superblock(device);
    if (!superblock.ok()) {
        return superblock.problem();
    }
    Json list = Json::array();
    TreeReader(device, *superblock)
        .visit_nodes(
            [&](uint64_t block, uint32_t level, const Block& page, const std::string& reason) {
                Json json;
                json["level"] = level;
                json["block"] = block;
                if (reason.empty()) {
                    const NodeHeader header = header_of(page);
                    json["generation"] = header.generation;
                    json["count"] = header.count;
                    json["first_key"] = first_key_text(page);
                } else {
                    json["damaged"] = reason;
                }
                list.push_back(json);
            });
    return list;
}

OrProblem<Json> describe_node(vfs::BlockDevice& device, uint64_t block) {
    const OrProblem<Superblock> superblock = newest_superblock(device);
    if (!superblock.ok()) {
        return superblock.problem();
    }
    Block page;
    if (!read_block(device, block, page)) {
        return Problem{fmt::format("block {} cannot be read, or lies beyond the end", block)};
    }
    const NodeHeader header = header_of(page);
    if (header.magic != tiffinfs::kNodeMagic) {
        return Problem{fmt::format("block {} is not a tree node", block)};
    }
    Json json;
    json["header"] = describe_header(header);
    const char* reason = "";
    const bool sound =
        header.level <= tiffinfs::kMaximumLevel &&
        tiffinfs::check_page(page.bytes, superblock->volume_nonce, block, header.generation,
                             header.level, superblock->total_blocks, reason);
    if (!sound) {
        json["damaged"] = *reason != '\0' ? reason : "an impossible level";
        return json;
    }
    Json list = Json::array();
    for (uint32_t i = 0; i < header.count; ++i) {
        if (header.level == 0) {
            list.push_back(key_and_value(tiffinfs::leaf_key(page.bytes, i),
                                         tiffinfs::leaf_value(page.bytes, i)));
        } else {
            const InnerEntry entry = tiffinfs::inner_entries(page.bytes)[i];
            Json child;
            child["first_key"] = key_text(entry.key);
            child["block"] = entry.child_block;
            child["generation"] = entry.child_generation;
            list.push_back(child);
        }
    }
    json[header.level == 0 ? "keys" : "children"] = list;
    return json;
}

OrProblem<Json> describe_object(vfs::BlockDevice& device, uint64_t node) {
    const OrProblem<Superblock> superblock = newest_superblock(device);
    if (!superblock.ok()) {
        return superblock.problem();
    }
    TreeReader reader(device, *superblock);
    Json json;
    json["node"] = node;
    Json keys = Json::array();
    const auto add = [&](Key key, ByteSpan value) { keys.push_back(key_and_value(key, value)); };
    reader.visit_keys(Key{node, 0}, Key{node, ~uint64_t{0}}, add);
    for (const Kind kind : {Kind::orphan, Kind::intent}) {
        const Key key = make_key(tiffinfs::kVolumeNode, kind, node);
        reader.visit_keys(key, tiffinfs::next_key(key), add);
    }
    if (keys.empty() && reader.problems().empty()) {
        return Problem{
            fmt::format("there is no node {} in the tree (the journal may have it: "
                        "dump journal)",
                        node)};
    }
    json["keys"] = keys;
    add_problems(json, reader);
    return json;
}

OrProblem<Json> describe_directory(vfs::BlockDevice& device, uint64_t node) {
    const OrProblem<Superblock> superblock = newest_superblock(device);
    if (!superblock.ok()) {
        return superblock.problem();
    }
    TreeReader reader(device, *superblock);
    bool is_directory = false;
    const Key inode_key = make_key(node, Kind::inode, 0);
    reader.visit_keys(inode_key, tiffinfs::next_key(inode_key), [&](Key, ByteSpan value) {
        tiffinfs::InodeValue inode{};
        std::memcpy(&inode, value.data(), std::min(value.size(), sizeof(inode)));
        is_directory = vfs::mode::is_directory(inode.mode);
    });
    if (!is_directory && reader.problems().empty()) {
        return Problem{
            fmt::format("node {} is no directory in the tree (the journal may have it: "
                        "dump journal)",
                        node)};
    }
    Json json;
    json["node"] = node;
    Json entries = Json::array();
    reader.visit_keys(make_key(node, Kind::entry, 0), make_key(node, Kind::extent, 0),
                      [&](Key key, ByteSpan value) {
                          Json entry = describe_value(key, value);
                          entry["hash"] =
                              fmt::format("{:#x}", key.offset() >> tiffinfs::kEntrySlotBits);
                          entry["slot"] = key.offset() & (tiffinfs::kEntrySlots - 1);
                          entries.push_back(entry);
                      });
    json["entries"] = entries;
    add_problems(json, reader);
    return json;
}

OrProblem<Json> describe_journal(vfs::BlockDevice& device) {
    const OrProblem<Superblock> superblock = newest_superblock(device);
    if (!superblock.ok()) {
        return superblock.problem();
    }
    tiffinfs::JournalReader reader(device);
    if (!reader.start(*superblock, journal_start(*superblock)).ok()) {
        return Problem{"the journal is not where the superblock says"};
    }
    Json json;
    json["first_block"] = superblock->journal_first_block;
    json["block_count"] = superblock->journal_block_count;
    json["start"] = superblock->journal_position;
    Json frames = Json::array();
    std::string end = "clean";
    while (true) {
        tiffinfs::FrameHeader header;
        const Result<ByteSpan> payload = reader.next(header);
        if (!payload.ok()) {
            end = payload.error() == Error::euclean ? "damaged: valid frames follow"
                                                    : "the device cannot read it";
            break;
        }
        if (payload.value().empty()) {
            break;
        }
        frames.push_back(describe_frame(header, payload.value()));
    }
    json["frames"] = frames;
    json["end_offset"] = reader.position().offset_bytes;
    json["next_sequence"] = reader.position().sequence;
    json["torn_bytes"] = end == "clean" ? reader.torn_bytes() : 0;
    json["end"] = end;
    return json;
}

OrProblem<Json> describe_bitmap(vfs::BlockDevice& device, uint64_t group) {
    const OrProblem<Superblock> superblock = newest_superblock(device);
    if (!superblock.ok()) {
        return superblock.problem();
    }
    const Result<tiffinfs::Layout> layout = tiffinfs::Layout::from(*superblock);
    if (!layout.ok() || group >= layout.value().groups()) {
        return Problem{fmt::format("there is no group {}: the volume has {}", group,
                                   tiffinfs::group_count(superblock->total_blocks))};
    }
    struct alignas(4096) Slots {
        tiffinfs::BitmapBlock blocks[2];
    };
    auto memory = std::make_unique<Slots>();
    tiffinfs::BitmapSlots slots;
    const Result<void> read = tiffinfs::read_bitmap_slots(
        device, layout.value(), group, superblock->generation, memory->blocks, slots);
    Json json;
    json["group"] = group;
    json["initialized"] = group < superblock->initialized_groups;
    if (!read.ok() && read.error() != Error::euclean) {
        return Problem{fmt::format("the bitmap of group {} cannot be read", group)};
    }
    json["state"] = read.ok() ? "valid" : slots.damage;
    Json list = Json::array();
    for (uint32_t i = 0; i < 2; ++i) {
        const tiffinfs::BitmapBlock& block = memory->blocks[i];
        Json slot;
        slot["block"] = tiffinfs::bitmap_block(group, i);
        slot["magic"] = fmt::format("{:#010x}", block.magic);
        slot["checksum"] = fmt::format("{:#010x}", block.checksum);
        slot["generation"] = block.generation;
        slot["used_blocks"] = block.used_blocks;
        slot["counts"] = read.ok() && slots.newest == i;
        list.push_back(slot);
    }
    json["slots"] = list;
    if (read.ok()) {
        json["used"] =
            used_ranges(memory->blocks[slots.newest], group, layout.value().blocks_in_group(group));
    }
    return json;
}

}  // namespace tiffin::check
