// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The bytes on the device: every on-disk structure of tiffinfs, and nothing else. docs/format.md
// explains them with tables and a worked example.
//
// All integers are little-endian. A volume is an array of 4096-byte blocks:
//
//   block 0, 1            superblock slots A and B (first copies)
//   block 2, 3            bitmap slots 0 and 1 of group 0
//   from block 4          the journal (journal_first_block, journal_block_count)
//   group g >= 1          starts with its bitmap slots 0 and 1 at blocks g * 16384 and + 1
//   last two blocks       superblock slots A and B (second copies)
//   all other blocks      file data and tree nodes, in any order
//
// Checksums are CRC32C. A structure's own checksum is taken with its checksum field as zero.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "fs/vfs/types.h"

namespace tiffin::tiffinfs {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

inline constexpr uint32_t kBlockBytes = vfs::kBlockBytes;
inline constexpr uint32_t kBlocksPerGroup = 16384;  // 64 MiB
inline constexpr uint64_t kMinimumBlocks = 2048;    // 8 MiB
// Block numbers fit 48 bits: 2^48 blocks = 1 EiB.
inline constexpr uint64_t kMaximumBlocks = uint64_t{1} << 48;
// The greatest file size: 2^62 bytes, so that no sum of an offset and a length overflows.
inline constexpr uint64_t kMaximumFileBytes = uint64_t{1} << 62;

// ---- Superblock ------------------------------------------------------------------------------
// Generation G lives in slot A when G is even, in slot B when it is odd, each slot in two copies. So
// the previous generation stays whole until the next one is.

inline constexpr uint64_t kSuperblockMagic = 0x53464e4946464954;  // "TIFFINFS"
inline constexpr uint32_t kFormatVersion = 1;
inline constexpr uint32_t kSuperblockBytes = 512;
// The one that mkfs writes, to slot B; slot A is all zeros then.
inline constexpr uint64_t kFirstGeneration = 1;
// Generations, incarnations and sequences only grow, and are below this: none ever wraps around.
inline constexpr uint64_t kCounterLimit = uint64_t{1} << 62;
inline constexpr size_t kLabelBytes = 64;

// Unknown compat features are ignored, unknown ro_compat ones allow only read-only mounts, unknown
// incompat ones none.
inline constexpr uint64_t kKnownCompatFeatures = 0;
inline constexpr uint64_t kKnownReadOnlyCompatFeatures = 0;
namespace incompat_feature {
inline constexpr uint64_t lost_extents = 1;  // extent_flag::lost may be met
}  // namespace incompat_feature
inline constexpr uint64_t kKnownIncompatFeatures = incompat_feature::lost_extents;

namespace superblock_state {
inline constexpr uint32_t clean = 1;   // unmounted: the journal is empty
inline constexpr uint32_t errors = 2;  // damage was met: fsck is due
}  // namespace superblock_state

struct Superblock {
    uint64_t magic;
    uint32_t version;
    uint32_t checksum;  // of these 512 bytes
    uint8_t uuid[16];
    char label[kLabelBytes];  // padded with NUL
    uint64_t compat_features;
    uint64_t read_only_compat_features;
    uint64_t incompat_features;
    uint64_t volume_nonce;  // random; in every node, bitmap and frame: foreign ones do not match
    uint64_t total_blocks;
    uint64_t journal_first_block;
    uint64_t journal_block_count;
    uint8_t hash_key[16];  // of directory entries and attribute names (SipHash-2-4)
    int64_t created_ns;

