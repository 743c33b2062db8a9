// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Reads and writes: from requests to operations, and back.
#include "rdma_blk/volume/remote_block_device.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "fs/base/text.h"

namespace tiffin::rdma_blk {
namespace {

// How many operations a synchronous caller has under way at once; they lie on its stack.
constexpr size_t kSynchronousPieces = 8;

OperationKind kind_of(const vfs::IoRequest& request) {
    return request.operation == vfs::IoOperation::write ? OperationKind::write
                                                        : OperationKind::read;
}

// A session stores it when it hears of it.
uint64_t data_bytes_of(const RemoteMemory& memory) {
    return std::atomic_ref<const uint64_t>(memory.geometry().data_bytes).load();
}

}  // namespace

// The operations for each server, linked in order, to be submitted together.
class RemoteBlockDevice::Batches {
  public:
    explicit Batches(RemoteBlockDevice& device) : device_(device) {}
    ~Batches() { TIFFIN_ASSERT(empty_); }
    Batches(const Batches&) = delete;
    Batches& operator=(const Batches&) = delete;

    void add(Piece& piece) {
        Batch& batch = batches_[piece.server];
        (batch.first == nullptr ? batch.first : batch.last->next) = &piece.operation;
        batch.last = &piece.operation;
        empty_ = false;
    }
    // `more_follows`: see Operation.
    void submit(bool more_follows) {
        for (size_t i = 0; !empty_ && i < device_.servers_.size(); ++i) {
            if (batches_[i].first != nullptr) {
                Operation& first = *batches_[i].first;
                batches_[i] = {};
                first.more_follows = more_follows;
                device_.servers_[i]->memory->submit(first);
            }
        }
        empty_ = true;
    }

