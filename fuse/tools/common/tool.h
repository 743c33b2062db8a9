// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What every command-line tool does alike: arguments, --version, errors in one line.
#pragma once

#include <optional>
#include <string>

#include "fuse/host/problem.h"

namespace CLI {
class App;
}

namespace tiffin::fuse {

// Opens /dev/null for each of standard input, output and error that is closed; the first thing that a
// program does. Otherwise the device would get such a number, and be overwritten by what is printed.
// False after a message when that cannot be done; the program has to end then. Also makes a limit of file sizes (SIGXFSZ)
// an error of the write, which the program reports, instead of its end.
[[nodiscard]] bool prepare_process(const std::string& program);

// Prints "PROGRAM: TEXT" as one line to standard error.
void print_problem(const std::string& program, const Problem& problem);

// Adds --version.
void add_version_flag(CLI::App& app);

// For CLI::Option::check(): an argument that a script has left empty is no wish for the default.
std::string refuse_empty(const std::string& text);

// A word as it can be pasted into a shell's command line: in quotes if it needs them, as addresses with & do.
std::string shell_word(const std::string& word);

// Parses the command line. Returns the exit status when the program has to end now: 0 after --help
// and --version, `usage_status` after a mistake, about which one line went to standard error.
std::optional<int> parse_arguments(CLI::App& app, int argc, char** argv, int usage_status);

}  // namespace tiffin::fuse
