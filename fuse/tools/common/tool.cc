// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/common/tool.h"

#include <fcntl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>

#include "fuse/session/version.h"

namespace tiffin::fuse {

bool provide_standard_descriptors(const std::string& program) {
    // Each open takes the lowest number that is free. Not closed on exec: the programs that are
    // started from here (fusermount3) need them as well.
    int descriptor = 0;
    do {
        descriptor = open("/dev/null", O_RDWR);  // NOLINT(android-cloexec-open)
    } while (descriptor >= 0 && descriptor <= STDERR_FILENO);
    if (descriptor >= 0) {
        (void)close(descriptor);
        return true;
    }
    const int error = errno;
    for (int standard = STDIN_FILENO; standard <= STDERR_FILENO; ++standard) {
        if (fcntl(standard, F_GETFD) < 0) {
            print_problem(program, {"standard input, output or error is closed, and /dev/null "
                                    "cannot be opened instead: " +
                                    system_error_text(error)});
            return false;
        }
    }
    return true;
}

void print_problem(const std::string& program, const Problem& problem) {
    // With one system call, so that lines of several processes do not mix.
    std::string line = program + ": " + problem.text + "\n";
    fflush(stdout);
    fwrite(line.data(), 1, line.size(), stderr);
    fflush(stderr);
}

void add_version_flag(CLI::App& app) {
    app.set_version_flag("--version", app.get_name() + " " + kVersion);
}

std::optional<int> parse_arguments(CLI::App& app, int argc, char** argv, int usage_status) {
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& information) {
        return app.exit(information);
    } catch (const CLI::ParseError& mistake) {
        std::string text = mistake.what();
        for (char& c : text) {
            c = c == '\n' ? ' ' : c;
        }
        std::string command = app.get_name();
        for (const CLI::App* subcommand : app.get_subcommands()) {
            command += " " + subcommand->get_name();
        }
        print_problem(app.get_name(), {text + " (see " + command + " --help)"});
        return usage_status;
    }
    return std::nullopt;
}

}  // namespace tiffin::fuse
