// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Copies a whole tree from one file system to another: names, links, content, attributes.
#pragma once

#include <string>

#include "tests/suite/under_test.h"

namespace tiffin::model {

// `to` is empty. Throws std::runtime_error with the call that failed.
void copy_tree(suite::FileSystemUnderTest& from, suite::FileSystemUnderTest& to);

}  // namespace tiffin::model
