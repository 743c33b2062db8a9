// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/problem.h"

#include <cstring>

namespace tiffin::fuse {

std::string system_error_text(int error_number) {
    // Unlike strerror(), safe in any thread. This is the GNU form, which may or may not use the buffer.
    char buffer[128];
    return strerror_r(error_number, buffer, sizeof buffer);
}

}  // namespace tiffin::fuse
