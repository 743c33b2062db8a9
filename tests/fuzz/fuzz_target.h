// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A fuzzer here is a file NAME_fuzz.cc that defines these two functions. It becomes two programs: fuzz_NAME,
// which replays its seeds, corpus/NAME and a fixed number of random changes to them (replay.cc; a test, with every
// compiler), and in the preset `asan` libfuzzer_NAME, which searches for as long as it is told (scripts/fuzz).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Gives `data` to a parser and checks what it accepts, or takes choices from it and checks what comes of them:
// TIFFIN_ASSERT() or std::abort() where something does not hold. Returns 0.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace tiffin::fuzz {

using Input = std::vector<unsigned char>;

// Good inputs, from which bad ones are made. Always the same.
std::vector<Input> seeds();
// Makes checksums right again after a change, so that not all changes end there. May do nothing.
void repair(Input& input);

inline Input to_input(const std::string& text) { return Input(text.begin(), text.end()); }

// Takes an input apart. Behind its end there are zeros.
class Bytes {
  public:
    Bytes(const uint8_t* data, size_t size) : next_(data), end_(data + size) {}

    size_t left() const { return static_cast<size_t>(end_ - next_); }
    uint8_t byte() { return next_ == end_ ? uint8_t{0} : *next_++; }
    // Any trivially copyable type.
    template <typename T>
    T take() {
        T value{};
        auto* out = reinterpret_cast<unsigned char*>(&value);
        for (size_t i = 0; i < sizeof(T); i++) {
            out[i] = byte();
        }
        return value;
    }
    Input take_bytes(size_t count) {
        Input bytes;
        while (bytes.size() < count && next_ != end_) {
            bytes.push_back(*next_++);
        }
        return bytes;
    }

  private:
    const uint8_t* next_;
    const uint8_t* end_;
};

}  // namespace tiffin::fuzz
