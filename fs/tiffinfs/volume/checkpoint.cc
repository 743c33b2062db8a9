// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Checkpoints: a generation of the tree is sealed, written and made valid by its superblock.
//
// Writers stop only for the seal, which copies nothing but the changed bitmaps. What was sealed never
// changes again, so it is written while transactions of the next generation go on. Generation K-1's
// nodes and journal stay until K+1 exists (Allocator::release_node_frees, Journal::release_before):
// when superblock K is found damaged, K-1 is replayed through K.
#include "fs/base/text.h"
#include "fs/tiffinfs/volume/superblock.h"
#include "fs/tiffinfs/volume/volume.h"
#include "fs/vfs/host.h"
#include "fs/vfs/numbers.h"

namespace tiffin::tiffinfs {
namespace {

// Neighbouring nodes that go out in one write.
constexpr uint32_t kNodesPerWrite = 32;

// Merges two lists sorted by block.
Node* merge_lists(Node* a, Node* b) {
    Node* head = nullptr;
    Node** tail = &head;
    while (a != nullptr && b != nullptr) {
        Node*& smaller = a->block < b->block ? a : b;
        *tail = smaller;
        tail = &smaller->dirty_next;
        smaller = smaller->dirty_next;
    }
    *tail = a != nullptr ? a : b;
    return head;
}

// A bottom-up merge sort: needs no memory, and recursion no stack.
Node* sort_by_block(Node* list) {
    constexpr uint32_t kBins = 40;
    Node* bins[kBins] = {};
    while (list != nullptr) {
        Node* one = list;
        list = list->dirty_next;
        one->dirty_next = nullptr;
        uint32_t bin = 0;
        while (bin + 1 < kBins && bins[bin] != nullptr) {
            one = merge_lists(bins[bin], one);
            bins[bin++] = nullptr;
        }
        bins[bin] = bins[bin] == nullptr ? one : merge_lists(bins[bin], one);
    }
    Node* sorted = nullptr;
    for (Node* bin : bins) {
        sorted = merge_lists(bin, sorted);
    }
    return sorted;
}

}  // namespace

Result<void> Volume::flush_device() {
    return device_.geometry().volatile_cache ? device_.flush() : Result<void>();
}

Result<void> Volume::checkpoint() {
    MutexLock lock(checkpoint_lock_);
    TRY(check_writable());
    return checkpoint_locked(Ending::none);
}

Result<void> Volume::checkpoint_after(uint64_t seen) {
    MutexLock lock(checkpoint_lock_);
    TRY(check_writable());
    if (counters_.checkpoints.load(std::memory_order_relaxed) != seen) {
        return {};
    }
    return checkpoint_locked(Ending::none);
}

Result<void> Volume::seal(Seal& sealed, Ending ending) {
    // The gate closes: when it is ours, no transaction is open.
    ClosedGate gate(gate_);
    sealed.generation = tree_.generation();
    if (extend_at_seal_) {
        allocator_.extend();
        cache_.grow(total_blocks());
        extend_at_seal_ = false;
        is_extended_ = true;
    }
    TRY(allocator_.seal(sealed.generation));
    sealed.ticket = replaying_ ? 0 : journal_.seal(sealed.generation + 1);
    sealed.root = tree_.root();
    sealed.dirty = cache_.take_dirty();
    // Ids are given out in batches, of which the last one may reach further than ids can.
    const uint64_t next_node = next_node_.load(std::memory_order_relaxed);
    sealed.next_node = next_node > kMaximumNode ? kMaximumNode + 1 : next_node;
    sealed.node_count = node_count();
    tree_.advance_generation(sealed.generation + 1);
    if (ending == Ending::read_only) {
        read_only_.store(true, std::memory_order_relaxed);
    }
    return {};
}

Result<void> Volume::checkpoint_locked(Ending ending) {
    Seal sealed;
    TRY(check_still_owner());
    // What writing needs is there before the seal: afterwards a failure is final.
    sealed.page = host::allocate_pages(kBlockBytes);
    if (sealed.page == nullptr) {
        return Error::enomem;
    }
    Result<void> done = seal(sealed, ending);
    if (done.ok()) {
        done = write_generation(sealed, ending);
    }
    host::release_pages(sealed.page, kBlockBytes);
    return done;
}

Result<void> Volume::write_generation(Seal& sealed, Ending ending) {
    JournalPosition position = replay_position_;
    Result<void> done;
    if (!replaying_) {
        // A fall-back to the generation before replays through this one: its journal must be whole.
        done = journal_.commit(sealed.ticket);
        position = journal_.sealed_position();
    }
    if (done.ok()) {
        sealed.dirty = sort_by_block(sealed.dirty);
        done = write_sealed(sealed, position, ending != Ending::none);
    }
    if (!done.ok()) {
        cache_.give_back_dirty(sealed.dirty);
        // Also where the seal has made it read-only.
        stopped_by_error_.store(true, std::memory_order_relaxed);
        fail("a checkpoint could not be written");
        return done.error();
    }
    while (sealed.dirty != nullptr) {
        Node* node = sealed.dirty;
        sealed.dirty = node->dirty_next;
        cache_.clean(node);
    }
    counters_.checkpoints.fetch_add(1, std::memory_order_release);
    return {};
}

// The superblock that the mount started from, and the frames behind it, may be in the device's cache only, since a daemon
// was killed: what they make free is not. Its first copy tells where the volume ends, and may be lost. The other slot may
// hold one that is newer and was damaged, or what it names was: on a device that fails at times it can be whole after the
// next power failure, and its bitmaps are about to be overwritten.
Result<void> Volume::secure_start(void* page) {
    if (is_secured_) {
        return {};
    }
    TRY(flush_device());
    TIFFIN_ASSERT(superblock_.generation == durable_.generation);
    const uint64_t slot = durable_.generation % 2;
    if (found_generations_[slot] != durable_.generation) {
        TRY(write_superblock_copy(device_, superblock_, superblock_block(0, slot, 0), page));
        TRY(flush_device());
    }
    // Not zeros, as mkfs leaves them: it must still count as damaged.
    __builtin_memset(page, 0xff, kBlockBytes);
    const uint64_t other = 1 - slot;
    const uint64_t blocks[] = {superblock_block(0, other, 0),
                               superblock_block(durable_.total_blocks, other, 1),
                               superblock_block(newer_end_blocks_, other, 1)};
    bool is_erased = false;
    for (uint32_t i = 0; i < 3 && newer_end_blocks_ != 0; ++i) {
        const uint64_t found = found_generations_[other + (i == 0 ? 0 : 2)];
        const bool is_older = found != 0 && found < durable_.generation;
        if (!is_older) {
            TRY(device_.write(blocks[i] * kBlockBytes, static_cast<const void*>(page),
                              kBlockBytes));
            is_erased = true;
        }
    }
    if (is_erased) {
        TRY(flush_device());
    }
    is_secured_ = true;
    return {};
}

Result<void> Volume::write_sealed(const Seal& sealed, const JournalPosition& position, bool clean) {
    TRY(secure_start(sealed.page));
    TRY(write_nodes(sealed.dirty));
    TRY(allocator_.write_sealed());
    TRY(flush_device());
    JournalPosition previous{durable_.journal_position, durable_.journal_sequence,
                             durable_.journal_previous_checksum};
    Superblock next = durable_;
    next.generation = sealed.generation;
    next.total_blocks = total_blocks();
    next.incarnation = incarnation_;
    next.state = clean ? superblock_state::clean : 0;
    if (has_errors()) {
        next.state |= superblock_state::errors;
    }
    next.root_block = sealed.root.block;
    next.root_generation = sealed.root.generation;
    next.root_level = sealed.root.level;
    next.next_node = sealed.next_node;
    next.node_count = sealed.node_count;
    next.used_blocks = allocator_.sealed_used_blocks();
    next.initialized_groups = allocator_.sealed_initialized_groups();
    next.journal_position = position.offset_bytes;
    next.journal_sequence = position.sequence;
    next.journal_previous_checksum = position.previous_checksum;
    next.written_ns = host::realtime_ns();
    attempted_ = next;
    newest_generation_ = greater(newest_generation_, next.generation);
    note_incarnation(next.incarnation);
    TRY(write_superblock(device_, next, sealed.page, durable_.total_blocks));
    TRY(flush_device());
    durable_ = next;
    allocator_.release_node_frees(sealed.generation);
    if (!replaying_) {
        // The generation before the new one keeps its journal; older frames may be overwritten.
        journal_.release_before(previous);
    }
    return {};
}

Result<void> Volume::write_nodes(Node* list) NO_THREAD_SAFETY_ANALYSIS {
    // The lock of each node is held for its checksum only: readers may be copying the page.
    vfs::IoVector pieces[kNodesPerWrite];
    while (list != nullptr) {
        if (list->obsolete) {
            list = list->dirty_next;
            continue;
        }
        uint64_t first_block = list->block;
        uint32_t count = 0;
        while (list != nullptr && count < kNodesPerWrite && !list->obsolete &&
               list->block == first_block + count) {
            list->lock.lock(list->lock_level());
            seal_page(list->page);
            list->lock.unlock();
            pieces[count++] = {list->page, kBlockBytes};
            list = list->dirty_next;
        }
        TRY(device_.write(first_block * kBlockBytes, pieces, count));
    }
    return {};
}

// After an error there are no more checkpoints, but the next mount and fsck.tiffin shall know: the
// superblock that is there gets the mark, and so does one that could not be written whole: what it names had been.
void Volume::record_errors() {
    if (!stopped_by_error_.load(std::memory_order_relaxed) || is_shut_down() ||
        taken_away_.load(std::memory_order_relaxed)) {
        return;
    }
    MutexLock lock(checkpoint_lock_);
    if ((durable_.state & superblock_state::errors) != 0 || !check_still_owner().ok()) {
        return;
    }
    if (attempted_.generation > durable_.generation) {
        // One after the other: a power failure may take what is being written.
        attempted_.state |= superblock_state::errors;
        (void)write_superblock(device_, attempted_).ok();
        if (!flush_device().ok()) {
            return;
        }
    }
    Superblock marked = durable_;
    marked.state |= superblock_state::errors;
    if (write_superblock(device_, marked).ok() && flush_device().ok()) {
        durable_ = marked;
    }
}

// Another mount that took the volume away has raised the incarnation on the device.
Result<void> Volume::check_still_owner() {
    SuperblockSet* set = static_cast<SuperblockSet*>(host::allocate(sizeof(SuperblockSet)));
    if (set == nullptr) {
        return Error::enomem;
    }
    Result<void> read = read_superblocks(device_, *set);
    bool ours = read.ok();
    bool found = false;
    // One that was there from the beginning need not be the one that the mount started from.
    const uint64_t incarnation = greater(newest_incarnation_, durable_.incarnation);
    for (uint32_t i = 0; read.ok() && i < set->count; ++i) {
        found = found || (set->found[i].generation == durable_.generation &&
                          set->found[i].incarnation == durable_.incarnation);
        ours = ours && set->found[i].generation <= newest_generation_ &&
               set->found[i].incarnation <= incarnation;
    }
    host::release(set, sizeof(SuperblockSet));
    if (!read.ok()) {
        if (read.error() != Error::enomem) {
            fail("the superblock could not be read");
        }
        return read.error();
    }
    if (!ours) {
        log_line(host::LogLevel::error, "the volume has been mounted elsewhere: stopping here");
        // What lies there is not ours to write to any more, the journal included.
        taken_away_.store(true, std::memory_order_relaxed);
        journal_.kill();
        fail("the volume belongs to another mount now");
        return Error::eio;
    }
    if (!found) {
        log_line(host::LogLevel::warning, "the superblock of generation ", durable_.generation,
                 " is not on the device any more; a new one will be written");
    }
    return {};
}

}  // namespace tiffin::tiffinfs
