// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The subcommands of the tiffin command, a file each.
#pragma once

#include <optional>

#include <CLI/CLI.hpp>

#include "fuse/host/problem.h"

namespace tiffin::fuse {

// Each adds its subcommand to `app`; when it was chosen, its outcome lands in `problem`.
void add_status_command(CLI::App& app, std::optional<Problem>& problem);
void add_stats_command(CLI::App& app, std::optional<Problem>& problem);
void add_scrub_command(CLI::App& app, std::optional<Problem>& problem);
void add_version_command(CLI::App& app, std::optional<Problem>& problem);

}  // namespace tiffin::fuse
