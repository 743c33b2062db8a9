// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/common/mount_program.h"

#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "fuse/host/device_address.h"
#include "fuse/host/size_text.h"
#include "fuse/session/mount_point.h"
#include "fuse/session/options.h"
#include "fuse/tools/common/kernel_mount.h"
#include "fuse/tools/common/mount_server.h"
#include "fuse/tools/common/remount.h"
#include "fuse/tools/common/second_mount.h"
#include "fuse/tools/common/tool.h"
#include "fuse/tools/common/volume_identity.h"

namespace tiffin::fuse {
namespace {

constexpr int kUsageStatus = 1;
constexpr int kFailureStatus = 32;

struct CommandLine {
    std::string device;
    std::string mount_point;
    std::vector<std::string> option_texts;
    std::string file_system = "";
    bool foreground = false;
    bool sloppy = false;
    MountOptions options;
};

// mount(8) runs helpers with flags of its own; there -f means "do everything but mount".
bool is_called_by_mount(const std::string& program) { return program.starts_with("mount.fuse"); }

std::string names_of(Span<const FileSystemType> types, bool only_without_device) {
    std::string names;
    for (const FileSystemType& type : types) {
        if (!only_without_device || !type.needs_device) {
            names += (names.empty() ? "" : ", ") + std::string(type.name);
        }
    }
    return names;
}

std::optional<int> parse_command_line(int argc, char** argv, const std::string& program,
                                      Span<const FileSystemType> types, CommandLine& line) {
    CLI::App app("Mounts a Tiffin file system.", program);
    app.footer(
        "DEVICE is mem:SIZE, file:PATH, the path of an image or a disk, UUID=UUID, LABEL=LABEL, or "
        "tiffin://HOST/VOLUME, memory of other machines.\n\nOptions of -o:\n" +
        mount_options_help() +
        "\nIt returns when the mount answers. End it with umount (root) or fusermount3 -u.");
    const std::string without_device = names_of(types, true);
    app.add_option(
           "DEVICE", line.device,
           "What to mount" +
               (without_device.empty() ? "" : "; may be left out with --fs " + without_device))
        ->required();
    app.add_option("MOUNTPOINT", line.mount_point, "An existing directory");
    // In the order in which they stand, since the last one wins.
    const auto add_options = [&](const std::string& text) { line.option_texts.push_back(text); };
    app.add_option_function<std::string>("-o", add_options, "Options, separated by commas")
        ->allow_extra_args(false)
        ->trigger_on_parse();
    app.add_flag("-f", line.foreground,
                 is_called_by_mount(program) ? "Only pretend" : "Stay in the foreground");
    app.add_flag_callback(
           "-r", [&] { add_options("ro"); }, "The same as -o ro")
        ->trigger_on_parse();
    app.add_flag_callback(
           "-w", [&] { add_options("rw"); }, "The same as -o rw")
        ->trigger_on_parse();
    app.add_flag("--force", line.options.force, "The same as -o force");
    app.add_option("--fs", line.file_system,
                   "The file system; the first is the default: " + names_of(types, false))
        ->check(refuse_empty);
    add_version_flag(app);
    // What mount(8) passes to helpers.
    bool ignored = false;
    std::string ignored_text;
    app.add_flag("-s", line.sloppy, "Ignore unknown mount options");
    app.add_flag("-n,-v", ignored, "Accepted for mount(8), without effect");
    app.add_option("-t,-N", ignored_text, "Accepted for mount(8), without effect");
    return parse_arguments(app, argc, argv, kUsageStatus);
}

// Then mount(8) and the module judge the options.
bool is_for_module(const CommandLine& line) {
    const auto names = [&](const char* word) {
        return std::ranges::any_of(line.option_texts, [&](const std::string& text) {
            return has_mount_option(text, word);
        });
    };
    return names("kernel") || (names("remount") && is_kernel_mount(line.mount_point));
}

std::optional<Problem> understand_options(CommandLine& line) {
    const bool in_kernel = is_for_module(line);
    const UnknownOptions unknown =
        line.sloppy || in_kernel ? UnknownOptions::skip : UnknownOptions::refuse;
    for (const std::string& text : line.option_texts) {
        if (std::optional<Problem> problem = add_mount_options(text, line.options, unknown)) {
            return problem;
        }
    }
    line.options.in_kernel = in_kernel;
    const FileSystemOptions& options = line.options.file_system;
    if (options.no_recovery && !options.read_only && !line.options.remount) {
        return Problem{
            "norecovery is for read-only mounts: the first write would make the journal useless; "
            "add ro, or leave norecovery out to recover the volume"};
    }
    return std::nullopt;
}

OrProblem<const FileSystemType*> find_type(const std::string& name,
                                           Span<const FileSystemType> types) {
    TIFFIN_ASSERT(!types.empty());
    if (name.empty()) {
        return &types[0];
    }
    std::string known;
    for (const FileSystemType& type : types) {
        if (name == type.name) {
            return &type;
        }
        known += (known.empty() ? "" : ", ") + std::string(type.name);
    }
    return Problem{"there is no file system \"" + name + "\": known are " + known};
}

// "user_allow_other" on a line of its own.
bool users_may_allow_other() {
    std::ifstream file("/etc/fuse.conf");
    std::string line;
    while (std::getline(file, line)) {
        size_t end = line.find_last_not_of(" \t\r");
        if (line.substr(0, end == std::string::npos ? 0 : end + 1) == "user_allow_other") {
            return true;
        }
    }
    return false;
}

// The address with an absolute path, so that it means the same after the daemon has changed its
// folder, and to programs that read /proc/mounts. Not made shorter: "link/.." may be another folder than
// the one that it seems to be.
std::string absolute_address(const std::string& address, const DeviceAddress& parsed) {
    if (parsed.kind != DeviceAddress::Kind::file || parsed.path.starts_with('/')) {
        return address;
    }
    std::error_code error;
    std::filesystem::path path = std::filesystem::absolute(parsed.path, error);
    std::string prefix = address.starts_with("file:") ? "file:" : "";
    return error ? address : prefix + path.string();
}

std::string joined(const std::vector<std::string>& texts) {
    std::string all;
    for (const std::string& text : texts) {
        all += (all.empty() ? "" : ",") + text;
    }
    return all;
}

// As mount(8) asks for with -f.
bool is_pretended(const CommandLine& line, const std::string& program) {
    return line.foreground && is_called_by_mount(program);
}

// Memory is taken as the file system fills: it may be used up long after this.
void warn_of_scarce_memory(const std::string& program, const DeviceAddress& address) {
    const uint64_t memory_bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                                  static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    if (address.kind == DeviceAddress::Kind::memory && address.size_bytes > memory_bytes) {
        print_problem(program,
                      {"warning: this machine has only " + format_size(memory_bytes) +
                       " of memory: when a file system of " + format_size(address.size_bytes) +
                       " in it gets full, the system will end programs"});
    }
}

OrProblem<MountTask> make_task(CommandLine& line, const std::string& program,
                               const FileSystemType& type) {
    bool is_root = geteuid() == 0;
    const MountOptions& options = line.options;
    MountTask task;
    task.type = &type;
    task.options = options;
    task.foreground = line.foreground;
    if (options.allow_other == true && !is_root && !users_may_allow_other()) {
        return Problem{
            "allow_other is for root: to permit it to all users, write user_allow_other "
            "to /etc/fuse.conf",
            Error::eperm};
    }
    OrProblem<std::vector<std::string>> for_kernel = kernel_mount_options(options, is_root);
    if (!for_kernel.ok()) {
        return for_kernel.problem();
    }
    task.kernel_options = for_kernel.value();
    if (!options.subtype.empty()) {
        task.kernel_options.push_back("subtype=" + options.subtype);
    }
    OrProblem<std::string> mount_point = check_mount_point(line.mount_point);
    if (!mount_point.ok()) {
        return mount_point.problem();
    }
    task.mount_point = mount_point.value();
    if (type.needs_device) {
        OrProblem<std::string> device = resolve_volume_tag(line.device);
        if (!device.ok()) {
            return device.problem();
        }
        line.device = *device;
    }
    task.device = line.device;
    if (type.needs_device) {
        OrProblem<DeviceAddress> address = parse_device_address(line.device);
        if (!address.ok()) {
            return address.problem();
        }
        task.device = absolute_address(line.device, *address);
        warn_of_scarce_memory(program, *address);
        if (options.force && address->kind != DeviceAddress::Kind::remote) {
            return Problem{"force is for remote volumes, not for " + line.device};
        }
        if (address->kind == DeviceAddress::Kind::file &&
            is_inside(address->path, task.mount_point)) {
            return Problem{"the image " + address->path + " lies inside the mount point " +
                               line.mount_point + ", which would hide it: move it elsewhere",
                           Error::einval};
        }
    }
    task.source = options.source.empty() ? task.device : options.source;
    if (!options.log_path.empty()) {
        task.options.log_path = std::filesystem::absolute(options.log_path).string();
    }
    task.option_text = joined(line.option_texts);
    return task;
}

// The file system that the command line asks for, and the rest of the line completed. What is wrong
// here is wrong usage.
OrProblem<const FileSystemType*> understand(CommandLine& line, const std::string& program,
                                            Span<const FileSystemType> types) {
    if (std::optional<Problem> problem = understand_options(line)) {
        return *problem;
    }
    OrProblem<const FileSystemType*> type = find_type(line.file_system, types);
    if (type.ok() && line.mount_point.empty()) {
        if (type.value()->needs_device) {
            return Problem{"the mount point is missing: " + program + " DEVICE MOUNTPOINT"};
        }
        line.mount_point = line.device;
        line.device = type.value()->name;
    }
    return type;
}

std::optional<Problem> mount_by_module(CommandLine& line, const MountTask& task) {
    OrProblem<DeviceAddress> address = parse_device_address(task.device);
    if (!task.type->needs_device || task.type->name != std::string_view("tiffin") ||
        !address.ok() || address->kind != DeviceAddress::Kind::file) {
        return Problem{"the kernel's module mounts tiffin on disks and images, not " + task.device +
                           ": leave out the option kernel",
                       Error::einval};
    }
    return mount_in_kernel(*address, task.mount_point, task.options.file_system.read_only,
                           line.option_texts);
}

std::optional<Problem> run(CommandLine& line, const std::string& program,
                           const FileSystemType& type) {
    const bool is_for_kernel = line.options.in_kernel;
    // There is no foreground of a mount by the module, so -f is that of mount(8).
    const bool only_pretends = is_for_kernel && line.foreground;
    if (only_pretends) {
        print_problem(program,
                      {"with the option kernel, -f only pretends to mount, as in mount(8)"});
    }
    if (is_for_kernel && line.options.remount) {
        return only_pretends ? std::nullopt
                             : remount_in_kernel(line.mount_point, line.option_texts);
    }
    if (line.options.remount) {
        return remount(line.mount_point, line.options, joined(line.option_texts));
    }
    OrProblem<MountTask> task = make_task(line, program, type);
    if (!task.ok()) {
        return task.problem();
    }
    if (is_pretended(line, program) || only_pretends) {
        return std::nullopt;
    }
    if (is_for_kernel) {
        return mount_by_module(line, task.value());
    }
    task->program = program;
    if (!line.foreground) {
        OrProblem<bool> mounted_again = mount_again(task.value());
        if (!mounted_again.ok()) {
            return mounted_again.problem();
        }
        if (mounted_again.value()) {
            return std::nullopt;
        }
    }
    return serve_mount(task.value());
}

}  // namespace

int mount_program(int argc, char** argv, Span<const FileSystemType> types) {
    std::string program = std::filesystem::path(argc > 0 ? argv[0] : "mount.tiffin").filename();
    if (!prepare_process(program)) {
        return kFailureStatus;
    }
    CommandLine line;
    if (std::optional<int> status = parse_command_line(argc, argv, program, types, line)) {
        return *status;
    }
    OrProblem<const FileSystemType*> type = understand(line, program, types);
    if (!type.ok()) {
        print_problem(program, type.problem());
        return kUsageStatus;
    }
    if (std::optional<Problem> problem = run(line, program, *type.value())) {
        print_problem(program, *problem);
        return kFailureStatus;
    }
    return EXIT_SUCCESS;
}

}  // namespace tiffin::fuse
