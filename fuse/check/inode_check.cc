// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The fields of an inode, one by one.
#include <fmt/format.h>

#include <cstring>

#include "fuse/check/names.h"
#include "fuse/check/object_parts.h"

namespace tiffin::check {

using tiffinfs::DiskTime;
using tiffinfs::InodeValue;

namespace {

constexpr uint32_t kKnownInodeFlags =
    tiffinfs::inode_flag::inline_data | tiffinfs::inode_flag::has_xattrs |
    tiffinfs::inode_flag::has_capability | tiffinfs::inode_flag::has_access_acl |
    tiffinfs::inode_flag::has_default_acl | tiffinfs::inode_flag::orphan |
    tiffinfs::inode_flag::has_intent;
constexpr uint32_t kNanosecondsPerSecond = 1000000000;

// One wrong field: reported under its own name, and made right by `correct`.
template <typename Correct>
void wrong_field(ScanState& state, std::string_view field, std::string_view problem,
                 Correct correct) {
    if (state.context.found(Code::inode_invalid, fmt::format("{}, {}", state.where, field),
                            problem)) {
        correct(state.corrected_inode());
    }
}

void check_time(ScanState& state, std::string_view field, DiskTime InodeValue::*member) {
    const uint32_t nanoseconds = (state.inode.*member).nanoseconds;
    if (nanoseconds >= kNanosecondsPerSecond) {
        wrong_field(state, field, fmt::format("{} nanoseconds are no time", nanoseconds),
                    [&](InodeValue& inode) { (inode.*member).nanoseconds = 0; });
    }
}

void check_flags(ScanState& state) {
    const InodeValue& inode = state.inode;
    if ((inode.inode_flags & ~kKnownInodeFlags) != 0) {
        wrong_field(state, "flags", fmt::format("unknown flags {:#x}", inode.inode_flags),
                    [](InodeValue& fixed) { fixed.inode_flags &= kKnownInodeFlags; });
    }
    if ((inode.file_flags & ~vfs::file_flag::settable) != 0) {
        wrong_field(state, "file flags", fmt::format("unknown flags {:#x}", inode.file_flags),
                    [](InodeValue& fixed) { fixed.file_flags &= vfs::file_flag::settable; });
    }
    const bool has_intent = (inode.inode_flags & tiffinfs::inode_flag::has_intent) != 0;
    const bool intent_exists = state.objects.intents.count(state.node) != 0;
    if (has_intent != intent_exists) {
        wrong_field(
            state, "intent flag",
            has_intent ? "it announces unfinished work that is not recorded"
                       : "it hides unfinished work that is recorded",
            [&](InodeValue& fixed) { fixed.inode_flags ^= tiffinfs::inode_flag::has_intent; });
    }
}

void check_size(ScanState& state) {
    const InodeValue& inode = state.inode;
    if (state.is_regular()) {
        return;  // ExtentCheck knows more
    }
    if (!state.is_directory() && !state.is_symlink() && inode.size_bytes != 0) {
        wrong_field(state, "size", "a special file has no content",
                    [](InodeValue& fixed) { fixed.size_bytes = 0; });
    }
    if ((inode.inode_flags & tiffinfs::inode_flag::inline_data) != 0) {
        wrong_field(
            state, "inline flag", "only regular files have inline content",
            [](InodeValue& fixed) { fixed.inode_flags &= ~tiffinfs::inode_flag::inline_data; });
    }
}

}  // namespace

bool check_inode(ScanState& state, ByteSpan value) {
    if (value.size() != sizeof(InodeValue)) {
        return false;
    }
    std::memcpy(&state.inode, value.data(), sizeof state.inode);
    const uint32_t mode = state.inode.mode;
    if (!is_type_mode(mode & vfs::mode::type_mask)) {
        return false;
    }
    if ((mode & ~(vfs::mode::type_mask | vfs::mode::permission_mask)) != 0) {
        wrong_field(state, "mode", fmt::format("{:#o} has unknown bits", mode),
                    [](InodeValue& fixed) {
                        fixed.mode &= vfs::mode::type_mask | vfs::mode::permission_mask;
                    });
    }
    check_time(state, "access time", &InodeValue::access_time);
    check_time(state, "modification time", &InodeValue::modification_time);
    check_time(state, "change time", &InodeValue::change_time);
    check_time(state, "birth time", &InodeValue::birth_time);
    check_flags(state);
    check_size(state);
    if (!vfs::mode::is_directory(mode) && state.inode.parent != 0) {
        wrong_field(state, "parent", "only directories have one",
                    [](InodeValue& fixed) { fixed.parent = 0; });
    }
    return true;
}

}  // namespace tiffin::check
