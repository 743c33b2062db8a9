// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Finding nodes: by name, by identity, and all of a directory.
#include "fs/tiffinfs/names/directory.h"
#include "fs/tiffinfs/objects/file_system.h"
#include "fs/tiffinfs/objects/operations.h"

namespace tiffin::tiffinfs {
namespace {

// Entries are copied out of the tree in batches of this size, and with attributes in batches of this
// many: each of them then gets a reference, which is in vain when the sink takes fewer.
constexpr size_t kBatchBytes = 8192;
constexpr uint32_t kBatchEntriesWithAttributes = 32;

// What `name` in `directory` is: its node, and its type where an entry tells (else 0).
struct Target {
    uint64_t node = 0;
    uint32_t type_mode = 0;
};

Result<Target> find_target(Volume& volume, const Object& directory, vfs::Name name)
    REQUIRES_SHARED(directory.state) {
    if (is_dot(name)) {
        return Target{directory.node, 0};
    }
    // A removed directory has no entries, and its parent may be gone too.
    if (directory.inode.link_count == 0) {
        return Error::enoent;
    }
    if (is_dot_dot(name)) {
        const bool is_root = directory.node == vfs::kRootNode;
        return Target{is_root ? directory.node : directory.inode.parent, vfs::mode::directory};
    }
    EntryPlace place = TRY(find_entry(volume, directory.node, name, false));
    if (!place.found) {
        return Error::enoent;
    }
    return Target{place.node, place.type_mode};
}

// One call of read_directory().
class DirectoryReading {
  public:
    DirectoryReading(TiffinFileSystem& file_system, Object& directory, bool with_attributes,
                     vfs::DirectorySink& sink)
        : file_system_(file_system),
          directory_(directory),
          with_attributes_(with_attributes),
          sink_(sink) {}
    ~DirectoryReading() { host::release(memory_, kBatchBytes); }
    DirectoryReading(const DirectoryReading&) = delete;
    DirectoryReading& operator=(const DirectoryReading&) = delete;

    Result<void> run(uint64_t cookie);

  private:
    Result<bool> add_dots(uint64_t& cookie);
    Result<void> fill(EntryBatch& batch, uint64_t offset);
    Result<void> add_references(const EntryBatch& batch);
    void drop_references(const EntryBatch& batch, size_t position, uint32_t count);
    Result<bool> hand_on(const EntryBatch& batch, uint64_t& offset);
    bool add(vfs::DirectoryEntry& entry);

