// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The history of one word that many change at once, from what each of them was told. Every change raises the word's upper
// half by one, its version, so that all changes have an order that anybody can check: none is lost, none took effect twice,
// and every value returned is the one that was there.
//
// Changes may be noted in any order, up to kWindow versions apart. One thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tiffin::test {

class WordHistory {
  public:
    static constexpr uint64_t kWindow = 4096;
    static constexpr uint64_t kStep = uint64_t{1} << 32;  // one version

    explicit WordHistory(uint64_t value);

    // The greatest version that somebody has been told of: what is submitted now must not return an earlier one.
    uint64_t known_version() const { return known_version_; }

    // A change that was submitted when known_version() was `known`: it found `old_value`, and left `new_value`.
    void changed(uint64_t old_value, uint64_t new_value, uint64_t known);
    // Something that changed nothing found `value`.
    void seen(uint64_t value, uint64_t known);
    // All have their answers, and memory holds `value`.
    void finished(uint64_t value);

    uint64_t change_count() const { return change_count_; }
    const std::vector<std::string>& problems() const { return problems_; }

  private:
    struct Version {
        uint64_t number = 0;
        uint64_t value = 0;
        bool is_known = false;
        bool is_replaced = false;
    };

    static uint64_t version_of(uint64_t value) { return value / kStep; }
    Version* note(uint64_t value);
    void problem(const std::string& text, uint64_t value);

    uint64_t first_version_;
    uint64_t known_version_;
    uint64_t change_count_ = 0;
    std::vector<Version> versions_;
    std::vector<std::string> problems_;
};

}  // namespace tiffin::test
