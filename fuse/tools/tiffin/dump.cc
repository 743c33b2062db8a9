// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffin info, tiffin dump: what is on a device that is not mounted.
#include <blkid/blkid.h>
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "fuse/check/describe.h"
#include "fuse/host/device_address.h"
#include "fuse/host/log_sink.h"
#include "fuse/tools/common/output.h"
#include "fuse/tools/common/volume_identity.h"
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
    print_text("{}", as_json ? described->dump(2) + "\n" : check::to_text(*described));
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

std::optional<Problem> print_udev_properties(const std::string& path) {
    const OrProblem<VolumeIdentity> identity = read_volume_identity(path);
    if (!identity.ok()) {
        return identity.problem();
    }
    print_text(
        "ID_FS_TYPE=tiffin\nID_FS_USAGE=filesystem\nID_FS_VERSION={}\nID_FS_UUID={}\nID_FS_UUID_"
        "ENC={}\n",
        identity->format_version, identity->uuid, identity->uuid);
    if (!identity->label.empty()) {
        // A label may contain anything. As udev does it for file systems that libblkid knows.
        char safe[4 * tiffinfs::kLabelBytes];
        char encoded[4 * tiffinfs::kLabelBytes];
        if (blkid_safe_string(identity->label.c_str(), safe, sizeof safe) == 0 &&
            blkid_encode_string(identity->label.c_str(), encoded, sizeof encoded) == 0) {
            print_text("ID_FS_LABEL={}\nID_FS_LABEL_ENC={}\n", safe, encoded);
        }
    }
    return std::nullopt;
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
