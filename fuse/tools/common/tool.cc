// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/common/tool.h"

#include <fcntl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "fuse/session/version.h"

namespace tiffin::fuse {
namespace {

// How many letters must be changed, added or left out to make one word of the other (Levenshtein).
size_t distance(std::string_view from, std::string_view to) {
    std::vector<size_t> row(to.size() + 1);
    std::iota(row.begin(), row.end(), 0);
    for (size_t i = 0; i < from.size(); ++i) {
        size_t diagonal = std::exchange(row[0], i + 1);
        for (size_t j = 0; j < to.size(); ++j) {
            const size_t changed = diagonal + (from[i] == to[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({changed, diagonal + 1, row[j] + 1});
        }
    }
    return row.back();
}

// Of a command that wants a subcommand and got another word: which, and which it may have meant.
std::string explain_unknown_command(const CLI::App& command) {
    const std::vector<std::string> words = command.remaining();
    const std::vector<const CLI::App*> known =
        command.get_subcommands([](const CLI::App*) { return true; });
    if (known.empty() || words.empty() || words[0].starts_with('-')) {
        return "";
    }
    const auto distance_of = [&](const CLI::App* app) {
        return distance(words[0], app->get_name());
    };
    const CLI::App* nearest = *std::min_element(
        known.begin(), known.end(),
        [&](const CLI::App* a, const CLI::App* b) { return distance_of(a) < distance_of(b); });
    // Of a word that has little in common with all of them nothing is known.
    const bool is_near = distance_of(nearest) * 2 < nearest->get_name().size();
    return "there is no command \"" + words[0] + "\"" +
           (is_near ? ": did you mean \"" + nearest->get_name() + "\"?" : "");
}

}  // namespace

bool prepare_process(const std::string& program) {
    (void)std::signal(SIGXFSZ, SIG_IGN);
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

std::string refuse_empty(const std::string& text) { return text.empty() ? "it is empty" : ""; }

std::string shell_word(const std::string& word) {
    constexpr std::string_view kPlain =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./:,=+@%";
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
        return word;
    }
    std::string quoted = "'";
    for (const char letter : word) {
        quoted += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
    }
    return quoted + "'";
}

std::optional<int> parse_arguments(CLI::App& app, int argc, char** argv, int usage_status) {
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& information) {
        return app.exit(information);
    } catch (const CLI::ParseError& mistake) {
        std::string command = app.get_name();
        const CLI::App* last = &app;
        while (!last->get_subcommands().empty()) {
            last = last->get_subcommands().front();
            command += " " + last->get_name();
        }
        std::string text = explain_unknown_command(*last);
        text = text.empty() ? mistake.what() : text;
        std::replace(text.begin(), text.end(), '\n', ' ');
        print_problem(app.get_name(), {text + " (see " + command + " --help)"});
        return usage_status;
    }
    return std::nullopt;
}

}  // namespace tiffin::fuse