    // From here on things change with every generation.
    uint64_t generation;
    uint64_t incarnation;  // raised durably by every writing mount, before its first journal frame
    uint32_t state;        // superblock_state
    uint32_t root_level;   // level of the root node; 0: the root is a leaf
    uint64_t root_block;
    uint64_t root_generation;
    uint64_t next_node;           // the smallest node id never used
    uint64_t node_count;          // inodes that exist
    uint64_t used_blocks;         // fixed blocks of all groups, opened or not, included
    uint64_t initialized_groups;  // groups from here on have no bitmap yet: all free
    // Where replay starts: the first frame of the generation after this one.
    uint64_t journal_position;  // byte offset in the journal
    uint64_t journal_sequence;  // of that frame
    uint32_t journal_previous_checksum;
    uint32_t mount_count;
    int64_t written_ns;
    // The histories that bitmaps may belong to, oldest first (bitmap_timelines.h).
    struct Timeline {
        uint64_t first_generation;  // 0: the list ends here
        uint64_t stamp;
    } timelines[14];
    uint8_t reserved[8];
};
static_assert(sizeof(Superblock) == kSuperblockBytes);

// ---- Bitmap of a group ------------------------------------------------------------------------
// Two slots; the newest valid one whose generation is at most the superblock's, and whose timeline
// stamp belongs to that generation (bitmap_timelines.h), counts. Bit i is block g * kBlocksPerGroup + i,
// set when used by file data, a node or a fixed structure. Bits beyond the end of the volume are set.

inline constexpr uint32_t kBitmapMagic = 0x50424654;  // "TFBP"
inline constexpr uint32_t kBitmapBytes = kBlocksPerGroup / 8;

struct BitmapBlock {
    uint32_t magic;
    uint32_t checksum;  // of the whole block
    uint64_t volume_nonce;
    uint64_t group;
    uint64_t generation;
    uint32_t used_blocks;      // without the bits beyond the end of the volume
    uint32_t header_checksum;  // of the first 64 bytes, both checksum fields as zero
    uint64_t timeline_stamp;
    uint8_t reserved[16];
    uint8_t bits[kBitmapBytes];
    uint8_t padding[kBlockBytes - 64 - kBitmapBytes];
};
static_assert(sizeof(BitmapBlock) == kBlockBytes);

// ---- Keys -------------------------------------------------------------------------------------
// Everything is a key in one ordered tree. Order: node, then kind, then offset.

enum class Kind : uint8_t {
    inode = 1,        // offset 0: InodeValue
    entry = 2,        // offset = 52-bit keyed hash of the name << 8 | collision slot: EntryValue
    extent = 3,       // offset = block number in the file: ExtentValue
    xattr = 4,        // offset = 44-bit hash << 16 | collision slot << 8 | chunk: XattrValue, bytes
    inline_data = 5,  // offset 0: the content of a small file
    symlink = 6,      // offset = chunk: the target
    orphan = 7,       // node 0, offset = node id: no links left, to be deleted; empty value
    intent = 8,       // node 0, offset = node id: IntentValue, work that goes on after a crash
};
inline constexpr uint64_t kKeyOffsetBits = 60;
inline constexpr uint64_t kKeyOffsetMask = (uint64_t{1} << kKeyOffsetBits) - 1;
// The node id under which keys of the volume itself are kept.
inline constexpr uint64_t kVolumeNode = 0;
// The greatest node id: an orphan key can name it, and also the one after it, which the superblock says is unused.
inline constexpr uint64_t kMaximumNode = kKeyOffsetMask - 1;

struct Key {
    uint64_t node;
    uint64_t kind_and_offset;  // kind in the upper 4 bits

