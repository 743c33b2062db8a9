// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/support/word_history.h"

#include <algorithm>

namespace tiffin::test {
namespace {

constexpr size_t kMostProblems = 20;

}  // namespace

WordHistory::WordHistory(uint64_t value)
    : first_version_(version_of(value)), known_version_(version_of(value)), versions_(kWindow) {
    (void)note(value);
}

void WordHistory::problem(const std::string& text, uint64_t value) {
    if (problems_.size() < kMostProblems) {
        problems_.push_back("version " + std::to_string(version_of(value)) + ", value " +
                            std::to_string(static_cast<uint32_t>(value)) + ": " + text);
    }
}

// nullptr: it cannot be.
WordHistory::Version* WordHistory::note(uint64_t value) {
    const uint64_t number = version_of(value);
    if (number < first_version_ || number >= known_version_ + kWindow ||
        number + kWindow <= known_version_) {
        problem("was never there", value);
        return nullptr;
    }
    Version& version = versions_[number % kWindow];
    if (version.number != number) {
        if (version.is_known && !version.is_replaced) {
            problem("has no successor that anybody was told of", version.value);
        }
        version = {};
        version.number = number;
    }
    if (version.is_known && version.value != value) {
        problem("another one had value " + std::to_string(static_cast<uint32_t>(version.value)) +
                    " of this version",
                value);
    }
    version.value = value;
    version.is_known = true;
    known_version_ = std::max(known_version_, number);
    return &version;
}

void WordHistory::changed(uint64_t old_value, uint64_t new_value, uint64_t known) {
    change_count_++;
    if (version_of(old_value) < known) {
        problem("was replaced before this change was submitted", old_value);
    }
    Version* const version = note(old_value);
    if (version != nullptr && version->is_replaced) {
        problem("was replaced twice", old_value);
    } else if (version != nullptr) {
        version->is_replaced = true;
    }
    (void)note(new_value);
}

void WordHistory::seen(uint64_t value, uint64_t known) {
    if (version_of(value) < known) {
        problem("was replaced before it was looked for", value);
    }
    (void)note(value);
}

void WordHistory::finished(uint64_t value) {
    Version* const version = note(value);
    if (version != nullptr && version->is_replaced) {
        problem("is in memory, though it was replaced", value);
    }
    // None was replaced twice: so all were, once.
    if (version_of(value) != first_version_ + change_count_) {
        problem("is in memory after " + std::to_string(change_count_) + " changes", value);
    }
}

}  // namespace tiffin::test
