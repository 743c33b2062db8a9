// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What all parts of one check share: the device, the options, and the way to report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/space/bitmap_block.h"
#include "fs/vfs/block_device.h"
#include "fuse/check/check.h"

namespace tiffin::check {

class Context {
  public:
    Context(vfs::BlockDevice& device, const CheckOptions& options, Report& report)
        : device_(device), options_(options), report_(report) {}
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    vfs::BlockDevice& device() { return device_; }
    const CheckOptions& options() const { return options_; }
    Report& report() { return report_; }

    // Reports a problem that could be repaired. Returns true when the caller is to repair it: it then
    // counts as repaired. A problem that was reported before (same code, same place) is not counted
    // again, but the answer is the same.
    [[nodiscard]] bool found(Code code, std::string_view where, std::string_view what);
    // Reports a problem that no repair can solve.
    void found_for_good(Code code, std::string_view where, std::string_view what);
    // Reports something that is worth knowing and not wrong.
    void note(Code code, std::string_view where, std::string_view what);

    // While a trial is on, nothing is reported, so that one way of repair can be compared with another.
    void begin_trial();
    // Returns how many parts of the tree or the journal were found to be missing.
    uint64_t end_trial();

    void progress(Phase phase, double fraction);
    bool cancelled();

    // Whether anything that was found is to be repaired.
    bool repair_wanted() const { return repair_wanted_; }
    // Whether something was found that the state in memory goes on without, whatever the answer was (a
    // part of the tree, the end of the journal), and may not be given up. That state must not be written
    // then, whatever else is to be repaired.
    bool must_not_write() const { return must_not_write_; }
    // Nothing is to be written, as with must_not_write(), because a repair was declined.
    void withhold() { must_not_write_ = must_not_write_ || !trial_; }
    // One class of findings is not repaired after all.
    void take_back(Code code);
    // Nothing is written after all, so that nothing has been repaired.
    void nothing_repaired();
    // The same, as writing the repair has failed.
    void repair_failed(std::string_view what);

    // From the superblock, once it is known.
    tiffinfs::Superblock superblock{};
    tiffinfs::Layout layout{};
    // What came before it in the journal was committed; 0: nothing of it is known.
    uint64_t checkpoint_sequence = 0;

  private:
    bool may_repair(Code code, std::string_view where, std::string_view what);
    bool is_new(Code code, std::string_view where);
    void add(Code code, Severity severity, std::string_view where, std::string_view what,
             bool repaired);

    vfs::BlockDevice& device_;
    const CheckOptions& options_;
    Report& report_;
    std::optional<bool> answers_[kCodeCount];
    std::unordered_set<uint64_t> seen_;
    bool repair_wanted_ = false;
    bool must_not_write_ = false;
    bool trial_ = false;
    uint64_t trial_missing_parts_ = 0;
    Phase last_phase_ = Phase::superblocks;
    double last_fraction_ = -1;
};

}  // namespace tiffin::check
