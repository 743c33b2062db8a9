// SPDX-License-Identifier: MIT OR GPL-2.0-only
// write_ordered(): data, the record that names them and, where the server has a disk, what makes both durable, as
// one batch of operations that follow each other: one round trip.
#include <algorithm>

#include "rdma_blk/volume/remote_block_device.h"

namespace tiffin::rdma_blk {
namespace {

constexpr size_t kMostData = 7;  // pieces lie on the caller's stack

}  // namespace

// The operations of one such batch, and the wait for them. What is in it is written without begin_write(): nobody
// else may flush meanwhile, and its own flushes are ordered behind the writes.
class RemoteBlockDevice::OrderedBatch {
  public:
    OrderedBatch(RemoteBlockDevice& device, Span<const vfs::OrderedWrite> data,
                 const vfs::OrderedWrite& record)
        : device_(device) {
        for (const vfs::OrderedWrite& part : data) {
            cut(part);
        }
        cut(record);
    }

    size_t write_count() const { return count_; }
    Piece& record_piece() { return pieces_[count_ - 1]; }

    // `data_flush` (nullptr: none) comes between data and record; the record's own flush behind it.
    void run(Operation* data_flush, Operation* record_flush) {
        Operation* first = nullptr;
        Operation* last = nullptr;
        const auto append = [&](Operation& operation) {
            (first == nullptr ? first : last->next) = &operation;
            last = &operation;
        };
        for (size_t i = 0; i + 1 < count_; ++i) {
            append(pieces_[i].operation);
        }
        if (data_flush != nullptr) {
            append(*data_flush);
        }
        record_piece().operation.after_earlier = first != nullptr;
        append(record_piece().operation);
        if (record_flush != nullptr) {
            append(*record_flush);
        }
        RemoteMemory& memory = *device_.servers_[0]->memory;
        memory.submit(*first);
        // The last one first: when it is complete, so are the others, most of the time.
        if (record_flush != nullptr) {
            take_back(memory, *record_flush);
        }
        for (size_t i = count_; i-- > 0;) {
            take_back(memory, pieces_[i].operation);
        }
        if (data_flush != nullptr) {
            take_back(memory, *data_flush);
        }
    }

    // The places that were written, for flushes; `ranges` has room for them.
    size_t data_ranges(ByteRange* ranges) const {
        for (size_t i = 0; i + 1 < count_; ++i) {
            ranges[i] = range_of(pieces_[i]);
        }
        return count_ - 1;
    }
    ByteRange record_range() { return range_of(record_piece()); }

    bool all_executed() const { return result_.ok(); }
    Result<void> result() const { return result_; }

    // Where nothing is known to be on the disk: the next flush takes it there.
    void mark_dirty() {
        for (size_t i = 0; i < count_; ++i) {
            DeviceServer& server = *device_.servers_[0];
            const ByteRange range = range_of(pieces_[i]);
            const bool is_marked = server.dirty.begin_write(range.offset_bytes, range.length_bytes);
            TIFFIN_ASSERT(is_marked);  // only a flush would refuse it
            server.dirty.end_write(range.offset_bytes, range.length_bytes);
        }
    }

  private:
    static ByteRange range_of(const Piece& piece) {
        return {piece.operation.offset_bytes, piece.length_bytes};
    }

    void cut(const vfs::OrderedWrite& write) {
        PieceCutter cutter(OperationKind::write, write.offset_bytes,
                           Span<const vfs::IoVector>(write.buffers, write.buffer_count));
        cutter.cut(device_.stripe_, device_.piece_limits_, pieces_[count_++]);
        TIFFIN_ASSERT(cutter.remaining() == 0);
    }

    void take_back(RemoteMemory& memory, Operation& operation) {
        memory.wait(operation);
        if (operation.outcome != Outcome::executed && result_.ok()) {
            result_ = device_error(operation);
        }
    }

