// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A request of the block device on its way: cut into pieces, each an operation on one server.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "fs/vfs/block_device.h"
#include "fs/vfs/buffer_cursor.h"
#include "rdma_blk/remote_memory.h"
#include "rdma_blk/volume/dirty_map.h"
#include "rdma_blk/volume/stripe_map.h"

namespace tiffin::rdma_blk {

class RemoteBlockDevice;
struct Piece;

inline constexpr size_t kPieceVectors = 16;
inline constexpr uint32_t kMaxWriteUnitBytes = 4096;
inline constexpr size_t kFlushRanges = 256;

// One server of a device.
struct DeviceServer final : public ConnectionListener {
    explicit DeviceServer(RemoteBlockDevice& owner) : device(owner) {}
    void connection_changed(const ConnectionInfo& info) override;
    // After the completion of a piece for which begin_write() was called.
    void end_piece(const Piece& piece);

    RemoteBlockDevice& device;
    std::string name;
    std::unique_ptr<RemoteMemory> memory;
    bool needs_flush = false;
    DirtyMap dirty;  // when it needs flushes

    std::atomic<bool> is_closing{false};  // the end of the session is the owner's wish
    std::atomic<ConnectionState> state{ConnectionState::connecting};
    ConnectionState reported_state = ConnectionState::ready;  // the worker's

    // Of the flush that has the permit.
    ByteRange ranges[kFlushRanges];
    size_t range_count = 0;
    uint64_t change_mark = 0;
    Operation flush_operation;
};

struct Transfer;

struct Piece {
    Operation operation;
    uint32_t server = 0;
    uint64_t length_bytes = 0;
    vfs::IoVector vectors[kPieceVectors];
    Transfer* transfer = nullptr;
    // Of the pool: kMaxWriteUnitBytes, for a write unit in too many buffers.
    unsigned char* copy = nullptr;
    bool is_copied = false;
    BufferCursor copied_place{Span<const vfs::IoVector>()};  // where a copied read belongs
    Piece* next_free = nullptr;
};

// What all servers take.
struct PieceLimits {
    uint64_t transfer_bytes = 0;  // a multiple of the write unit
    size_t vector_count = 0;      // at most kPieceVectors
    uint32_t write_unit_bytes = 0;
};

// Cuts a read or write into pieces, in the order of the device. A copy continues at the same place.
class PieceCutter {
  public:
    PieceCutter() : cursor_(Span<const vfs::IoVector>()) {}
    PieceCutter(OperationKind kind, uint64_t offset_bytes, Span<const vfs::IoVector> buffers)
        : kind_(kind), offset_bytes_(offset_bytes), cursor_(buffers) {}

    OperationKind kind() const { return kind_; }
    uint64_t remaining() const { return cursor_.remaining(); }
    void stop() { cursor_.limit(0); }

    // Makes `piece` the next one. When a single write unit has more buffers than a piece takes, it is
    // copied, for which the piece must have memory: not needed where there are at most
    // PieceLimits::vector_count buffers in all.
    void cut(const StripeMap& stripe, const PieceLimits& limits, Piece& piece);

  private:
    void copy_unit(const PieceLimits& limits, Piece& piece);

    OperationKind kind_ = OperationKind::read;
    uint64_t offset_bytes_ = 0;
    BufferCursor cursor_;
};

// A request of submit().
struct Transfer {
    RemoteBlockDevice* device = nullptr;
    vfs::IoRequest* request = nullptr;
    PieceCutter cutter;
    std::atomic<uint32_t> shares{0};  // pieces under way, and one for the thread that submits them
    std::atomic<int> error{0};        // errno of the first piece that failed
    Transfer* next = nullptr;         // in a TransferQueue
    Transfer* next_free = nullptr;
};

// First in, first out, linked through the elements. Not for several threads.
template <typename T>
class LinkedQueue {
  public:
    bool empty() const { return first_ == nullptr; }
    void push(T& element) {
        element.next = nullptr;
        (first_ == nullptr ? first_ : last_->next) = &element;
        last_ = &element;
    }
    void push_front(T& element) {
        element.next = first_;
        last_ = first_ == nullptr ? &element : last_;
        first_ = &element;
    }
    // nullptr when there is none.
    T* pop() {
        T* element = first_;
        if (element != nullptr) {
            first_ = element->next;
        }
        return element;
    }

  private:
    T* first_ = nullptr;
    T* last_ = nullptr;
};
using TransferQueue = LinkedQueue<Transfer>;
using RequestQueue = LinkedQueue<vfs::IoRequest>;

// After a piece that reads was executed: brings what was copied to its place.
void finish_read(Piece& piece);

// What a block device says about an operation that was not executed.
Error device_error(const Operation& operation);

}  // namespace tiffin::rdma_blk
