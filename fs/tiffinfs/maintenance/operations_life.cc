// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The life of a mount: from start to unmount, and what it says of itself.
#include "fs/base/text.h"
#include "fs/tiffinfs/objects/file_system.h"
#include "fs/tiffinfs/objects/operations.h"

namespace tiffin::tiffinfs {
namespace {

// Superblock copies, bitmaps and journal: what no file can ever use.
uint64_t fixed_blocks(const Superblock& superblock, uint64_t total_blocks) {
    constexpr uint64_t kSuperblockCopies = 4;
    constexpr uint64_t kBitmapsPerGroup = 2;
    return kSuperblockCopies + kBitmapsPerGroup * group_count(total_blocks) +
           superblock.journal_block_count;
}

// Lines of "key: value".
class Description {
  public:
    explicit Description(vfs::ByteSink& sink) : sink_(sink) {}

    template <typename... Pieces>
    void line(const char* key, Pieces... pieces) {
        TextBuffer<160> text;
        text.append(key);
        text.append(": ");
        (text.append(pieces), ...);
        text.append('\n');
        full_ = full_ || !sink_.append(text.c_str(), text.size_bytes());
    }

  private:
    vfs::ByteSink& sink_;
    bool full_ = false;
};

// In `text`, of kLabelBytes. A label may have a line feed; the description has lines.
vfs::Name printable_label(const Superblock& superblock, char* text) {
    size_t size = 0;
    for (; size < kLabelBytes && superblock.label[size] != '\0'; ++size) {
        const auto letter = static_cast<unsigned char>(superblock.label[size]);
        text[size] = letter < ' ' || letter == 0x7f ? '?' : superblock.label[size];
    }
    return vfs::Name(text, size);
}

// As usual: 8-4-4-4-12 hexadecimal digits. `text` has 37 bytes.
void format_uuid(const uint8_t uuid[16], char* text) {
    constexpr char kDigits[] = "0123456789abcdef";
    for (uint32_t i = 0; i < 16; ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            *text++ = '-';
        }
        *text++ = kDigits[uuid[i] >> 4];
        *text++ = kDigits[uuid[i] & 15];
    }
    *text = '\0';
}

const char* access_time_text(AccessTimePolicy policy) {
    switch (policy) {
        case AccessTimePolicy::strictatime:
            return "strictatime";
        case AccessTimePolicy::noatime:
            return "noatime";
        case AccessTimePolicy::relatime:
            break;
    }
    return "relatime";
}

}  // namespace

TiffinFileSystem::TiffinFileSystem(Volume* volume, const MountOptions& options)
    : volume_(volume), options_(options), objects_(*volume, options.maximum_objects) {}

TiffinFileSystem::~TiffinFileSystem() {
    stop_reclaim();
    Volume::destroy(volume_);
}

Result<void> TiffinFileSystem::start() {
    TRY(objects_.start());
    Result<ObjectPin> root = objects_.get(vfs::kRootNode);
    if (!root.ok()) {
        return root.error() == Error::estale
                   ? volume_->report_damage("there is no root directory", vfs::kRootNode, 0)
                   : root.error();
    }
    volume_->set_reclaimer(this);
    {
        // What an earlier mount has left to do is done in the background.
        MutexLock lock(reclaim_lock_);
        reclaim_pending_ = !volume_->read_only();
    }
    return reclaim_thread_.start("tiffin-reclaim", &TiffinFileSystem::reclaim_main, this);
}

Result<void> TiffinFileSystem::unmount() {
    stop_reclaim();
    // Nothing is open any more: what has no links goes now, so that the device is left without any
    // unfinished work.
    objects_.drop_all_references();
    (void)reclaim_pass(true);  // what could not be done now, the next mount does
    return volume_->close();
}

Result<vfs::FileSystemStatistics> TiffinFileSystem::statistics() {
    TRY(volume_->check_running());
    // As inodes take the space of files, there are as many to come as fit the free blocks, at a
    // rough average of inode, name and some content.
    constexpr uint64_t kNodesPerBlock = 8;
    const Allocator& allocator = volume_->allocator();
    const Superblock& superblock = volume_->superblock();
    const uint64_t total = allocator.total_blocks();
    const uint64_t fixed = fixed_blocks(superblock, total);
    const uint64_t used =
        allocator.used_blocks() + allocator.damaged_blocks() + allocator.promised_blocks();
    vfs::FileSystemStatistics statistics;
    statistics.total_blocks = total > fixed ? total - fixed : 0;
    statistics.free_blocks = total > used ? total - used : 0;
    if (statistics.free_blocks > statistics.total_blocks) {
        statistics.free_blocks = statistics.total_blocks;
    }
    const uint64_t reserve = allocator.kept_blocks(SpacePriority::normal);
    statistics.available_blocks =
        statistics.free_blocks > reserve ? statistics.free_blocks - reserve : 0;
    statistics.free_nodes = statistics.available_blocks * kNodesPerBlock;
    statistics.total_nodes = volume_->node_count() + statistics.free_nodes;
    __builtin_memcpy(&statistics.file_system_id, superblock.uuid,
                     sizeof(statistics.file_system_id));
    return statistics;
}

// The journal has no way to start a commit and leave, so it is waited for in both cases.
Result<void> TiffinFileSystem::sync(bool /*wait*/) { return volume_->sync(); }

