// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The memory server: volumes by name, the threads that serve them, and what administrators may do. Functions
// may be called from any threads, but for start() and stop().
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rdma_blk/server/configuration.h"
#include "rdma_blk/server/io_thread.h"
#include "rdma_blk/server/sparse_log.h"
#include "rdma_blk/server/volume.h"
#include "rdma_blk/server/work_thread.h"

namespace tiffin::rdma_blk {

// Keeps the volumes' memory when this process ends. The default keeps nothing.
class MemoryKeeper {
  public:
    virtual ~MemoryKeeper() = default;
    // What it has of a volume; it goes on keeping it.
    virtual KeptMemory find(const std::string& volume_name) {
        (void)volume_name;
        return {};
    }
    // Errors: eio (it is gone).
    virtual Result<void> keep(const std::string& volume_name, int data, int control) {
        (void)volume_name, (void)data, (void)control;
        return {};
    }
    virtual void forget(const std::string& volume_name) { (void)volume_name; }
    // The server serves: from here on an end that was not asked for is an accident.
    virtual void server_is_ready() {}
};

class FileBacking;  // file_backing.h

class Server final : public ConnectionHost {
  public:
    // `keeper` outlives the server.
    Server(const Configuration& configuration, MemoryKeeper& keeper);
    ~Server();

    // Brings up all volumes that can be, and starts to listen. One that cannot is logged, and listed with its problem; the
    // others are served all the same. After an error `problem` has one line for people.
    Result<void> start(std::string& problem);
    // Tells sessions and ends all threads. Without `flushes` the memory stays with the keeper. With it, what the memory has and
    // a backing has not is written first, so that clients go on after the next start as if nothing had been lost. False: some of
    // that could not be written; the log says of which volume.
    bool stop(bool flushes = false);

    // The port of the first address: for tests, which listen on port 0.
    uint16_t port() const { return port_; }

    struct NewVolume {
        std::string name;
        uint64_t size_bytes = 0;
        uint64_t words_bytes = 4096;
        std::string backing;
        bool takes_any_content = false;  // of the backing, which becomes the volume's
    };
    // Errors: ebusy (the backing is in use), eexist (there is such a volume, or the backing has other data), einval, enospc
    // (memory_limit), enomem, those of files. `problem` says more; nothing is left behind.
    Result<Secret<kVolumeKeyBytes>> create_volume(const NewVolume& wanted, std::string& problem);
    // Errors: enoent; ebusy (`problem` names its user, or says why it is not served), not with `force`, which ends its sessions
    // first; those of files.
    Result<void> delete_volume(const std::string& name, bool force, std::string& problem);
    Result<void> resize_volume(const std::string& name, uint64_t size_bytes, std::string& problem);
    std::vector<VolumeInfo> list_volumes() const;
    // Those that are there and could not be brought up, and why. SIGHUP tries again.
    std::map<std::string, std::string> failed_volumes() const;
    // Why a volume cannot be found, for people.
    std::string absence_of(const std::string& name) const;
    // Volumes of a configuration that was read again, and limits; what needs a restart is said in the log.
    void reload(const Configuration& configuration);

    size_t connection_count() const;
    uint64_t memory_bytes() const;
    uint64_t memory_limit_bytes() const { return memory_limit_bytes_.load(); }

    // ---- ConnectionHost ----
    const CookieJar& cookies() const override { return cookies_; }
    const unsigned char* server_uuid() const override { return server_uuid_; }
    std::shared_ptr<Volume> find_volume(const char* name) const override;
    ServerCounters& counters() override { return counters_; }
    bool has_answer_memory() const override {
        return counters_.unread_answer_bytes.load(std::memory_order_relaxed) <=
               std::max(kLeastAnswerBytes, memory_limit_bytes() / kAnswerShare);
    }
    bool run_later(Work kind, std::function<void()> work) override {
        return work_[static_cast<size_t>(kind)].add(std::move(work));
    }
    bool has_room(bool is_reader) const override;
    bool has_room_for_more(bool is_reader) const override;
    bool may_reader_return() const override;
    void count_reader(int by) override {
        reader_connections_.fetch_add(static_cast<size_t>(by));  // modulo 2^64
    }
    void note_refusal(const std::string& line) override {
        refusals_.write(line, host::monotonic_ns());
    }

