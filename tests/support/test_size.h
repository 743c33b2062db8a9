// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How much the long tests do: the sanitizers' runs are slower by a factor, and those of continuous integration short.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace tiffin::test {

// Whether TIFFIN_TEST_REDUCED=1 is set, as the presets of the sanitizers do.
inline bool is_reduced() {
    const char* reduced = std::getenv("TIFFIN_TEST_REDUCED");
    return reduced != nullptr && std::string_view(reduced) == "1";
}

inline uint64_t test_size(uint64_t full, uint64_t reduced) { return is_reduced() ? reduced : full; }

// `least` where TIFFIN_TEST_LEAST=1 is set as well, as `scripts/check-preset --short` does: for what only repeats.
inline uint64_t test_size(uint64_t full, uint64_t reduced, uint64_t least) {
    const char* wanted = std::getenv("TIFFIN_TEST_LEAST");
    const bool is_least = wanted != nullptr && std::string_view(wanted) == "1";
    return test_size(full, is_least ? least : reduced);
}

// TIFFIN_FUZZ_FIRST_SEED=N tries others than the usual ones.
inline uint64_t first_seed() {
    const char* wanted = std::getenv("TIFFIN_FUZZ_FIRST_SEED");
    return wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 1;
}

}  // namespace tiffin::test
