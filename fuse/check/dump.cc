// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/check/dump.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "fuse/check/describe.h"
#include "fuse/host/device_address.h"
#include "fuse/host/log_sink.h"

namespace tiffin::check {

using fuse::OrProblem;
using fuse::Problem;

namespace {

struct Arguments {
    std::string device;
    std::string what;
    std::optional<uint64_t> number;
    bool json = false;
};

// What can be dumped, and what its number means.
struct Structure {
    const char* name;
    const char* number;  // nullptr: it takes none
    OrProblem<Json> (*describe)(vfs::BlockDevice& device, uint64_t number);
};

constexpr Structure kStructures[] = {
    {"superblock", nullptr,
     [](vfs::BlockDevice& device, uint64_t) -> OrProblem<Json> {
         return describe_superblocks(device);
     }},
    {"tree", nullptr, [](vfs::BlockDevice& device, uint64_t) { return describe_tree(device); }},
    {"node", "BLOCK", describe_node},
    {"inode", "ID", describe_object},
    {"directory", "ID", describe_directory},
    {"journal", nullptr,
     [](vfs::BlockDevice& device, uint64_t) { return describe_journal(device); }},
    {"bitmap", "GROUP", describe_bitmap},
};

const Structure* find_structure(const std::string& name) {
    for (const Structure& structure : kStructures) {
        if (name == structure.name) {
            return &structure;
        }
    }
    return nullptr;
}

// Damage is shown where it is met; a log line about it would come between.
class Quiet final : public fuse::LogSink {
  public:
    Quiet() : previous_(fuse::set_log_sink(this)) {}
    ~Quiet() override { fuse::set_log_sink(previous_); }
    Quiet(const Quiet&) = delete;
    Quiet& operator=(const Quiet&) = delete;
    void write(host::LogLevel level, const char* message) override {
        (void)level;
        (void)message;
    }

  private:
    fuse::LogSink* previous_;
};

std::optional<Problem> print(const OrProblem<Json>& described, const Arguments& arguments) {
    if (!described.ok()) {
        return Problem{arguments.device + ": " + described.problem().text,
                       described.problem().code};
    }
    fmt::print("{}", arguments.json ? described->dump(2) + "\n" : to_text(*described));
    if (std::fflush(stdout) != 0) {
        return Problem{"standard output cannot be written", Error::eio};
    }
    return std::nullopt;
}

OrProblem<std::unique_ptr<vfs::BlockDevice>> open(const Arguments& arguments) {
    if (std::optional<Problem> problem = fuse::refuse_memory(arguments.device)) {
        return *problem;
    }
    return fuse::open_device(arguments.device, {.read_only = true});
}

std::optional<Problem> run_info(const Arguments& arguments) {
    OrProblem<std::unique_ptr<vfs::BlockDevice>> device = open(arguments);
    if (!device.ok()) {
        return device.problem();
    }
    Quiet quiet;
    return print(describe_volume(**device), arguments);
}

std::optional<Problem> run_dump(const Arguments& arguments) {
    const Structure* structure = find_structure(arguments.what);
    if (structure == nullptr) {
        return Problem{"there is no structure \"" + arguments.what +
                       "\": superblock, tree, node, inode, directory, journal or bitmap"};
    }
    if ((structure->number != nullptr) != arguments.number.has_value()) {
        return Problem{structure->number == nullptr
                           ? fmt::format("dump {} takes no number", structure->name)
                           : fmt::format("a number is missing: dump DEVICE {} {}", structure->name,
                                         structure->number)};
    }
    OrProblem<std::unique_ptr<vfs::BlockDevice>> device = open(arguments);
    if (!device.ok()) {
        return device.problem();
    }
    Quiet quiet;
    return print(structure->describe(**device, arguments.number.value_or(0)), arguments);
}

}  // namespace

void add_offline_commands(CLI::App& app, std::optional<Problem>& problem) {
    // They live as long as the callbacks that use them.
    auto info_arguments = std::make_shared<Arguments>();
    CLI::App* info = app.add_subcommand("info", "Says what is on a device: sizes, state, journal.");
    info->add_option("device", info_arguments->device, "file:PATH or PATH")->required();
    info->add_flag("--json", info_arguments->json, "print JSON, for programs");
    info->callback([info_arguments, &problem] { problem = run_info(*info_arguments); });

    auto dump_arguments = std::make_shared<Arguments>();
    CLI::App* dump =
        app.add_subcommand("dump", "Shows structures on a device, for finding out what is wrong.");
    dump->add_option("device", dump_arguments->device, "file:PATH or PATH")->required();
    dump->add_option("structure", dump_arguments->what,
                     "superblock, tree, node BLOCK, inode ID, directory ID, journal, bitmap GROUP")
        ->required();
    dump->add_option("number", dump_arguments->number, "which block, object or group");
    dump->add_flag("--json", dump_arguments->json, "print JSON, for programs");
    dump->callback([dump_arguments, &problem] { problem = run_dump(*dump_arguments); });
}

}  // namespace tiffin::check