    constexpr Kind kind() const { return static_cast<Kind>(kind_and_offset >> kKeyOffsetBits); }
    constexpr uint64_t offset() const { return kind_and_offset & kKeyOffsetMask; }
    constexpr bool operator==(const Key&) const = default;
    constexpr bool operator<(const Key& other) const {
        return node != other.node ? node < other.node : kind_and_offset < other.kind_and_offset;
    }
    constexpr bool operator<=(const Key& other) const { return !(other < *this); }
};
static_assert(sizeof(Key) == 16);

constexpr Key make_key(uint64_t node, Kind kind, uint64_t offset) {
    return Key{node, (static_cast<uint64_t>(kind) << kKeyOffsetBits) | (offset & kKeyOffsetMask)};
}
inline constexpr Key kMinimumKey{0, 0};
inline constexpr Key kMaximumKey{~uint64_t{0}, ~uint64_t{0}};
// The key right after `key`.
constexpr Key next_key(Key key) {
    return key.kind_and_offset == ~uint64_t{0} ? Key{key.node + 1, 0}
                                               : Key{key.node, key.kind_and_offset + 1};
}
constexpr Key previous_key(Key key) {
    return key.kind_and_offset == 0 ? Key{key.node - 1, ~uint64_t{0}}
                                    : Key{key.node, key.kind_and_offset - 1};
}

// ---- Tree nodes ---------------------------------------------------------------------------------
// One block each. A leaf has `count` LeafSlots behind the header, sorted by key; values grow down
// from the end of the block. An inner node has `count` InnerEntries; entry i covers the keys from its
// key up to the next entry's key, and the first entry's key is the smallest the node may hold.

inline constexpr uint32_t kNodeMagic = 0x444e4654;  // "TFND"
inline constexpr uint32_t kMaximumLevel = 15;
// No device holds a tree as high as this; so the root always has room above it.
inline constexpr uint32_t kMaximumRootLevel = kMaximumLevel - 2;

struct NodeHeader {
    uint32_t magic;
    uint32_t checksum;  // of the whole block
    uint64_t volume_nonce;
    uint64_t block;       // where this node was written to
    uint64_t generation;  // in which it was made; the pointer to it carries the same number
    uint8_t level;        // 0: leaf
    uint8_t reserved0;
    uint16_t count;
    uint16_t values_begin;  // leaf: offset of the lowest value byte in the block
    uint16_t values_bytes;  // leaf: of all values, which fill the rest of the block without gaps
    uint8_t reserved[8];
};
static_assert(sizeof(NodeHeader) == 48);

struct __attribute__((packed, aligned(4))) LeafSlot {
    Key key;
    uint16_t value_offset;  // in the block; of an empty value: where another begins, or the end
    uint16_t value_bytes;
};
static_assert(sizeof(LeafSlot) == 20);

struct InnerEntry {
    Key key;
    uint64_t child_block;
    uint64_t child_generation;
};
static_assert(sizeof(InnerEntry) == 32);

inline constexpr uint32_t kNodeSpaceBytes = kBlockBytes - sizeof(NodeHeader);
inline constexpr uint32_t kInnerCapacity = kNodeSpaceBytes / sizeof(InnerEntry);  // 126
// Three of the largest values fit a leaf, so that one split always makes room.
inline constexpr uint32_t kMaximumValueBytes = 1280;
static_assert(3 * (kMaximumValueBytes + sizeof(LeafSlot)) <= kNodeSpaceBytes);

// ---- Values -------------------------------------------------------------------------------------

struct DiskTime {
    int64_t seconds;
    uint32_t nanoseconds;
    uint32_t extra;  // of something else: see InodeValue
};

namespace inode_flag {
inline constexpr uint32_t inline_data = 1;     // content is in Kind::inline_data
inline constexpr uint32_t has_xattrs = 2;      // may have extended attributes
inline constexpr uint32_t has_capability = 4;  // has security.capability
inline constexpr uint32_t has_access_acl = 8;
inline constexpr uint32_t has_default_acl = 16;
inline constexpr uint32_t orphan = 32;      // an orphan key exists
inline constexpr uint32_t has_intent = 64;  // an intent key exists: see IntentType
}  // namespace inode_flag

struct InodeValue {
    uint32_t mode;
    uint32_t link_count;
    uint32_t user_id;
    uint32_t group_id;
    uint32_t file_flags;   // vfs::file_flag
    uint32_t inode_flags;  // inode_flag
    uint32_t device_major;
    uint32_t device_minor;
    uint64_t size_bytes;  // of a directory: the number of its entries
    uint64_t allocated_blocks;
    uint64_t generation;  // random
    uint64_t parent;      // of a directory; 0 for others
    // `extra` of these: a project number, for which there is room only (0: none); the lower and the upper half of the
    // change counter (see vfs::Attributes); 0. All were 0 in older volumes.
    DiskTime access_time;
    DiskTime modification_time;
    DiskTime change_time;
    DiskTime birth_time;
};
static_assert(sizeof(InodeValue) == 128);

inline uint64_t change_counter(const InodeValue& inode) {
    return uint64_t{inode.change_time.extra} << 32 | inode.modification_time.extra;
}

struct __attribute__((packed)) EntryValue {
    uint64_t node;
    uint8_t type;  // mode type bits >> 12
    uint8_t name_bytes;
    // The name follows.
};
static_assert(sizeof(EntryValue) == 10);

inline constexpr uint32_t kEntrySlots = 256;
inline constexpr uint32_t kEntrySlotBits = 8;

namespace extent_flag {
inline constexpr uint32_t unwritten = 1;  // reads as zeros; carries no checksums
inline constexpr uint32_t shared = 2;     // reserved for snapshots and reflink
// Written by a repair only: what was here is gone, and reading gives EIO until it is written over, cut off
// or punched out. Has no place on the device (physical_block is 0) and no checksums.
inline constexpr uint32_t lost = 4;
}  // namespace extent_flag

struct ExtentValue {
    uint64_t physical_block;
    uint64_t birth_generation;
    uint32_t block_count;
    uint32_t flags;  // extent_flag
    // Unless unwritten or lost, block_count checksums (uint32_t) follow.
};
static_assert(sizeof(ExtentValue) == 24);

inline constexpr uint32_t kWrittenExtentMaximumBlocks = 256;     // 1 MiB: 1048 bytes with checksums
inline constexpr uint32_t kUnwrittenExtentMaximumBlocks = 8192;  // half a group
inline constexpr uint32_t kLostExtentMaximumBlocks = 1U << 31;
static_assert(sizeof(ExtentValue) + sizeof(uint32_t) * kWrittenExtentMaximumBlocks <=
              kMaximumValueBytes);

// The first chunk of an attribute; the name, then the first bytes of the value follow. Further
// chunks are bytes of the value only. A chunk's value in the tree is at most kXattrChunkBytes long.
struct __attribute__((packed)) XattrValue {
    uint32_t value_bytes;
    uint8_t name_bytes;
};
static_assert(sizeof(XattrValue) == 5);
inline constexpr uint32_t kXattrChunkBytes = 1024;

inline constexpr uint32_t kInlineDataMaximumBytes = 1024;
inline constexpr uint32_t kSymlinkChunkBytes = 1024;

enum class IntentType : uint32_t {
    truncate = 1,    // free blocks from first_block on
    shift_down = 2,  // collapse: move extents at and behind first_block down by shift_blocks
    shift_up = 3,    // insert: move them up; done from the end, next_block is the upper bound
};
struct IntentValue {
    IntentType type;
    uint32_t reserved;
    uint64_t first_block;
    uint64_t shift_blocks;
    uint64_t next_block;  // progress: where the next step starts (shift_up: ends)
};
static_assert(sizeof(IntentValue) == 32);

// ---- Journal --------------------------------------------------------------------------------------
// A ring of frames. Each frame starts at a fresh write unit and is written once; its payload is one or
// more transactions. A frame is valid only with the volume's nonce, an incarnation that is not smaller
// than that of the superblock and of the frame before it, the expected sequence, and the checksum of the
// frame before it. A frame that does not fit before the end of the journal starts at its beginning.

inline constexpr uint32_t kFrameMagic = 0x524a4654;  // "TFJR"
inline constexpr uint32_t kMaximumFramePayloadBytes = 1U << 20;
inline constexpr uint32_t kMaximumTransactionBytes = 256U << 10;

struct FrameHeader {
    uint32_t magic;
    uint32_t checksum;  // of header and payload
    uint64_t volume_nonce;
    uint64_t incarnation;
    uint64_t sequence;    // of frames, without gaps
    uint64_t generation;  // the checkpoint that will contain these transactions
    uint32_t previous_checksum;
    uint32_t payload_bytes;
    uint32_t transaction_count;
    uint32_t reserved0;
    uint64_t reserved;
};
static_assert(sizeof(FrameHeader) == 64);

struct TransactionHeader {
    uint32_t payload_bytes;  // of the records that follow
    uint32_t record_count;
};
static_assert(sizeof(TransactionHeader) == 8);

enum class RecordType : uint8_t {
    put = 1,           // key := value; space is not touched
    erase = 2,         // key is removed; space is not touched
    write_extent = 3,  // value: ExtentValue: maps it at key, replacing and freeing what was there
    unmap = 4,         // value: uint64_t block count: frees the blocks mapped in the range at key
    erase_range = 5,   // value: Key end: removes all keys in [key, end); no extents
};

struct __attribute__((packed, aligned(4))) RecordHeader {
    RecordType type;
    uint8_t reserved;
    uint16_t value_bytes;
    Key key;
    // The value follows, padded to a multiple of 4.
};
static_assert(sizeof(RecordHeader) == 20);

constexpr uint64_t group_of(uint64_t block) { return block / kBlocksPerGroup; }
constexpr uint64_t group_count(uint64_t total_blocks) {
    return (total_blocks + kBlocksPerGroup - 1) / kBlocksPerGroup;
}
constexpr uint64_t bitmap_block(uint64_t group, uint64_t slot) {
    return group == 0 ? 2 + slot : group * kBlocksPerGroup + slot;
}
// Where slot (generation % 2) of the superblock is; copy is 0 or 1.
constexpr uint64_t superblock_block(uint64_t total_blocks, uint64_t generation, uint32_t copy) {
    return copy == 0 ? generation % 2 : total_blocks - 2 + generation % 2;
}
inline constexpr uint64_t kJournalFirstBlock = 4;

}  // namespace tiffin::tiffinfs
