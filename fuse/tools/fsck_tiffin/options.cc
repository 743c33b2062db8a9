// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/fsck_tiffin/options.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

#include "fuse/tools/common/tool.h"

namespace tiffin::fuse {
namespace {

bool is_number(std::string_view text) {
    return !text.empty() && text.size() < 6 &&
           std::all_of(text.begin(), text.end(),
                       [](unsigned char c) { return std::isdigit(c) != 0; });
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
        if (argument == "-C" && i + 1 < argc && is_number(argv[i + 1])) {
            rewritten.push_back(std::string("--progress-fd=") + argv[++i]);
        } else if (argument.starts_with("-C") && is_number(argument.substr(2))) {
            rewritten.push_back("--progress-fd=" + std::string(argument.substr(2)));
        } else {
            rewritten.emplace_back(argument == "-C" ? "--progress" : argument);
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
        "-p,-a", safe, "repair without asking, but only what takes nothing away from anybody");
    no_flag->excludes(yes_flag)->excludes(safe_flag);
    yes_flag->excludes(safe_flag);
    app.add_flag("-f,--force", options.force, "check although the volume is marked clean");
    app.add_flag("-v,--verbose", options.verbose, "say more");
    app.add_flag("--data", options.verify_data, "also read all file data and verify it");
    app.add_flag("--progress", options.show_progress, "show how far it is (also: -C)");
    CLI::Option* fd = app.add_option("--progress-fd", descriptor,
                                     "write \"PHASE DONE TOTAL DEVICE\" lines to this file "
                                     "descriptor; 0: show a bar (also: -C FD)");
    app.add_option("device", options.device, "file:PATH or PATH (an image or a disk)")->required();

    std::vector<std::string> arguments = rewrite_progress_option(argc, argv);
    std::vector<char*> pointers{argv[0]};
    for (std::string& argument : arguments) {
        pointers.push_back(argument.data());
    }
    if (std::optional<int> status = parse_arguments(app, static_cast<int>(pointers.size()),
                                                    pointers.data(), fsck_status::usage_error)) {
        return *status;
    }
    options.mode = no     ? RepairMode::no
                   : yes  ? RepairMode::yes
                   : safe ? RepairMode::safe
                          : RepairMode::ask;
    if (fd->count() != 0 && descriptor > 0) {
        options.progress_descriptor = descriptor;
    } else if (fd->count() != 0) {
        options.show_progress = true;
    }
    return options;
}

}  // namespace tiffin::fuse
