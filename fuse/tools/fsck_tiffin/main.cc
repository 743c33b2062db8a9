// SPDX-License-Identifier: MIT OR GPL-2.0-only
// fsck.tiffin [-n|-y|-p|-a] [-f] [-C [FD]] [-v] [--data] DEVICE
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "fuse/check/check.h"
#include "fuse/check/superblocks.h"
#include "fuse/host/device_address.h"
#include "fuse/host/log_sink.h"
#include "fuse/host/remote_device.h"
#include "fuse/host/size_text.h"
#include "fuse/tools/common/output.h"
#include "fuse/tools/common/tool.h"
#include "fuse/tools/fsck_tiffin/device_front.h"
#include "fuse/tools/fsck_tiffin/lengthened_image.h"
#include "fuse/tools/fsck_tiffin/options.h"
#include "fuse/tools/fsck_tiffin/progress.h"

namespace tiffin::fuse {
namespace {

constexpr const char* kProgram = "fsck.tiffin";
// So many findings of one kind are shown without -v.
constexpr uint64_t kShownPerCode = 50;

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler changes it");

void catch_interrupts() {
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = true; };
    // No restart: a question that waits for an answer ends too.
    (void)sigaction(SIGINT, &action, nullptr);
    (void)sigaction(SIGTERM, &action, nullptr);
    (void)signal(SIGPIPE, SIG_IGN);
}

// The checker says itself what it finds; what the code that it shares with the file system logs
// would say it twice. But only the device says why a repair cannot be written, and what opening it waits for.
class Quiet final : public LogSink {
  public:
    void write(host::LogLevel level, const char* message) override {
        if ((writes_ && level == host::LogLevel::error) ||
            (is_opening_ && level == host::LogLevel::warning)) {
            print_problem(kProgram, {message});
        }
    }
    void device_is_open() { is_opening_ = false; }
    void repairs_are_written() { writes_ = true; }

  private:
    std::atomic<bool> is_opening_{true};
    std::atomic<bool> writes_{false};
};

class Fsck {
  public:
    Fsck(const FsckOptions& options, Quiet& log)
        : options_(options),
          log_(log),
          progress_(options.show_progress, options.progress_descriptor, options.device) {}

    int run() {
        const bool terminal = isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
        repair_ = options_.mode != RepairMode::no && (options_.mode != RepairMode::ask || terminal);
        if (!options_.verbose) {
            set_log_sink(&log_);
        }
        OrProblem<std::unique_ptr<vfs::BlockDevice>> device = open();
        log_.device_is_open();
        if (!device.ok()) {
            print_problem(kProgram, device.problem());
            return fsck_status::operational_error;
        }
        // Not before: opening may wait for a mount that is ending.
        catch_interrupts();
        lengthen(device);
        if (!must_look(**device)) {
            return fsck_status::clean;
        }
        const check::Report report = check(**device);
        progress_.clear();
        if (lengthened_ != nullptr) {
            settle_length(report);
        }
        print_result(report, lost_content_reason(**device));
        // A clean volume raises no question either.
        if (options_.mode == RepairMode::ask && !terminal && report.not_repaired != 0) {
            print_text("{}: {} is not a terminal: no changes (as with -n)\n", kProgram,
                       isatty(STDIN_FILENO) != 0 ? "stdout" : "stdin");
        }
        return status_of(report);
    }

  private:
    OrProblem<std::unique_ptr<vfs::BlockDevice>> open() const {
        if (std::optional<Problem> problem = refuse_memory(options_.device)) {
            return *problem;
        }
        OrProblem<std::unique_ptr<vfs::BlockDevice>> device =
            open_device(options_.device, {.read_only = !repair_});
        if (!device.ok() || options_.size_bytes == 0) {
            return device;
        }
        const uint64_t device_bytes = (*device)->geometry().size_bytes;
        if (options_.size_bytes > device_bytes) {
            return Problem{fmt::format("{} has {} bytes: a volume on it is not larger",
                                       options_.device, device_bytes)};
        }
        return std::unique_ptr<vfs::BlockDevice>(
            new DeviceFront(std::move(*device), options_.size_bytes));
    }

