// SPDX-License-Identifier: MIT OR GPL-2.0-only
// System calls that must not fail: figures of what failed would mean nothing.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace tiffin::bench {

// Ends the program at once, whatever its other threads do. What was printed before is kept.
[[noreturn]] inline void fail(const char* call) {
    std::perror(call);
    std::fflush(stdout);
    std::_Exit(1);
}

template <typename T>
T must(T answer, const char* call) {
    if (answer < 0) {
        fail(call);
    }
    return answer;
}
#define MUST_CALL(call) ::tiffin::bench::must(call, #call)

}  // namespace tiffin::bench
