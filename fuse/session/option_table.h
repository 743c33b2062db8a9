// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The options of -o, one entry each: what parses them, lists them in --help and judges remounts goes over
// these entries. A new option is an entry, a field of MountOptions and a paragraph of mount.tiffin(8).
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "fs/vfs/span.h"
#include "fuse/session/options.h"

namespace tiffin::fuse {

// `value` is what stands behind "=".
using OptionSetter = std::optional<Problem>(std::string_view name, std::string_view value,
                                            MountOptions& options);
// Whether a remount can make what was asked of what runs.
using RemountRule = bool(const MountOptions& running, const MountOptions& asked);

// One of an option's names: those that contradict each other are names of the same option.
struct OptionName {
    std::string_view name;
    OptionSetter* apply = nullptr;
    const char* help = nullptr;  // nullptr: the line of another name says enough
};

struct MountOption {
    const char* title;     // as the refusal of a remount calls it
    const char* argument;  // the value, as --help names it; nullptr: it takes none
    const char* example;   // a value other than the default, or the name that is not
    RemountRule* may_become;
    std::array<OptionName, 6> names;  // empty behind the last
};

Span<const MountOption> mount_option_table();

// Whether a word is known and has no effect here.
bool is_ignored_mount_option(std::string_view word);

}  // namespace tiffin::fuse
