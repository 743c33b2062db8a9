// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Writing the blocks of one piece to the device: the caller's buffers as they are, and copies of the
// blocks at the edges that keep a part of their old content.
#include "fs/tiffinfs/data/file_data.h"
#include "fs/tiffinfs/data/write_piece.h"

namespace tiffin::tiffinfs {
namespace {

// Goes through the blocks of a piece in order.
class BlockWriter {
  public:
    BlockWriter(Volume& volume, uint64_t node, const WritePiece& piece, BufferCursor cursor,
                DataScratch& scratch)
        : volume_(volume), node_(node), piece_(piece), cursor_(cursor), scratch_(scratch) {
        cursor_.limit(static_cast<size_t>(piece.length_bytes));
    }

    Result<void> write_run(const WriteRun& run) {
        VectorList list(scratch_.vectors, DataScratch::kMaximumVectors);
        BufferCursor start = cursor_;
        uint64_t block = next_block();
        uint64_t end = block + run.block_count;
        bool room = true;
        while (block < end && room) {
            if (is_partial(block)) {
                room = TRY(add_edge(block, list));
                ++block;
            } else {
                uint64_t whole_end = block_at(piece_.end_bytes());
                whole_end = whole_end < end ? whole_end : end;
                room = cursor_.slice(static_cast<size_t>((whole_end - block) * kBlockBytes), list);
                block = whole_end;
            }
        }
        uint64_t device_offset = run.physical_block * kBlockBytes;
        if (!room) {
            return write_copied(run, start, end);
        }
        TRY(volume_.device().write(device_offset, list.data(), list.size()));
        take_checksums(run, list.span());
        return {};
    }

  private:
    // The block that the next byte belongs to; at the end of the piece, the one behind or the last one.
    uint64_t next_block() const { return block_at(position()); }
    uint64_t position() const { return piece_.end_bytes() - cursor_.remaining(); }

    bool is_partial(uint64_t block) const {
        uint64_t first = block * kBlockBytes;
        return piece_.position_bytes > first || piece_.end_bytes() < first + kBlockBytes;
    }

    // What block `block`, the first or last one, holds where the piece does not reach. Bytes behind the
    // end of the file need no look: they are zeros.
    Result<void> fill_old(uint64_t block, unsigned char* page) {
        uint64_t first = block * kBlockBytes;
        uint64_t end = first + kBlockBytes;
        bool before = piece_.position_bytes > first && first < piece_.old_size_bytes;
        bool behind = piece_.end_bytes() < end && piece_.end_bytes() < piece_.old_size_bytes;
        const WritePlan& plan = scratch_.plan;
        const OldBlock& old = block == plan.first_block ? plan.first_old : plan.last_old;
        if (piece_.was_inline && block == 0) {
            __builtin_memcpy(page, scratch_.inline_bytes, piece_.inline_stored_bytes);
            __builtin_memset(page + piece_.inline_stored_bytes, 0,
                             kBlockBytes - piece_.inline_stored_bytes);
        } else if (old.written && (before || behind)) {
            TRY(read_block(volume_, node_, block, old, page));
        } else {
            __builtin_memset(page, 0, kBlockBytes);
        }
        return {};
    }

    Result<unsigned char*> make_edge(uint64_t block) {
        unsigned char* page = scratch_.edge(block == scratch_.plan.first_block ? 0 : 1);
        TRY(fill_old(block, page));
        uint64_t first = block * kBlockBytes;
        uint64_t begin = position();
        uint64_t end =
            first + kBlockBytes < piece_.end_bytes() ? first + kBlockBytes : piece_.end_bytes();
        cursor_.copy_to(page + (begin - first), static_cast<size_t>(end - begin));
        return page;
    }

    Result<bool> add_edge(uint64_t block, VectorList& list) {
        return list.add(TRY(make_edge(block)), kBlockBytes);
    }

    // For buffers so small that their list has no room: through memory of its own.
    Result<void> write_copied(const WriteRun& run, BufferCursor start, uint64_t end) {
        cursor_ = start;
        size_t size_bytes = size_t{run.block_count} * kBlockBytes;
        auto* memory = static_cast<unsigned char*>(host::allocate_pages(size_bytes));
        if (memory == nullptr) {
            return Error::enomem;
        }
        Result<void> result = copy_run(memory, end);
        vfs::IoVector whole{memory, size_bytes};
        if (result.ok()) {
            result = volume_.device().write(run.physical_block * kBlockBytes, &whole, 1);
        }
        if (result.ok()) {
            take_checksums(run, Span<const vfs::IoVector>(&whole, 1));
        }
        host::release_pages(memory, size_bytes);
        return result;
    }

    Result<void> copy_run(unsigned char* memory, uint64_t end) {
        for (uint64_t block = next_block(); block < end; ++block) {
            if (is_partial(block)) {
                __builtin_memcpy(memory, TRY(make_edge(block)), kBlockBytes);
            } else {
                cursor_.copy_to(memory, kBlockBytes);
            }
            memory += kBlockBytes;
        }
        return {};
    }

    // Over what the device holds, where that is memory: nobody can change it any more. Elsewhere over
    // the buffers, which the host keeps as they are.
    void take_checksums(const WriteRun& run, Span<const vfs::IoVector> written) {
        const void* address = volume_.device().direct_address(
            run.physical_block * kBlockBytes, uint64_t{run.block_count} * kBlockBytes);
        BufferCursor buffers(written);
        for (uint32_t i = 0; i < run.block_count; ++i) {
            scratch_.checksums[checksum_count_++] =
                address != nullptr ? data_checksum(static_cast<const unsigned char*>(address) +
                                                   size_t{i} * kBlockBytes)
                                   : buffers.checksum(kBlockBytes);
        }
    }

    Volume& volume_;
    uint64_t node_;
    const WritePiece& piece_;
    BufferCursor cursor_;
    DataScratch& scratch_;
    uint32_t checksum_count_ = 0;
};

}  // namespace

Result<void> write_planned_blocks(Volume& volume, uint64_t node, const WritePiece& piece,
                                  BufferCursor cursor, DataScratch& scratch) {
    BlockWriter writer(volume, node, piece, cursor, scratch);
    for (uint32_t i = 0; i < scratch.plan.run_count; ++i) {
        TRY(writer.write_run(scratch.plan.runs[i]));
    }
    volume.journal().data_written();
    return {};
}

}  // namespace tiffin::tiffinfs
