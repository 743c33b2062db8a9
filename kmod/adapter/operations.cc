// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The table of operations (kmod/vfs/abi.h) on a vfs::FileSystem.
#include "fs/base/allocate.h"
#include "fs/vfs/control_format.h"
#include "kmod/adapter/mount.h"

namespace tiffin::kmod {
namespace {

// No file is longer: a hole of any size is one segment.
constexpr uint64_t kExtentsBytes = uint64_t{1} << 62;

const tiffin_services* services = nullptr;

tiffin_time from(const vfs::Timestamp& time) { return {time.seconds, time.nanoseconds}; }
vfs::Timestamp to(const tiffin_time& time) { return {time.seconds, time.nanoseconds}; }
vfs::Name name_of(const char* name, size_t bytes) { return {name, bytes}; }
vfs::Caller to(const tiffin_caller& caller) {
    return {caller.user_id, caller.group_id, caller.umask};
}

int hand_over(const Result<vfs::Attributes>& result, tiffin_attributes* out) {
    if (!result.ok()) {
        return negative(result.error());
    }
    const vfs::Attributes& in = result.value();
    *out = {in.node,
            in.generation,
            in.mode,
            in.link_count,
            in.user_id,
            in.group_id,
            in.device_major,
            in.device_minor,
            in.size_bytes,
            in.allocated_bytes,
            in.flags,
            from(in.access_time),
            from(in.modification_time),
            from(in.change_time),
            from(in.birth_time),
            in.traits,
            in.change_counter};
    return 0;
}

// ---- Mounting ------------------------------------------------------------------------------------

int mount(tiffin_device* device, const tiffin_mount_options* options, tiffin_file_system** out) {
    auto* fs = make_object<tiffin_file_system>(*services, device);
    if (fs == nullptr) {
        return negative(Error::enomem);
    }
    Result<vfs::FileSystem*> core =
        kFileSystemType.mount(kFileSystemType.needs_device ? &fs->device : nullptr, *options);
    if (!core.ok()) {
        destroy_object(fs);
        return negative(core.error());
    }
    fs->core = core.value();
    *out = fs;
    return 0;
}

int unmount(tiffin_file_system* fs) {
    const int status = status_of(fs->core->unmount());
    kFileSystemType.destroy(fs->core);
    destroy_object(fs);
    return status;
}

int statistics(tiffin_file_system* fs, tiffin_statistics* out) {
    const Result<vfs::FileSystemStatistics> result = fs->core->statistics();
    if (!result.ok()) {
        return negative(result.error());
    }
    const vfs::FileSystemStatistics& in = result.value();
    *out = {in.total_blocks, in.free_blocks,    in.available_blocks, in.total_nodes,
            in.free_nodes,   in.file_system_id, in.block_bytes,      in.name_max_bytes};
    return 0;
}

int sync(tiffin_file_system* fs, bool wait) { return status_of(fs->core->sync(wait)); }
int remount(tiffin_file_system* fs, bool read_only) {
    return status_of(fs->core->remount(read_only));
}
int freeze(tiffin_file_system* fs) { return status_of(fs->core->freeze()); }
int thaw(tiffin_file_system* fs) { return status_of(fs->core->thaw()); }
uint64_t reclaimable_bytes(tiffin_file_system* fs) { return fs->core->reclaimable_bytes(); }
uint64_t shrink(tiffin_file_system* fs, uint64_t wanted_bytes) {
    return fs->core->shrink(wanted_bytes);
}
int shutdown(tiffin_file_system* fs, uint32_t mode) {
    return status_of(fs->core->shutdown(static_cast<vfs::ShutdownMode>(mode)));
}

// ---- Nodes and attributes ------------------------------------------------------------------------

int lookup(tiffin_file_system* fs, uint64_t parent, const char* name, size_t bytes,
           tiffin_attributes* found) {
    return hand_over(fs->core->lookup(parent, name_of(name, bytes)), found);
}
void forget(tiffin_file_system* fs, uint64_t node, uint64_t count) {
    fs->core->forget(node, count);
}
int find_node(tiffin_file_system* fs, uint64_t node, uint64_t generation,
              tiffin_attributes* found) {
    return hand_over(fs->core->find_node(node, generation), found);
}
int get_attributes(tiffin_file_system* fs, uint64_t node, tiffin_attributes* attributes) {
    return hand_over(fs->core->get_attributes(node), attributes);
}

int set_attributes(tiffin_file_system* fs, const tiffin_caller* caller, uint64_t node,
                   const tiffin_change* change, tiffin_attributes* after) {
    using Change = vfs::AttributeChange;
    static_assert(
        TIFFIN_CHANGE_MODE == Change::mode_bit && TIFFIN_CHANGE_USER_ID == Change::user_id_bit &&
        TIFFIN_CHANGE_GROUP_ID == Change::group_id_bit && TIFFIN_CHANGE_SIZE == Change::size_bit &&
        TIFFIN_CHANGE_ACCESS_TIME == Change::access_time_bit &&
        TIFFIN_CHANGE_MODIFICATION_TIME == Change::modification_time_bit &&
        TIFFIN_CHANGE_CHANGE_TIME == Change::change_time_bit);
    Change wanted;
    wanted.valid = change->valid;
    wanted.mode = change->mode;
    wanted.user_id = change->user_id;
    wanted.group_id = change->group_id;
    wanted.size_bytes = change->size_bytes;
    wanted.access_time = to(change->access_time);
    wanted.modification_time = to(change->modification_time);
    wanted.change_time = to(change->change_time);
    return hand_over(fs->core->set_attributes(to(*caller), node, wanted), after);
}

int set_flags(tiffin_file_system* fs, uint64_t node, uint32_t flags) {
    return status_of(fs->core->set_flags({}, node, flags));
}

// ---- Names ---------------------------------------------------------------------------------------

// Extended attributes that a node is made with, as the core takes them.
class InitialXattrs {
  public:
    InitialXattrs(const tiffin_xattr* xattrs, size_t count) : count_(count) {
        TIFFIN_ASSERT(count <= vfs::kInitialXattrsMaximum);
        for (size_t i = 0; i < count; ++i) {
            xattrs_[i].name = name_of(xattrs[i].name, xattrs[i].name_bytes);
            xattrs_[i].value = {static_cast<const unsigned char*>(xattrs[i].value),
                                xattrs[i].value_bytes};
        }
    }
    Span<const vfs::InitialXattr> span() const { return {xattrs_, count_}; }

