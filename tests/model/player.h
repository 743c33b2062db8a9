// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Carries operations out on a file system and tells what came of them.
#pragma once

#include <cstdint>
#include <string>

#include "tests/model/operation.h"
#include "tests/suite/under_test.h"

namespace tiffin::model {

// What a call gave: 0 or a size, or the negative of an errno value, and what it told.
struct Outcome {
    int64_t answer = 0;
    std::string data;

    bool operator==(const Outcome&) const = default;
    std::string text() const;
};

class Player {
  public:
    explicit Player(suite::FileSystemUnderTest& fs) : fs_(fs) {
        for (int& slot : slots_) {
            slot = -1;
        }
    }
    ~Player() { close_all(); }
    Player(const Player&) = delete;
    Player& operator=(const Player&) = delete;

    Outcome play(const Operation& operation);
    void close_all();

  private:
    // The slot that was chosen, or the next one in which a file is open; both sides have the same.
    int open_slot(int wanted) const;
    Outcome play_file(const Operation& operation);
    Outcome play_name(const Operation& operation);
    Outcome play_attribute(const Operation& operation);
    Outcome open(const Operation& operation);
    Outcome read(const Operation& operation);
    Outcome copy(const Operation& operation);
    Outcome seek(const Operation& operation);
    Outcome list(const Operation& operation);
    Outcome set_times(const Operation& operation);
    Outcome set_flags(const Operation& operation);
    Outcome list_xattr(const Operation& operation);

    suite::FileSystemUnderTest& fs_;
    int slots_[kSlots];
};

}  // namespace tiffin::model
