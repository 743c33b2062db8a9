// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Other users of the place where a device has its content (device_place.h).
#pragma once

#include <string>

#include "fuse/host/device_place.h"

namespace tiffin::fuse {

// The path of another device, or of a file below one, that another program uses at a place that overlaps; empty: none is
// known. `shared`: other readers do no harm. To be asked after the caller has locked its own device and, where that is a loop
// device that shows all of a file, the file: then of two programs that come at the same time at least one finds the other.
std::string find_user_of_place(const FoundPlace& found, bool shared);

}  // namespace tiffin::fuse
