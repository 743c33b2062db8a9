// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Kinds of paths that a call can be given: what is there, and how it is spelled.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/conformance/trial.h"

namespace tiffin::conformance {

struct Kind {
    std::string name;
    std::string path;
    std::function<void(Scene&)> prepare;
};

// One object each, named "x": missing, file, directories, symlinks, special files.
const std::vector<Kind>& object_kinds();
// The same objects and others under paths that are not one plain name: slashes, dots, long names,
// components that are no directories, loops.
const std::vector<Kind>& path_kinds();

// "x..." of this length.
std::string long_name(size_t bytes);
// "./././...x" of this length.
std::string long_path(size_t bytes);
// Makes symlinks "1" -> `target`, "2" -> "1" and so on, `count` in all, which are not watched. Following the
// last follows all.
void make_chain(const std::string& target, int count);

}  // namespace tiffin::conformance
