// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The parts of the object scan, one for each kind of key. Each sees the keys of one object after the
// other: begin(), its keys in order, end().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/volume/extents.h"
#include "fuse/check/context.h"
#include "fuse/check/missing_keys.h"
#include "fuse/check/objects.h"
#include "fuse/check/repairs.h"
#include "fuse/check/space_map.h"

namespace tiffin::check {

// What all parts work on.
struct ScanState {
    Context& context;
    const SpaceMap& nodes;
    Objects& objects;
    Repairs& repairs;
    MissingKeys& missing;

    // The object that is being looked at.
    uint64_t node = 0;
    bool has_inode = false;
    tiffinfs::InodeValue inode{};
    std::string where;  // "node 17"

    bool is_directory() const { return has_inode && vfs::mode::is_directory(inode.mode); }
    bool is_regular() const { return has_inode && vfs::mode::is_regular(inode.mode); }
    bool is_symlink() const { return has_inode && vfs::mode::is_symlink(inode.mode); }
    // Without links it is taken apart in several transactions, between which any part of its keys may
    // be gone.
    bool is_being_deleted() const { return has_inode && inode.link_count == 0; }
    // To be changed by a repair.
    tiffinfs::InodeValue& corrected_inode() { return repairs.inode(node, inode); }
};

class EntryCheck {
  public:
    explicit EntryCheck(ScanState& state) : state_(state) {}
    void begin();
    void visit(tiffinfs::Key key, ByteSpan value);
    void end();
    uint64_t count() const { return count_; }

  private:
    bool is_valid(tiffinfs::Key key, ByteSpan value, std::string& problem) const;
    void check_hash(tiffinfs::Key key, ByteSpan value, std::string_view name);
    bool is_duplicate(tiffinfs::Key key, std::string_view name);
    std::vector<unsigned char> mended(tiffinfs::Key key, ByteSpan value) const;

    ScanState& state_;
    uint64_t count_ = 0;
    uint64_t hash_ = 0;  // of the run of entries that names_ belongs to
    std::vector<std::string> names_;
};

class ExtentCheck {
  public:
    explicit ExtentCheck(ScanState& state) : state_(state) {}
    void begin();
    void visit(tiffinfs::Key key, ByteSpan value);
    void end();
    // When all keys of the object have been seen: puts back what overlaps, in the order in which it takes precedence.
    void place_what_gave_way();
    // Instead of end(): the size that a new inode gets. Where the file ended is not known, so its last
    // block is lost; all lost blocks are marked.
    void end_without_inode(tiffinfs::InodeValue& inode);
    bool any() const { return any_; }

  private:
    bool check_overlap(const tiffinfs::MappedExtent& extent, ByteSpan value);
    void mark_blocks(const tiffinfs::MappedExtent& extent);
    void note_end(const tiffinfs::MappedExtent& extent);
    void look_at_gap(uint64_t first_block, uint64_t end_block);
    void check_count();
    void give_way(const tiffinfs::MappedExtent& extent, ByteSpan value);
    uint64_t blocks_of_size() const;
    void check_behind_end();
    void cut_mark(const tiffinfs::MappedExtent& extent, uint64_t end_block);

    ScanState& state_;
    uint64_t end_block_ = 0;    // of the extents so far
    uint64_t reach_ = 0;        // the same, with those that overlap
    uint64_t written_end_ = 0;  // of those with content
    // That end_block_ belongs to, its value, and whether that gave way already.
    tiffinfs::MappedExtent last_;
    std::vector<unsigned char> last_value_;
    bool last_gave_way_ = false;
    struct GaveWay {
        bool is_stray;  // no search found it, so it is older than any that one finds
        tiffinfs::MappedExtent extent;
        std::vector<unsigned char> value;
    };
    std::vector<GaveWay> gave_way_;
    uint64_t allocated_blocks_ = 0;
    uint64_t marked_blocks_ = 0;                            // in lost extents
    std::vector<tiffinfs::MappedExtent> marks_behind_end_;  // of losses
    std::vector<FileBlocks> lost_;                          // gaps where keys are missing
    bool is_changed_ = false;  // a repair of the map is staged: the next pass sees the result
    bool any_ = false;
};

class XattrCheck {
  public:
    explicit XattrCheck(ScanState& state) : state_(state) {}
    void begin();
    void visit(tiffinfs::Key key, ByteSpan value);
    void end();
    bool any() const { return any_; }

  private:
    void start_attribute(tiffinfs::Key key, ByteSpan value);
    void finish_attribute();
    void check_whole(std::string_view name);
    void look_for_lost();
    void fail(std::string_view problem);
    void move();

    ScanState& state_;
    bool any_ = false;
    bool open_ = false;  // an attribute is being put together
    bool failed_ = false;
    bool misplaced_ = false;
    uint64_t place_ = 0;  // of the attribute: hash and slot
    uint32_t next_chunk_ = 0;
    uint32_t value_bytes_ = 0;
    std::string name_;
    std::vector<unsigned char> value_;
    uint64_t hash_ = 0;  // of the run of attributes that names_ belongs to
    std::vector<std::string> names_;
    uint32_t flags_ = 0;  // inode flags that the attributes call for
};

// Content that lives in the tree: small files and the targets of symbolic links.
class InlineCheck {
  public:
    explicit InlineCheck(ScanState& state) : state_(state) {}
    void begin();
    void visit_inline(tiffinfs::Key key, ByteSpan value);
    void visit_symlink(tiffinfs::Key key, ByteSpan value);
    void end(bool has_extents);
    void lose_symlink();
    bool has_inline() const { return has_inline_; }
    bool has_symlink() const { return has_chunks_; }
    uint64_t inline_bytes() const { return inline_bytes_; }
    uint64_t symlink_bytes() const { return symlink_bytes_; }
    // The target certainly ends where its chunks end.
    bool symlink_is_whole() const { return symlink_whole_ && symlink_short_ && !symlink_has_nul_; }

  private:
    void end_regular(bool has_extents);
    void end_symlink();

    ScanState& state_;
    bool has_inline_ = false;
    uint64_t inline_bytes_ = 0;
    bool has_chunks_ = false;  // of a target, whatever they hold
    uint64_t symlink_chunks_ = 0;
    uint64_t symlink_bytes_ = 0;
    bool symlink_whole_ = true;
    bool symlink_short_ = false;  // a chunk that is not full was seen: nothing may follow
    bool symlink_has_nul_ = false;
};

// The inode itself, without looking at other keys. Returns false when nothing of it can be used.
bool check_inode(ScanState& state, ByteSpan value);

}  // namespace tiffin::check
