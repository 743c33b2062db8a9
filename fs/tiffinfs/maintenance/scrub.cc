// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The steps of a scrub, and its first phase: superblocks and bitmaps.
#include "fs/tiffinfs/maintenance/scrub.h"

#include "fs/base/allocate.h"
#include "fs/base/text.h"
#include "fs/tiffinfs/space/bitmap_block.h"
#include "fs/tiffinfs/volume/volume.h"

namespace tiffin::tiffinfs {
namespace {

// Groups whose bitmaps one step checks.
constexpr uint64_t kStepGroups = 64;

}  // namespace

Scrub::~Scrub() {
    destroy_object(superblocks_);
    destroy_object(found_);
    destroy_object(second_look_);
    host::release_pages(buffer_, size_t{kBufferBlocks} * kBlockBytes);
}

Result<void> Scrub::step() {
    TRY(volume_.check_running());
    superblocks_ = make_object<SuperblockSet>();
    found_ = make_object<KeyAndValue>();
    second_look_ = make_object<KeyAndValue>();
    buffer_ =
        static_cast<unsigned char*>(host::allocate_pages(size_t{kBufferBlocks} * kBlockBytes));
    if (superblocks_ == nullptr || found_ == nullptr || second_look_ == nullptr ||
        buffer_ == nullptr) {
        return Error::enomem;
    }
    progress_.finished = false;
    switch (phase()) {
        case Phase::fixed_blocks:
            TRY(check_fixed_blocks());
            break;
        case Phase::tree:
            TRY(check_tree());
            break;
        case Phase::data:
            TRY(check_data());
            break;
        default:
            progress_.cursor[0] = static_cast<uint64_t>(Phase::finished);
    }
    progress_.finished = phase() == Phase::finished;
    // An estimate: superblocks, second slots and what is written meanwhile come on top.
    uint64_t used_bytes = volume_.allocator().used_blocks() * kBlockBytes;
    progress_.total_bytes = progress_.finished || used_bytes < progress_.checked_bytes
                                ? progress_.checked_bytes
                                : used_bytes;
    return {};
}

void Scrub::enter_phase(Phase phase) {
    progress_.cursor[0] = static_cast<uint64_t>(phase);
    progress_.cursor[1] = 0;
    progress_.cursor[2] = 0;
    progress_.cursor[3] = 0;
}

// Reads the superblocks again as long as a checkpoint is just writing them.
Result<void> Scrub::load_superblocks() {
    for (uint32_t look = 0; look < kMaximumLooks; ++look) {
        Result<void> read = read_superblocks(volume_.device(), *superblocks_);
        if (!read.ok() && read.error() == Error::enomem) {
            return read;
        }
        if (read.ok() && superblocks_->damaged == 0) {
            return {};
        }
    }
    return {};
}

// Nothing that the superblocks in memory lead to can have been replaced while this holds.
bool Scrub::superblock_is_newest() {
    if (superblocks_->count == 0) {
        return true;
    }
    uint64_t generation = superblocks_->found[0].generation;
    Result<void> loaded = load_superblocks();
    return !loaded.ok() || superblocks_->count == 0 ||
           superblocks_->found[0].generation == generation;
}

Result<void> Scrub::check_fixed_blocks() {
    TRY(load_superblocks());
    uint64_t group = progress_.cursor[1];
    if (group == 0) {
        count_bytes(4 * uint64_t{kBlockBytes});
        for (uint32_t i = 0; i < superblocks_->damaged; ++i) {
            log_line(host::LogLevel::error, "scrub: a copy of the superblock is damaged");
            count_error();
        }
    }
    uint64_t end = superblocks_->count == 0 ? 0 : superblocks_->found[0].initialized_groups;
    for (uint64_t i = 0; i < kStepGroups && group < end; ++i, ++group) {
        if (!check_bitmap(group)) {
            log_line(host::LogLevel::error, "scrub: the bitmap of group ", group, " is damaged");
            count_error();
        }
        count_bytes(2 * uint64_t{kBlockBytes});
    }
    if (group >= end) {
        enter_phase(Phase::tree);
    } else {
        progress_.cursor[1] = group;
    }
    return {};
}

bool Scrub::check_bitmap(uint64_t group) {
    static_assert(kBufferBlocks >= 2);
    auto& blocks = *reinterpret_cast<BitmapBlock(*)[2]>(buffer_);
    for (uint32_t look = 0; look < kMaximumLooks; ++look) {
        Result<Layout> layout = Layout::from(superblocks_->found[0]);
        if (!layout.ok()) {
            return false;
        }
        BitmapSlots slots;
        if (read_bitmap_slots(volume_.device(), layout.value(), group,
                              superblocks_->found[0].generation, blocks, slots)
                .ok()) {
            return true;
        }
        if (superblock_is_newest() || superblocks_->count == 0) {
            return false;
        }
    }
    return true;
}

}  // namespace tiffin::tiffinfs