  private:
    vfs::InitialXattr xattrs_[vfs::kInitialXattrsMaximum];
    size_t count_;
};

int create(tiffin_file_system* fs, const tiffin_caller* caller, uint64_t parent, const char* name,
           size_t bytes, uint32_t mode, uint32_t major, uint32_t minor, const tiffin_xattr* xattrs,
           size_t xattr_count, tiffin_attributes* created) {
    const InitialXattrs initial(xattrs, xattr_count);
    return hand_over(fs->core->create(to(*caller), parent, name_of(name, bytes), mode, major, minor,
                                      initial.span()),
                     created);
}
int make_directory(tiffin_file_system* fs, const tiffin_caller* caller, uint64_t parent,
                   const char* name, size_t bytes, uint32_t mode, const tiffin_xattr* xattrs,
                   size_t xattr_count, tiffin_attributes* created) {
    const InitialXattrs initial(xattrs, xattr_count);
    return hand_over(
        fs->core->make_directory(to(*caller), parent, name_of(name, bytes), mode, initial.span()),
        created);
}
int make_symlink(tiffin_file_system* fs, const tiffin_caller* caller, uint64_t parent,
                 const char* name, size_t bytes, const char* target, size_t target_bytes,
                 const tiffin_xattr* xattrs, size_t xattr_count, tiffin_attributes* created) {
    const InitialXattrs initial(xattrs, xattr_count);
    return hand_over(fs->core->make_symlink(to(*caller), parent, name_of(name, bytes),
                                            name_of(target, target_bytes), initial.span()),
                     created);
}
int make_temporary(tiffin_file_system* fs, const tiffin_caller* caller, uint64_t parent,
                   uint32_t mode, const tiffin_xattr* xattrs, size_t xattr_count,
                   tiffin_attributes* created) {
    const InitialXattrs initial(xattrs, xattr_count);
    return hand_over(fs->core->make_temporary(to(*caller), parent, mode, initial.span()), created);
}
int link(tiffin_file_system* fs, uint64_t node, uint64_t parent, const char* name, size_t bytes,
         tiffin_attributes* linked) {
    return hand_over(fs->core->link({}, node, parent, name_of(name, bytes)), linked);
}
long read_link(tiffin_file_system* fs, uint64_t node, char* buffer, size_t bytes) {
    return number_of(fs->core->read_link(node, {reinterpret_cast<unsigned char*>(buffer), bytes}));
}
int unlink(tiffin_file_system* fs, uint64_t parent, const char* name, size_t bytes) {
    return status_of(fs->core->unlink({}, parent, name_of(name, bytes)));
}
int remove_directory(tiffin_file_system* fs, uint64_t parent, const char* name, size_t bytes) {
    return status_of(fs->core->remove_directory({}, parent, name_of(name, bytes)));
}
int rename(tiffin_file_system* fs, const tiffin_caller* caller, uint64_t parent, const char* name,
           size_t bytes, uint64_t new_parent, const char* new_name, size_t new_bytes,
           uint32_t flags) {
    return status_of(fs->core->rename(to(*caller), parent, name_of(name, bytes), new_parent,
                                      name_of(new_name, new_bytes), flags));
}

class EntrySink final : public vfs::DirectorySink {
  public:
    EntrySink(tiffin_add_entry function, void* sink) : add_(function), sink_(sink) {}
    bool add(const vfs::DirectoryEntry& entry) override {
        return add_(sink_, entry.name.data, entry.name.size_bytes, entry.node, entry.type_mode,
                    entry.next_cookie);
    }