  private:
    // What clients have not read may take this part of memory_limit, beside the volumes.
    static constexpr uint64_t kAnswerShare = 8;
    static constexpr uint64_t kLeastAnswerBytes = uint64_t{64} << 20;

    // In this order: a volume is gone before its backing.
    struct Served {
        std::shared_ptr<FileBacking> backing;
        std::shared_ptr<Volume> volume;
    };

    // Those that have a state file and are not served yet. `only_kept`: and of which the keeper has memory.
    Result<void> load_volumes(bool only_kept) REQUIRES(administration_mutex_);
    Result<UniqueDescriptor> lock_directory() const;
    void warn_of_readers(const std::string& name) const;
    // Why a volume that has a state file is not served; empty: it is, or there is none.
    std::string failure_of(const std::string& name) const;
    std::string load_problem(const std::string& name, Error error) const;
    Result<void> start_volume(const VolumeState& state, BackingContent content,
                              std::string& problem);
    Result<void> open_listeners(std::string& problem);
    Result<void> start_threads();
    static bool flush_stopped(const Served& served, bool is_still_changed);
    void create_configured(const Configuration& configuration);
    std::shared_ptr<Connection> accept(UniqueDescriptor socket,
                                       std::vector<unsigned char> peer_address);
    size_t most_strangers() const;
    size_t attached_count() const;
    bool has_room_beside(size_t absent_count, bool is_reader) const;
    std::vector<std::shared_ptr<Volume>> served_volumes() const;
    void hand_over(std::shared_ptr<Connection> connection);
    ConnectionLimits connection_limits() const;
    VolumeOptions volume_options() const;
    void tick();
    // server_local.cc: sockets for processes of this host.
    void open_local_sockets() EXCLUDES(administration_mutex_);
    void open_local_socket(const std::string& volume_name) REQUIRES(administration_mutex_);
    void close_local_socket(const std::string& volume_name) REQUIRES(administration_mutex_);
    void close_local_sockets() EXCLUDES(administration_mutex_);

    MemoryKeeper& keeper_;
    const StateDirectory directory_;
    const std::string runtime_directory_;
    CookieJar cookies_;
    ServerCounters counters_;
    unsigned char server_uuid_[16] = {};
    UniqueDescriptor directory_lock_;
    std::vector<UniqueDescriptor> listeners_;
    uint16_t port_ = 0;
    bool has_rdma_ = false;  // from the start on
    std::atomic<uint64_t> memory_limit_bytes_{0};

    mutable host::Mutex configuration_mutex_{host::LockClass::leaf};
    Configuration configuration_ GUARDED_BY(configuration_mutex_);
    // Volumes come and go one at a time; lookups need the second lock only.
    host::Mutex administration_mutex_{host::LockClass::session};
    // By volume, the acceptor's listeners; only while threads run.
    bool offers_local_sockets_ GUARDED_BY(administration_mutex_) = false;
    std::map<std::string, uint64_t> local_sockets_ GUARDED_BY(administration_mutex_);
    mutable host::SharedMutex volumes_mutex_{host::LockClass::leaf};
    std::map<std::string, Served> volumes_ GUARDED_BY(volumes_mutex_);
    // What could not be brought up, and why.
    std::map<std::string, std::string> failed_volumes_ GUARDED_BY(volumes_mutex_);

    WorkThread ticks_;
    WorkThread work_[3];  // by ConnectionHost::Work
    SparseLog refusals_;
    std::atomic<size_t> reader_connections_{0};
    std::unique_ptr<IoThread> acceptor_;
    std::vector<std::unique_ptr<IoThread>> data_threads_;
    std::atomic<size_t> next_thread_{0};
    bool started_ = false;
};

}  // namespace tiffin::rdma_blk
