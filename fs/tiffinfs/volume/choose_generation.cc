// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/tiffinfs/volume/choose_generation.h"

#include "fs/base/allocate.h"
#include "fs/base/text.h"
#include "fs/tiffinfs/journal/journal.h"
#include "fs/tiffinfs/tree/node.h"
#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {
namespace {

// A walk over a tree, with one page for each level.
class TreeWalk {
  public:
    TreeWalk(vfs::BlockDevice& device, const Superblock& superblock, uint64_t after)
        : device_(device),
          superblock_(superblock),
          after_(after),
          pages_(static_cast<unsigned char*>(host::allocate_pages(page_bytes()))) {}
    ~TreeWalk() { host::release_pages(pages_, page_bytes()); }
    TreeWalk(const TreeWalk&) = delete;
    TreeWalk& operator=(const TreeWalk&) = delete;

    bool has_memory() const { return pages_ != nullptr; }

    // Levels fall with each step down, and the ranges of children do not overlap, so this ends whatever the device
    // holds.
    bool all_whole() {
        const uint32_t root_level = superblock_.root_level;
        ranges_[root_level] = {kMinimumKey, kMaximumKey, 0};
        if (!enter({kMinimumKey, superblock_.root_block, superblock_.root_generation},
                   root_level)) {
            return false;
        }
        uint32_t level = root_level;
        while (true) {
            Range& range = ranges_[level];
            if (level == 0 || range.next_child == inner_count(page(level))) {
                if (level == root_level) {
                    return true;
                }
                ++level;
                continue;
            }
            const uint32_t child = range.next_child++;
            const InnerEntry entry = inner_entry(page(level), child);
            if (entry.child_generation <= after_) {
                continue;
            }
            ranges_[level - 1] = {child == 0 ? range.lower : entry.key,
                                  child + 1 < inner_count(page(level))
                                      ? inner_entry(page(level), child + 1).key
                                      : range.upper,
                                  0};
            --level;
            if (!enter(entry, level)) {
                return false;
            }
        }
    }

  private:
    struct Range {
        Key lower;
        Key upper;
        uint32_t next_child;
    };

    size_t page_bytes() const { return (size_t{superblock_.root_level} + 1) * kBlockBytes; }
    unsigned char* page(uint32_t level) { return pages_ + size_t{level} * kBlockBytes; }

    bool enter(const InnerEntry& entry, uint32_t level) {
        const char* reason = "it holds keys that belong elsewhere";
        const Range& range = ranges_[level];
        if (read_tree_node(device_, superblock_, entry, static_cast<uint8_t>(level), page(level),
                           reason) &&
            keys_are_within(page(level), static_cast<uint8_t>(level), range.lower, range.upper)) {
            return true;
        }
        log_line(host::LogLevel::warning, "generation ", superblock_.generation,
                 ": tree node at block ", entry.child_block, ", level ", level, ": ", reason);
        return false;
    }

    vfs::BlockDevice& device_;
    const Superblock& superblock_;
    const uint64_t after_;
    unsigned char* const pages_;
    Range ranges_[kMaximumRootLevel + 1];
};

// Whether a replay that starts at `from` comes to where the journal of `to` begins.
Result<bool> journal_reaches(vfs::BlockDevice& device, const Superblock& from,
                             const Superblock& to) {
    JournalReader reader(device);
    TRY(reader.start(
        from, {from.journal_position, from.journal_sequence, from.journal_previous_checksum}));
    while (reader.position().sequence < to.journal_sequence) {
        FrameHeader header;
        Result<ByteSpan> payload = reader.next(header);
        if (!payload.ok() && payload.error() != Error::euclean) {
            return payload.error();
        }
        if (!payload.ok() || payload->empty()) {
            return false;
        }
    }
    return true;
}

Result<bool> root_is_readable(vfs::BlockDevice& device, const Superblock& superblock) {
    auto* page = static_cast<unsigned char*>(host::allocate_pages(kBlockBytes));
    if (page == nullptr) {
        return Error::enomem;
    }
    const char* reason = nullptr;
    const bool readable = read_tree_node(
        device, superblock, {kMinimumKey, superblock.root_block, superblock.root_generation},
        static_cast<uint8_t>(superblock.root_level), page, reason);
    host::release_pages(page, kBlockBytes);
    return readable;
}

}  // namespace

bool read_tree_node(vfs::BlockDevice& device, const Superblock& superblock, const InnerEntry& entry,
                    uint8_t level, unsigned char* page, const char*& reason) {
    if (entry.child_block >= superblock.total_blocks ||
        !device.read(entry.child_block * kBlockBytes, page, kBlockBytes).ok()) {
        reason = "it cannot be read";
        return false;
    }
    return check_page(page, superblock.volume_nonce, entry.child_block, entry.child_generation,
                      level, superblock.total_blocks, reason);
}

Result<bool> tree_is_whole(vfs::BlockDevice& device, const Superblock& superblock, uint64_t after) {
    auto* walk = make_object<TreeWalk>(device, superblock, after);
    if (walk == nullptr || !walk->has_memory()) {
        destroy_object(walk);
        return Error::enomem;
    }
    const bool whole = walk->all_whole();
    destroy_object(walk);
    return whole;
}

Result<GenerationChoice> choose_generation(vfs::BlockDevice& device, const SuperblockSet& set,
                                           bool verify) {
    const Superblock& newest = set.found[0];
    uint32_t older = 0;
    while (older < set.count && set.found[older].generation == newest.generation) {
        ++older;
    }
    // Nothing is given up where there is nothing older; what the tree has lost is met when it is used.
    if (verify && older < set.count) {
        if (TRY(tree_is_whole(device, newest, set.found[older].generation))) {
            return GenerationChoice{0, false};
        }
        for (uint32_t i = older; i < set.count; ++i) {
            const bool seen_before = set.found[i].generation == set.found[i - 1].generation;
            if (!seen_before && TRY(tree_is_whole(device, set.found[i], 0)) &&
                TRY(journal_reaches(device, set.found[i], newest))) {
                return GenerationChoice{i, false};
            }
        }
    }
    for (uint32_t i = 0; i < set.count; ++i) {
        if (TRY(root_is_readable(device, set.found[i]))) {
            return GenerationChoice{i, verify && older < set.count};
        }
    }
    log_line(host::LogLevel::error, "the root of the tree is damaged");
    return Error::euclean;
}

}  // namespace tiffin::tiffinfs
