// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What administrators do with a server's volumes.
#include <algorithm>
#include <cstring>

#include "rdma_blk/server/file_backing.h"
#include "rdma_blk/server/server.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint64_t kMaxVolumeBytes = uint64_t{1} << 44;

std::string describe(Error error) { return std::strerror(errno_value(error)); }

}  // namespace

Result<Secret<kVolumeKeyBytes>> Server::create_volume(const NewVolume& wanted,
                                                      std::string& problem) {
    MutexLock lock(administration_mutex_);
    if (!is_volume_name(wanted.name)) {
        problem = "a volume's name has 1 to 63 of a-z A-Z 0-9 . _ - and does not begin with a dot";
        return Error::einval;
    }
    if (wanted.size_bytes == 0 || wanted.size_bytes % wire::kControlPageBytes != 0 ||
        wanted.words_bytes % wire::kControlPageBytes != 0 || wanted.words_bytes == 0 ||
        wanted.size_bytes > kMaxVolumeBytes || wanted.words_bytes > kMaxVolumeBytes) {
        problem = "sizes must be multiples of 4096 bytes, up to 16T";
        return Error::einval;
    }
    if (find_volume(wanted.name.c_str()) != nullptr) {
        problem = "there is a volume " + wanted.name + " already";
        return Error::eexist;
    }
    // One that cannot be brought up has a key and perhaps a backing that must not be given up by this.
    if (const auto earlier = directory_.load(wanted.name);
        earlier.ok() || earlier.error() != Error::enoent) {
        const std::string why = failure_of(wanted.name);
        problem = "there is a volume " + wanted.name + " already, which is not served" +
                  (why.empty() ? "" : ": " + why);
        return Error::eexist;
    }
    if (memory_bytes() + wanted.size_bytes > memory_limit_bytes()) {
        problem = "volume " + wanted.name + " would have " + std::to_string(wanted.size_bytes) +
                  " bytes, which memory_limit (" + std::to_string(memory_limit_bytes()) +
                  " bytes, " + std::to_string(memory_bytes()) + " of them in use) does not allow";
        return Error::enospc;
    }
    if (!wanted.backing.empty() && wanted.backing[0] != '/') {
        problem = "backing must be an absolute path";
        return Error::einval;
    }
    // A line of the state file has it.
    if (std::any_of(wanted.backing.begin(), wanted.backing.end(), [](char letter) {
            return static_cast<unsigned char>(letter) < 32 || letter == 127;
        })) {
        problem = "backing must not have control characters";
        return Error::einval;
    }
    if (keeper_.find(wanted.name).data.valid()) {
        // Its state is not here, and it would lose what it holds.
        problem = "memory of a volume " + wanted.name + " is kept, whose state is not in " +
                  directory_.path() +
                  ": is that the state directory it was made in? Without it, tiffind has to be "
                  "stopped and started";
        return Error::eexist;
    }
    if (!wanted.backing.empty() && directory_.has_for_itself(wanted.backing)) {
        problem = wanted.backing +
                  " is a name that the server has for files of its own: choose another one";
        return Error::einval;
    }
    VolumeState state;
    state.name = wanted.name;
    state.data_bytes = wanted.size_bytes;
    state.words_bytes = wanted.words_bytes;
    state.backing = wanted.backing;
    host::random_bytes(state.uuid, sizeof(state.uuid));
    host::random_bytes(state.key.bytes, sizeof(state.key.bytes));
    const Result<void> made = start_volume(
        state,
        wanted.takes_any_content ? BackingContent::anything : BackingContent::tiffinfs_or_zeros,
        problem);
    if (!made.ok()) {
        (void)directory_.remove(state.name);  // may not have been saved
        if (problem.empty()) {
            problem = "volume " + state.name + " cannot be made: " + describe(made.error());
        }
        return made.error();
    }
    open_local_socket(state.name);
    return state.key;
}

Result<void> Server::delete_volume(const std::string& name, bool force, std::string& problem) {
    MutexLock lock(administration_mutex_);
    const std::string failure = failure_of(name);
    Served served;
    {
        SharedLock volumes_lock(volumes_mutex_);
        const auto found = volumes_.find(name);
        if (found != volumes_.end()) {
            served = found->second;
        }
    }
    if (!served.volume && failure.empty()) {
        problem = "there is no volume " + name;
        return Error::enoent;
    }
    if (!served.volume && !force) {
        problem = failure;
        return Error::ebusy;
    }
    if (served.volume) {
        const std::string users = served.volume->end_for_good(force, host::monotonic_ns());
        if (!users.empty()) {
            problem = "volume " + name + " is in use by " + users + ": unmount it there first";
            return Error::ebusy;
        }
    }
    {
        ExclusiveLock volumes_lock(volumes_mutex_);
        volumes_.erase(name);
        failed_volumes_.erase(name);
    }
    close_local_socket(name);
    if (served.backing) {
        served.backing->stop();
    }
    keeper_.forget(name);
    Result<void> removed = directory_.remove(name);
    if (!removed.ok() && removed.error() == Error::enoent) {
        removed = {};  // somebody else has removed it
    }
    if (!removed.ok()) {
        problem =
            "the state of volume " + name + " cannot be removed: " + describe(removed.error());
        // It would be served again after a restart: so it is listed, and can be deleted again.
        ExclusiveLock volumes_lock(volumes_mutex_);
        failed_volumes_[name] = problem;
        return removed;
    }
    host::log(host::LogLevel::info, ("volume " + name + ": deleted").c_str());
    return removed;
}

