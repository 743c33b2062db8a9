// SPDX-License-Identifier: MIT OR GPL-2.0-only
// mkfs.tiffin [-f] [-L LABEL] [-U UUID] [-J SIZE] [-K] [-n] [-q] DEVICE [SIZE]
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uuid/uuid.h>
#include <CLI/CLI.hpp>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "fs/tiffinfs/tiffinfs.h"
#include "fuse/check/text.h"
#include "fuse/host/device_address.h"
#include "fuse/host/file_device.h"
#include "fuse/host/log_sink.h"
#include "fuse/host/memory_device.h"
#include "fuse/host/size_text.h"
#include "fuse/tools/common/known_contents.h"
#include "fuse/tools/common/output.h"
#include "fuse/tools/common/tool.h"

namespace tiffin::fuse {
namespace {

constexpr const char* kProgram = "mkfs.tiffin";
constexpr int kUsageStatus = 2;

struct Arguments {
    bool force = false;
    bool keep_blocks = false;
    bool dry_run = false;
    bool quiet = false;
    std::string label;
    std::string uuid;
    std::string block_size;
    std::string journal_size;
    std::string device;
    std::string size;
};

void add_arguments(CLI::App& app, Arguments& arguments) {
    app.add_flag("-f,--force", arguments.force,
                 "overwrite what is on the device, even when it is a file system");
    app.add_option("-L,--label", arguments.label, "name of the volume, at most 63 bytes");
    app.add_option("-U,--uuid", arguments.uuid, "identity of the volume; default: random")
        ->check(refuse_empty);
    app.add_option("-b,--block-size", arguments.block_size,
                   "bytes in a block; there is only one size, 4096 (4K)")
        ->check(refuse_empty);
    app.add_option("-J,--journal-size", arguments.journal_size,
                   "size of the journal, such as 16M; default: by the size of the device")
        ->check(refuse_empty);
    app.add_flag("-K,--nodiscard", arguments.keep_blocks,
                 "do not discard the blocks of a disk before the file system is written");
    app.add_flag("-n,--dry-run", arguments.dry_run, "say what would be made, write nothing");
    app.add_flag("-q,--quiet", arguments.quiet, "say nothing unless something is wrong");
    app.add_option("device", arguments.device,
                   "where: file:PATH or PATH (an image or a disk), tiffin://HOST/VOLUME, mem:SIZE")
        ->required();
    app.add_option("size", arguments.size,
                   "make a new image file of this size, such as 10G, only if it does not exist; on "
                   "a disk: the size of the volume, at most that of the disk")
        ->check(refuse_empty);
}

OrProblem<tiffinfs::MakeOptions> make_options(const Arguments& arguments) {
    tiffinfs::MakeOptions options;
    if (!arguments.block_size.empty()) {
        OrProblem<uint64_t> size = parse_size(arguments.block_size);
        if (!size.ok()) {
            return size.problem();
        }
        if (*size != tiffinfs::kBlockBytes) {
            return Problem{fmt::format("blocks of {} bytes are not supported: the block size is {}",
                                       *size, tiffinfs::kBlockBytes)};
        }
    }
    if (arguments.label.size() >= tiffinfs::kLabelBytes) {
        return Problem{fmt::format("the label has {} bytes: at most {} are possible",
                                   arguments.label.size(), tiffinfs::kLabelBytes - 1)};
    }
    options.label = vfs::Name(arguments.label.data(), arguments.label.size());
    if (!arguments.uuid.empty() && (uuid_parse(arguments.uuid.c_str(), options.uuid) != 0 ||
                                    uuid_is_null(options.uuid) != 0)) {
        return Problem{"\"" + arguments.uuid +
                       "\" is not a UUID: write 8-4-4-4-12 hexadecimal digits, not all zero"};
    }
    if (!arguments.journal_size.empty()) {
        OrProblem<uint64_t> size = parse_size(arguments.journal_size);
        if (!size.ok()) {
            return size.problem();
        }
        options.journal_bytes = *size / tiffinfs::kBlockBytes * tiffinfs::kBlockBytes;
        if (options.journal_bytes == 0) {
            return Problem{"the journal is too small: it needs at least 1M"};
        }
    }
    // A user that makes a file system in a file of their own wants to write to it when it is mounted.
    options.root_user_id = getuid();
    options.root_group_id = getgid();
    return options;
}

OrProblem<uint64_t> create_size(const Arguments& arguments) {
    if (arguments.size.empty()) {
        return uint64_t{0};
    }
    OrProblem<uint64_t> size = parse_size(arguments.size);
    if (size.ok() && *size < tiffinfs::kMinimumBlocks * tiffinfs::kBlockBytes) {
        return Problem{arguments.size + " is too small: a volume needs at least 8M"};
    }
    return size;
}

// An image that this run has made goes away again when making the file system in it fails; otherwise the
// next try, with better options, would be told that it exists.
class NewImage {
  public:
    explicit NewImage(std::string path) : path_(std::move(path)) {}
    ~NewImage() {
        if (!path_.empty()) {
            (void)unlink(path_.c_str());
        }
    }
    NewImage(NewImage&& other) noexcept : path_(std::exchange(other.path_, {})) {}
    NewImage& operator=(NewImage&&) = delete;