    // An image whose end was cut off is checked as if it had its size: what is gone reads as zeros, which no checksum fits.
    void lengthen(OrProblem<std::unique_ptr<vfs::BlockDevice>>& device) {
        const uint64_t device_bytes = (*device)->geometry().size_bytes;
        const uint64_t volume_bytes =
            check::cut_off_volume_bytes(check::read_superblock_copies(**device), device_bytes);
        const OrProblem<DeviceAddress> address = parse_device_address(options_.device);
        std::error_code ignored;
        if (volume_bytes == 0 || options_.size_bytes != 0 || !repair_ ||
            options_.mode == RepairMode::safe || !address.ok() ||
            address->kind != DeviceAddress::Kind::file ||
            !std::filesystem::is_regular_file(address->path, ignored)) {
            return;
        }
        print_text("damage: {}: {} of {} bytes are missing at its end [superblock-fields]\n",
                   options_.device, volume_bytes - device_bytes, volume_bytes);
        if (options_.mode == RepairMode::ask && !ask("Lengthen the image with zeros")) {
            return;
        }
        auto image =
            std::make_unique<LengthenedImage>(std::move(*device), address->path, volume_bytes);
        lengthened_ = image.get();
        present_bytes_ = device_bytes;
        device = std::unique_ptr<vfs::BlockDevice>(std::move(image));
    }

    // The image is as long as its volume exactly if that is what is left to do, or a repair needs it.
    void settle_length(const check::Report& report) {
        if (!report.changed) {
            lengthened_->take_back();
        }
        const uint64_t lost =
            report.count(check::Code::data_checksum) + report.count(check::Code::data_unreadable);
        const bool lacks_nothing_else =
            !report.cancelled && report.is_volume && report.not_repaired == lost;
        log_.repairs_are_written();
        if (lacks_nothing_else && !lengthened_->make_longer()) {
            lengthened_failed_ = true;
        }
    }

    // Only the check at boot (-p) believes the mark of a clean volume, if a mount would not find damage either: the
    // device may have changed what was written since, so a check, or repairs, that the user asks for are done.
    bool must_look(vfs::BlockDevice& device) {
        if (options_.force || options_.verify_data || options_.mode != RepairMode::safe) {
            return true;
        }
        tiffinfs::Superblock superblock{};
        if (!check::is_marked_clean(device, superblock)) {
            return true;
        }
        print_text("{}: marked clean, {} objects, {}/{} blocks; not checked\n", options_.device,
                   superblock.node_count, superblock.used_blocks, superblock.total_blocks);
        return false;
    }

    check::Report check(vfs::BlockDevice& device) {
        check::CheckOptions options;
        options.repair = repair_;
        options.verify_data = options_.verify_data;
        options.verify_from_bytes = present_bytes_;
        options.may_repair = [this](const check::Finding& finding) { return may_repair(finding); };
        options.on_finding = [this](const check::Finding& finding) { print(finding); };
        options.on_progress = [this](const check::Progress& progress) {
            if (progress.phase == check::Phase::repair) {
                log_.repairs_are_written();
            }
            progress_.show(progress);
        };
        options.is_cancelled = [] { return interrupted.load(); };
        return check::check_file_system(device, options);
    }

    bool may_repair(const check::Finding& finding) {
        switch (options_.mode) {
            case RepairMode::no:
                return false;
            case RepairMode::yes:
                return true;
            case RepairMode::safe:
                return check::code_is_safe_to_repair(finding.code);
            case RepairMode::ask:
                // What the question is about comes before it.
                progress_.clear();
                print_text("{}\n", finding.line());
                shown_before_question_ = {finding.code, finding.where};
                return ask(check::code_repair(finding.code));
        }
        return false;
    }

    bool ask(std::string_view question) {
        progress_.clear();
        print_text("{}? [y/N] ", question);
        std::fflush(stdout);
        std::string answer;
        // At the end of the input no answer comes any more.
        return std::getline(std::cin, answer) &&
               (answer == "y" || answer == "Y" || answer == "yes");
    }

    void print(const check::Finding& finding) {
        uint64_t& shown = shown_[static_cast<size_t>(finding.code)];
        ++shown;
        const bool is_shown =
            shown == 1 && shown_before_question_ == std::pair(finding.code, finding.where);
        if (is_shown || (!options_.verbose && shown > kShownPerCode)) {
            return;
        }
        progress_.clear();
        print_text("{}\n", finding.line());
        if (!options_.verbose && shown == kShownPerCode) {
            print_text("(more of this kind are counted but not shown; -v shows them)\n");
        }
    }