  private:
    tiffin_add_entry add_;
    void* sink_;
};

int read_directory(tiffin_file_system* fs, uint64_t node, uint64_t cookie, tiffin_add_entry add,
                   void* sink) {
    EntrySink entries(add, sink);
    return status_of(fs->core->read_directory(node, 0, cookie, false, entries));
}

// ---- Files ---------------------------------------------------------------------------------------

int promise(tiffin_file_system* fs, uint64_t block_count) {
    return status_of(fs->core->promise(block_count));
}
void return_promise(tiffin_file_system* fs, uint64_t block_count) {
    fs->core->return_promise(block_count);
}
int reserve(tiffin_file_system* fs, uint64_t node, uint64_t offset_bytes, uint64_t length_bytes) {
    return status_of(fs->core->reserve(node, offset_bytes, length_bytes));
}
int fsync(tiffin_file_system* fs, uint64_t node, bool data_only) {
    return status_of(fs->core->fsync(node, data_only));
}
int allocate(tiffin_file_system* fs, uint64_t node, uint32_t mode, uint64_t offset_bytes,
             uint64_t length_bytes) {
    return status_of(fs->core->allocate(node, mode, offset_bytes, length_bytes));
}
int64_t seek(tiffin_file_system* fs, uint64_t node, uint64_t offset_bytes, uint32_t target) {
    return number_of(
        fs->core->seek(node, offset_bytes,
                       target == TIFFIN_SEEK_DATA ? vfs::SeekTarget::data : vfs::SeekTarget::hole));
}

uint32_t kind_of(vfs::SegmentKind kind) {
    switch (kind) {
        case vfs::SegmentKind::unwritten:
            return TIFFIN_EXTENT_UNWRITTEN;
        case vfs::SegmentKind::memory:
            return TIFFIN_EXTENT_INLINE;
        default:
            return TIFFIN_EXTENT_DEVICE;
    }
}
bool add_extents(const vfs::ReadMapping& mapping, tiffin_add_extent add, void* sink) {
    for (uint32_t i = 0; i < mapping.segment_count; ++i) {
        const vfs::ReadSegment& segment = mapping.segments[i];
        const tiffin_extent extent = {segment.file_offset_bytes, segment.length_bytes,
                                      segment.device_offset_bytes, kind_of(segment.kind)};
        if (segment.kind != vfs::SegmentKind::zeros && !add(sink, &extent)) {
            return false;
        }
    }
    return true;
}
int list_extents(tiffin_file_system* fs, uint64_t node, uint64_t offset_bytes,
                 tiffin_add_extent add, void* sink) {
    auto* mapping = make_object<vfs::ReadMapping>();
    if (mapping == nullptr) {
        return negative(Error::enomem);
    }
    mapping->includes_behind_end = true;
    int result = 0;
    while (true) {
        result = status_of(fs->core->map_read(node, offset_bytes, kExtentsBytes, *mapping));
        if (result != 0) {
            break;
        }
        // Before `add`, which may wait for what waits for mappings.
        fs->core->release_read(*mapping);
        offset_bytes = mapping->offset_bytes + mapping->length_bytes;
        if (mapping->length_bytes == 0 || !add_extents(*mapping, add, sink)) {
            break;
        }
    }
    destroy_object(mapping);
    return result;
}

// ---- Extended attributes -------------------------------------------------------------------------

long get_xattr(tiffin_file_system* fs, uint64_t node, const char* name, size_t bytes, void* buffer,
               size_t buffer_bytes) {
    return number_of(fs->core->get_xattr(node, name_of(name, bytes),
                                         {static_cast<unsigned char*>(buffer), buffer_bytes}));
}
long list_xattr(tiffin_file_system* fs, uint64_t node, void* buffer, size_t buffer_bytes) {
    return number_of(
        fs->core->list_xattr(node, {static_cast<unsigned char*>(buffer), buffer_bytes}));
}
int set_xattr(tiffin_file_system* fs, uint64_t node, const char* name, size_t bytes,
              const void* value, size_t value_bytes, uint32_t flags) {
    static_assert(TIFFIN_XATTR_KILL_SET_GROUP_ID == vfs::xattr_flag::kill_set_group_id);
    return status_of(fs->core->set_xattr({}, node, name_of(name, bytes),
                                         {static_cast<const unsigned char*>(value), value_bytes},
                                         flags));
}
int remove_xattr(tiffin_file_system* fs, uint64_t node, const char* name, size_t bytes) {
    return status_of(fs->core->remove_xattr({}, node, name_of(name, bytes)));
}

int64_t trim(tiffin_file_system* fs, uint64_t offset_bytes, uint64_t length_bytes,
             uint64_t minimum_bytes) {
    return number_of(fs->core->trim(offset_bytes, length_bytes, minimum_bytes));
}

// ---- Maintenance ---------------------------------------------------------------------------------

int scrub(tiffin_file_system* fs, tiffin_scrub_command* command) {
    vfs::ScrubProgress progress;
    static_assert(sizeof(progress.cursor) == sizeof(command->cursor));
    __builtin_memcpy(progress.cursor, command->cursor, sizeof(progress.cursor));
    progress.checked_bytes = command->checked_bytes;
    progress.total_bytes = command->total_bytes;
    progress.errors_found = command->errors_found;
    const int status = status_of(fs->core->scrub(progress));
    __builtin_memcpy(command->cursor, progress.cursor, sizeof(progress.cursor));
    command->checked_bytes = progress.checked_bytes;
    command->total_bytes = progress.total_bytes;
    command->errors_found = progress.errors_found;
    command->finished = progress.finished ? 1 : 0;
    return status;
}

int grow(tiffin_file_system* fs, tiffin_grow_command* command) {
    const Result<vfs::Growth> growth = fs->core->grow();
    if (!growth.ok()) {
        return negative(growth.error());
    }
    *command = {growth.value().from_bytes, growth.value().to_bytes};
    return 0;
}

class TextSink final : public vfs::ByteSink {
  public:
    TextSink(tiffin_add_text add, void* sink) : add_(add), sink_(sink) {}
    bool append(const void* data, size_t size_bytes) override {
        return add_(sink_, data, size_bytes);
    }