  private:
    struct Batch {
        Operation* first = nullptr;
        Operation* last = nullptr;
    };
    RemoteBlockDevice& device_;
    Batch batches_[kMaxServers];
    bool empty_ = true;
};

RemoteBlockDevice::RemoteBlockDevice(const RemoteDeviceOptions& options) : options_(options) {}

uint64_t RemoteBlockDevice::size_at_servers() const {
    uint64_t smallest_bytes = UINT64_MAX;
    for (const auto& server : servers_) {
        smallest_bytes = std::min(smallest_bytes, data_bytes_of(*server->memory));
    }
    return stripe_.size_bytes(smallest_bytes) / geometry_.write_unit_bytes *
           geometry_.write_unit_bytes;
}

// A server tells its sessions by a notice, which one receives within 20 ms when nobody uses it.
Result<uint64_t> RemoteBlockDevice::update_size() {
    constexpr useconds_t kNoticeUs = 25'000;
    uint64_t size_bytes = size_at_servers();
    // The first time is that of the mount, right after the opening.
    if (std::exchange(has_asked_for_size_, true) && size_bytes <= geometry().size_bytes) {
        usleep(kNoticeUs);
        size_bytes = size_at_servers();
    }
    if (size_bytes <= geometry().size_bytes) {
        return geometry().size_bytes;
    }
    for (auto& server : servers_) {
        if (server->needs_flush) {
            if (!server->dirty.grow(data_bytes_of(*server->memory)).ok()) {
                log_line(host::LogLevel::warning, "volume ", options_.name.c_str(),
                         ": it has grown more than 16 times since the mount, and is used as it "
                         "was; mount it anew");
                return geometry().size_bytes;
            }
        }
    }
    geometries_.push_back(geometry());
    geometries_.back().size_bytes = size_bytes;
    present_geometry_.store(&geometries_.back(), std::memory_order_release);
    return size_bytes;
}

Result<void> RemoteBlockDevice::add_link(const char* host, uint16_t port) {
    return servers_.size() == 1 ? servers_[0]->memory->add_link(host, port)
                                : Result<void>(Error::eopnotsupp);
}

Result<void> RemoteBlockDevice::remove_link(const char* host, uint16_t port) {
    return servers_.size() == 1 ? servers_[0]->memory->remove_link(host, port)
                                : Result<void>(Error::eopnotsupp);
}

const void* RemoteBlockDevice::direct_address(uint64_t offset_bytes, uint64_t size_bytes) {
    const uint64_t device_bytes = geometry().size_bytes;
    if (servers_.size() != 1 || failed() || offset_bytes > device_bytes ||
        size_bytes > device_bytes - offset_bytes) {
        return nullptr;
    }
    return servers_[0]->memory->direct_address(offset_bytes, size_bytes);
}

Result<uint64_t> RemoteBlockDevice::check_transfer(bool is_write, uint64_t offset_bytes,
                                                   const vfs::IoVector* buffers,
                                                   size_t buffer_count) const {
    const vfs::DeviceGeometry& present = geometry();
    if (is_write && present.read_only) {
        return Error::erofs;
    }
    uint64_t length_bytes = 0;
    for (size_t i = 0; i < buffer_count; ++i) {
        if (__builtin_add_overflow(length_bytes, buffers[i].size_bytes, &length_bytes)) {
            return Error::eio;
        }
    }
    if (((offset_bytes | length_bytes) & (present.write_unit_bytes - 1)) != 0) {
        return Error::einval;
    }
    if (offset_bytes > present.size_bytes || length_bytes > present.size_bytes - offset_bytes ||
        failed()) {
        return Error::eio;
    }
    return length_bytes;
}

// False: the piece has to wait for the end of a flush.
bool RemoteBlockDevice::begin_write(Piece& piece) {
    DeviceServer& server = *servers_[piece.server];
    return piece.operation.kind != OperationKind::write || !server.needs_flush ||
           server.dirty.begin_write(piece.operation.offset_bytes, piece.length_bytes);
}

void DeviceServer::end_piece(const Piece& piece) {
    if (piece.operation.kind == OperationKind::write && needs_flush) {
        dirty.end_write(piece.operation.offset_bytes, piece.length_bytes);
    }
}

// ---- In the caller's thread ---------------------------------------------------------------------

Result<void> RemoteBlockDevice::read(uint64_t offset_bytes, const vfs::IoVector* buffers,
                                     size_t buffer_count) {
    return transfer(OperationKind::read, offset_bytes, buffers, buffer_count);
}

Result<void> RemoteBlockDevice::write(uint64_t offset_bytes, const vfs::IoVector* buffers,
                                      size_t buffer_count) {
    return transfer(OperationKind::write, offset_bytes, buffers, buffer_count);
}

Result<void> RemoteBlockDevice::transfer(OperationKind kind, uint64_t offset_bytes,
                                         const vfs::IoVector* buffers, size_t buffer_count) {
    const bool is_write = kind == OperationKind::write;
    const uint64_t length_bytes =
        TRY(check_transfer(is_write, offset_bytes, buffers, buffer_count));
    if (length_bytes == 0) {
        return {};
    }
    if (buffer_count > piece_limits_.vector_count) {
        // Some of it may have to be copied, for which only the pool has memory.
        return is_write ? vfs::BlockDevice::write(offset_bytes, buffers, buffer_count)
                        : vfs::BlockDevice::read(offset_bytes, buffers, buffer_count);
    }
    PieceCutter cutter(kind, offset_bytes, Span<const vfs::IoVector>(buffers, buffer_count));
    const StripeMap::Place place = stripe_.find(offset_bytes);
    if (length_bytes > std::min(place.contiguous_bytes, piece_limits_.transfer_bytes)) {
        return transfer_pieces(cutter);
    }
    Piece piece;
    cutter.cut(stripe_, piece_limits_, piece);
    return transfer_one(piece);
}

Result<void> RemoteBlockDevice::transfer_one(Piece& piece) {
    while (!begin_write(piece)) {
        wait_for_flush();
    }
    DeviceServer& server = *servers_[piece.server];
    server.memory->submit(piece.operation);
    server.memory->wait(piece.operation);
    server.end_piece(piece);
    if (piece.operation.outcome != Outcome::executed) {
        return device_error(piece.operation);
    }
    return {};
}

Result<void> RemoteBlockDevice::transfer_pieces(PieceCutter cutter) {
    Piece pieces[kSynchronousPieces];
    Result<void> result;
    while (cutter.remaining() > 0 && result.ok()) {
        Batches batches(*this);
        size_t count = 0;
        while (count < kSynchronousPieces && cutter.remaining() > 0) {
            const PieceCutter before = cutter;
            cutter.cut(stripe_, piece_limits_, pieces[count]);
            if (!begin_write(pieces[count])) {
                // What is under way must not wait for what is not: the flush waits for it.
                cutter = before;
                if (count > 0) {
                    break;
                }
                wait_for_flush();
                continue;
            }
            batches.add(pieces[count++]);
        }
        batches.submit(false);
        for (size_t i = 0; i < count; ++i) {
            DeviceServer& server = *servers_[pieces[i].server];
            server.memory->wait(pieces[i].operation);
            server.end_piece(pieces[i]);
            if (pieces[i].operation.outcome != Outcome::executed && result.ok()) {
                result = device_error(pieces[i].operation);
            }
        }
    }
    return result;
}

// ---- Asynchronously -----------------------------------------------------------------------------

void RemoteBlockDevice::submit(vfs::IoRequest& request) {
    const bool more_follows = request.more_follows;  // it may complete at once
    submit_one(request);
    // Those before it may be kept for other servers than this one's.
    for (size_t i = 0; !more_follows && i < servers_.size(); ++i) {
        servers_[i]->memory->send_gathered();
    }
}

void RemoteBlockDevice::submit_one(vfs::IoRequest& request) {
    const bool more_follows = request.more_follows;
    switch (request.operation) {
        case vfs::IoOperation::discard:
            return request.complete(request, Error::eopnotsupp);
        case vfs::IoOperation::flush:
            if (!needs_flush_ || failed()) {
                return request.complete(request,
                                        failed() ? Result<void>(Error::eio) : Result<void>());
            }
            return enqueue_request(request);
        case vfs::IoOperation::read:
        case vfs::IoOperation::write:
            break;
    }
    const Result<uint64_t> length_bytes =
        check_transfer(request.operation == vfs::IoOperation::write, request.offset_bytes,
                       request.buffers, request.buffer_count);
    if (!length_bytes.ok() || length_bytes.value() == 0) {
        return request.complete(request, length_bytes.ok() ? Result<void>() : length_bytes.error());
    }
    // Those that wait already come first.
    Transfer* transfer = waiting_count_.load() == 0 ? transfers_.take() : nullptr;
    if (transfer == nullptr) {
        return enqueue_request(request);
    }
    start_transfer(*transfer, request);
    const Advance reached = advance(*transfer, more_follows);
    if (reached != Advance::finished) {
        enqueue(*transfer, reached);
    }
}

void RemoteBlockDevice::start_transfer(Transfer& transfer, vfs::IoRequest& request) {
    transfer.device = this;
    transfer.request = &request;
    transfer.cutter = PieceCutter(kind_of(request), request.offset_bytes,
                                  Span<const vfs::IoVector>(request.buffers, request.buffer_count));
    transfer.shares.store(1);
    transfer.error.store(0);
}

// Submits as much as can be. Only one thread at a time does that for a transfer: who started it, then the
// worker. After `finished` it must not be touched.
RemoteBlockDevice::Advance RemoteBlockDevice::advance(Transfer& transfer, bool more_follows) {
    Batches batches(*this);
    Advance reached = Advance::finished;
    while (transfer.cutter.remaining() > 0 && transfer.error.load() == 0) {
        Piece* piece = pieces_.take();
        if (piece == nullptr) {
            reached = Advance::no_operation;
            break;
        }
        const PieceCutter before = transfer.cutter;
        transfer.cutter.cut(stripe_, piece_limits_, *piece);
        if (!begin_write(*piece)) {
            transfer.cutter = before;
            pieces_.give_back(*piece);
            reached = Advance::held_back;
            break;
        }
        piece->transfer = &transfer;
        piece->operation.complete = piece_completed;
        piece->operation.owner = piece;
        transfer.shares.fetch_add(1);
        batches.add(*piece);
    }
    batches.submit(more_follows);
    if (reached == Advance::finished) {
        drop_share(transfer);
    }
    return reached;
}

// Under the rules of Operation::complete: perhaps with locks of the transport held.
void RemoteBlockDevice::piece_completed(Operation& operation) {
    auto& piece = *static_cast<Piece*>(operation.owner);
    Transfer& transfer = *piece.transfer;
    RemoteBlockDevice& device = *transfer.device;
    device.servers_[piece.server]->end_piece(piece);
    if (operation.outcome != Outcome::executed) {
        int none = 0;
        transfer.error.compare_exchange_strong(none, errno_value(device_error(operation)));
    } else if (operation.kind == OperationKind::read) {
        finish_read(piece);
    }
    device.pieces_.give_back(piece);
    if (device.waiting_count_.load() != 0) {
        device.wake_worker();
    }
    device.drop_share(transfer);
}

void RemoteBlockDevice::drop_share(Transfer& transfer) {
    if (transfer.shares.fetch_sub(1) != 1) {
        return;
    }
    vfs::IoRequest& request = *transfer.request;
    const int error = transfer.error.load();
    transfers_.give_back(transfer);
    if (waiting_count_.load() != 0) {
        wake_worker();
    }
    request.complete(request,
                     error == 0 ? Result<void>() : Result<void>(static_cast<Error>(error)));
}

}  // namespace tiffin::rdma_blk
