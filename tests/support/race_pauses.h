// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Makes threads wait for random times at the places that fs/base/race_point.h marks, as long as it lives. In builds
// without a sanitizer it does nothing: what a test checks must hold either way.
#pragma once

#include <cstdint>

namespace tiffin::test {

// One at a time. A thread sleeps at one in `one_in` of the places, and yields at some more.
class RacePauses {
  public:
    explicit RacePauses(uint32_t one_in = 512);
    ~RacePauses();
    RacePauses(const RacePauses&) = delete;
    RacePauses& operator=(const RacePauses&) = delete;
};

}  // namespace tiffin::test
