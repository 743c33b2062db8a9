// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffin: what there is to ask of file systems, mounted or not.
#include <cstdlib>
#include <optional>

#include "fuse/check/dump.h"
#include "fuse/tools/common/tool.h"
#include "fuse/tools/tiffin/commands.h"

namespace {

constexpr int kUsageStatus = 2;

int run(int argc, char** argv) {
    using namespace tiffin::fuse;  // NOLINT
    if (!provide_standard_descriptors("tiffin")) {
        return EXIT_FAILURE;
    }
    CLI::App app("Looks into Tiffin file systems.", "tiffin");
    add_version_flag(app);
    app.require_subcommand(1);
    std::optional<Problem> problem;
    add_status_command(app, problem);
    add_stats_command(app, problem);
    add_scrub_command(app, problem);
    tiffin::check::add_offline_commands(app, problem);
    add_version_command(app, problem);
    if (std::optional<int> status = parse_arguments(app, argc, argv, kUsageStatus)) {
        return *status;
    }
    if (problem.has_value()) {
        print_problem("tiffin", *problem);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) { return run(argc, argv); }
