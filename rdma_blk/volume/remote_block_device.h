// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A block device in the memory of one or several servers. docs/remote.md says how it works.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fs/vfs/block_device.h"
#include "fs/vfs/host.h"
#include "rdma_blk/remote_memory.h"
#include "rdma_blk/volume/free_list.h"
#include "rdma_blk/volume/stripe_description.h"
#include "rdma_blk/volume/stripe_map.h"
#include "rdma_blk/volume/transfer.h"

namespace tiffin::rdma_blk {

// One server of a volume, and how to get a session with it that reads; `problem` becomes a line for
// people when that fails. The listener lives as long as the session.
struct ServerToOpen {
    std::string name;  // for messages, such as "host7:4847"
    std::function<Result<std::unique_ptr<RemoteMemory>>(ConnectionListener& listener,
                                                        std::string& problem)>
        open;
};

struct RemoteDeviceOptions {
    std::string name = "";      // of the volume, for messages
    bool write = false;         // take the leases now; else see start_writing()
    bool force = false;         // take them over, fencing the holders
    bool encrypt = false;       // what the servers were opened with, for messages
    uint64_t stripe_bytes = 0;  // 0: as the volume was made; a new one: kDefaultStripeBytes
    Holder* holder = nullptr;   // during open(): gets the holder of the lease, after ebusy
    // Operations that are under way for requests of submit(); more requests wait.
    uint32_t operation_count = 256;
    uint32_t request_count = 256;
};

// What one server of a device is doing, for people.
struct ServerStatus {
    std::string name;
    ConnectionInfo connection;
    Statistics statistics;
    bool needs_flush = false;  // the server has a disk behind its memory
    uint64_t dirty_bytes = 0;  // that flush() would have to write
    bool is_in_clear = false;  // data go over a network, where they can be read
    // It had lost all that the volume held before this opening, and held nothing since.
    bool has_lost_content = false;
};

// All functions may be called from any threads at once. Synchronous calls work in the calling thread:
// one batch to each server, and the caller waits for the answers itself. The first open() starts a
// thread, so fork() before it: a child that goes on without exec may also keep memory of a server on this host,
// beyond the lease, when it was made while that was being mapped.
//
// Once a server has fenced this device off, lost its memory, or could not be reached for the time that
// its session allows, everything fails with eio, for good; the log has one line about it.
class RemoteBlockDevice final : public vfs::BlockDevice {
  public:
    // Opens sessions with all servers, in the order in which the volume is striped. Leases are taken in
    // ascending order of the servers' UUIDs, so that two clients that open at once cannot wait for each other;
    // nothing is written before all are held. Errors: those of the sessions; ebusy (another client
    // writes, `problem` names it), einval and eio of judge_stripe(), enomem.
    static Result<std::unique_ptr<RemoteBlockDevice>> open(std::vector<ServerToOpen> servers,
                                                           const RemoteDeviceOptions& options,
                                                           std::string& problem);
    // All requests must have completed. Gives the leases back.
    ~RemoteBlockDevice() override;
    RemoteBlockDevice(const RemoteBlockDevice&) = delete;
    RemoteBlockDevice& operator=(const RemoteBlockDevice&) = delete;

    const vfs::DeviceGeometry& geometry() const override {
        return *present_geometry_.load(std::memory_order_acquire);
    }
    // The smallest server counts. More than DirtyMap::kMostGrowth times the size of the opening needs another opening.
    Result<uint64_t> update_size() override;
    // Takes the leases. The log names their holders when that fails with ebusy.
    Result<void> start_writing() override;
    void submit(vfs::IoRequest& request) override;
    // With one server, over tcp or sdr: a helper of one of several would not see what comes from the others.
    bool help(const std::atomic<uint32_t>& count, uint32_t seen) override {
        return servers_.size() == 1 && servers_.front()->memory->help(count, seen);
    }
    const void* direct_address(uint64_t offset_bytes, uint64_t size_bytes) override;
    using vfs::BlockDevice::read;
    using vfs::BlockDevice::write;
    Result<void> read(uint64_t offset_bytes, const vfs::IoVector* buffers,
                      size_t buffer_count) override;
    Result<void> write(uint64_t offset_bytes, const vfs::IoVector* buffers,
                       size_t buffer_count) override;
    Result<void> flush() override;
    // On one server: one batch, in which each step follows the one before (Operation::after_earlier). On
    // several, or for more than a batch takes: step by step.
    Result<void> write_ordered(Span<const vfs::OrderedWrite> data,
                               const vfs::OrderedWrite& record) override;
    bool combines_ordered_writes() const override { return servers_.size() == 1; }

    // With one server: see RemoteMemory. Errors: eopnotsupp, and those.
    Result<void> add_link(const char* host, uint16_t port);
    Result<void> remove_link(const char* host, uint16_t port);

