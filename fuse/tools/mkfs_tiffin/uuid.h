// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The UUID of a volume, as people write it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "fuse/host/problem.h"

namespace tiffin::fuse {

using Uuid = std::array<uint8_t, 16>;

// RFC 9562: 8-4-4-4-12 hexadecimal digits, not all of them zero.
OrProblem<Uuid> parse_uuid(std::string_view text);

}  // namespace tiffin::fuse
