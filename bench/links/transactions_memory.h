// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Remote memory over two links for several threads, and what is done with pending operations when one link fails. An operation
// that is never executed stops the program.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "fuse/host/remote_address.h"
#include "rdma_blk/remote_memory.h"
#include "rdma_blk/transport/open.h"

namespace tiffin::bench {

enum class Way : uint8_t {
    as_it_is,
    resend_all,  // LinkTrial::resend_all: the server recognizes each request that it had by its slot
    reconnect_all,  // LinkTrial::reconnect_all
    // As a client of memory without such slots: it has one connection. When an answer is late, it connects over the other link
    // and submits everything unanswered again, as new operations.
    resubmit,
};
inline constexpr const char* kWayArguments[] = {"none", "resend_all", "reconnect_all", "resubmit"};
inline constexpr const char* kWayNames[] = {"as it is", "all sent again", "reconnected",
                                            "all submitted again"};

// Operations that are submitted together. It refers to the memory of reads and writes.
class Batch {
  public:
    static constexpr size_t kMost = 48;

    void clear() { count_ = 0; }
    size_t size() const { return count_; }
    void read(uint64_t offset, void* place, size_t size);
    void write(uint64_t offset, const void* data, size_t size);
    void write_word(uint64_t offset, uint64_t value);
    void compare_swap(uint64_t offset, uint64_t expected, uint64_t value);
    void fetch_add(uint64_t offset, uint64_t amount);
    // The operation that was added last takes effect after all before it.
    void order_last() { operations_[count_ - 1].after_earlier = true; }

    // After TransactionMemory::run().
    uint64_t old_value(size_t index) const { return operations_[index].old_value; }
    bool has_swapped(size_t index) const {
        return operations_[index].old_value == operations_[index].compare;
    }

  private:
    friend class TransactionMemory;
    rdma_blk::Operation& add(rdma_blk::OperationKind kind, uint64_t offset, void* data,
                             size_t size);

    std::array<rdma_blk::Operation, kMost> operations_;
    std::array<vfs::IoVector, kMost> pieces_;
    std::array<uint64_t, kMost> words_;
    size_t count_ = 0;
};

class TransactionMemory {
  public:
    TransactionMemory(const std::string& address, Way way);
    TransactionMemory(const TransactionMemory&) = delete;
    TransactionMemory& operator=(const TransactionMemory&) = delete;

    Way way() const { return way_; }
    // Until all have been executed. By any threads.
    void run(Batch& batch, uint64_t patience_ns = kPatienceNs);
    // Of any size, as long as the links are well.
    void read_all(uint64_t offset, void* place, size_t size);
    void write_all(uint64_t offset, const void* data, size_t size);

    // Of the link that has the requests; `otherwise` if none has them at this moment.
    size_t active(size_t otherwise) const;
    // How often requests have left a link.
    uint64_t failures_seen() const;
    void wait_until_well() const;

    // Way::resubmit: an answer is late then.
    static constexpr uint64_t kPatienceNs = 50'000'000;

  private:
    // Closes itself when its last user has left it.
    std::shared_ptr<rdma_blk::RemoteMemory> open(const rdma_blk::RemoteAddress& server,
                                                 bool force) const;
    std::shared_ptr<rdma_blk::RemoteMemory> session(uint64_t& number) const;
    void change_link(uint64_t number);
    template <typename Add>
    void run_in_pieces(size_t size, Add add);

    fuse::RemoteVolumeAddress address_;
    Way way_;
    mutable std::mutex mutex_;
    std::shared_ptr<rdma_blk::RemoteMemory> session_;
    uint64_t number_ = 0;  // of the session; Way::resubmit makes new ones
    std::atomic<size_t> link_{0};
};

}  // namespace tiffin::bench
