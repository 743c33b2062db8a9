// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/remote_device.h"

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <utility>

#include "fuse/host/mount_table.h"
#include "fuse/host/release_wait.h"
#include "fuse/host/size_text.h"
#include "fuse/host/volume_key.h"
#include "fuse/host/wake_cost.h"

namespace tiffin::fuse {
namespace {

using rdma_blk::ConnectionState;

constexpr auto kReleasePoll = std::chrono::milliseconds(50);
constexpr const char* kProcess = ", process ";
constexpr size_t kMaxHostNameInHolder = 40;

std::string host_name() {
    char name[256] = {};
    if (gethostname(name, sizeof name - 1) != 0) {
        return "unknown host";
    }
    return std::string(name).substr(0, kMaxHostNameInHolder);
}

// What a second writer is told.
std::string own_holder_text() { return host_name() + kProcess + std::to_string(getpid()); }

// Whether the holder is a program of this machine that mounts and has nothing mounted: it is about to end.
bool may_be_ending(const std::string& holder, const std::string& volume) {
    const std::string own = host_name() + kProcess;
    if (!holder.starts_with(own)) {
        return false;
    }
    const std::string number = holder.substr(own.size());
    std::ifstream file("/proc/" + number.substr(0, number.find_first_not_of("0123456789")) +
                       "/comm");
    std::string program;
    if (!std::getline(file, program) || !program.starts_with("mount.")) {
        return false;
    }
    const std::string path = "/" + volume;
    for (const MountEntry& entry : read_mounts()) {
        const std::string address = entry.source.substr(0, entry.source.find('?'));
        if (address.starts_with("tiffin://") && address.ends_with(path)) {
            return false;
        }
    }
    return true;
}

// What all sessions of one opening have in common. The address outlives it.
struct Session {
    explicit Session(const RemoteVolumeAddress& address) {
        host::random_bytes(options.client_uuid, sizeof options.client_uuid);
        options.volume_name = address.volume.c_str();
        options.holder_text = holder_text.c_str();
        options.encrypt = address.encrypt;
        options.busy_poll_us = busy_poll_us_or_default(address.busy_poll_us);
        options.reconnect_timeout_ms = static_cast<uint32_t>(address.timeout_s * 1000);
    }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    std::string holder_text = own_holder_text();
    rdma_blk::OpenOptions options;
};

Result<std::unique_ptr<rdma_blk::RemoteMemory>> open_session(
    const rdma_blk::RemoteAddress& server, rdma_blk::OpenOptions options, const VolumeKey& key,
    rdma_blk::ConnectionListener* listener, rdma_blk::Holder& holder, std::string& problem) {
    std::memcpy(options.key, key.bytes, sizeof options.key);
    options.has_reader_key = key.is_reader;
    auto memory = rdma_blk::open_remote_memory(server, options, listener, holder, problem);
    explicit_bzero(options.key, sizeof options.key);
    if (!memory.ok() && memory.error() == Error::ebusy &&
        options.mode == rdma_blk::OpenOptions::Mode::read_steady) {
        problem = std::string("the volume ") + options.volume_name + " on " + server_name(server) +
                  " is being written by " +
                  (holder.text[0] != '\0' ? holder.text : "another client") +
                  ": unmount it there; it can have one writer, or any number of readers";
    } else if (!memory.ok() && problem.find(server.host) == std::string::npos) {
        problem = server_name(server) + ": " + problem;
    }
    return memory;
}

rdma_blk::ServerToOpen make_server(const rdma_blk::RemoteAddress& server, const VolumeKey& key,
                                   std::shared_ptr<const Session> session,
                                   rdma_blk::Holder& holder) {
    return {server_name(server),
            [server, key, session = std::move(session), &holder](
                rdma_blk::ConnectionListener& listener,
                std::string& problem) -> Result<std::unique_ptr<rdma_blk::RemoteMemory>> {
                return open_session(server, session->options, key, &listener, holder, problem);
            }};
}

OrProblem<std::unique_ptr<rdma_blk::RemoteBlockDevice>> open_once(
    const RemoteVolumeAddress& address, const RemoteOpenMode& mode,
    const std::vector<VolumeKey>& keys, rdma_blk::Holder& holder) {
    const auto session = std::make_shared<Session>(address);
    if (mode.read_only) {
        session->options.mode = rdma_blk::OpenOptions::Mode::read_steady;
        session->options.force = mode.force;
    }
    std::vector<rdma_blk::ServerToOpen> servers;
    for (size_t i = 0; i < address.servers.size(); ++i) {
        servers.push_back(make_server(address.servers[i], keys[i], session, holder));
    }
    rdma_blk::RemoteDeviceOptions device_options;
    device_options.name = address.volume;
    device_options.write = !mode.read_only;
    device_options.force = mode.force;
    device_options.encrypt = address.encrypt;
    device_options.stripe_bytes = address.stripe_bytes;
    device_options.holder = &holder;
    std::string problem;
    auto device = rdma_blk::RemoteBlockDevice::open(std::move(servers), device_options, problem);
    if (!device.ok()) {
        const Error error = device.error();
        return Problem{problem.empty() ? "the volume " + address.volume + " cannot be opened: " +
                                             system_error_text(errno_value(error))
                                       : problem,
                       error};
    }
    return std::move(device.value());
}

OrProblem<std::vector<VolumeKey>> find_keys(const RemoteVolumeAddress& address,
                                            const RemoteOpenMode& mode) {
    OrProblem<std::vector<VolumeKey>> keys =
        read_volume_keys(address.volume, address.key_file, address.servers.size());
    if (keys.ok() && keys.value().front().is_reader && !(mode.read_only && !mode.force)) {
        return Problem{"the key of the volume " + address.volume +
                           (mode.read_only ? " does not allow to take it over from its writer"
                                           : " allows only to read it"),
                       Error::erofs};
    }
    return keys;
}

const char* state_text(ConnectionState state) {
    switch (state) {
        case ConnectionState::connecting:
            return "connecting";
        case ConnectionState::ready:
            return "ready";
        case ConnectionState::reconnecting:
            return "reconnecting";
        case ConnectionState::fenced:
            return "fenced off by another writer";
        case ConnectionState::memory_lost:
            return "memory lost";
        case ConnectionState::closed:
            return "closed";
    }
    return "unknown";
}

}  // namespace

OrProblem<std::unique_ptr<rdma_blk::RemoteBlockDevice>> open_remote_device(
    const RemoteVolumeAddress& address, const RemoteOpenMode& mode) {
    const OrProblem<std::vector<VolumeKey>> keys = find_keys(address, mode);
    if (!keys.ok()) {
        return keys.problem();
    }
    ReleaseWait wait(kReleasePoll);
    while (true) {
        rdma_blk::Holder holder;
        auto device = open_once(address, mode, *keys, holder);
        if (device.ok() || device.problem().code != Error::ebusy ||
            !may_be_ending(holder.text, address.volume) || !wait.again(device.problem().text)) {
            return device;
        }
    }
}

OrProblem<std::unique_ptr<rdma_blk::RemoteMemory>> open_remote_session(
    const RemoteVolumeAddress& address, const RemoteOpenMode& mode) {
    const OrProblem<std::vector<VolumeKey>> keys = find_keys(address, mode);
    if (!keys.ok()) {
        return keys.problem();
    }
    Session session(address);
    session.options.mode =
        mode.read_only ? rdma_blk::OpenOptions::Mode::read : rdma_blk::OpenOptions::Mode::write;
    session.options.force = mode.force;
    if (mode.slot_count != 0) {
        session.options.slot_count = mode.slot_count;
    }
    std::string problem;
    rdma_blk::Holder holder;
    auto memory = open_session(address.servers[0], session.options, keys.value()[0], nullptr,
                               holder, problem);
    if (!memory.ok()) {
        return Problem{problem, memory.error()};
    }
    return std::move(memory.value());
}

namespace {

// What the network did to a path of sdr.
std::string describe_datagrams(const std::string& prefix, const rdma_blk::Statistics& statistics) {
    const auto line = [&](const char* name, uint64_t count) {
        return prefix + name + ": " + std::to_string(count) + "\n";
    };
    return line("datagrams sent", statistics.datagrams_sent) +
           line("datagrams received", statistics.datagrams_received) +
           line("datagrams refused", statistics.datagrams_refused) +
           line("datagrams dropped here", statistics.datagrams_dropped) +
           line("chunks lost", statistics.chunks_lost) +
           line("chunks repeated", statistics.chunks_repeated) +
           line("blocks decoded", statistics.blocks_decoded) +
           line("blocks failed", statistics.blocks_failed) +
           line("round trip us", statistics.round_trip_us) +
           line("path rate bytes/s", statistics.path_rate_bytes_per_s);
}

std::string describe_links(const std::string& prefix, const rdma_blk::Statistics& statistics) {
    std::string text;
    const auto add = [&](const std::string& key, const std::string& value) {
        text += prefix + key + ": " + value + "\n";
    };
    const auto add_counts = [&](const std::string& of, uint64_t failovers, uint64_t operations,
                                uint64_t bytes, uint64_t recovered) {
        add(of + "failovers", std::to_string(failovers));
        add(of + "resent operations", std::to_string(operations));
        add(of + "resent bytes", std::to_string(bytes));
        add(of + "recovered operations", std::to_string(recovered));
    };
    add_counts("", statistics.failovers, statistics.resent_operations, statistics.resent_bytes,
               statistics.recovered_operations);
    for (uint32_t index = 0; index < statistics.path_count; index++) {
        const rdma_blk::PathStatus& path = statistics.paths[index];
        const std::string link = "link " + std::to_string(index + 1);
        if (std::string_view(path.state) == "removed") {
            continue;
        }
        add(link, path.state);
        if (path.problem[0] != '\0') {
            add(link + " problem", path.problem);
        }
        add(link + " address", path.address);
        add(link + " transport", path.transport);
        add(link + " delay us", std::to_string(path.delay_us));
        add(link + " bytes sent", std::to_string(path.bytes_sent));
        add(link + " bytes received", std::to_string(path.bytes_received));
        add(link + " suspicions", std::to_string(path.suspicions));
        add(link + " failures", std::to_string(path.failures));
        add_counts(link + " ", path.failovers, path.resent_operations, path.resent_bytes,
                   path.recovered_operations);
    }
    return text;
}

}  // namespace

const char* lost_content_reason(const vfs::BlockDevice& device) {
    const auto* remote = dynamic_cast<const rdma_blk::RemoteBlockDevice*>(&device);
    if (remote == nullptr) {
        return nullptr;
    }
    for (const auto& server : remote->status()) {
        if (server.has_lost_content) {
            return "the server has lost its content: its memory was lost, and it has no disk "
                   "behind it";
        }
    }
    return nullptr;
}

std::string describe_remote_device(const rdma_blk::RemoteBlockDevice& device) {
    std::string text;
    const std::vector<rdma_blk::ServerStatus> servers = device.status();
    if (servers.size() > 1) {
        text += "stripe: " + format_size(device.stripe().stripe_bytes()) + " over " +
                std::to_string(servers.size()) + " servers\n";
    }
    for (const rdma_blk::ServerStatus& server : servers) {
        const std::string prefix = "server " + server.name + " ";
        const rdma_blk::Statistics& statistics = server.statistics;
        uint64_t operations = 0;
        for (const uint64_t count : statistics.operations) {
            operations += count;
        }
        text += prefix + "transport: " + server.connection.transport_name;
        if (*server.connection.transport_reason != '\0') {
            text += std::string(" (") + server.connection.transport_reason + ")";
        }
        text += "\n";
        text += prefix + "encryption: " +
                (std::strcmp(server.connection.transport_name, "shm") == 0 ? "no network"
                 : server.is_in_clear ? "none: data travel in the clear"
                                      : "data are sealed") +
                "\n";
        text += prefix + "state: " + state_text(server.connection.state) + "\n";
        text += prefix + "operations: " + std::to_string(operations) + "\n";
        text += prefix + "bytes read: " + std::to_string(statistics.bytes_read) + "\n";
        text += prefix + "bytes written: " + std::to_string(statistics.bytes_written) + "\n";
        text += prefix + "round trips: " + std::to_string(statistics.round_trips) + "\n";
        text += prefix + "reconnections: " + std::to_string(statistics.reconnections) + "\n";
        text += prefix + "replayed operations: " + std::to_string(statistics.replayed_operations) +
                "\n";
        if (statistics.path_count > 0) {
            text += describe_links(prefix, statistics);
        }
        if (statistics.datagrams_sent > 0) {
            text += describe_datagrams(prefix, statistics);
        }
        text += prefix + "flushes to disk: " + (server.needs_flush ? "yes" : "no") + "\n";
        if (server.needs_flush) {
            text += prefix + "dirty: " + format_size(server.dirty_bytes) + "\n";
        }
    }
    return text;
}

}  // namespace tiffin::fuse
