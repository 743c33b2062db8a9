// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a damaged volume owes its user: each file is intact, or reads as an error, or is named as damaged by
// fsck, and never silently different; before and after a mount in between.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fuse/check/report.h"
#include "tests/support/choices.h"
#include "tests/support/crash_device.h"
#include "tests/support/test_volume.h"

namespace tiffin::test {

// A small volume with one of everything, which always has the same tree of keys, and trials of damage to copies of
// it. One thread.
class DamageTrials {
  public:
    DamageTrials();
    ~DamageTrials();

    // Damages a copy as `choices` say: some blocks in use, with or without right checksums, with or without a
    // mount before the repair. Reads all of it, checks, repairs, checks and reads again. Returns what was
    // wrong with any of that; empty when nothing was.
    std::string run(Choices& choices);

    // What trials have come to, to prove that the rare cases were among them.
    struct Met {
        uint64_t intact = 0;   // volumes that lost nothing
        uint64_t errors = 0;   // objects that could not be read, or only in parts, after a repair
        uint64_t missing = 0;  // objects that were gone, or in /lost+found
        uint64_t named = 0;    // objects that were different and named
        uint64_t refused = 0;  // mounts
        uint64_t beyond_repair = 0;
    };
    const Met& met() const { return met_; }

  private:
    struct Volume;
    struct Damage;
    class Trial;

    std::vector<std::unique_ptr<Volume>> volumes_;
    Met met_;
};

}  // namespace tiffin::test
