// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The allocator's part of a checkpoint: copies of the changed bitmaps, and writing them.
#include <atomic>

#include "fs/base/allocate.h"
#include "fs/tiffinfs/space/allocator.h"
#include "fs/tiffinfs/space/allocator_parts.h"
#include "fs/tiffinfs/space/block_group.h"

namespace tiffin::tiffinfs {
namespace {

// How many writes are under way at a time.
constexpr uint32_t kWritesAtOnce = 32;

// Writes that are under way together.
class WriteBatch {
  public:
    WriteBatch() = default;
    WriteBatch(const WriteBatch&) = delete;
    WriteBatch& operator=(const WriteBatch&) = delete;

    // Submits the request when there is room for it; returns false, without submitting it, when a
    // write has failed.
    bool submit(vfs::BlockDevice& device, vfs::IoRequest& request) {
        room_.wait();
        if (error_.load(std::memory_order_relaxed) != 0) {
            room_.post();
            return false;
        }
        request.owner = this;
        request.complete = complete;
        device.submit(request);
        return true;
    }

    // Waits for all, and for good; returns the first error.
    Result<void> finish() {
        for (uint32_t i = 0; i < kWritesAtOnce; ++i) {
            room_.wait();
        }
        const int error = error_.load(std::memory_order_relaxed);
        return error == 0 ? Result<void>() : static_cast<Error>(error);
    }

  private:
    static void complete(vfs::IoRequest& request, Result<void> result) {
        auto* batch = static_cast<WriteBatch*>(request.owner);
        if (!result.ok()) {
            int none = 0;
            batch->error_.compare_exchange_strong(none, errno_value(result.error()),
                                                  std::memory_order_relaxed);
        }
        batch->room_.post();
    }

