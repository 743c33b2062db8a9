// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The parts of the tiffin command that look at devices which are not mounted.
#pragma once

#include <optional>

#include <CLI/CLI.hpp>

#include "fuse/host/problem.h"

namespace tiffin::check {

// Adds the subcommands info and dump; when one was chosen, its outcome lands in `problem`. They open the
// device read-only and write to standard output.
void add_offline_commands(CLI::App& app, std::optional<fuse::Problem>& problem);

}  // namespace tiffin::check
