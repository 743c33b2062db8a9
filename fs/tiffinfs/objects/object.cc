// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The cache of objects and the references of hosts.
#include "fs/tiffinfs/objects/object.h"

#include <utility>

#include "fs/base/allocate.h"
#include "fs/base/race_point.h"
#include "fs/tiffinfs/volume/volume.h"

namespace tiffin::tiffinfs {
namespace {

// How many objects an insertion looks at for one to evict.
constexpr uint32_t kEvictionSteps = 8;

constexpr uint64_t kNodesTogether = 16;

constexpr uint64_t mix(uint64_t node) { return (node ^ (node >> 31)) * 0x9e3779b97f4a7c15U; }

}  // namespace

ObjectPin& ObjectPin::operator=(ObjectPin&& other) noexcept {
    if (this != &other) {
        reset();
        table_ = other.table_;
        object_ = other.object_;
        at_hand_ = other.at_hand_;
        other.object_ = nullptr;
        other.at_hand_ = nullptr;
    }
    return *this;
}

void ObjectPin::reset() {
    if (at_hand_ != nullptr) {
        at_hand_->in_use.store(false, std::memory_order_release);
        at_hand_ = nullptr;
    } else if (object_ != nullptr) {
        table_->unpin(object_);
    }
    object_ = nullptr;
}

ObjectTable::ObjectTable(Volume& volume, uint32_t maximum_objects)
    : volume_(volume), maximum_per_shard_(maximum_objects / kShards + 1) {}

ObjectTable::~ObjectTable() {
    if (tables_ == nullptr) {
        return;
    }
    while (next_for_reclaim()) {
        // Gives the queue's pins back.
    }
    recall_all_pins();
    for (Shard& shard : tables_->shards) {
        MutexLock lock(shard.lock);
        while (shard.clock_hand != nullptr) {
            Object* const object = shard.clock_hand;
            // The table's own pin on an orphan is no user's.
            TIFFIN_ASSERT(object->pins.load(std::memory_order_acquire) ==
                          (object->orphan ? 1U : 0U));
            unlink(shard, object);
            destroy(object);
        }
        if (shard.buckets != nullptr) {
            release_array(shard.buckets, size_t{1} << bucket_bits_);
        }
    }
    destroy_object(tables_);
}

Result<void> ObjectTable::start() {
    while ((uint32_t{1} << bucket_bits_) < maximum_per_shard_ && bucket_bits_ < 20) {
        ++bucket_bits_;
    }
    tables_ = make_object<Tables>();
    if (tables_ == nullptr) {
        return Error::enomem;
    }
    for (Shard& shard : tables_->shards) {
        MutexLock lock(shard.lock);
        shard.buckets = allocate_array<Object*>(size_t{1} << bucket_bits_);
        if (shard.buckets == nullptr) {
            return Error::enomem;
        }
    }
    return {};
}

// Neighbours share a shard: they are files of one directory, in most cases, and with it used by one thread.
ObjectTable::Shard& ObjectTable::shard_of(uint64_t node) {
    return tables_->shards[mix(node / kNodesTogether) >> 58];
}
static_assert(uint64_t{1} << (64 - 58) == 64);

// The link that points to the object of `node`, or to the end of its chain.
Object** ObjectTable::find(Shard& shard, uint64_t node) {
    const uint64_t bucket = (mix(node) >> 32) & ((uint64_t{1} << bucket_bits_) - 1);
    Object** link = &shard.buckets[bucket];
    while (*link != nullptr && (*link)->node != node) {
        link = &(*link)->hash_next;
    }
    return link;
}

void ObjectTable::link(Shard& shard, Object* object) {
    evict(shard);
    Object** const end = find(shard, object->node);
    TIFFIN_ASSERT(*end == nullptr);
    *end = object;
    if (shard.clock_hand == nullptr) {
        object->clock_next = object;
        object->clock_previous = object;
        shard.clock_hand = object;
    } else {
        // Behind the hand: the last place it comes to.
        object->clock_next = shard.clock_hand;
        object->clock_previous = shard.clock_hand->clock_previous;
        object->clock_previous->clock_next = object;
        shard.clock_hand->clock_previous = object;
    }
    ++shard.count;
}

void ObjectTable::unlink(Shard& shard, Object* object) {
    Object** const link = find(shard, object->node);
    TIFFIN_ASSERT(*link == object);
    *link = object->hash_next;
    if (object->clock_next == object) {
        shard.clock_hand = nullptr;
    } else {
        object->clock_next->clock_previous = object->clock_previous;
        object->clock_previous->clock_next = object->clock_next;
        if (shard.clock_hand == object) {
            shard.clock_hand = object->clock_next;
        }
    }
    --shard.count;
}

Object* ObjectTable::make(uint64_t node) {
    auto* const object = make_object<Object>();
    if (object != nullptr) {
        object->node = node;
        object->count = &tables_->count_locks[mix(node) % kCountLocks].mutex;
        object->pins.store(1, std::memory_order_relaxed);
    }
    return object;
}

void ObjectTable::destroy(Object* object) { destroy_object(object); }

// Second chance: an object that was used since the hand passed is spared once. A pin is taken only
// under the shard's lock or by a thread that has one, so that an object without pins has no users.
bool ObjectTable::evict_next(Shard& shard) {
    Object* const object = shard.clock_hand;
    shard.clock_hand = object->clock_next;
    if (object->pins.load(std::memory_order_acquire) != 0) {
        recall_pins(object);
        return false;
    }
    if (object->referenced.exchange(false, std::memory_order_relaxed)) {
        return false;
    }
    unlink(shard, object);
    destroy(object);
    return true;
}

void ObjectTable::evict(Shard& shard) {
    for (uint32_t step = 0;
         step < kEvictionSteps && shard.count >= maximum_per_shard_ && shard.clock_hand != nullptr;
         ++step) {
        (void)evict_next(shard);
    }
}

uint64_t ObjectTable::shrink(uint64_t wanted) {
    uint64_t dropped = 0;
    for (Shard& shard : tables_->shards) {
        if (dropped >= wanted) {
            break;
        }
        if (!shard.lock.try_lock()) {
            continue;
        }
        // Twice around the ring: the first time spares what was used.
        for (uint32_t left = 2 * shard.count;
             left > 0 && shard.clock_hand != nullptr && dropped < wanted; --left) {
            dropped += evict_next(shard) ? 1 : 0;
        }
        shard.lock.unlock();
    }
    return dropped;
}

// ---- Pins at hand ---------------------------------------------------------------------------------
// Each is a counted pin, held by the processor's place for it instead of by an ObjectPin. The thread that sets `in_use`
// owns the place until it resets it: to use the object, to put another object there, or to take it away.

PinAtHand& ObjectTable::pin_at_hand(uint32_t processor, uint64_t node) {
    return tables_->pins_at_hand[processor].pins[(mix(node) >> 24) % kPinsAtHand];
}

Result<ObjectPin> ObjectTable::get(uint64_t node) {
    PinAtHand& place = my_pin_at_hand(node);
    if (node != 0 && place.node.load(std::memory_order_relaxed) == node &&
        !place.in_use.exchange(true, std::memory_order_acquire)) {
        race_point();
        if (place.object != nullptr && place.object->node == node) [[likely]] {
            return ObjectPin(place);
        }
        place.in_use.store(false, std::memory_order_release);
    }
    ObjectPin pin = TRY(get_counted(node));
    return keep_at_hand(place, std::move(pin));
}

Result<ObjectPin> ObjectTable::get_referenced(uint64_t node) {
    PinAtHand& place = my_pin_at_hand(node);
    if (node != vfs::kRootNode && place.node.load(std::memory_order_relaxed) != node) {
        ObjectPin pin;
        Shard& shard = shard_of(node);
        {
            MutexLock lock(shard.lock);
            Object* const object = *find(shard, node);
            if (object != nullptr && !object->loading) {
                TRY(shard.references.add(node));
                pin = TRY(wait_until_loaded(shard, object));  // which is no wait then
            }
        }
        if (pin) {
            return keep_at_hand(place, std::move(pin));
        }
    }
    TRY(add_reference(node));
    Result<ObjectPin> pin = get(node);
    if (!pin.ok()) {
        // Not the last one of an object that waits to be deleted: that would have been in memory.
        (void)drop_references(node, 1);
    }
    return pin;
}

ObjectPin ObjectTable::keep_at_hand(PinAtHand& place, ObjectPin pin) {
    const uint64_t node = pin.object_->node;
    if (place.last_missed.load(std::memory_order_relaxed) != node) {
        place.last_missed.store(node, std::memory_order_relaxed);
        return pin;
    }
    if (place.in_use.exchange(true, std::memory_order_acquire)) {
        return pin;
    }
    race_point();
    if (place.object != nullptr) {
        unpin(place.object);
    }
    place.object = pin.object_;
    place.node.store(node, std::memory_order_relaxed);
    pin.object_ = nullptr;
    return ObjectPin(place);
}

void ObjectTable::recall_pins(Object* object) {
    for (uint32_t processor = 0; processor < kProcessors; ++processor) {
        PinAtHand& place = pin_at_hand(processor, object->node);
        if (place.node.load(std::memory_order_relaxed) != object->node ||
            place.in_use.exchange(true, std::memory_order_acquire)) {
            continue;
        }
        race_point();
        if (place.object == object) {
            place.object = nullptr;
            place.node.store(0, std::memory_order_relaxed);
            // Until the hand comes by again.
            object->referenced.store(true, std::memory_order_relaxed);
            unpin(object);
        }
        place.in_use.store(false, std::memory_order_release);
    }
}

// No thread uses the table any more.
void ObjectTable::recall_all_pins() {
    for (PinsAtHand& processor : tables_->pins_at_hand) {
        for (PinAtHand& place : processor.pins) {
            TIFFIN_ASSERT(!place.in_use.load(std::memory_order_acquire));
            if (place.object != nullptr) {
                unpin(place.object);
                place.object = nullptr;
            }
        }
    }
}

Result<ObjectPin> ObjectTable::get_counted(uint64_t node) {
    if (node == kVolumeNode) {
        return Error::estale;
    }
    Shard& shard = shard_of(node);
    {
        MutexLock lock(shard.lock);
        while (Object* const object = *find(shard, node)) {
            Result<ObjectPin> pin = wait_until_loaded(shard, object);
            if (pin.ok()) {
                return pin;
            }
            // What failed for the other thread need not fail now: it may have looked before the object was made.
        }
    }
    // It is entered before it is read: a second reader could otherwise enter what a change in
    // between has made old.
    Object* const fresh = make(node);
    if (fresh == nullptr) {
        return Error::enomem;
    }
    fresh->loading = true;
    {
        MutexLock lock(shard.lock);
        while (Object* const object = *find(shard, node)) {
            Result<ObjectPin> pin = wait_until_loaded(shard, object);
            if (pin.ok()) {
                destroy(fresh);
                return pin;
            }
        }
        link(shard, fresh);
    }
    const Result<void> loaded = load(*fresh);
    MutexLock lock(shard.lock);
    fresh->loading = false;
    shard.loaded.notify_all();
    if (loaded.ok()) {
        return ObjectPin(*this, fresh);
    }
    unlink(shard, fresh);
    fresh->load_failed = true;
    fresh->load_error = loaded.error();
    if (fresh->pins.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        destroy(fresh);
    }
    return loaded.error();
}

// Pins `object`, once the thread that reads it has finished. When that failed, the last one to leave frees
// the object.
Result<ObjectPin> ObjectTable::wait_until_loaded(Shard& shard, Object* object) {
    object->pins.fetch_add(1, std::memory_order_relaxed);
    while (object->loading) {
        shard.loaded.wait(shard.lock);
    }
    if (object->load_failed) [[unlikely]] {
        const Error error = object->load_error;
        if (object->pins.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            destroy(object);
        }
        return error;
    }
    if (!object->referenced.load(std::memory_order_relaxed)) {
        object->referenced.store(true, std::memory_order_relaxed);
    }
    return ObjectPin(*this, object);
}

// Without the state lock: as long as `loading` is set no other thread looks at the object.
Result<void> ObjectTable::load(Object& object) NO_THREAD_SAFETY_ANALYSIS {
    const Result<void> read =
        volume_.tree().get_value(make_key(object.node, Kind::inode, 0), object.inode);
    if (!read.ok() && read.error() == Error::enoent) {
        return Error::estale;
    }
    // A value that is too long or too short is no inode either.
    if (read.ok() ? !check_inode(object.node, object.inode)
                  : read.error() == Error::erange || read.error() == Error::euclean) {
        return volume_.report_damage("an inode is malformed", object.node, object.inode.mode);
    }
    return read;
}

Result<ObjectPin> ObjectTable::create(uint64_t node) {
    Object* const object = make(node);
    if (object == nullptr) {
        return Error::enomem;
    }
    Shard& shard = shard_of(node);
    Result<void> entered = Error::ebusy;
    {
        MutexLock lock(shard.lock);
        if (node != kVolumeNode && *find(shard, node) == nullptr) {
            entered = shard.references.add(node);
        }
        if (entered.ok()) {
            link(shard, object);
        }
    }
    if (!entered.ok()) {
        destroy(object);
        return entered.error();
    }
    return ObjectPin(*this, object);
}

void ObjectTable::discard(ObjectPin& pin) {
    Object* const object = pin.get();
    Shard& shard = shard_of(object->node);
    MutexLock lock(shard.lock);
    (void)shard.references.drop(object->node, 1);
    object->referenced.store(false, std::memory_order_relaxed);
    pin.reset();
    // A caller that guessed the id may have it pinned and sees an inode without a type; then the eviction
    // takes it later.
    if (object->pins.load(std::memory_order_acquire) == 0) {
        unlink(shard, object);
        destroy(object);
    }
}

Result<void> ObjectTable::add_reference(uint64_t node) {
    if (node == vfs::kRootNode) {
        return {};
    }
    Shard& shard = shard_of(node);
    MutexLock lock(shard.lock);
    return shard.references.add(node);
}

bool ObjectTable::drop_references(uint64_t node, uint64_t count) {
    Shard& shard = shard_of(node);
    MutexLock lock(shard.lock);
    if (!shard.references.drop(node, count)) {
        return false;
    }
    Object* const object = *find(shard, node);
    if (object != nullptr && object->orphan) {
        enqueue(shard, object);
    }
    return true;
}

bool ObjectTable::has_references(uint64_t node) {
    Shard& shard = shard_of(node);
    MutexLock lock(shard.lock);
    return shard.references.count(node) > 0;
}

void ObjectTable::drop_all_references() {
    for (Shard& shard : tables_->shards) {
        MutexLock lock(shard.lock);
        shard.references.clear();
        Object* object = shard.clock_hand;
        for (uint32_t i = 0; i < shard.count; ++i, object = object->clock_next) {
            if (object->orphan) {
                enqueue(shard, object);
            }
        }
    }
}

uint64_t ObjectTable::object_count() {
    uint64_t objects = 0;
    for (Shard& shard : tables_->shards) {
        MutexLock lock(shard.lock);
        objects += shard.count;
    }
    return objects;
}

ObjectTable::Orphans ObjectTable::orphans() {
    Orphans all;
    for (Shard& shard : tables_->shards) {
        MutexLock lock(shard.lock);
        all.so_far += shard.orphans.so_far;
        all.now += shard.orphans.now;
    }
    return all;
}

uint64_t ObjectTable::referenced_nodes() {
    uint64_t nodes = 0;
    for (Shard& shard : tables_->shards) {
        MutexLock lock(shard.lock);
        nodes += shard.references.size();
    }
    return nodes;
}

Result<void> ObjectTable::list_references(vfs::NodeSink& sink) {
    for (Shard& shard : tables_->shards) {
        TRY(list_references(shard, sink));
    }
    return {};
}

// The sink is called without the lock, and memory allocated, too: so the nodes may have become more meanwhile.
Result<void> ObjectTable::list_references(Shard& shard, vfs::NodeSink& sink) {
    uint32_t room = 0;
    while (true) {
        uint64_t* const nodes = room == 0 ? nullptr : allocate_array<uint64_t>(room);
        if (room != 0 && nodes == nullptr) {
            return Error::enomem;
        }
        uint32_t count = 0;
        {
            MutexLock lock(shard.lock);
            count = shard.references.size();
            if (count <= room) {
                shard.references.copy_nodes(nodes);
            }
        }
        const bool is_complete = count <= room;
        if (is_complete && count != 0) {
            sink.add({nodes, count});
        }
        release_array(nodes, room);
        if (is_complete) {
            return {};
        }
        room = count + count / 8;
    }
}

void ObjectTable::queue_for_reclaim(Object& object) {
    Shard& shard = shard_of(object.node);
    MutexLock lock(shard.lock);
    if (!object.orphan) {
        object.orphan = true;
        shard.orphans.so_far++;
        shard.orphans.now++;
        object.pins.fetch_add(1, std::memory_order_relaxed);
    }
    if (shard.references.count(object.node) == 0) {
        enqueue(shard, &object);
    }
}

void ObjectTable::cancel_reclaim(Object& object) {
    Shard& shard = shard_of(object.node);
    MutexLock lock(shard.lock);
    object.referenced.store(false, std::memory_order_relaxed);
    // In the queue it stays pinned until it is taken out.
    if (object.orphan) {
        object.orphan = false;
        shard.orphans.now--;
        unpin(&object);
    }
}

// An orphan without references goes to the queue, which has a pin of its own.
void ObjectTable::enqueue(Shard& shard, Object* object) {
    MutexLock lock(queue_lock_);
    if (object->queued_for_reclaim) {
        return;
    }
    if (queued_count_.load(std::memory_order_relaxed) >= kMaximumQueued) {
        object->orphan = false;
        shard.orphans.now--;
        unpin(object);
        queue_overflow_.store(true, std::memory_order_relaxed);
        return;
    }
    object->queued_for_reclaim = true;
    object->pins.fetch_add(1, std::memory_order_relaxed);
    object->reclaim_next = nullptr;
    (queue_tail_ == nullptr ? queue_head_ : queue_tail_->reclaim_next) = object;
    queue_tail_ = object;
    queued_count_.fetch_add(1, std::memory_order_seq_cst);
}

ObjectPin ObjectTable::next_for_reclaim() {
    MutexLock lock(queue_lock_);
    Object* const object = queue_head_;
    if (object == nullptr) {
        return ObjectPin();
    }
    queue_head_ = object->reclaim_next;
    if (queue_head_ == nullptr) {
        queue_tail_ = nullptr;
    }
    object->reclaim_next = nullptr;
    object->queued_for_reclaim = false;
    queued_count_.fetch_sub(1, std::memory_order_seq_cst);
    return ObjectPin(*this, object);  // the queue's pin
}

}  // namespace tiffin::tiffinfs
