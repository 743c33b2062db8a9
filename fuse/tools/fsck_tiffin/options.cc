// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/fsck_tiffin/options.h"

#include <fcntl.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

#include "fuse/host/size_text.h"
#include "fuse/tools/common/tool.h"

namespace tiffin::fuse {
namespace {

bool is_number(std::string_view text) {
    return !text.empty() && text.size() < 6 &&
           std::all_of(text.begin(), text.end(),
                       [](unsigned char c) { return std::isdigit(c) != 0; });
}

// The letters before a C at the end of short options, such as "-f" of "-fC0"; nullopt: there is none.
std::optional<std::string_view> options_before_progress(std::string_view argument) {
    const size_t place = argument.find('C');
    if (argument.size() < 2 || argument[0] != '-' || argument[1] == '-' ||
        place == std::string_view::npos) {
        return std::nullopt;
    }
    const std::string_view rest = argument.substr(place + 1);
    return rest.empty() || is_number(rest) ? std::optional(argument.substr(0, place))
                                           : std::nullopt;
}

// -C takes a number that may follow it at once, as the next argument, or not at all. The parser
// does not know such options, so it gets two that it knows.
std::vector<std::string> rewrite_progress_option(int argc, char** argv) {
    std::vector<std::string> rewritten;
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        if (argument == "--") {
            rewritten.insert(rewritten.end(), argv + i, argv + argc);
            break;
        }
        const std::optional<std::string_view> before = options_before_progress(argument);
        if (!before.has_value()) {
            rewritten.emplace_back(argument);
            continue;
        }
        if (before->size() > 1) {
            rewritten.emplace_back(*before);
        }
        const std::string_view number = argument.substr(before->size() + 1);
        if (!number.empty()) {
            rewritten.push_back("--progress-fd=" + std::string(number));
        } else if (i + 1 < argc && is_number(argv[i + 1])) {
            rewritten.push_back(std::string("--progress-fd=") + argv[++i]);
        } else {
            rewritten.emplace_back("-C");
        }
    }
    return rewritten;
}

}  // namespace

std::variant<FsckOptions, int> parse_fsck_options(int argc, char** argv) {
    CLI::App app("Checks and repairs a Tiffin file system.", "fsck.tiffin");
    add_version_flag(app);
    app.footer(
        "Exit status, as fsck(8): 0 clean, 1 errors corrected, 4 errors left, 8 the check could\n"
        "not be made, 16 wrong usage, 32 cancelled.");
    FsckOptions options;
    bool no = false;
    bool yes = false;
    bool safe = false;
    int descriptor = -1;
    CLI::Option* no_flag = app.add_flag("-n", no, "check everything, change nothing");
    CLI::Option* yes_flag = app.add_flag("-y", yes, "repair everything without asking");
    CLI::Option* safe_flag = app.add_flag(
        "-p,-a", safe, "repair without asking, but only repairs that cannot lose data");
    no_flag->excludes(yes_flag)->excludes(safe_flag);
    yes_flag->excludes(safe_flag);
    app.add_flag("-f,--force", options.force, "check although the volume is marked clean");
    app.add_flag("-v,--verbose", options.verbose, "say more");
    app.add_flag("--data", options.verify_data, "also read all file data and verify it");
    app.add_flag(
        "-C", options.show_progress,
        "show a bar on the terminal; -C FD: write \"PHASE DONE TOTAL DEVICE\" lines to that "
        "file descriptor, 0: the bar");
    std::string size;
    app.add_option(
           "--size", size,
           "the volume's size, for one that is smaller than its device and has lost its first "
           "superblocks, such as 10G")
        ->check(refuse_empty);
    CLI::Option* fd = app.add_option("--progress-fd", descriptor)->group("");
    app.add_option("device", options.device,
                   "file:PATH or PATH (an image or a disk), or tiffin://HOST/VOLUME")
        ->required();

    std::vector<std::string> arguments = rewrite_progress_option(argc, argv);
    std::vector<char*> pointers{argv[0]};
    for (std::string& argument : arguments) {
        pointers.push_back(argument.data());
    }
    if (std::optional<int> status = parse_arguments(app, static_cast<int>(pointers.size()),
                                                    pointers.data(), fsck_status::usage_error)) {
        return *status;
    }
    if (!size.empty()) {
        const OrProblem<uint64_t> parsed = parse_size(size);
        if (!parsed.ok() || *parsed == 0) {
            print_problem("fsck.tiffin", {"--size: " + (parsed.ok() ? "0 bytes hold no volume"
                                                                    : parsed.problem().text)});
            return fsck_status::usage_error;
        }
        options.size_bytes = *parsed;
    }
    options.mode = no     ? RepairMode::no
                   : yes  ? RepairMode::yes
                   : safe ? RepairMode::safe
                          : RepairMode::ask;
    if (fd->count() != 0 && descriptor > 0) {
        // The device would get its number, and the progress would be written to it.
        if (fcntl(descriptor, F_GETFD) < 0) {
            print_problem(app.get_name(),
                          {"-C " + std::to_string(descriptor) + ": file descriptor " +
                           std::to_string(descriptor) + " is not open"});
            return fsck_status::usage_error;
        }
        options.progress_descriptor = descriptor;
    } else if (fd->count() != 0) {
        options.show_progress = true;
    }
    return options;
}

}  // namespace tiffin::fuse
