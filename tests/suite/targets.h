// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The file systems that the suite runs on, and what each of them is said to have.
#pragma once

#include <string>
#include <vector>

#include "tests/suite/features.h"

namespace tiffin::suite {

struct Target {
    std::string name;
    FeatureSet features;
};

// A tiffinfs in this process.
Target core_target();
// The memory file system of tests/support, in this process.
Target memory_target();
// The mounted file system that `directory` is in, by its kind. Throws std::runtime_error when there
// is none that the suite knows.
Target mounted_target(const std::string& directory);

// Compares what will not run with what is known and accepted for the target, so that a case that
// silently stops running is noticed. Returns the differences, empty when there are none. Targets
// that only serve to check the suite itself accept everything.
std::vector<std::string> unexpected_not_run(const Target& target);

}  // namespace tiffin::suite