Result<void> Server::resize_volume(const std::string& name, uint64_t size_bytes,
                                   std::string& problem) {
    MutexLock lock(administration_mutex_);
    Served served;
    {
        SharedLock volumes_lock(volumes_mutex_);
        const auto found = volumes_.find(name);
        if (found == volumes_.end()) {
            problem = absence_of(name);
            return Error::enoent;
        }
        served = found->second;
    }
    const uint64_t present = served.volume->info(host::monotonic_ns()).data_bytes;
    if (size_bytes > kMaxVolumeBytes) {
        problem = "a volume has at most " + std::to_string(kMaxVolumeBytes) + " bytes";
        return Error::einval;
    }
    if (size_bytes < present || size_bytes % wire::kControlPageBytes != 0) {
        problem = "a volume can only grow (it has " + std::to_string(present) +
                  " bytes), in multiples of 4096";
        return Error::einval;
    }
    if (memory_bytes() + (size_bytes - present) > memory_limit_bytes()) {
        problem = "volume " + name + " would have " + std::to_string(size_bytes) +
                  " bytes, which memory_limit (" + std::to_string(memory_limit_bytes()) +
                  " bytes, " + std::to_string(memory_bytes()) + " of them in use) does not allow";
        return Error::enospc;
    }
    const auto grow = [&]() -> Result<void> {
        if (!served.backing) {
            return served.volume->resize(size_bytes);
        }
        const uint64_t backed = TRY(served.backing->present_bytes());
        TRY(served.backing->provide(size_bytes));
        return served.volume->resize(size_bytes, served.backing.get(), backed);
    };
    const Result<void> resized = grow();
    if (!resized.ok()) {
        problem = "volume " + name + " cannot be resized: " + describe(resized.error());
    }
    return resized;
}

std::vector<std::shared_ptr<Volume>> Server::served_volumes() const {
    std::vector<std::shared_ptr<Volume>> volumes;
    SharedLock lock(volumes_mutex_);
    volumes.reserve(volumes_.size());
    for (const auto& [name, served] : volumes_) {
        volumes.push_back(served.volume);
    }
    return volumes;
}

std::vector<VolumeInfo> Server::list_volumes() const {
    const std::vector<std::shared_ptr<Volume>> volumes = served_volumes();
    std::vector<VolumeInfo> list;
    list.reserve(volumes.size());
    for (const auto& volume : volumes) {
        list.push_back(volume->info(host::monotonic_ns()));
    }
    return list;
}

std::map<std::string, std::string> Server::failed_volumes() const {
    SharedLock lock(volumes_mutex_);
    return failed_volumes_;
}

std::string Server::failure_of(const std::string& name) const {
    SharedLock lock(volumes_mutex_);
    const auto found = failed_volumes_.find(name);
    return found == failed_volumes_.end() ? "" : found->second;
}

std::string Server::absence_of(const std::string& name) const {
    const std::string why = failure_of(name);
    return why.empty() ? "there is no volume " + name : why;
}

uint64_t Server::memory_bytes() const {
    uint64_t total = 0;
    SharedLock lock(volumes_mutex_);
    for (const auto& [name, served] : volumes_) {
        total += served.volume->memory_bytes();
    }
    return total;
}

void Server::create_configured(const Configuration& configuration) {
    for (const auto& [name, wanted] : configuration.volumes) {
        if (find_volume(name.c_str()) != nullptr || !failure_of(name).empty()) {
            continue;
        }
        std::string problem;
        const NewVolume volume{name, wanted.size_bytes, wanted.words_bytes, wanted.backing};
        if (!create_volume(volume, problem).ok()) {
            host::log(host::LogLevel::error, problem.c_str());
        }
    }
}

void Server::reload(const Configuration& configuration) {
    if (configuration.memory_limit_bytes != 0) {
        memory_limit_bytes_.store(configuration.memory_limit_bytes);
    }
    {
        MutexLock lock(configuration_mutex_);
        if (needs_restart(configuration_, configuration)) {
            host::log(host::LogLevel::warning,
                      "listen, threads, busy_poll_us, cpu_latency_us, directories and metrics "
                      "change with a restart only");
        }
        if (needs_restart_of_volumes(configuration_, configuration)) {
            host::log(host::LogLevel::warning,
                      "the volumes that are there keep max_sessions, slots, lease_timeout_s, "
                      "probe_interval_ms, shm_fencing, huge_pages and lock_memory until a restart");
        }
        configuration_ = reloaded_configuration(configuration_, configuration);
    }
    {
        MutexLock lock(administration_mutex_);
        const Result<void> loaded = load_volumes(false);  // what could not be brought up before
        if (!loaded.ok()) {
            host::log(
                host::LogLevel::error,
                (directory_.path() + ": cannot be listed: " + describe(loaded.error())).c_str());
        }
    }
    create_configured(configuration);  // under the new limits
}

}  // namespace tiffin::rdma_blk