    TiffinFileSystem& file_system_;
    Object& directory_;
    const bool with_attributes_;
    vfs::DirectorySink& sink_;
    bool taken_ = false;  // the sink has taken an entry
    unsigned char* memory_ = nullptr;
};

bool DirectoryReading::add(vfs::DirectoryEntry& entry) {
    if (!sink_.add(entry)) {
        return false;
    }
    taken_ = true;
    return true;
}

// Hands on "." and "..", as far as `cookie` lies before them. False: the sink is full.
Result<bool> DirectoryReading::add_dots(uint64_t& cookie) {
    vfs::Attributes attributes;
    vfs::DirectoryEntry entry;
    entry.type_mode = vfs::mode::directory;
    ObjectPin parent;
    {
        BiasedSharedLock lock(directory_.state, directory_.node);
        attributes = attributes_of(directory_);
        if (cookie < kCookieAfterDotDot && directory_.inode.link_count > 0) {
            Target target = TRY(find_target(file_system_.volume(), directory_, ".."));
            parent = TRY(file_system_.objects().get(target.node));
        }
    }
    if (cookie < kCookieAfterDot) {
        entry.name = ".";
        entry.node = directory_.node;
        entry.next_cookie = kCookieAfterDot;
        entry.attributes = with_attributes_ ? &attributes : nullptr;
        if (!add(entry)) {
            return false;
        }
        cookie = kCookieAfterDot;
    }
    if (cookie < kCookieAfterDotDot && parent) {
        BiasedSharedLock lock(parent->state, parent->node);
        attributes = attributes_of(*parent);
    }
    if (cookie < kCookieAfterDotDot && parent) {
        entry.name = "..";
        entry.node = parent->node;
        entry.next_cookie = kCookieAfterDotDot;
        if (!add(entry)) {
            return false;
        }
        cookie = kCookieAfterDotDot;
    }
    return true;
}

Result<void> DirectoryReading::fill(EntryBatch& batch, uint64_t offset) {
    BiasedSharedLock lock(directory_.state, directory_.node);
    TRY(check_directory(directory_));
    TRY(batch.fill(file_system_.volume(), directory_.node, offset));
    // As long as the directory is locked, no entry's node can lose its last link; afterwards the
    // references keep it.
    return with_attributes_ ? add_references(batch) : Result<void>();
}

Result<void> DirectoryReading::add_references(const EntryBatch& batch) {
    size_t position = 0;
    for (uint32_t i = 0; i < batch.count(); ++i) {
        Result<void> added = file_system_.objects().add_reference(batch.next(position).node);
        if (!added.ok()) {
            drop_references(batch, 0, i);
            return added;
        }
    }
    return {};
}

void DirectoryReading::drop_references(const EntryBatch& batch, size_t position, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
        file_system_.forget(batch.next(position).node, 1);
    }
}

// Hands a batch to the sink, without any lock: it may have to wait for the host's memory. False: the
// sink is full.
Result<bool> DirectoryReading::hand_on(const EntryBatch& batch, uint64_t& offset) {
    vfs::Attributes attributes;
    size_t position = 0;
    for (uint32_t i = 0; i < batch.count(); ++i) {
        const size_t here = position;
        const EntryView view = batch.next(position);
        vfs::DirectoryEntry entry;
        entry.name = view.name;
        entry.node = view.node;
        entry.type_mode = view.type_mode;
        entry.next_cookie = cookie_after(view.offset);
        if (with_attributes_) {
            Result<ObjectPin> pin = file_system_.objects().get(view.node);
            if (!pin.ok()) {
                drop_references(batch, here, batch.count() - i);
                return pin.error() == Error::estale
                           ? file_system_.volume().report_damage("an entry leads to no inode",
                                                                 directory_.node, view.node)
                           : pin.error();
            }
            Result<vfs::Attributes> read =
                referenced_attributes(file_system_, **pin, view.type_mode);
            if (!read.ok()) {
                drop_references(batch, position, batch.count() - i - 1);
                return read.error();
            }
            attributes = read.value();
            entry.attributes = &attributes;
        }
        if (!add(entry)) {
            if (with_attributes_) {
                drop_references(batch, here, batch.count() - i);
            }
            return false;
        }
        offset = view.offset + 1;
    }
    return true;
}

Result<void> DirectoryReading::run(uint64_t cookie) {
    if (!TRY(add_dots(cookie))) {
        return {};
    }
    memory_ = static_cast<unsigned char*>(host::allocate(kBatchBytes));
    if (memory_ == nullptr) {
        return taken_ ? Result<void>() : Error::enomem;
    }
    EntryBatch batch(memory_, kBatchBytes, with_attributes_ ? kBatchEntriesWithAttributes : ~0U);
    do {
        Result<void> filled = fill(batch, cookie);
        Result<bool> going_on = filled.ok() ? hand_on(batch, cookie) : Result<bool>(filled.error());
        if (!going_on.ok()) {
            // What was taken counts; the error comes when the reading goes on from here.
            return taken_ ? Result<void>() : going_on.error();
        }
        if (!going_on.value()) {
            return {};
        }
    } while (!batch.at_end());
    return {};
}

}  // namespace

Result<vfs::Attributes> TiffinFileSystem::lookup(vfs::NodeId parent, vfs::Name name) {
    TRY(volume_->check_running());
    ObjectPin parent_pin = TRY(objects_.get(parent));
    ObjectPin pin;
    Target target;
    {
        Object& directory = *parent_pin;
        BiasedSharedLock lock(directory.state, directory.node);
        TRY(check_directory(directory));
        if (is_too_long(name)) {
            return Error::enametoolong;
        }
        target = TRY(find_target(*volume_, directory, name));
        pin = TRY(get_referenced(*this, directory.node, target.node));
    }
    return referenced_attributes(*this, *pin, target.type_mode);
}

void TiffinFileSystem::forget(vfs::NodeId node, uint64_t count) {
    if (objects_.drop_references(node, count) && objects_.waiting_for_reclaim() > 0) {
        wake_reclaim();
    }
}

Result<void> TiffinFileSystem::list_references(vfs::NodeSink& sink) {
    return objects_.list_references(sink);
}

Result<vfs::Attributes> TiffinFileSystem::find_node(vfs::NodeId node, uint64_t generation) {
    TRY(volume_->check_running());
    ObjectPin pin = TRY(objects_.get(node));
    Object& object = *pin;
    BiasedSharedLock lock(object.state, object.node);
    TRY(check_alive(object));
    // Without links and references it waits to be deleted; the thread that deletes it has to see that under
    // the exclusive lock.
    if ((generation != 0 && generation != object.inode.generation) ||
        (object.inode.link_count == 0 && !objects_.has_references(node))) {
        return Error::estale;
    }
    TRY(objects_.add_reference(node));
    return attributes_of(object);
}

Result<void> TiffinFileSystem::read_directory(vfs::NodeId node, vfs::Handle /*handle*/,
                                              uint64_t cookie, bool with_attributes,
                                              vfs::DirectorySink& sink) {
    TRY(volume_->check_running());
    ObjectPin pin = TRY(objects_.get(node));
    {
        BiasedSharedLock lock(pin->state, pin->node);
        TRY(check_directory(*pin));
        if (pin->inode.link_count == 0) {
            return {};  // removed, and open still: it has no entries, not even "."
        }
    }
    DirectoryReading reading(*this, *pin, with_attributes, sink);
    TRY(reading.run(cookie));
    touch_access_time(*this, *pin);
    return {};
}

}  // namespace tiffin::tiffinfs