Result<void> TiffinFileSystem::remount(bool read_only) {
    TRY(volume_->remount(read_only));
    if (!read_only) {
        look_for_leftovers();
    }
    return {};
}

void TiffinFileSystem::look_for_leftovers() {
    MutexLock lock(reclaim_lock_);
    leftovers_done_.store(false, std::memory_order_relaxed);
    reclaim_pending_ = true;
    reclaim_wake_.notify_all();
}

// The device is then as after an unmount: what a remount leaves.
Result<void> TiffinFileSystem::freeze() {
    if (frozen_ != Frozen::no) {
        return Error::ebusy;
    }
    const bool was_read_only = volume_->read_only();
    errors_before_freeze_ = volume_->errors_seen();
    TRY(volume_->remount(true));
    frozen_ = was_read_only ? Frozen::was_read_only : Frozen::yes;
    return {};
}

Result<void> TiffinFileSystem::thaw() {
    if (frozen_ == Frozen::no) {
        return Error::einval;
    }
    Result<void> thawed;
    if (frozen_ == Frozen::yes) {
        thawed = volume_->thaw(errors_before_freeze_);
        if (!thawed.ok() && thawed.error() == Error::enomem) {
            return thawed;
        }
        if (thawed.ok()) {
            look_for_leftovers();
        }
    }
    frozen_ = Frozen::no;
    return thawed;
}

// Without objects, as they are counted under locks.
uint64_t TiffinFileSystem::reclaimable_bytes() { return volume_->cache().reclaimable_bytes(); }

// Objects first: they are small, and come back with what is found on the way to them.
uint64_t TiffinFileSystem::shrink(uint64_t wanted_bytes) {
    const uint64_t wanted_objects = wanted_bytes / sizeof(Object) / 2;
    const uint64_t given_bytes = objects_.shrink(wanted_objects) * sizeof(Object);
    return given_bytes >= wanted_bytes
               ? given_bytes
               : given_bytes + volume_->cache().shrink(wanted_bytes - given_bytes);
}

Result<void> TiffinFileSystem::shutdown(vfs::ShutdownMode mode) {
    TRY(volume_->check_running());
    Result<void> synced;
    switch (mode) {
        case vfs::ShutdownMode::flush_all:
        case vfs::ShutdownMode::flush_journal:
            // All data is in place before the journal names it, so both are the same.
            synced = volume_->sync();
            break;
        case vfs::ShutdownMode::discard:
            break;
        default:
            return Error::einval;
    }
    volume_->shut_down();
    return synced;
}

Result<void> TiffinFileSystem::describe(vfs::ByteSink& sink) {
    const Superblock& superblock = volume_->superblock();
    const Allocator& allocator = volume_->allocator();
    const NodeCache& cache = volume_->cache();
    const NodeCache::Counters looks = cache.counters();
    const Journal::Counters journal = volume_->journal().counters();
    char uuid[37];
    format_uuid(superblock.uuid, uuid);
    char label[kLabelBytes];

    Description description(sink);
    description.line("type", "tiffinfs");
    description.line("version", superblock.version);
    description.line("label", printable_label(superblock, label));
    description.line("uuid", static_cast<const char*>(uuid));
    description.line("state", volume_->is_shut_down()  ? "shut down"
                              : frozen_ == Frozen::yes ? "frozen"
                              : volume_->read_only()   ? "read-only"
                                                       : "read-write");
    description.line("access times", access_time_text(options_.access_time));
    description.line("synchronous", options_.synchronous);
    description.line("generation", volume_->tree().generation());
    description.line("incarnation", superblock.incarnation);
    description.line("mounts before", superblock.mount_count);
    description.line("block bytes", kBlockBytes);
    description.line("total blocks", allocator.total_blocks());
    description.line("used blocks", allocator.used_blocks());
    description.line("free blocks", allocator.free_blocks());
    description.line("blocks to be free after commit and checkpoint", allocator.deferred_blocks());
    description.line("promised blocks", allocator.promised_blocks());
    description.line("reserved blocks", allocator.reserve_blocks());
    description.line("blocks reserved for write-back", allocator.write_back_reserve_blocks());
    description.line("damaged blocks", allocator.damaged_blocks());
    description.line("nodes", volume_->node_count());
    description.line("tree height", volume_->tree().root().level + 1U);
    description.line("cache budget bytes", cache.budget_bytes());
    description.line("cache resident bytes", cache.resident_bytes());
    description.line("cache dirty bytes", cache.dirty_bytes());
    description.line("cache hits", looks.hits);
    description.line("cache misses", looks.misses);
    description.line("cache evictions", looks.evictions);
    description.line("journal capacity bytes", volume_->journal().capacity_bytes());
    description.line("journal pending bytes", volume_->journal().pending_bytes());
    description.line("journal frames", journal.frames);
    description.line("journal bytes", journal.bytes);
    description.line("journal flushes", journal.flushes);
    description.line("transactions", static_cast<uint64_t>(volume_->counters().transactions.sum()));
    description.line("checkpoints",
                     volume_->counters().checkpoints.load(std::memory_order_relaxed));
    description.line("objects in memory", objects_.object_count());
    description.line("nodes referenced", objects_.referenced_nodes());
    description.line("nodes waiting for deletion", objects_.waiting_for_reclaim());
    return {};
}

}  // namespace tiffin::tiffinfs