    void print_result(const check::Report& report, const char* lost_reason) {
        if (!report.is_volume && report.has(check::Code::superblock_fields)) {
            return print_problem(
                kProgram,
                {options_.device + " cannot be checked: see what is said of its superblocks"});
        }
        if (!report.is_volume && lost_reason != nullptr) {
            return print_problem(
                kProgram, {options_.device + " holds no Tiffin file system: " + lost_reason});
        }
        if (!report.is_volume) {
            const Problem problem{options_.device +
                                  " holds no Tiffin file system, or its superblocks are lost: is "
                                  "it the right device? If the volume is smaller than its "
                                  "device, 'fsck.tiffin --size SIZE' finds those at its end"};
            return print_problem(kProgram, problem);
        }
        const check::Statistics& statistics = report.statistics;
        if (report.cancelled) {
            print_text("{}: cancelled; nothing was changed\n", options_.device);
            return;
        }
        if (options_.verbose) {
            print_text("{} directories with {} names, {} extents\n", statistics.directories,
                       statistics.entries, statistics.extents);
            print_text("{} objects to be deleted, {} files with unfinished work\n",
                       statistics.orphans, statistics.intents);
            print_text("{} keys in {} tree nodes of {} levels\n", statistics.keys,
                       statistics.tree_nodes, statistics.tree_levels);
            if (options_.verify_data) {
                print_text("{} of file data verified\n",
                           format_size(statistics.data_blocks_verified * tiffinfs::kBlockBytes));
            }
        }
        const std::string usage = fmt::format("{} objects, {}/{} blocks", statistics.inodes,
                                              statistics.used_blocks, statistics.total_blocks);
        if (report.clean()) {
            print_text("{}: clean, {}\n", options_.device, usage);
        } else if (report.not_repaired == 0) {
            print_text("{}: {} repaired, {}\n", options_.device, problems_text(report), usage);
        } else {
            print_text("{}: {}, {} left; {}{}\n", options_.device, problems_text(report),
                       report.not_repaired, usage,
                       repair_ && !report.has(check::Code::repair_withheld)
                           ? ""
                           : "; " + repair_hint(report));
        }
    }

    std::string repair_hint(const check::Report& report) const {
        bool loses_nothing = true;
        for (size_t i = 0; i < check::kCodeCount; ++i) {
            const auto code = static_cast<check::Code>(i);
            loses_nothing = loses_nothing && (report.count(code) == 0 ||
                                              check::code_severity(code) == check::Severity::note ||
                                              check::code_is_safe_to_repair(code));
        }
        const std::string device = size_argument() + " " + shell_word(options_.device);
        return loses_nothing
                   ? "fsck.tiffin -f -p" + device + " repairs that, and nothing is lost"
                   : "fsck.tiffin -f -y" + device +
                         " repairs what can be repaired; what is damaged may be lost then, so "
                         "copy the device first";
    }

    std::string size_argument() const {
        return options_.size_bytes == 0 ? "" : fmt::format(" --size {}", options_.size_bytes);
    }

    static std::string problems_text(const check::Report& report) {
        const uint64_t count = report.damage + report.harmless;
        return fmt::format("{} problem{}", count, count == 1 ? "" : "s");
    }

    int status_of(const check::Report& report) const {
        if (report.cancelled) {
            return fsck_status::cancelled;
        }
        if (!report.is_volume || report.has(check::Code::repair_failed) || lengthened_failed_) {
            return fsck_status::operational_error;
        }
        if (report.not_repaired != 0) {
            return fsck_status::uncorrected;
        }
        const bool is_longer = lengthened_ != nullptr && lengthened_->is_longer();
        return report.clean() && !is_longer ? fsck_status::clean : fsck_status::corrected;
    }

    const FsckOptions& options_;
    Quiet& log_;
    FsckProgress progress_;
    bool repair_ = false;
    LengthenedImage* lengthened_ = nullptr;  // what open() gave, where its end is missing
    uint64_t present_bytes_ = ~uint64_t{0};  // of it, then
    bool lengthened_failed_ = false;
    uint64_t shown_[check::kCodeCount] = {};
    std::pair<check::Code, std::string> shown_before_question_;  // what and where that finding is
};

int run(int argc, char** argv) {
    if (!prepare_process(kProgram)) {
        return fsck_status::operational_error;
    }
    const auto parsed = parse_fsck_options(argc, argv);
    if (const int* status = std::get_if<int>(&parsed)) {
        return *status;
    }
    const auto& options = std::get<FsckOptions>(parsed);
    Quiet quiet;
    const int status = Fsck(options, quiet).run();
    set_log_sink(nullptr);
    if (!flush_output()) {
        print_problem(kProgram, {kOutputLost});
    }
    return status;
}

}  // namespace
}  // namespace tiffin::fuse

int main(int argc, char** argv) { return tiffin::fuse::run(argc, argv); }
