// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffin info, tiffin dump: what is on a device that is not mounted.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "fuse/check/describe.h"
#include "fuse/host/device_address.h"
#include "fuse/host/log_sink.h"
#include "fuse/tools/tiffin/commands.h"

namespace tiffin::fuse {
namespace {

using check::Json;

// What can be dumped, and what its number means.
struct Structure {
    const char* name;
    const char* number;  // nullptr: it takes none
    OrProblem<Json> (*describe)(vfs::BlockDevice& device, uint64_t number);
};

constexpr Structure kStructures[] = {
    {"superblock", nullptr,
     [](vfs::BlockDevice& device, uint64_t) -> OrProblem<Json> {
         return check::describe_superblocks(device);
     }},
    {"tree", nullptr,
     [](vfs::BlockDevice& device, uint64_t) { return check::describe_tree(device); }},
    {"node", "BLOCK", check::describe_node},
    {"inode", "ID", check::describe_object},
    {"directory", "ID", check::describe_directory},
    {"journal", nullptr,
     [](vfs::BlockDevice& device, uint64_t) { return check::describe_journal(device); }},
    {"bitmap", "GROUP", check::describe_bitmap},
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
class Quiet final : public LogSink {
  public:
    Quiet() : previous_(set_log_sink(this)) {}
    ~Quiet() override { set_log_sink(previous_); }
    Quiet(const Quiet&) = delete;
    Quiet& operator=(const Quiet&) = delete;
    void write(host::LogLevel level, const char* message) override {
        (void)level;
        (void)message;
    }

  private:
    LogSink* previous_;
};

std::optional<Problem> print(const OrProblem<Json>& described, const std::string& device,
                             bool as_json) {
    if (!described.ok()) {
        return Problem{device + ": " + described.problem().text, described.problem().code};
    }
    fmt::print("{}", as_json ? described->dump(2) + "\n" : check::to_text(*described));
    if (std::fflush(stdout) != 0) {
        return Problem{"standard output cannot be written", Error::eio};
    }
    return std::nullopt;
}

OrProblem<std::unique_ptr<vfs::BlockDevice>> open(const std::string& address) {
    if (std::optional<Problem> problem = refuse_memory(address)) {
        return *problem;
    }
    return open_device(address, {.read_only = true});
}

}  // namespace

std::optional<Problem> print_info(const std::string& address, bool as_json) {
    OrProblem<std::unique_ptr<vfs::BlockDevice>> device = open(address);
    if (!device.ok()) {
        return device.problem();
    }
    Quiet quiet;
    return print(check::describe_volume(**device), address, as_json);
}

std::optional<Problem> print_dump(const std::string& address, const std::string& what,
                                  std::optional<uint64_t> number, bool as_json) {
    const Structure* structure = find_structure(what);
    if (structure == nullptr) {
        return Problem{"there is no structure \"" + what +
                       "\": superblock, tree, node, inode, directory, journal or bitmap"};
    }
    if ((structure->number != nullptr) != number.has_value()) {
        return Problem{structure->number == nullptr
                           ? fmt::format("dump {} takes no number", structure->name)
                           : fmt::format("a number is missing: dump DEVICE {} {}", structure->name,
                                         structure->number)};
    }
    OrProblem<std::unique_ptr<vfs::BlockDevice>> device = open(address);
    if (!device.ok()) {
        return device.problem();
    }
    Quiet quiet;
    return print(structure->describe(**device, number.value_or(0)), address, as_json);
}

}  // namespace tiffin::fuse
