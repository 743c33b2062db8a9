// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/check/report.h"

#include <fmt/format.h>

namespace tiffin::check {
namespace {

struct CodeDescription {
    std::string_view name;
    Severity severity;
    bool safe;
    std::string_view repair;
};

constexpr Severity kNote = Severity::note;
constexpr Severity kHarmless = Severity::harmless;
constexpr Severity kDamage = Severity::damage;

// In the order of the enumeration; the assertion below counts them.
constexpr CodeDescription kCodes[] = {
    {"superblock-missing", kDamage, false, "Nothing can be repaired without a superblock"},
    {"superblock-fields", kDamage, false, "Nothing can be repaired with this superblock"},
    {"superblock-copy", kHarmless, true, "Write the superblocks anew"},
    {"superblock-older", kDamage, true,
     "Go on from the older generation and its journal (all other repairs of the tree lose more)"},
    {"errors-flag", kHarmless, true, "Clear the mark"},
    {"journal-pending", kNote, true, "Replay the journal"},
    {"journal-torn", kNote, true, "Replay the journal"},
    {"journal-damaged", kDamage, false, "Replay the journal up to the damage and drop the rest"},
    {"journal-record", kDamage, false, "Replay the journal up to the damage and drop the rest"},
    {"node-unreadable", kDamage, false, "Cut unreadable nodes out of the tree"},
    {"node-invalid", kDamage, false, "Cut damaged nodes out of the tree"},
    {"node-shared", kDamage, false, "Cut nodes that are used twice out of the tree"},
    {"node-bounds", kDamage, false, "Put misplaced keys where they belong"},
    {"key-invalid", kDamage, false, "Remove impossible keys"},
    {"root-missing", kDamage, false, "Make a new root directory"},
    {"inode-missing", kDamage, false, "Make new inodes for what is left of damaged objects"},
    {"inode-new", kNote, false, "Make new inodes for what is left of damaged objects"},
    {"inode-invalid", kDamage, false, "Correct damaged inodes"},
    {"inode-extra", kDamage, false, "Remove what does not belong to an object of its type"},
    {"entry-invalid", kDamage, false, "Mend or remove damaged directory entries"},
    {"entry-hash", kDamage, true, "Put directory entries where searches look"},
    {"entry-duplicate", kDamage, false, "Remove the second of two equal names"},
    {"entry-target", kDamage, false, "Remove names of objects that do not exist"},
    {"entry-type", kHarmless, true, "Correct the types in directory entries"},
    {"directory-links", kDamage, false, "Remove all names of a directory but one"},
    {"directory-entries", kHarmless, true, "Correct the counts of directory entries"},
    {"entries-missing", kDamage, false, "Correct the counts of directories that have lost names"},
    {"directory-parent", kHarmless, true, "Correct the parents of directories"},
    {"link-count", kHarmless, true, "Correct link counts"},
    {"unreachable", kDamage, false, "Connect unreachable objects to /lost+found"},
    {"orphan-key", kHarmless, true, "Correct the list of objects to be deleted"},
    {"intent-invalid", kDamage, false, "Give up unfinished work that is recorded wrongly"},
    {"inline-invalid", kDamage, false, "Correct the size of content kept in the tree"},
    {"symlink-invalid", kDamage, false, "Correct damaged symbolic links"},
    {"xattr-invalid", kDamage, false, "Move or remove damaged extended attributes"},
    {"xattrs-missing", kDamage, false, "Accept that extended attributes are gone"},
    {"extent-invalid", kDamage, false, "Remove impossible extents"},
    {"extent-overlap", kDamage, false, "Remove one of two extents that overlap"},
    {"extent-beyond-end", kHarmless, true,
     "Make files as long as their content, and remove marks of losses behind it"},
    {"extent-shared", kDamage, false, "Leave shared blocks to the owner whose checksums match"},
    {"allocated-blocks", kHarmless, true, "Correct counts of allocated blocks"},
    {"content-missing", kDamage, false, "Mark content that is gone, so that reading it fails"},
    {"content-lost", kDamage, false, "Content that is marked as lost cannot be brought back"},
    {"data-unreadable", kDamage, false, "File data cannot be repaired"},
    {"data-checksum", kDamage, false, "File data cannot be repaired"},
    {"bitmap-invalid", kHarmless, true, "Write damaged bitmaps anew"},
    {"bitmap-wrong", kHarmless, true, "Mark used blocks as used"},
    {"bitmap-leak", kHarmless, true, "Free blocks that nothing uses"},
    {"counter", kHarmless, true, "Correct the totals of the volume"},
    {"repair-unfinished", kDamage, false, "Run the check again"},
    {"repair-withheld", kNote, false, "Write nothing"},
    {"repair-failed", kDamage, false, "Run the check again"},
};
static_assert(sizeof(kCodes) / sizeof(kCodes[0]) == kCodeCount);

const CodeDescription& describe(Code code) { return kCodes[static_cast<size_t>(code)]; }

std::string_view severity_name(Severity severity) {
    switch (severity) {
        case Severity::note:
            return "note";
        case Severity::harmless:
            return "harmless";
        case Severity::damage:
            return "damage";
    }
    return "";
}

}  // namespace

std::string_view code_name(Code code) { return describe(code).name; }
Severity code_severity(Code code) { return describe(code).severity; }
bool code_is_safe_to_repair(Code code) { return describe(code).safe; }
std::string_view code_repair(Code code) { return describe(code).repair; }

std::string Finding::line() const {
    return fmt::format("{}: {}: {} [{}]{}", severity_name(severity), where, what, code_name(code),
                       repaired ? " (to be repaired)" : "");
}

std::string_view phase_name(Phase phase) {
    switch (phase) {
        case Phase::superblocks:
            return "superblocks";
        case Phase::journal:
            return "journal";
        case Phase::tree:
            return "tree";
        case Phase::objects:
            return "objects";
        case Phase::links:
            return "links";
        case Phase::space:
            return "space";
        case Phase::data:
            return "data";
        case Phase::repair:
            return "repair";
    }
    return "";
}

}  // namespace tiffin::check