    RemoteBlockDevice& device_;
    Piece pieces_[kMostData + 1];
    size_t count_ = 0;
    Result<void> result_;
};

// Errors: those of the writes.
Result<bool> RemoteBlockDevice::fits_one_batch(Span<const vfs::OrderedWrite> data,
                                               const vfs::OrderedWrite& record) const {
    bool fits = servers_.size() == 1 && data.size() <= kMostData;
    const auto look_at = [&](const vfs::OrderedWrite& write, uint64_t most_bytes) -> Result<void> {
        const uint64_t length_bytes =
            TRY(check_transfer(true, write.offset_bytes, write.buffers, write.buffer_count));
        fits = fits && length_bytes != 0 && length_bytes <= most_bytes &&
               write.buffer_count <= piece_limits_.vector_count;
        return {};
    };
    for (const vfs::OrderedWrite& write : data) {
        TRY(look_at(write, piece_limits_.transfer_bytes));
    }
    // A server keeps what waits for a disk, and reads no more when that gets much: not even probes.
    const uint64_t most_waiting =
        needs_flush_ ? servers_[0]->memory->limits().eager_bytes : piece_limits_.transfer_bytes;
    TRY(look_at(record, std::min<uint64_t>(most_waiting, piece_limits_.transfer_bytes)));
    return fits;
}

// Leaves the last ranges taken, so few that an operation takes `spare_ranges` more. False: a flush failed.
bool RemoteBlockDevice::flush_all_but_last_round(size_t spare_ranges) {
    DeviceServer& server = *servers_[0];
    const size_t limit = server.memory->limits().flush_range_count;
    const size_t capacity = limit < kFlushRanges ? limit : kFlushRanges;
    while (take_dirty_ranges() &&
           (!server.dirty.is_at_end() || server.range_count + spare_ranges >= capacity)) {
        if (!flush_round()) {
            return false;
        }
    }
    return true;
}

// With the permit, and what is dirty taken.
void RemoteBlockDevice::finish_durable_batch(OrderedBatch& batch) {
    DeviceServer& server = *servers_[0];
    const size_t taken = server.range_count;
    const size_t flushed_ranges = taken + batch.data_ranges(server.ranges + taken);
    Operation& data_flush = server.flush_operation;
    data_flush.reset();
    data_flush.kind = OperationKind::flush;
    data_flush.ranges = server.ranges;
    data_flush.range_count = flushed_ranges;
    data_flush.after_earlier = batch.write_count() > 1;
    const ByteRange record_range = batch.record_range();
    Operation record_flush;
    record_flush.kind = OperationKind::flush;
    record_flush.ranges = &record_range;
    record_flush.range_count = 1;
    record_flush.after_earlier = true;
    batch.run(flushed_ranges == 0 ? nullptr : &data_flush, &record_flush);

    const bool was_flushed = flushed_ranges == 0 || data_flush.outcome == Outcome::executed;
    data_flush.after_earlier = false;
    if (taken != 0) {
        server.dirty.put(server.ranges, taken, was_flushed);
    }
    if (batch.all_executed()) {
        // Whoever else has written meanwhile has not flushed it, so that counting ours would be of no use.
        const uint64_t ours = server.change_mark + batch.write_count();
        const bool was_alone = server.memory->change_mark() == ours;
        server.memory->changes_flushed(was_alone ? ours : server.change_mark);
    } else {
        batch.mark_dirty();
    }
}

Result<void> RemoteBlockDevice::write_ordered(Span<const vfs::OrderedWrite> data,
                                              const vfs::OrderedWrite& record) {
    if (!TRY(fits_one_batch(data, record))) {
        return vfs::BlockDevice::write_ordered(data, record);
    }
    OrderedBatch batch(*this, data, record);
    if (!needs_flush_) {
        batch.run(nullptr, nullptr);
        return batch.result();
    }
    flush_permit_.wait();
    begin_flush();
    const bool is_begun = flush_all_but_last_round(data.size());
    if (is_begun) {
        finish_durable_batch(batch);
    }
    end_flush();
    flush_permit_.post();
    return is_begun ? batch.result() : Result<void>(Error::eio);
}

}  // namespace tiffin::rdma_blk