    void keep() { path_.clear(); }

  private:
    std::string path_;  // empty: there is none
};

struct Target {
    std::unique_ptr<vfs::BlockDevice> device;
    std::string path = "";      // of an image or a disk
    NewImage new_image{""};     // removed before the device is closed, and with it unlocked
    uint64_t volume_bytes = 0;  // 0: as large as the device
};

bool is_disk(const std::string& path) {
    struct stat status {};
    return !path.empty() && stat(path.c_str(), &status) == 0 && S_ISBLK(status.st_mode);
}

Problem exists_already(const std::string& path) {
    return Problem{path + " exists already: a size is only for an image file that is to be made"};
}

OrProblem<Target> make_image(const DeviceAddress& address, uint64_t size_bytes,
                             const Arguments& arguments) {
    if (address.kind != DeviceAddress::Kind::file) {
        return Problem{arguments.device + " has a size already: leave the second argument out"};
    }
    if (access(address.path.c_str(), F_OK) == 0) {
        return exists_already(address.path);
    }
    if (arguments.dry_run) {
        OrProblem<std::unique_ptr<MemoryDevice>> memory = MemoryDevice::create(size_bytes);
        if (!memory.ok()) {
            return memory.problem();
        }
        return Target{std::move(*memory)};
    }
    auto file = FileDevice::open(address.path, {.create_size_bytes = size_bytes});
    if (!file.ok()) {
        return file.problem();
    }
    // Another program may have made it a moment ago.
    if (!(*file)->created()) {
        return exists_already(address.path);
    }
    return Target{std::move(*file), address.path, NewImage(address.path)};
}

// What the options and the size mean: what is wrong with them is wrong usage.
struct Request {
    tiffinfs::MakeOptions options;
    uint64_t size_bytes = 0;  // 0: none is given
};

OrProblem<Request> parse(const Arguments& arguments) {
    OrProblem<tiffinfs::MakeOptions> options = make_options(arguments);
    if (!options.ok()) {
        return options.problem();
    }
    OrProblem<uint64_t> size = create_size(arguments);
    if (!size.ok()) {
        return size.problem();
    }
    return Request{*options, *size};
}

// A size is that of a file that this command makes, or of a volume on a disk; an existing file keeps its own.
OrProblem<Target> open(const Request& request, const Arguments& arguments) {
    const OrProblem<DeviceAddress> parsed = parse_device_address(arguments.device);
    if (!parsed.ok()) {
        return parsed.problem();
    }
    const DeviceAddress& address = *parsed;
    const bool on_disk = address.kind == DeviceAddress::Kind::file && is_disk(address.path);
    if (request.size_bytes != 0 && !on_disk) {
        return make_image(address, request.size_bytes, arguments);
    }
    auto device = open_device(address, {.read_only = arguments.dry_run});
    if (!device.ok() && device.problem().code == Error::enoent &&
        address.kind == DeviceAddress::Kind::file) {
        return Problem{device.problem().text + "; to make a new image, give its size, such as 10G",
                       Error::enoent};
    }
    if (!device.ok()) {
        return device.problem();
    }
    const uint64_t device_bytes = (*device)->geometry().size_bytes;
    if (request.size_bytes > device_bytes) {
        return Problem{fmt::format("{} has {}: a volume of {} does not fit", arguments.device,
                                   format_size(device_bytes), format_size(request.size_bytes))};
    }
    return Target{
        .device = std::move(*device), .path = address.path, .volume_bytes = request.size_bytes};
}

std::optional<Problem> refuse_to_overwrite(const Target& target, const Arguments& arguments) {
    if (arguments.force) {
        return std::nullopt;
    }
    OrProblem<std::optional<std::string>> found = find_known_contents(*target.device, target.path);
    if (!found.ok()) {
        return found.problem();
    }
    if (found->has_value()) {
        return Problem{fmt::format("{} holds {}; nothing was written (see -f in mkfs.tiffin(8))",
                                   arguments.device, **found)};
    }
    return std::nullopt;
}

Problem make_problem(Error error, const vfs::DeviceGeometry& geometry,
                     const tiffinfs::MakeOptions& options) {
    if (geometry.size_bytes < tiffinfs::kMinimumBlocks * tiffinfs::kBlockBytes) {
        return {"the device is too small: it has " + format_size(geometry.size_bytes) +
                    ", a volume needs at least 8 MiB",
                error};
    }
    if (error == Error::einval && options.journal_bytes != 0) {
        return {"a journal of " + format_size(options.journal_bytes) +
                    " is not possible here: it must have at least 1 MiB, at most half of the "
                    "device, and less than 64 MiB",
                error};
    }
    return {"the file system could not be written: " + system_error_text(errno_value(error)),
            error};
}

void print_summary(const tiffinfs::Superblock& made, const Arguments& arguments) {
    const uint64_t bytes = made.total_blocks * tiffinfs::kBlockBytes;
    print_text("{} {}\n", arguments.dry_run ? "would make a tiffinfs on" : "tiffinfs on",
               arguments.device);
    print_text("  uuid     {}{}\n", check::uuid_text(made.uuid),
               arguments.dry_run && arguments.uuid.empty() ? " (another one each time)" : "");
    if (made.label[0] != '\0') {
        print_text("  label    {}\n", check::name_text(arguments.label));
    }
    print_text("  size     {} ({} blocks of {} bytes)\n", format_size(bytes), made.total_blocks,
               tiffinfs::kBlockBytes);
    print_text("  journal  {}\n", format_size(made.journal_block_count * tiffinfs::kBlockBytes));
    if (arguments.device.starts_with("mem:") && !arguments.dry_run) {
        print_text("It ends with this command: mount.tiffin {} MOUNTPOINT makes its own.\n",
                   arguments.device);
    }
}

// A dry run makes it in memory that only takes what is written.
OrProblem<std::unique_ptr<vfs::BlockDevice>> stand_in(vfs::BlockDevice& device) {
    OrProblem<std::unique_ptr<MemoryDevice>> memory =
        MemoryDevice::create(device.geometry().size_bytes);
    if (!memory.ok()) {
        return memory.problem();
    }
    return std::unique_ptr<vfs::BlockDevice>(std::move(*memory));
}

std::optional<Problem> make(const Request& request, const Arguments& arguments) {
    OrProblem<Target> target = open(request, arguments);
    if (!target.ok()) {
        return target.problem();
    }
    std::unique_ptr<vfs::BlockDevice>& device = target->device;
    if (std::optional<Problem> problem = refuse_to_overwrite(*target, arguments)) {
        return problem;
    }
    if (arguments.dry_run) {
        auto memory = stand_in(*device);
        if (!memory.ok()) {
            return memory.problem();
        }
        device = std::move(*memory);
    }
    tiffinfs::MakeOptions options = request.options;
    options.volume_bytes = target->volume_bytes;
    // An image file keeps its blocks: it may have been given them in advance, so that it does not lack room later.
    options.discard = !arguments.keep_blocks && !arguments.dry_run && is_disk(target->path);
    if (Result<void> made = tiffinfs::make_file_system(*device, options); !made.ok()) {
        return make_problem(made.error(), device->geometry(), options);
    }
    if (arguments.force && !arguments.dry_run && !target->path.empty()) {
        if (std::optional<Problem> problem = erase_other_signatures(target->path)) {
            return problem;
        }
    }
    tiffinfs::Superblock superblock{};
    if (Result<void> read = tiffinfs::read_superblock(*device, superblock); !read.ok()) {
        return Problem{
            "the file system that was written cannot be read back: the device does not "
            "keep what is written to it",
            read.error()};
    }
    target->new_image.keep();
    if (!arguments.quiet) {
        print_summary(superblock, arguments);
    }
    return std::nullopt;
}

int run(int argc, char** argv) {
    if (!prepare_process(kProgram)) {
        return EXIT_FAILURE;
    }
    CLI::App app("Makes a Tiffin file system.", kProgram);
    add_version_flag(app);
    Arguments arguments;
    add_arguments(app, arguments);
    if (std::optional<int> status = parse_arguments(app, argc, argv, kUsageStatus)) {
        return *status;
    }
    if (arguments.quiet) {
        set_log_level(host::LogLevel::warning);
    }
    const OrProblem<Request> request = parse(arguments);
    if (!request.ok()) {
        print_problem(kProgram, request.problem());
        return kUsageStatus;
    }
    if (std::optional<Problem> problem = make(*request, arguments)) {
        print_problem(kProgram, *problem);
        return EXIT_FAILURE;
    }
    if (!flush_output()) {
        print_problem(kProgram, {kOutputLost});
    }
    return EXIT_SUCCESS;
}

}  // namespace
}  // namespace tiffin::fuse

int main(int argc, char** argv) { return tiffin::fuse::run(argc, argv); }
