// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The system calls that take a path or an open file, each with fixed further arguments.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tiffin::conformance {

struct PathCall {
    std::string name;
    std::function<std::string(const char* path)> run;
};

// Opening in all ways; the answer has what the descriptor says of itself.
const std::vector<PathCall>& open_calls();
// Those that make, remove or rename a name.
const std::vector<PathCall>& name_calls();
// Those that look at or change what is there.
const std::vector<PathCall>& object_calls();
// Extended attributes.
const std::vector<PathCall>& xattr_calls();

// The call of that name in any of the lists; ends the program when there is none.
const PathCall& path_call(const std::string& name);

// A call with two paths.
struct PairCall {
    std::string name;
    std::function<std::string(const char* from, const char* to)> run;
};
const std::vector<PairCall>& pair_calls();

}  // namespace tiffin::conformance
