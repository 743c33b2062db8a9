// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What the checker tells: findings, each with a code that scripts can rely on, and the report that
// collects them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tiffin::check {

enum class Severity : uint8_t {
    note,      // nothing is wrong: something a reader of the report may want to know
    harmless,  // wrong, but nothing that people stored is affected: counters, leaks, spare copies
    damage,    // stored data or names are lost, unreachable or wrong
};

// What a finding is about. Names (code_name) and meanings are part of the tools' interface; the manual
// page of fsck.tiffin lists them.
enum class Code : uint8_t {
    // ---- Superblocks
    superblock_missing,  // no valid copy: not a tiffinfs volume, or beyond repair
    superblock_fields,   // a valid checksum around impossible values
    superblock_copy,     // a copy is damaged, another one is whole
    superblock_older,    // the newest generation is damaged or its tree is: an older one is used
    errors_flag,         // the mounted file system met an error
    // ---- Journal
    journal_pending,  // changes wait to be replayed by the next mount
    journal_torn,     // its last frame was cut off by a power failure
    journal_damaged,  // acknowledged frames cannot be read
    journal_record,   // a record that makes no sense
    // ---- Tree
    node_unreadable,  // the device cannot read it
    node_invalid,     // magic number, checksum, place, generation, level or layout is wrong
    node_shared,      // its block is used twice
    node_bounds,      // keys outside of what the parent says
    key_invalid,      // a key that no structure has
    // ---- Inodes
    root_missing,   // there is no root directory
    inode_missing,  // keys of an object that has no inode
    inode_new,      // the path of an object whose inode a repair makes
    inode_invalid,  // impossible mode, times, flags or numbers
    inode_extra,    // keys that an object of this type cannot have
    // ---- Names
    entry_invalid,      // size or name is impossible
    entry_hash,         // stored where a search for its name does not look
    entry_duplicate,    // a name occurs twice
    entry_target,       // the entry's object does not exist
    entry_type,         // the entry's type is not that of its object
    directory_links,    // a directory with more than one name, or in a circle
    directory_entries,  // a directory has more entries than it counts
    entries_missing,    // a directory has fewer entries than it counts: names are gone
    directory_parent,   // the parent pointer is wrong
    link_count,         // differs from the number of names
    unreachable,        // no path from the root leads to it
    orphan_key,         // an orphan record without an orphan, or the reverse
    intent_invalid,     // a record of unfinished work that makes no sense
    // ---- Content
    inline_invalid,     // content kept in the tree has the wrong size or place
    symlink_invalid,    // the target of a symbolic link is incomplete
    xattr_invalid,      // an extended attribute is incomplete or in the wrong place
    xattrs_missing,     // keys are gone that may have been extended attributes of an object
    extent_invalid,     // an extent that cannot be
    extent_overlap,     // two extents of a file cover the same range
    extent_beyond_end,  // content or a mark of a loss behind the end of a file
    extent_shared,      // two owners of the same blocks
    allocated_blocks,   // a file has more blocks than it counts
    content_missing,    // a file has less than it counts, or keys of it are gone
    content_lost,       // a repair has marked content as lost
    data_unreadable,    // the device cannot read file data
    data_checksum,      // file data is not what was written
    // ---- Space
    bitmap_invalid,  // a bitmap cannot be used
    bitmap_wrong,    // a used block is marked free
    bitmap_leak,     // a free block is marked used
    counter,         // a total in the superblock is wrong
    // ---- The check itself
    repair_unfinished,  // each repair uncovered the next problem, until the check gave up
    repair_withheld,  // nothing was written, since something would be left out without the user's consent
    repair_failed,  // writing the repaired structures failed; the old ones are still in place
    count_,
};
inline constexpr size_t kCodeCount = static_cast<size_t>(Code::count_);

// The code in lower case with hyphens, such as "link-count"; never changes.
std::string_view code_name(Code code);
Severity code_severity(Code code);
// True when the repair cannot lose data: what `fsck -p` does without being asked.
bool code_is_safe_to_repair(Code code);
// What a repair would do, for a question: "Correct link counts".
std::string_view code_repair(Code code);

struct Finding {
    Code code = Code::count_;
    Severity severity = Severity::note;
    std::string where;      // "node 17", "block 4711", "superblock A, first copy"
    std::string what;       // one line
    bool repaired = false;  // or will be, when the repair is complete

    // "damage: node 17: link count is 3, should be 2 [link-count] (to be repaired)"; programs print it
    // when it is found, and what is repaired is written at the end.
    std::string line() const;
};

// In the order in which they come.
enum class Phase : uint8_t { superblocks, tree, journal, objects, links, space, data, repair };
std::string_view phase_name(Phase phase);

struct Progress {
    Phase phase = Phase::superblocks;
    double fraction = 0;  // of the phase, 0 to 1; an estimate
};

struct Statistics {
    uint64_t inodes = 0;      // objects with an inode that can be used
    uint64_t inode_keys = 0;  // and without
    uint64_t directories = 0;
    uint64_t entries = 0;
    uint64_t extents = 0;
    uint64_t orphans = 0;  // objects that wait to be deleted
    uint64_t intents = 0;  // files with work that the next mount goes on with
    uint64_t keys = 0;
    uint64_t tree_nodes = 0;
    uint64_t tree_levels = 0;
    uint64_t total_blocks = 0;
    uint64_t used_blocks = 0;
    uint64_t data_blocks_verified = 0;
};

struct Report {
    // In the order in which they were met. After kMaximumFindings only those of a code that has
    // not occurred yet are kept; the counts go on.
    static constexpr size_t kMaximumFindings = 10000;
    std::vector<Finding> findings;
    uint64_t counts[kCodeCount] = {};
    uint64_t notes = 0;
    uint64_t harmless = 0;
    uint64_t damage = 0;
    uint64_t not_repaired = 0;  // of the last two, those that are still there

    bool is_volume = false;  // a superblock was found
    bool changed = false;    // a superblock of the repaired state was written, or at least begun
    bool cancelled = false;
    Statistics statistics;

    uint64_t count(Code code) const { return counts[static_cast<size_t>(code)]; }
    bool has(Code code) const { return count(code) != 0; }
    // Nothing but notes, and the whole volume was looked at.
    bool clean() const { return is_volume && !cancelled && harmless == 0 && damage == 0; }
};

}  // namespace tiffin::check
