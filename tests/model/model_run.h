// SPDX-License-Identifier: MIT OR GPL-2.0-only
// One run: random operations on a subject and on the memory file system, compared call by call, and
// tree by tree after remounts and power failures.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tests/model/operation.h"
#include "tests/model/player.h"
#include "tests/model/subject.h"
#include "tests/suite/core_under_test.h"
#include "tests/suite/tree_snapshot.h"
#include "tests/support/memory_file_system.h"

namespace tiffin::model {

class ModelRun {
  public:
    // Both must live as long. Between comparisons of the trees, remounts and power failures there are
    // `shortest_stretch` to eleven times as many operations.
    ModelRun(Subject& subject, test::Choices& choices, uint64_t shortest_stretch = 20);
    ~ModelRun();

    // Runs this many operations, or until there is nothing left to choose from. Returns what went wrong, with
    // what led to it; empty when nothing did.
    std::string run(uint64_t operations);
    // Operations that were refused for want of space, and done when there was some.
    uint64_t refused() const { return refused_; }

  private:
    // Both sides play the next operation; throws when they answer differently.
    void step();
    // Throws when the trees differ.
    void compare_trees(const std::string& when);
    void something_rarer();
    void lose_power_in_the_middle();
    // Makes the model what the subject is.
    void follow_subject();
    void close_files();
    void new_model();
    std::string history() const;

    Subject& subject_;
    test::Choices& choices_;
    const uint64_t shortest_stretch_;
    Generator generator_;
    uint64_t done_ = 0;
    uint64_t refused_ = 0;
    std::unique_ptr<testing::MemoryFileSystem> model_;
    suite::CoreUnderTest model_fs_;
    std::unique_ptr<Player> subject_player_;
    std::unique_ptr<Player> model_player_;
    OperationKind last_kind_ = OperationKind::stat;
    std::deque<std::string> history_;  // the last operations, for the report
};

}  // namespace tiffin::model
