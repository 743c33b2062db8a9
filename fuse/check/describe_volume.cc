// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Superblocks, and the volume as a whole.
#include <fmt/format.h>

#include <cstring>

#include "fs/tiffinfs/journal/journal.h"
#include "fuse/check/describe.h"
#include "fuse/check/journal_replay.h"
#include "fuse/check/superblocks.h"
#include "fuse/check/text.h"
#include "fuse/host/size_text.h"

namespace tiffin::check {

using tiffinfs::kBlockBytes;
using tiffinfs::Superblock;

namespace {

std::string label_text(const Superblock& superblock) {
    return escape_name(
        std::string_view(superblock.label, strnlen(superblock.label, sizeof superblock.label)));
}

std::string state_text(uint32_t state) {
    std::string text = (state & tiffinfs::superblock_state::clean) != 0 ? "clean" : "not unmounted";
    if ((state & tiffinfs::superblock_state::errors) != 0) {
        text += ", errors were met";
    }
    constexpr uint32_t kKnown =
        tiffinfs::superblock_state::clean | tiffinfs::superblock_state::errors;
    return (state & ~kKnown) == 0 ? text : fmt::format("{}, {:#x}", text, state & ~kKnown);
}

std::string_view copy_state_text(const SuperblockCopy& copy) {
    switch (copy.state) {
        case SuperblockCopy::State::valid:
            return "valid";
        case SuperblockCopy::State::unreadable:
            return "unreadable";
        case SuperblockCopy::State::empty:
            return "empty";
        case SuperblockCopy::State::foreign:
            return "something else";
        case SuperblockCopy::State::damaged:
            return "wrong checksum";
        case SuperblockCopy::State::impossible:
            return "impossible";
        case SuperblockCopy::State::unusable:
            return "not usable here";
    }
    return "";
}

// What waits in the journal, without applying it.
Json summarize_journal(vfs::BlockDevice& device, const Superblock& superblock) {
    Json json;
    json["size"] = fuse::format_size(superblock.journal_block_count * kBlockBytes);
    tiffinfs::JournalReader reader(device);
    uint64_t frames = 0;
    uint64_t transactions = 0;
    std::string end = "clean";
    if (!reader.start(superblock, journal_start(superblock)).ok()) {
        end = "it is not where the superblock says";
    } else {
        while (true) {
            tiffinfs::FrameHeader header;
            const Result<ByteSpan> payload = reader.next(header);
            if (!payload.ok()) {
                end = "damaged";
                break;
            }
            if (payload.value().empty()) {
                break;
            }
            ++frames;
            transactions += header.transaction_count;
        }
        if (end == "clean" && reader.torn_bytes() != 0 && frames + transactions != 0) {
            end = "the last frame was cut off";
        }
    }
    json["frames_to_replay"] = frames;
    json["transactions_to_replay"] = transactions;
    json["end"] = end;
    return json;
}

Json summarize_space(const Superblock& superblock) {
    Json json;
    const uint64_t used = superblock.used_blocks * kBlockBytes;
    const uint64_t total = superblock.total_blocks * kBlockBytes;
    json["total_blocks"] = superblock.total_blocks;
    json["used_blocks"] = superblock.used_blocks;
    json["used"] = fmt::format("{} of {} ({} %)", fuse::format_size(used), fuse::format_size(total),
                               superblock.used_blocks * 100 / superblock.total_blocks);
    json["objects"] = superblock.node_count;
    return json;
}

}  // namespace

Json describe_superblock(const Superblock& superblock) {
    const Superblock& s = superblock;
    Json json;
    json["magic"] = fmt::format("{:#018x}", s.magic);
    json["version"] = s.version;
    json["checksum"] = fmt::format("{:#010x}", s.checksum);
    json["uuid"] = uuid_text(s.uuid);
    json["label"] = label_text(s);
    json["compat_features"] = fmt::format("{:#x}", s.compat_features);
    json["read_only_compat_features"] = fmt::format("{:#x}", s.read_only_compat_features);
    json["incompat_features"] = fmt::format("{:#x}", s.incompat_features);
    json["volume_nonce"] = fmt::format("{:#018x}", s.volume_nonce);
    json["total_blocks"] = s.total_blocks;
    json["journal_first_block"] = s.journal_first_block;
    json["journal_block_count"] = s.journal_block_count;
    json["hash_key"] = hex_text(s.hash_key, sizeof s.hash_key);
    json["created"] = time_text(s.created_ns);
    json["generation"] = s.generation;
    json["incarnation"] = s.incarnation;
    json["state"] = state_text(s.state);
    json["root_level"] = s.root_level;
    json["root_block"] = s.root_block;
    json["root_generation"] = s.root_generation;
    json["next_node"] = s.next_node;
    json["node_count"] = s.node_count;
    json["used_blocks"] = s.used_blocks;
    json["initialized_groups"] = s.initialized_groups;
    json["journal_position"] = s.journal_position;
    json["journal_sequence"] = s.journal_sequence;
    json["journal_previous_checksum"] = fmt::format("{:#010x}", s.journal_previous_checksum);
    json["mount_count"] = s.mount_count;
    json["written"] = time_text(s.written_ns);
    const auto history = tiffinfs::BitmapTimelines::from(s);
    json["bitmap_timelines"] = history.size();
    json["bitmap_stamp"] = fmt::format("{:#018x}", history.current_stamp());
    return json;
}

Json describe_superblocks(vfs::BlockDevice& device) {
    const SuperblockCopies copies = read_superblock_copies(device);
    Json list = Json::array();
    for (const SuperblockCopy& copy : copies.copies) {
        Json json;
        json["copy"] = copy.name();
        json["state"] = copy_state_text(copy);
        if (!copy.reason.empty()) {
            json["reason"] = copy.reason;
        }
        if (copy.superblock.magic == tiffinfs::kSuperblockMagic) {
            json["fields"] = describe_superblock(copy.superblock);
        }
        list.push_back(json);
    }
    return list;
}

fuse::OrProblem<Json> describe_volume(vfs::BlockDevice& device) {
    const SuperblockCopies copies = read_superblock_copies(device);
    if (copies.generations.empty()) {
        return fuse::Problem{"no tiffinfs is here, or none of its superblocks can be used"};
    }
    const Superblock& newest = copies.generations.front();
    Json json;
    json["uuid"] = uuid_text(newest.uuid);
    json["label"] = label_text(newest);
    json["format_version"] = newest.version;
    json["features"] =
        (newest.compat_features | newest.read_only_compat_features | newest.incompat_features) == 0
            ? "none"
            : fmt::format("compat {:#x}, read-only compat {:#x}, incompat {:#x}",
                          newest.compat_features, newest.read_only_compat_features,
                          newest.incompat_features);
    json["state"] = state_text(newest.state);
    json["created"] = time_text(newest.created_ns);
    json["written"] = time_text(newest.written_ns);
    json["mounts"] = newest.mount_count;
    Json generations = Json::array();
    for (const Superblock& superblock : copies.generations) {
        generations.push_back(superblock.generation);
    }
    json["generations"] = generations;
    json["incarnation"] = newest.incarnation;
    json["space"] = summarize_space(newest);
    json["tree_levels"] = newest.root_level + 1;
    json["journal"] = summarize_journal(device, newest);
    Json states = Json::array();
    for (const SuperblockCopy& copy : copies.copies) {
        states.push_back(copy_state_text(copy));
    }
    json["superblock_copies"] = states;
    return json;
}

}  // namespace tiffin::check