    // Once everything fails for good, if not already, `tell` is called, once, from the device's thread. It must not use
    // the device. An empty one takes that back, and waits for a call under way.
    void on_failure(std::function<void()> tell) EXCLUDES(failure_lock_);

    const StripeMap& stripe() const { return stripe_; }
    std::vector<ServerStatus> status() const;

  private:
    enum class Advance : uint8_t { finished, no_operation, held_back };
    class Batches;

    explicit RemoteBlockDevice(const RemoteDeviceOptions& options);

    // ---- Opening: device_opening.cc
    Result<void> open_servers(std::vector<ServerToOpen>& servers, std::string& problem);
    std::vector<StripeFinding> list_members() const;
    Result<void> take_leases(bool force, Holder& holder, std::string& problem);
    void inherit_unflushed();
    Result<std::vector<StripeFinding>> find_stripe(std::string& problem);
    Result<void> write_stripe(const std::vector<StripeFinding>& findings, std::string& problem);
    Result<void> check_stripe(bool may_write, std::string& problem);
    Result<void> flush_stripe(std::string& problem);
    void tell_of_opening();
    Result<void> set_geometry(std::string& problem);
    Result<void> start(std::string& problem);

    // ---- Requests: remote_block_device.cc
    uint64_t size_at_servers() const;
    Result<uint64_t> check_transfer(bool is_write, uint64_t offset_bytes,
                                    const vfs::IoVector* buffers, size_t buffer_count) const;
    Result<void> transfer(OperationKind kind, uint64_t offset_bytes, const vfs::IoVector* buffers,
                          size_t buffer_count);
    Result<void> transfer_one(Piece& piece);
    Result<void> transfer_pieces(PieceCutter cutter);
    bool begin_write(Piece& piece);
    void wait_for_flush();
    void start_transfer(Transfer& transfer, vfs::IoRequest& request);
    Advance advance(Transfer& transfer, bool more_follows);
    static void piece_completed(Operation& operation);
    void drop_share(Transfer& transfer);
    void submit_one(vfs::IoRequest& request);

    // ---- Flushing: device_flush.cc
    Result<void> flush_servers();
    void begin_flush();
    bool take_dirty_ranges();
    void end_flush();
    void release_writers();
    bool flush_round();

    // ---- Ordered writes: device_ordered.cc
    class OrderedBatch;
    Result<bool> fits_one_batch(Span<const vfs::OrderedWrite> data,
                                const vfs::OrderedWrite& record) const;
    bool flush_all_but_last_round(size_t spare_ranges);
    void finish_durable_batch(OrderedBatch& batch);

    // ---- What does not fit, and what is to be logged: device_worker.cc
    void enqueue(Transfer& transfer, Advance reason);
    void enqueue_request(vfs::IoRequest& request);
    void wake_worker();
    void run_worker();
    bool continue_transfers();
    bool start_requests();
    void run_flushes();
    void report_connections();
    void tell_of_failure() EXCLUDES(failure_lock_);

    bool failed() const { return failed_.load(std::memory_order_acquire); }

    const RemoteDeviceOptions options_;
    vfs::DeviceGeometry geometry_;                // at first
    std::deque<vfs::DeviceGeometry> geometries_;  // since then; kept, as references are
    std::atomic<const vfs::DeviceGeometry*> present_geometry_{&geometry_};
    bool has_asked_for_size_ = false;
    StripeMap stripe_;
    std::vector<std::unique_ptr<DeviceServer>> servers_;
    bool has_lost_content_ = false;  // from the opening on
    PieceLimits piece_limits_;
    std::atomic<bool> failed_{false};
    bool needs_flush_ = false;

    host::Mutex failure_lock_{host::LockClass::session};
    std::function<void()> on_failure_ GUARDED_BY(failure_lock_);

    unsigned char* copies_ = nullptr;  // kMaxWriteUnitBytes for each piece of the pool
    size_t copies_bytes_ = 0;
    FreeList<Piece> pieces_;
    FreeList<Transfer> transfers_;

    // One flush at a time; a semaphore, since transports take locks below.
    host::Semaphore flush_permit_{1};

    mutable host::Mutex mutex_{host::LockClass::leaf};
    host::Condition flush_stepped_;
    bool flushing_ GUARDED_BY(mutex_) = false;
    uint64_t flush_step_ GUARDED_BY(mutex_) = 0;
    TransferQueue waiting_ GUARDED_BY(mutex_);  // for a free operation
    TransferQueue held_ GUARDED_BY(mutex_);     // for the end of a part of the flush
    RequestQueue requests_ GUARDED_BY(mutex_);  // for a free transfer
    RequestQueue flushes_ GUARDED_BY(mutex_);
    std::atomic<uint32_t> waiting_count_{0};  // in waiting_ and requests_

    host::Thread worker_;
    host::Semaphore worker_wake_;
    std::atomic<bool> worker_awake_{false};
    std::atomic<bool> worker_stops_{false};

    friend struct DeviceServer;
};

}  // namespace tiffin::rdma_blk
