// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/model/model_run.h"

#include <cerrno>
#include <exception>
#include <stdexcept>

#include "tests/model/copy_tree.h"
#include "tests/suite/case.h"
#include "tests/suite/targets.h"

namespace tiffin::model {

namespace {

constexpr size_t kHistoryLines = 40;

// What must be the same everywhere: not numbers of nodes, clocks, or how space is used.
constexpr suite::SnapshotOptions kWhatCounts = {
    .times = false, .nodes = false, .allocated = false, .directory_sizes = false};

// Two answers that are both right. Where flags forbid what would have failed or done nothing anyway,
// either will do; and which of its reasons a rename over a directory above it names does not matter.
// What was done is compared later, with the trees.
bool equivalent(OperationKind kind, const Outcome& a, const Outcome& b) {
    if (a == b) {
        return true;
    }
    bool may_do_nothing = kind == OperationKind::copy || kind == OperationKind::rename;
    int64_t largest = may_do_nothing ? 0 : -1;
    if (a.answer > largest || b.answer > largest) {
        return false;
    }
    auto either = [&](int64_t answer) { return a.answer == answer || b.answer == answer; };
    return either(-EPERM) ||
           (kind == OperationKind::rename && either(-EISDIR) && either(-ENOTEMPTY));
}

// Whether the subject had too little space. What was refused has changed nothing, so it can be done again.
bool lacks_space(OperationKind kind, const Outcome& got, const Outcome& expected) {
    return (got.answer == -ENOSPC && expected.answer != -ENOSPC) ||
           (kind == OperationKind::write && got.answer >= 0 && got.answer < expected.answer);
}

std::string join(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) {
        text += "  " + line + "\n";
    }
    return text;
}

}  // namespace

ModelRun::ModelRun(Subject& subject, test::Choices& choices, uint64_t shortest_stretch)
    : subject_(subject),
      choices_(choices),
      shortest_stretch_(shortest_stretch),
      generator_(choices, subject.generator_options()),
      model_fs_(suite::memory_target().features) {
    new_model();
    subject_player_ = std::make_unique<Player>(subject_.file_system());
    model_player_ = std::make_unique<Player>(model_fs_);
}

ModelRun::~ModelRun() {
    close_files();
    model_fs_.detach();
}

void ModelRun::new_model() {
    model_fs_.detach();
    model_ = std::make_unique<testing::MemoryFileSystem>();
    model_fs_.attach(*model_);
}

void ModelRun::close_files() {
    subject_player_->close_all();
    model_player_->close_all();
}

std::string ModelRun::run(uint64_t operations) {
    try {
        while (done_ < operations && !choices_.ended()) {
            uint64_t stretch = shortest_stretch_ + choices_.below(10 * shortest_stretch_);
            for (uint64_t i = 0; i < stretch && done_ < operations && !choices_.ended(); ++i) {
                step();
            }
            something_rarer();
        }
        close_files();
        compare_trees("at the end");
        return "";
    } catch (const std::exception& exception) {
        return "operation " + std::to_string(done_) + ": " + exception.what() + "\n" + history();
    }
}

void ModelRun::step() {
    Operation operation = generator_.next();
    last_kind_ = operation.kind;
    Outcome expected = model_player_->play(operation);
    if (operation.kind == OperationKind::append) {
        // A part of it could not be appended again.
        subject_.make_room();
    }
    Outcome got = subject_player_->play(operation);
    while (lacks_space(operation.kind, got, expected) && subject_.make_room()) {
        ++refused_;
        got = subject_player_->play(operation);
    }
    ++done_;
    history_.push_back(std::to_string(done_) + ": " + operation.text() + " = " +
                       suite::answer_text(got.answer));
    if (history_.size() > kHistoryLines) {
        history_.pop_front();
    }
    if (!equivalent(operation.kind, got, expected)) {
        throw std::runtime_error("expected " + expected.text() + ", got " + got.text());
    }
}

void ModelRun::compare_trees(const std::string& when) {
    std::vector<std::string> differences =
        suite::compare_snapshots(suite::take_snapshot(model_fs_, kWhatCounts),
                                 suite::take_snapshot(subject_.file_system(), kWhatCounts));
    if (!differences.empty()) {
        throw std::runtime_error("the trees differ " + when + ":\n" + join(differences));
    }
}

void ModelRun::something_rarer() {
    const uint64_t choice = generator_.below(10);
    const uint64_t seed = generator_.below(UINT64_MAX);
    const auto outcome = test::kCrashOutcomes[generator_.below(std::size(test::kCrashOutcomes))];
    if (choice < 3 || !subject_.can_be_remounted()) {
        compare_trees("now");
        return;
    }
    history_.push_back(choice < 5   ? "-- remount"
                       : choice < 8 ? "-- sync and power failure"
                                    : "-- power failure in the middle");
    if (choice < 5) {
        close_files();
        subject_.remount();
        compare_trees("after a remount");
    } else if (choice < 8) {
        close_files();
        subject_.synchronize();
        subject_.crash(outcome, seed);
        compare_trees("after a sync and a power failure");
    } else {
        lose_power_in_the_middle();
    }
}

// After a power failure the tree is one that existed between the last sync and the failure. Which one
// it is, is found by looking at all of them; the model then starts again from there.
void ModelRun::lose_power_in_the_middle() {
    close_files();
    subject_.synchronize();
    std::vector<suite::TreeSnapshot> states = {suite::take_snapshot(model_fs_, kWhatCounts)};
    const uint64_t count = 1 + generator_.below(25);
    for (uint64_t i = 0; i < count; ++i) {
        step();
        if (last_kind_ == OperationKind::synchronize) {
            states.clear();
        }
        states.push_back(suite::take_snapshot(model_fs_, kWhatCounts));
    }
    const auto outcome = test::kCrashOutcomes[generator_.below(std::size(test::kCrashOutcomes))];
    const uint64_t seed = generator_.below(UINT64_MAX);
    // The power fails with files open; what only they kept alive is gone afterwards.
    subject_.crash(outcome, seed);
    close_files();
    suite::TreeSnapshot found = suite::take_snapshot(subject_.file_system(), kWhatCounts);
    bool known = false;
    for (const suite::TreeSnapshot& state : states) {
        known = known || state == found;
    }
    if (!known) {
        throw std::runtime_error(
            "the tree after a power failure is none of those since the last sync, " +
            std::to_string(states.size()) + " states ago; against the oldest:\n" +
            join(suite::compare_snapshots(states.front(), found)) + " against the newest:\n" +
            join(suite::compare_snapshots(states.back(), found)));
    }
    follow_subject();
}

void ModelRun::follow_subject() {
    new_model();
    copy_tree(subject_.file_system(), model_fs_);
    compare_trees("after copying the subject to a fresh model");
}

std::string ModelRun::history() const {
    std::string text = "the last operations:\n";
    for (const std::string& line : history_) {
        text += "  " + line + "\n";
    }
    return text;
}

}  // namespace tiffin::model
