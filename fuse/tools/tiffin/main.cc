// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffin: what there is to ask of file systems, mounted or not.
#include <CLI/CLI.hpp>

#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>

#include "bench/perf/perf.h"
#include "fuse/host/size_text.h"
#include "fuse/tools/common/output.h"
#include "fuse/tools/common/tool.h"
#include "fuse/tools/tiffin/commands.h"

namespace tiffin::fuse {
namespace {

constexpr int kUsageStatus = 2;

struct Arguments {
    std::string place;      // a directory of a mount, or a device
    std::string structure;  // dump
    std::string link;
    std::optional<uint64_t> number;
    bool json = false;
    bool quiet = false;
    std::optional<double> interval_s;
    uint64_t count = 0;
    bool udev = false;
};

void add_mount_point(CLI::App& command, Arguments& arguments) {
    command.add_option("MOUNTPOINT", arguments.place, "Any directory of the mount")->required();
}

CLI::Option* add_interval(CLI::App& command, Arguments& arguments, const char* help) {
    return command.add_option("--interval", arguments.interval_s, help)
        ->check(CLI::Range(0.1, 86400.0))
        ->check([](const std::string& text) {
            return std::isnan(std::strtod(text.c_str(), nullptr)) ? "not a number" : "";
        });
}

// Those that ask a mounted file system. What went wrong lands in `problem`.
void add_mount_commands(CLI::App& app, Arguments& arguments, std::optional<Problem>& problem) {
    CLI::App* status = app.add_subcommand("status", "What a mounted file system says of itself");
    add_mount_point(*status, arguments);
    status->add_flag("--json", arguments.json, "For programs");
    status->callback([&] { problem = print_status(arguments.place, arguments.json); });

    CLI::App* stats = app.add_subcommand(
        "stats", "Requests that a mount has served: how many, and how long they took in it");
    add_mount_point(*stats, arguments);
    stats->add_flag("--json", arguments.json, "For programs, with the whole histograms");
    CLI::Option* interval = add_interval(
        *stats, arguments, "Show what was served in each interval of SECONDS, until ended");
    stats->add_option("--count", arguments.count, "End after this many intervals")
        ->needs(interval)
        ->check(CLI::Range(uint64_t{1}, uint64_t{1'000'000'000}));
    stats->callback([&] {
        problem = arguments.interval_s.has_value()
                      ? watch_stats(arguments.place, *arguments.interval_s, arguments.count,
                                    arguments.json)
                      : print_stats(arguments.place, arguments.json);
    });

    CLI::App* top = app.add_subcommand(
        "top", "Live view of a mount: rates and latencies by operation, links to servers");
    add_mount_point(*top, arguments);
    add_interval(*top, arguments, "Seconds between two pictures (1)");
    top->callback([&] { problem = run_top(arguments.place, arguments.interval_s.value_or(1)); });

    CLI::App* scrubbing =
        app.add_subcommand("scrub", "Reads and verifies everything that a mount stores");
    add_mount_point(*scrubbing, arguments);
    scrubbing->add_flag("-q,--quiet", arguments.quiet, "Say something only when there are errors");
    scrubbing->callback([&] { problem = scrub(arguments.place, arguments.quiet); });

    CLI::App* growing = app.add_subcommand(
        "grow", "Takes into use what the image or disk of a mount has gained in size");
    add_mount_point(*growing, arguments);
    growing->callback([&] { problem = grow(arguments.place); });

    CLI::App* link =
        app.add_subcommand("link", "Adds and removes links to the server of a mounted volume");
    link->require_subcommand(1);
    const auto add = [&](const char* name, const char* what, bool adds) {
        CLI::App* command = link->add_subcommand(name, what);
        add_mount_point(*command, arguments);
        command->add_option("ADDRESS", arguments.link, "HOST or HOST:PORT")->required();
        command->callback([&arguments, &problem, adds] {
            problem = change_link(arguments.place, adds, arguments.link);
        });
    };
    add("add", "Uses one more link", true);
    add("remove", "Takes a link out of use, when the requests in flight on it have been answered",
        false);
}

// Those that read a device.
void add_device_commands(CLI::App& app, Arguments& arguments, std::optional<Problem>& problem) {
    CLI::App* info = app.add_subcommand("info", "Says what is on a device: sizes, state, journal.");
    info->add_option("device", arguments.place, "file:PATH, PATH or tiffin://HOST/VOLUME")
        ->required();
    info->add_flag("--json", arguments.json, "print JSON, for programs");
    info->add_flag("--udev", arguments.udev,
                   "print what a udev rule needs; also of a disk that is mounted")
        ->excludes("--json");
    info->callback([&] {
        problem = arguments.udev ? print_udev_properties(arguments.place)
                                 : print_info(arguments.place, arguments.json);
    });

    CLI::App* dump =
        app.add_subcommand("dump", "Shows structures on a device, for finding out what is wrong.");
    dump->add_option("device", arguments.place, "file:PATH, PATH or tiffin://HOST/VOLUME")
        ->required();
    dump->add_option("structure", arguments.structure,
                     "superblock, tree, node BLOCK, inode ID, directory ID, journal, bitmap GROUP")
        ->required();
    dump->add_option("number", arguments.number, "which block, object or group");
    dump->add_flag("--json", arguments.json, "print JSON, for programs");
    dump->callback([&] {
        problem =
            print_dump(arguments.place, arguments.structure, arguments.number, arguments.json);
    });
}

using VolumeFunction = std::optional<Problem> (*)(const VolumeArguments&);

CLI::App* add_volume_command(CLI::App& volume, const char* name, const char* what,
                             VolumeFunction function, VolumeArguments& arguments,
                             std::optional<Problem>& problem) {
    CLI::App* command = volume.add_subcommand(name, what);
    command->add_option("--socket", arguments.socket, "Of tiffind; /run/tiffind/admin.sock");
    command->callback([&arguments, &problem, function] { problem = function(arguments); });
    return command;
}

// Those that ask a memory server of this host.
void add_volume_commands(CLI::App& app, VolumeArguments& arguments,
                         std::optional<Problem>& problem) {
    CLI::App* volume = app.add_subcommand("volume", "Volumes of the memory server on this host");
    volume->require_subcommand(1);
    const auto add = [&](const char* name, const char* what, VolumeFunction function) {
        return add_volume_command(*volume, name, what, function, arguments, problem);
    };
    const auto is_file_name = [](const std::string& name) {
        return std::string(name.empty() ? "the name of a file is expected" : "");
    };
    CLI::App* create = add("create", "Makes a volume and hands out its key", volume_create);
    create->add_option("NAME", arguments.name, "1 to 63 of a-z A-Z 0-9 . _ -")->required();
    create->add_option("SIZE", arguments.size, "Such as 500M or 10G")->required();
    create
        ->add_option("--backing", arguments.backing, "A file or disk that flushed content goes to")
        ->check(refuse_empty);
    create->add_flag("--force", arguments.force,
                     "Take a backing whose data are not a Tiffin file system, with these data");
    create
        ->add_option("--key-file", arguments.key_file,
                     "A new file for the key, instead of printing")
        ->check(is_file_name);
    CLI::App* list = add("list", "All volumes: name, bytes, writer", volume_list);
    list->add_flag("--json", arguments.json, "For programs");
    CLI::App* resize = add("resize", "Makes a volume larger", volume_resize);
    resize->add_option("NAME", arguments.name, "The volume")->required();
    resize->add_option("SIZE", arguments.size, "Such as 500M or 10G")->required();
    CLI::App* removal = add("delete", "Deletes a volume with its content", volume_delete);
    removal->add_option("NAME", arguments.name, "The volume")->required();
    removal->add_flag("--force", arguments.force,
                      "Also when it is in use, which ends there, or cannot be brought up");
    CLI::App* info = add("info", "Shows the details of a volume", volume_info);
    info->add_option("NAME", arguments.name, "The volume")->required();
    info->add_option("--key-file", arguments.key_file, "A new file to write the volume's key to")
        ->check(is_file_name);
    info->add_option("--reader-key-file", arguments.reader_key_file,
                     "A new file for a key that allows only to read the volume")
        ->check(is_file_name);
    info->add_flag("--json", arguments.json, "For programs");
}

// What the command line says of `tiffin perf`, before it is understood.
struct PerfArguments {
    PerfOptions options;
    std::string size;
    std::string echo;
    PerfLinkArguments link;
};

// What is wrong here is wrong usage.
std::optional<Problem> understand_perf(PerfArguments& arguments) {
    if (!arguments.size.empty()) {
        OrProblem<uint64_t> size = parse_size(arguments.size);
        if (!size.ok()) {
            return size.problem();
        }
        arguments.options.size_bytes = *size;
    }
    auto link = parse_link(arguments.link);
    if (!link.ok()) {
        return link.problem();
    }
    arguments.options.link = *link;
    return check_perf_options(arguments.options);
}

std::optional<Problem> perf(PerfArguments& arguments) {
    if (!arguments.echo.empty()) {
        return run_echo(arguments.echo);
    }
    if (const std::optional<Problem> mistake = understand_perf(arguments)) {
        throw CLI::ValidationError(mistake->text);
    }
    return run_perf(arguments.options);
}

void add_perf_command(CLI::App& app, PerfArguments& arguments, std::optional<Problem>& problem) {
    PerfOptions& perf = arguments.options;
    CLI::App* command = app.add_subcommand(
        "perf", "Latency and bandwidth of remote memory, and of plain sockets beside it");
    command->add_option("ADDRESS", perf.address, "tiffin://HOST/VOLUME");
    command->add_option("--operation", perf.operation,
                        "read (default), write, compare_swap, fetch_add or flush");
    command->add_option("--size", arguments.size, "bytes of one operation, such as 4K (default)");
    command->add_option("--depth", perf.depth, "operations under way in each thread (default 1)");
    command->add_option("--threads", perf.threads, "threads (default 1)");
    command->add_option("--duration", perf.duration_s, "seconds for each carrier (default 3)");
    command->add_option("--baseline", perf.baseline, "HOST:PORT where tiffin perf --echo runs");
    command->add_flag("--no-baseline", perf.no_baseline, "no plain sockets");
    command->add_flag("--overwrite", perf.overwrite,
                      "write: the volume's content may be destroyed");
    command->add_flag("--json", perf.json, "print JSON, for programs, with the whole histograms");
    command->add_option("--echo", arguments.echo,
                        "HOST:PORT: be the other end of plain sockets, until ended");
    command->add_option("--loss", arguments.link.loss,
                        "sdr over an emulated link: share of datagrams that it loses each way");
    command->add_option("--burst", arguments.link.burst,
                        "of that link: how many are lost at once, in the mean (default 1)");
    command->add_option("--delay", arguments.link.delay,
                        "of that link: time of each way, such as 10ms");
    command->add_option("--rate", arguments.link.rate,
                        "of that link: bits per second of each way, such as 100mbit");
    command->callback([&arguments, &problem] { problem = fuse::perf(arguments); });
}

int run(int argc, char** argv) {
    if (!prepare_process("tiffin")) {
        return EXIT_FAILURE;
    }
    CLI::App app("Looks into Tiffin file systems.", "tiffin");
    add_version_flag(app);
    app.require_subcommand(1);
    Arguments arguments;
    std::optional<Problem> problem;
    add_mount_commands(app, arguments, problem);
    add_device_commands(app, arguments, problem);
    VolumeArguments volume_arguments;
    add_volume_commands(app, volume_arguments, problem);
    PerfArguments perf_arguments;
    add_perf_command(app, perf_arguments, problem);
    CLI::App* version = app.add_subcommand("version", "The version of the tools, and of a mount");
    version->add_option("MOUNTPOINT", arguments.place, "Any directory of a mount");
    version->callback([&] { problem = print_version(arguments.place); });
    if (std::optional<int> status = parse_arguments(app, argc, argv, kUsageStatus)) {
        return *status;
    }
    if (!flush_output() && !problem.has_value()) {
        problem = {kOutputLost};
    }
    if (problem.has_value()) {
        print_problem("tiffin", *problem);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

}  // namespace
}  // namespace tiffin::fuse

int main(int argc, char** argv) { return tiffin::fuse::run(argc, argv); }
