// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The system calls that take an open file, each with fixed further arguments.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tiffin::conformance {

struct DescriptorCall {
    std::string name;
    std::function<std::string(int file)> run;
};

// Reading, writing, seeking, sizes, space.
const std::vector<DescriptorCall>& content_calls();
// Attributes, names relative to the descriptor, locks, flags, mappings and all else.
const std::vector<DescriptorCall>& control_calls();

}  // namespace tiffin::conformance
