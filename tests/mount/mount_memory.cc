// SPDX-License-Identifier: MIT OR GPL-2.0-only
// mount.tiffin for MemoryFileSystem: what is true of it is true of the host alone. Its capacity is
// the option cache=, 1 GiB without one. With --fs mute it fails statfs; with --fs patient every fsync waits until a
// directory has been made for it; with --fs stuck statfs is never answered, with --fs unwritable no write, and the file
// in TIFFIN_TEST_STUCK is made when one waits. With --fs changing each write changes the mode before, as another program
// could at that moment.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

#include "fs/vfs/host.h"
#include "fuse/tools/common/mount_program.h"
#include "tests/support/memory_file_system.h"

namespace {

using tiffin::Result;
using tiffin::fuse::AccessTimeUpdates;
using tiffin::fuse::FileSystemOptions;
using tiffin::fuse::FileSystemType;
using tiffin::testing::MemoryFileSystem;

MemoryFileSystem::Options memory_options_for(const FileSystemOptions& options) {
    MemoryFileSystem::Options memory_options;
    memory_options.capacity_bytes = options.cache_bytes.value_or(uint64_t{1} << 30);
    memory_options.read_only = options.read_only;
    memory_options.update_access_times = options.access_times != AccessTimeUpdates::never;
    memory_options.root_user_id = geteuid();
    memory_options.root_group_id = getegid();
    return memory_options;
}

Result<tiffin::vfs::FileSystem*> mount_memory(tiffin::vfs::BlockDevice* /*device*/,
                                              const FileSystemOptions& options) {
    return new MemoryFileSystem(memory_options_for(options));
}

Result<tiffin::vfs::FileSystem*> mount_mute(tiffin::vfs::BlockDevice* /*device*/,
                                            const FileSystemOptions& options) {
    MemoryFileSystem::Options memory_options = memory_options_for(options);
    memory_options.is_mute = true;
    return new MemoryFileSystem(memory_options);
}

class PatientFileSystem : public MemoryFileSystem {
  public:
    using MemoryFileSystem::MemoryFileSystem;

    Result<void> fsync(tiffin::vfs::NodeId node, bool data_only) override {
        directories_.wait();
        return MemoryFileSystem::fsync(node, data_only);
    }

    Result<tiffin::vfs::Attributes> make_directory(
        const tiffin::vfs::Caller& caller, tiffin::vfs::NodeId parent, tiffin::vfs::Name name,
        uint32_t mode, tiffin::Span<const tiffin::vfs::InitialXattr> xattrs) override {
        directories_.post();
        return MemoryFileSystem::make_directory(caller, parent, name, mode, xattrs);
    }

  private:
    tiffin::host::Semaphore directories_;
};

Result<tiffin::vfs::FileSystem*> mount_patient(tiffin::vfs::BlockDevice* /*device*/,
                                               const FileSystemOptions& options) {
    return new PatientFileSystem(memory_options_for(options));
}

void wait_for_ever() {
    if (const char* path = getenv("TIFFIN_TEST_STUCK"); path != nullptr) {
        close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    }
    tiffin::host::Semaphore never;
    never.wait();
}

class StuckFileSystem : public MemoryFileSystem {
  public:
    using MemoryFileSystem::MemoryFileSystem;

    Result<tiffin::vfs::FileSystemStatistics> statistics() override {
        wait_for_ever();
        return MemoryFileSystem::statistics();
    }
};

Result<tiffin::vfs::FileSystem*> mount_stuck(tiffin::vfs::BlockDevice* /*device*/,
                                             const FileSystemOptions& options) {
    return new StuckFileSystem(memory_options_for(options));
}

class UnwritableFileSystem : public MemoryFileSystem {
  public:
    using MemoryFileSystem::MemoryFileSystem;

    Result<size_t> write(tiffin::vfs::NodeId node, tiffin::vfs::Handle handle,
                         uint64_t offset_bytes, tiffin::Span<const tiffin::vfs::IoVector> buffers,
                         uint32_t flags) override {
        wait_for_ever();
        return MemoryFileSystem::write(node, handle, offset_bytes, buffers, flags);
    }
};

Result<tiffin::vfs::FileSystem*> mount_unwritable(tiffin::vfs::BlockDevice* /*device*/,
                                                  const FileSystemOptions& options) {
    return new UnwritableFileSystem(memory_options_for(options));
}

class ChangingFileSystem : public MemoryFileSystem {
  public:
    using MemoryFileSystem::MemoryFileSystem;

    Result<size_t> write(tiffin::vfs::NodeId node, tiffin::vfs::Handle handle,
                         uint64_t offset_bytes, tiffin::Span<const tiffin::vfs::IoVector> buffers,
                         uint32_t flags) override {
        tiffin::vfs::AttributeChange change;
        change.valid = tiffin::vfs::AttributeChange::mode_bit;
        change.mode = 0640;
        TRY(set_attributes({}, node, change));
        return MemoryFileSystem::write(node, handle, offset_bytes, buffers, flags);
    }
};

Result<tiffin::vfs::FileSystem*> mount_changing(tiffin::vfs::BlockDevice* /*device*/,
                                                const FileSystemOptions& options) {
    return new ChangingFileSystem(memory_options_for(options));
}

void destroy(tiffin::vfs::FileSystem* file_system) { delete file_system; }

constexpr FileSystemType kTypes[] = {{"memory", false, nullptr, mount_memory, destroy},
                                     {"patient", false, nullptr, mount_patient, destroy},
                                     {"mute", false, nullptr, mount_mute, destroy},
                                     {"stuck", false, nullptr, mount_stuck, destroy},
                                     {"changing", false, nullptr, mount_changing, destroy},
                                     {"unwritable", false, nullptr, mount_unwritable, destroy}};

}  // namespace

int main(int argc, char** argv) { return tiffin::fuse::mount_program(argc, argv, kTypes); }