    host::Semaphore room_{kWritesAtOnce};
    std::atomic<int> error_{0};
};

}  // namespace

// The copy of one group's bitmap on its way to the device.
struct Allocator::SealedBitmap {
    SealedBitmap* next = nullptr;
    BlockGroup* group = nullptr;  // nullptr: not in use
    uint64_t generation = 0;
    // Both slots the first time.
    uint32_t first_slot = 0;
    uint32_t slot_count = 1;
    vfs::IoVector buffer;
    vfs::IoRequest requests[2];
    BitmapBlock* block = nullptr;
};

// A list of `count` empty copies.
Result<Allocator::SealedBitmap*> Allocator::make_sealed(uint64_t count) {
    SealedBitmap* list = nullptr;
    for (uint64_t i = 0; i < count; ++i) {
        auto* sealed = make_object<SealedBitmap>();
        void* page = sealed == nullptr ? nullptr : host::allocate_pages(sizeof(BitmapBlock));
        if (page == nullptr) {
            destroy_object(sealed);
            drop_list(list);
            return Error::enomem;
        }
        sealed->block = new (page) BitmapBlock;
        sealed->next = list;
        list = sealed;
    }
    return list;
}

void Allocator::drop_list(SealedBitmap* list) {
    while (list != nullptr) {
        SealedBitmap* next = list->next;
        host::release_pages(list->block, sizeof(BitmapBlock));
        destroy_object(list);
        list = next;
    }
}

uint64_t Allocator::sealed_used_blocks() const {
    return sealed_used_blocks_.load(std::memory_order_relaxed);
}

uint64_t Allocator::sealed_initialized_groups() const {
    return sealed_groups_.load(std::memory_order_relaxed);
}

uint64_t Allocator::dirty_groups() const { return changed_groups_.load(std::memory_order_relaxed); }

bool Allocator::mapped_more_than(uint64_t part) const {
    const uint64_t used = sealed_used_blocks();
    const uint64_t free = used < total_blocks() ? total_blocks() - used : 0;
    return mapped_blocks_.load(std::memory_order_relaxed) > free / part;
}

Result<void> Allocator::seal(uint64_t generation) {
    TIFFIN_ASSERT(generation > durable_generation_.load(std::memory_order_relaxed));
    finish_sealed(false);
    // Groups may be opened meanwhile; they have greater numbers and belong to the next seal. All
    // that were open before this line are in the count.
    const uint64_t groups = open_groups_.load(std::memory_order_acquire);
    SealedBitmap* unused = TRY(make_sealed(changed_groups_.load(std::memory_order_acquire)));
    table_.for_each(GroupBit::changed, [&](BlockGroup& group) {
        if (group.index() >= groups) {
            return;
        }
        TIFFIN_ASSERT(unused != nullptr);
        SealedBitmap* sealed = unused;
        unused = sealed->next;
        copy_group(group, *sealed, generation);
        sealed->next = sealed_;
        sealed_ = sealed;
    });
    drop_list(unused);
    table_.for_each(GroupBit::data_deferred, [&](BlockGroup& group) {
        MutexLock lock(group.mutex);
        group.close_data_sets();
    });
    mapped_blocks_.store(0, std::memory_order_relaxed);
    sealed_groups_.store(groups, std::memory_order_relaxed);
    sealed_used_blocks_.store(used_blocks(), std::memory_order_relaxed);
    return {};
}

void Allocator::copy_group(BlockGroup& group, SealedBitmap& sealed, uint64_t generation) {
    // Checksums are left to write_sealed(): no thread waits for that.
    BitmapBlock& block = *sealed.block;
    start_bitmap_block(layout_, group.index(), generation, block);
    sealed.group = &group;
    sealed.generation = generation;

    MutexLock lock(group.mutex);
    group.copy_used(reinterpret_cast<uint64_t*>(block.bits));
    block.used_blocks = group.used_blocks();
    if (group.on_device) {
        // The slot that the durable superblock counts on is the newest of its time; the other one
        // is older, or was written for a superblock that never became durable.
        const uint64_t durable = durable_generation_.load(std::memory_order_relaxed);
        const uint64_t* slots = group.slot_generation;
        const bool slot0_needed =
            slots[0] <= durable && (slots[1] > durable || slots[0] >= slots[1]);
        sealed.first_slot = slot0_needed ? 1 : 0;
        sealed.slot_count = 1;
    } else {
        sealed.first_slot = 0;
        sealed.slot_count = 2;
    }
    group.changed_bit = false;
    table_.clear_bit(group.index(), GroupBit::changed);
    changed_groups_.fetch_sub(1, std::memory_order_relaxed);
}

Result<void> Allocator::write_sealed() {
    WriteBatch batch;
    bool going_on = true;
    for (SealedBitmap* sealed = sealed_; sealed != nullptr && going_on; sealed = sealed->next) {
        finish_bitmap_block(*sealed->block);
        sealed->buffer = vfs::IoVector{sealed->block, sizeof(BitmapBlock)};
        for (uint32_t i = 0; i < sealed->slot_count && going_on; ++i) {
            vfs::IoRequest& request = sealed->requests[i];
            request.operation = vfs::IoOperation::write;
            request.offset_bytes =
                bitmap_block(sealed->group->index(), sealed->first_slot + i) * kBlockBytes;
            request.buffers = &sealed->buffer;
            request.buffer_count = 1;
            going_on = batch.submit(device_, request);
        }
    }
    Result<void> result = batch.finish();
    finish_sealed(result.ok());
    return result;
}

// The copies have been written, or never will be.
void Allocator::finish_sealed(bool written) {
    for (SealedBitmap* sealed = sealed_; sealed != nullptr; sealed = sealed->next) {
        BlockGroup& group = *sealed->group;
        MutexLock lock(group.mutex);
        if (!written) {
            set_changed(group);
            continue;
        }
        group.on_device = true;
        for (uint32_t i = 0; i < sealed->slot_count; ++i) {
            group.slot_generation[sealed->first_slot + i] = sealed->generation;
        }
    }
    drop_list(sealed_);
    sealed_ = nullptr;
}

}  // namespace tiffin::tiffinfs
