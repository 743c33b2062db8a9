// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/server/server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <set>
#include <type_traits>

#include "rdma_blk/server/file_backing.h"

namespace tiffin::rdma_blk {
namespace {

constexpr int kBacklog = 256;
constexpr uint64_t kLeaveMemoryNs = 5'000'000'000;  // for processes to answer
constexpr uint64_t kLockWaitNs = 10'000'000'000;    // for another server that is ending
constexpr char kCannotBeRequired[] =
    ": its memory cannot be what huge_pages or lock_memory = \"require\" says: there are too few "
    "free "
    "huge pages (vm.nr_hugepages), its size is not a multiple of 2 MiB, or the limit of locked "
    "memory (ulimit -l) is too low";

uint64_t half_of_memory() {
    return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
           static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) / 2;
}

void log(host::LogLevel level, const std::string& text) { host::log(level, text.c_str()); }

UniqueDescriptor listen_on(const ListenAddress& address, uint16_t& port) {
    sockaddr_in6 inet6{};
    sockaddr_in inet{};
    inet6.sin6_family = AF_INET6;
    inet6.sin6_port = htons(address.port);
    inet.sin_family = AF_INET;
    inet.sin_port = htons(address.port);
    const bool is_6 = inet_pton(AF_INET6, address.host.c_str(), &inet6.sin6_addr) == 1;
    if (!is_6 && inet_pton(AF_INET, address.host.c_str(), &inet.sin_addr) != 1) {
        errno = EINVAL;
        return {};
    }
    UniqueDescriptor socket(
        ::socket(is_6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int on = 1;
    const int off = 0;
    (void)setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (is_6) {  // [::] takes IPv4 as well
        (void)setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
    const auto* bound =
        is_6 ? reinterpret_cast<const sockaddr*>(&inet6) : reinterpret_cast<const sockaddr*>(&inet);
    socklen_t length = is_6 ? sizeof(inet6) : sizeof(inet);
    if (bind(socket.get(), bound, length) != 0 || listen(socket.get(), kBacklog) != 0) {
        const int error = errno;
        socket.reset();
        errno = error;
        return socket;
    }
    sockaddr_in6 actual{};
    length = sizeof(actual);
    (void)getsockname(socket.get(), reinterpret_cast<sockaddr*>(&actual), &length);
    port = ntohs(actual.sin6_port);  // at the same place in both kinds
    return socket;
}

}  // namespace

Server::Server(const Configuration& configuration, MemoryKeeper& keeper)
    : keeper_(keeper),
      directory_(configuration.state_directory),
      runtime_directory_(configuration.runtime_directory),
      configuration_(configuration) {}

Server::~Server() { stop(); }

// ---- Start and stop ---------------------------------------------------------------------------------

Result<void> Server::start(std::string& problem) {
    Configuration configuration;
    {
        MutexLock lock(configuration_mutex_);
        configuration = configuration_;
    }
    memory_limit_bytes_.store(configuration.memory_limit_bytes != 0
                                  ? configuration.memory_limit_bytes
                                  : half_of_memory());
    TRY(initialize_cryptography());
    Result<void> prepared = directory_.prepare();
    if (prepared.ok()) {
        // Two servers of the same volumes would each take the other's memory for lost.
        Result<UniqueDescriptor> locked = lock_directory();
        if (locked.ok()) {
            directory_lock_ = locked.release_value();
            prepared = directory_.remove_leftovers();
        } else if (locked.error() == Error::ebusy) {
            problem = directory_.path() + ": another tiffind uses this state directory";
            return locked.error();
        } else {
            prepared = locked.error();
        }
        if (prepared.ok()) {
            prepared = directory_.server_uuid(server_uuid_);
            if (!prepared.ok() && prepared.error() == Error::euclean) {
                problem = directory_.path() +
                          "/server-uuid is damaged: put it back from a backup; with another UUID "
                          "striped volumes refuse this server";
                return prepared;
            }
        }
    }
    if (!prepared.ok()) {
        problem = directory_.path() + ": cannot be used as state directory: " +
                  std::strerror(errno_value(prepared.error()));
        return prepared.error();
    }
    std::string why;
    has_rdma_ = verbs::devices().exist(why);
    log(host::LogLevel::info, has_rdma_ ? "transport rc is offered" : "no transport rc: " + why);
    TRY(open_listeners(problem));
    {
        MutexLock lock(administration_mutex_);
        const Result<void> loaded = load_volumes(false);
        if (!loaded.ok()) {
            problem = directory_.path() +
                      ": cannot be listed: " + std::strerror(errno_value(loaded.error()));
            return loaded;
        }
    }
    create_configured(configuration);
    const Result<void> started = start_threads();
    if (!started.ok()) {
        problem = "threads cannot be started";
        return started;
    }
    open_local_sockets();
    return {};
}

// The worker of a keeper that was killed ends by itself, and writes what it has to; who starts tiffind again at once comes before
// that.
Result<UniqueDescriptor> Server::lock_directory() const {
    const uint64_t deadline_ns = host::monotonic_ns() + kLockWaitNs;
    for (bool is_first = true;; is_first = false) {
        Result<UniqueDescriptor> locked = directory_.lock();
        if (locked.ok() || locked.error() != Error::ebusy || host::monotonic_ns() >= deadline_ns) {
            return locked;
        }
        if (is_first) {
            log(host::LogLevel::warning,
                directory_.path() +
                    ": another tiffind uses this state directory: waiting for its end");
        }
        usleep(20'000);
    }
}

void Server::warn_of_readers(const std::string& name) const {
    const std::string file = directory_.readable_by_others(name);
    if (!file.empty()) {
        log(host::LogLevel::warning, "volume " + name + ": others can read " + file +
                                         ", which has its key: chmod 600 " + file);
    }
}

Result<void> Server::load_volumes(bool only_kept) {
    for (const std::string& name : TRY(directory_.list())) {
        if (find_volume(name.c_str()) != nullptr ||
            (only_kept && !keeper_.find(name).data.valid())) {
            continue;
        }
        warn_of_readers(name);
        const Result<VolumeState> state = directory_.load(name);
        std::string problem;
        const Result<void> started =
            state.ok() ? start_volume(state.value(), BackingContent::of_this_volume, problem)
                       : Result<void>(state.error());
        if (!started.ok()) {
            problem = problem.empty() ? load_problem(name, started.error()) : problem;
            log(host::LogLevel::error, problem + "; it is not served, the other volumes are");
        }
        {
            ExclusiveLock lock(volumes_mutex_);
            failed_volumes_.erase(name);
            if (!started.ok()) {
                failed_volumes_[name] = problem;
            }
        }
        if (started.ok()) {
            open_local_socket(name);
        }
    }
    return {};
}

std::string Server::load_problem(const std::string& name, Error error) const {
    const std::string file = directory_.path() + "/" + name + ".volume";
    if (error == Error::euclean) {
        return "volume " + name + ": " + file +
               " is damaged, or is not what the memory is of: put it back from a backup";
    }
    return "volume " + name + ": cannot be brought up from " + file + ": " +
           std::strerror(errno_value(error));
}

Result<void> Server::start_volume(const VolumeState& state, BackingContent content,
                                  std::string& problem) {
    const bool is_new = content != BackingContent::of_this_volume;
    Served served;
    if (!state.backing.empty()) {
        auto backing = FileBacking::open(state.backing, state.data_bytes, content, problem);
        if (!backing.ok()) {
            problem = "volume " + state.name + ": backing " + problem;
            if (!is_new) {
                problem += "; bring it back as it was, and send SIGHUP (its key and sizes are in " +
                           directory_.path() + "/" + state.name + ".volume)";
            }
            return backing.error();
        }
        served.backing = backing.release_value();
    }
    KeptMemory kept = is_new ? KeptMemory() : keeper_.find(state.name);
    auto volume =
        Volume::start(directory_, state, is_new, std::move(kept), volume_options(), server_uuid_,
                      served.backing.get(), served.backing.get(), host::monotonic_ns());
    if (!volume.ok()) {
        if (volume.error() == Error::eperm) {
            problem = "volume " + state.name + kCannotBeRequired;
        } else if (volume.error() == Error::enomem) {
            problem = "volume " + state.name + ": its " + std::to_string(state.data_bytes >> 20) +
                      " MiB do not fit into the memory that this machine, or the control group of "
                      "tiffind, has left";
            problem += is_new ? "" : ": make room, and send SIGHUP";
        }
        if (is_new && served.backing) {
            served.backing->discard_new_file();
        }
        return volume.error();
    }
    served.volume = volume.release_value();
    Result<void> kept_well;
    if (served.backing) {
        kept_well = served.backing->start_thread(*served.volume);
    }
    if (kept_well.ok()) {
        kept_well = keeper_.keep(state.name, served.volume->data_descriptor(),
                                 served.volume->control_descriptor());
    }
    if (!kept_well.ok()) {
        if (is_new && served.backing) {
            served.backing->discard_new_file();
        }
        return kept_well.error();
    }
    const bool was_kept = served.volume->was_memory_kept();
    const VolumeInfo info = served.volume->info(host::monotonic_ns());
    log(host::LogLevel::info, "volume " + state.name + ": " +
                                  std::to_string(state.data_bytes >> 20) + " MiB, " +
                                  (was_kept         ? "memory kept"
                                   : is_new         ? "new"
                                   : served.backing ? "read from its backing"
                                                    : "empty: its memory was lost") +
                                  ", epoch " + std::to_string(info.epoch) + ", content " +
                                  std::to_string(info.content_incarnation) + ", " +
                                  std::to_string(info.session_count) + " sessions");
    ExclusiveLock lock(volumes_mutex_);
    volumes_[state.name] = std::move(served);
    return {};
}

Result<void> Server::open_listeners(std::string& problem) {
    std::vector<ListenAddress> addresses;
    {
        MutexLock lock(configuration_mutex_);
        addresses = configuration_.listen;
    }
    for (const ListenAddress& address : addresses) {
        uint16_t port = 0;
        UniqueDescriptor listener = listen_on(address, port);
        if (!listener.valid()) {
            problem = "cannot listen on " + address.host + " port " + std::to_string(address.port) +
                      ": " + std::strerror(errno);
            return static_cast<Error>(errno);
        }
        port_ = port_ == 0 ? port : port_;
        log(host::LogLevel::info, "listening on " + address.host + " port " + std::to_string(port));
        listeners_.push_back(std::move(listener));
    }
    return {};
}

Result<void> Server::start_threads() {
    uint32_t thread_count = 0;
    uint64_t interval_ns = 0;
    uint32_t busy_poll_us = 0;
    {
        MutexLock lock(configuration_mutex_);
        thread_count = configuration_.threads;
        interval_ns = uint64_t{configuration_.probe_interval_ms} * 1'000'000;
        busy_poll_us = configuration_.busy_poll_us;
    }
    // Often enough that a silent connection is noticed a quarter of an interval late.
    const uint64_t tick_ns = std::clamp<uint64_t>(interval_ns / 4, 10'000'000, 250'000'000);
    started_ = true;
    TRY(ticks_.start("tiffind-ticks", interval_ns, [this] { tick(); }));
    constexpr const char* kNames[] = {"tiffind-leases", "tiffind-devices", "tiffind-waits"};
    static_assert(std::size(kNames) == std::extent_v<decltype(work_)>);
    for (size_t kind = 0; kind < std::size(kNames); kind++) {
        TRY(work_[kind].start(kNames[kind]));
    }
    for (uint32_t index = 0; index < thread_count; index++) {
        data_threads_.push_back(TRY(IoThread::create(tick_ns, busy_poll_us, counters_)));
        TRY(data_threads_.back()->start(("tiffind-data" + std::to_string(index % 100)).c_str()));
    }
    acceptor_ = TRY(IoThread::create(tick_ns, 0, counters_));
    IoThread::Acceptor acceptor;
    acceptor.accept = [this](UniqueDescriptor socket, std::vector<unsigned char> peer_address) {
        return accept(std::move(socket), std::move(peer_address));
    };
    acceptor.most_strangers = [this] { return most_strangers(); };
    acceptor.displaced = [this] {
        count(counters_.handshakes_displaced);
        note_refusal(
            "more connections at once than max_handshakes allows belong to no session: the "
            "oldest of the address with most of them is closed");
    };
    acceptor.hand_over = [this](std::shared_ptr<Connection> connection) {
        hand_over(std::move(connection));
    };
    acceptor_->set_acceptor(std::move(acceptor));
    for (UniqueDescriptor& listener : listeners_) {
        acceptor_->add_listener(std::move(listener));
    }
    listeners_.clear();
    return acceptor_->start("tiffind-accept");
}

bool Server::stop(bool flushes) {
    if (!started_) {
        return true;
    }
    started_ = false;
    if (flushes && !failed_volumes().empty()) {
        MutexLock lock(administration_mutex_);
        (void)load_volumes(true);  // it has logged why
    }
    close_local_sockets();
    std::map<std::string, Served> volumes;
    {
        SharedLock lock(volumes_mutex_);
        volumes = volumes_;
    }
    for (auto& [name, served] : volumes) {
        served.volume->stop();
    }
    // While there are threads to hear what processes with mapped memory answer.
    std::set<std::string> changed;
    const uint64_t deadline_ns = host::monotonic_ns() + kLeaveMemoryNs;
    for (auto& [name, served] : volumes) {
        while (flushes && served.backing && served.volume->may_be_changed_by_processes()) {
            if (host::monotonic_ns() >= deadline_ns) {
                changed.insert(name);
                break;
            }
            usleep(1000);
        }
    }
    if (acceptor_) {
        acceptor_->stop();
    }
    for (const auto& thread : data_threads_) {
        thread->stop();
    }
    ticks_.stop();
    for (WorkThread& thread : work_) {
        thread.stop();
    }
    bool is_all_kept = true;
    for (auto& [name, served] : volumes) {
        if (served.backing) {
            served.backing->stop();
            if (flushes && !flush_stopped(served, changed.count(name) != 0)) {
                is_all_kept = false;
            }
        }
    }
    for (const auto& [name, problem] : failed_volumes()) {
        if (flushes && keeper_.find(name).data.valid()) {
            std::string line = "volume " + name;
            line += ": its memory is lost; what was not flushed is not in its backing: ";
            log(host::LogLevel::error, line + problem);
            is_all_kept = false;
        }
    }
    return is_all_kept;
}

bool Server::flush_stopped(const Served& served, bool is_still_changed) {
    if (!served.volume->needs_last_flush()) {
        return true;
    }
    const std::string name = "volume " + served.volume->name() + ": ";
    log(host::LogLevel::info, name + "what is not flushed goes to its backing");
    Result<void> flushed = served.backing->flush_all(served.volume->info(0).data_bytes);
    if (flushed.ok() && is_still_changed) {
        log(host::LogLevel::warning,
            name +
                "a process that has its memory mapped does not answer: what it writes from now "
                "on, and has not flushed, is lost");
        return false;
    }
    if (flushed.ok()) {
        flushed = served.volume->note_last_flush();
    }
    if (!flushed.ok()) {
        log(host::LogLevel::error,
            name + "what was not flushed is lost: " + std::strerror(errno_value(flushed.error())));
    }
    return flushed.ok();
}

// ---- Connections -----------------------------------------------------------------------------------------

ConnectionLimits Server::connection_limits() const {
    MutexLock lock(configuration_mutex_);
    ConnectionLimits limits;
    limits.handshake_timeout_ns = uint64_t{configuration_.handshake_timeout_ms} * 1'000'000;
    limits.probe_interval_ns = uint64_t{configuration_.probe_interval_ms} * 1'000'000;
    limits.stall_timeout_ns = uint64_t{configuration_.stall_timeout_s} * 1'000'000'000;
    limits.staging_bytes = configuration_.staging_bytes;
    limits.send_buffer_bytes = configuration_.send_buffer_bytes;
    limits.datagrams.port = configuration_.sdr_port;
    limits.datagrams.max_paths = configuration_.max_sdr_sessions;
    limits.datagrams.landing_slots = configuration_.sdr_landing_slots;
    limits.datagrams.drop_ppm = configuration_.sdr_drop_ppm;
    limits.highest_version = configuration_.highest_version;
    return limits;
}

VolumeOptions Server::volume_options() const {
    MutexLock lock(configuration_mutex_);
    VolumeOptions options;
    options.session_count = configuration_.max_sessions;
    options.slot_count = configuration_.slots;
    options.probe_interval_ms = configuration_.probe_interval_ms;
    options.lease_timeout_ms = configuration_.lease_timeout_s * 1000;
    options.offers_rc = has_rdma_;
    options.shm_kills = configuration_.shm_kills;
    options.memory = {configuration_.huge_pages, configuration_.lock_memory};
    return options;
}

size_t Server::most_strangers() const {
    MutexLock lock(configuration_mutex_);
    return configuration_.max_handshakes;
}

bool Server::has_room_beside(size_t absent_count, bool is_reader) const {
    MutexLock lock(configuration_mutex_);
    const size_t most = configuration_.max_connections;
    return attached_count() + absent_count < (is_reader ? most_of_readers(most) : most);
}

bool Server::has_room(bool is_reader) const { return has_room_beside(0, is_reader); }

bool Server::has_room_for_more(bool is_reader) const {
    size_t absent = 0;
    if (is_reader) {
        for (const auto& volume : served_volumes()) {
            absent += volume->absent_readers(host::monotonic_ns());
        }
    }
    return has_room_beside(absent, is_reader);
}

bool Server::may_reader_return() const {
    MutexLock lock(configuration_mutex_);
    return reader_connections_.load() < most_of_readers(configuration_.max_connections);
}

std::shared_ptr<Connection> Server::accept(UniqueDescriptor socket,
                                           std::vector<unsigned char> peer_address) {
    size_t most = 0;
    {
        MutexLock lock(configuration_mutex_);
        most = size_t{configuration_.max_connections} + configuration_.max_handshakes;
    }
    if (connection_count() >= most) {
        count(counters_.connections_refused);
        note_refusal(
            "all places for connections are taken (max_connections): one was closed at once");
        return nullptr;
    }
    // The sooner the surer. Not one of a Unix socket, or one whose process cannot be found: it gets no memory.
    std::shared_ptr<PeerProcess> process;
    if (auto found = PeerProcess::of_socket(socket.get()); found.ok()) {
        process = found.release_value();
    }
    auto connection = Connection::create(*this, connection_limits(), std::move(socket),
                                         std::move(peer_address), host::monotonic_ns());
    if (!connection.ok()) {
        count(counters_.connections_refused);
        return nullptr;
    }
    if (process) {
        (*connection)->set_peer_process(std::move(process));
    }
    count(counters_.connections_accepted);
    return connection.release_value();
}

void Server::hand_over(std::shared_ptr<Connection> connection) {
    const size_t index = next_thread_.fetch_add(1) % data_threads_.size();
    data_threads_[index]->adopt(std::move(connection));
}

size_t Server::connection_count() const {
    return attached_count() + (acceptor_ ? acceptor_->connection_count() : 0);
}

size_t Server::attached_count() const {
    size_t total = 0;
    for (const auto& thread : data_threads_) {
        total += thread->connection_count();
    }
    return total;
}

std::shared_ptr<Volume> Server::find_volume(const char* name) const {
    SharedLock lock(volumes_mutex_);
    const auto found = volumes_.find(name);
    return found == volumes_.end() ? nullptr : found->second.volume;
}

void Server::tick() {
    std::vector<std::shared_ptr<Volume>> volumes;
    {
        SharedLock lock(volumes_mutex_);
        for (const auto& [name, served] : volumes_) {
            volumes.push_back(served.volume);
        }
    }
    for (const auto& volume : volumes) {
        volume->tick(host::monotonic_ns());
    }
}

}  // namespace tiffin::rdma_blk
