// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Where the choices of a run come from: a seed, or the bytes that a fuzzer changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>

namespace tiffin::test {

class Choices {
  public:
    virtual ~Choices() = default;
    // 0 to limit - 1; `limit` is not 0.
    virtual uint64_t below(uint64_t limit) = 0;
    // True when there is nothing left to choose from; below() then gives 0.
    virtual bool ended() const { return false; }
};

// The same seed makes the same choices everywhere.
class RandomChoices final : public Choices {
  public:
    explicit RandomChoices(uint64_t seed) : engine_(seed) {}
    uint64_t below(uint64_t limit) override { return engine_() % limit; }

  private:
    std::mt19937_64 engine_;  // fully defined by the standard, unlike its distributions
};

// Each choice takes as many bytes as its limit needs, at most 4, so that a change of one byte changes one
// choice.
class ByteChoices final : public Choices {
  public:
    // The bytes must live as long.
    ByteChoices(const uint8_t* data, size_t size) : next_(data), end_(data + size) {}
    uint64_t below(uint64_t limit) override {
        uint64_t value = 0;
        for (uint64_t range = 1; range < limit && range <= UINT32_MAX; range <<= 8) {
            value = value << 8 | (next_ == end_ ? uint8_t{0} : *next_++);
        }
        return value % limit;
    }
    bool ended() const override { return next_ == end_; }

  private:
    const uint8_t* next_;
    const uint8_t* end_;
};

}  // namespace tiffin::test
