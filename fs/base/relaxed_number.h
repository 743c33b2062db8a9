// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A number that one thread may change while others read it, in a structure that can be copied.
#pragma once

#include <atomic>
#include <cstdint>

namespace tiffin {

// Reads and writes are atomic and order nothing else.
class RelaxedNumber {
  public:
    RelaxedNumber() = default;
    RelaxedNumber(const RelaxedNumber& other) : value_(other.value()) {}
    RelaxedNumber& operator=(const RelaxedNumber& other) { return *this = other.value(); }
    RelaxedNumber& operator=(uint64_t value) {
        value_.store(value, std::memory_order_relaxed);
        return *this;
    }
    operator uint64_t() const { return value(); }  // NOLINT: it is read as a number

  private:
    uint64_t value() const { return value_.load(std::memory_order_relaxed); }

    std::atomic<uint64_t> value_{0};
};

}  // namespace tiffin
