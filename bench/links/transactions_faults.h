// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Whether the checks of the tables find what they are for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tiffin::bench {

// Runs transactions, plants one fault after another in the tables, and says what the checks find. False: one was not found, or
// something was found without a fault.
bool find_planted_faults(size_t clients, uint64_t seed, const std::string& address);

}  // namespace tiffin::bench
