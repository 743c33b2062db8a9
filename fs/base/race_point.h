// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Marks the places between two steps of code that works without a lock, where another thread may come in between:
// a test makes threads wait there, which they do nowhere near often enough by themselves
// (tests/support/race_pauses.h). The presets with sanitizers define TIFFIN_RACE_POINTS; in other builds it is nothing.
#pragma once

#if defined(TIFFIN_RACE_POINTS)
#include <atomic>
#endif

namespace tiffin {

#if defined(TIFFIN_RACE_POINTS)
inline std::atomic<void (*)()> race_point_hook{nullptr};

inline void race_point() {
    if (auto* const hook = race_point_hook.load(std::memory_order_relaxed); hook != nullptr) {
        hook();
    }
}
#else
inline void race_point() {}
#endif

}  // namespace tiffin