  private:
    tiffin_add_text add_;
    void* sink_;
};

int describe(tiffin_file_system* fs, tiffin_add_text add, void* sink) {
    TextSink text(add, sink);
    return status_of(fs->core->describe(text));
}

static_assert(TIFFIN_TRAIT_ACCESS_ACL == vfs::attribute_trait::access_acl &&
              TIFFIN_TRAIT_DEFAULT_ACL == vfs::attribute_trait::default_acl &&
              TIFFIN_TRAIT_INLINE_CONTENT == vfs::attribute_trait::inline_content);
static_assert(TIFFIN_INITIAL_XATTRS == vfs::kInitialXattrsMaximum);
static_assert(TIFFIN_WRITE_BACK == vfs::write_flag::write_back &&
              TIFFIN_WRITE_PROMISED == vfs::write_flag::promised &&
              TIFFIN_WRITE_KEEP_TIMES == vfs::write_flag::keep_times &&
              TIFFIN_WRITE_UNSTABLE_BUFFERS == vfs::write_flag::unstable_buffers);

tiffin_operations operations = {
    .version = TIFFIN_ABI_VERSION,
    .size = sizeof(tiffin_operations),
    .needs_device = false,
    .writer_bytes = 0,
    .inline_bytes = 0,
    .maximum_file_bytes = 0,
    .has_blocks = false,
    .mount = mount,
    .unmount = unmount,
    .statistics = statistics,
    .sync = sync,
    .remount = remount,
    .freeze = freeze,
    .thaw = thaw,
    .reclaimable_bytes = reclaimable_bytes,
    .shrink = shrink,
    .shutdown = shutdown,
    .lookup = lookup,
    .forget = forget,
    .find_node = find_node,
    .get_attributes = get_attributes,
    .set_attributes = set_attributes,
    .set_flags = set_flags,
    .create = create,
    .make_directory = make_directory,
    .make_symlink = make_symlink,
    .make_temporary = make_temporary,
    .link = link,
    .read_link = read_link,
    .unlink = unlink,
    .remove_directory = remove_directory,
    .rename = rename,
    .read_directory = read_directory,
    .read = read_data,
    .read_begin = read_begin,
    .read_advance = read_advance,
    .read_result = read_result,
    .write = write_data,
    .writer_make = writer_make,
    .write_begin = write_begin,
    .write_advance = write_advance,
    .write_result = write_result,
    .promise = promise,
    .return_promise = return_promise,
    .reserve = reserve,
    .fsync = fsync,
    .allocate = allocate,
    .seek = seek,
    .list_extents = list_extents,
    .get_xattr = get_xattr,
    .list_xattr = list_xattr,
    .set_xattr = set_xattr,
    .remove_xattr = remove_xattr,
    .scrub = scrub,
    .grow = grow,
    .describe = describe,
    .trim = trim,
};

}  // namespace
}  // namespace tiffin::kmod

const tiffin_operations* tiffin_module_operations(const tiffin_services* services) {
    using namespace tiffin::kmod;
    ::tiffin::kmod::services = services;
    operations.needs_device = kFileSystemType.needs_device;
    operations.has_blocks = kFileSystemType.needs_device;
    operations.inline_bytes = kFileSystemType.inline_bytes;
    operations.maximum_file_bytes = kFileSystemType.maximum_file_bytes;
    operations.writer_bytes = writer_bytes();
    return &operations;
}
