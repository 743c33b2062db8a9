// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Open files: reading, writing, and what else is done to their data.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "fs/vfs/content_writer.h"
#include "fuse/session/open_files.h"
#include "fuse/session/operations.h"
#include "fuse/session/privilege_change.h"
#include "fuse/session/read_reply.h"
#include "fuse/session/request.h"
#include "fuse/session/session.h"
#include "fuse/session/thread_object.h"

namespace tiffin::fuse {

namespace {

// With -o strict_flags: whether the flags of a file permit this way of opening it.
Result<void> check_flags(vfs::FileSystem& file_system, vfs::NodeId node, int open_flags) {
    bool writes = (open_flags & O_ACCMODE) != O_RDONLY || (open_flags & O_TRUNC) != 0;
    if (!writes) {
        return {};
    }
    vfs::Attributes attributes = TRY(file_system.get_attributes(node));
    if ((attributes.flags & vfs::file_flag::immutable) != 0) {
        return Error::eperm;
    }
    bool appends = (open_flags & O_APPEND) != 0 && (open_flags & O_TRUNC) == 0;
    if ((attributes.flags & vfs::file_flag::append_only) != 0 && !appends) {
        return Error::eperm;
    }
    return {};
}

}  // namespace

Result<bool> open_file(Session& session, vfs::NodeId node, fuse_file_info& file) {
    // What the kernel has cached stays true with every open.
    file.keep_cache = 1;
    file.fh = 0;
    if (session.options().strict_flags) {
        TRY(check_flags(session.file_system(), node, file.flags));
    }
    if (session.opens_are_stateless()) {
        return false;
    }
    Result<vfs::Handle> opened =
        session.file_system().open(node, static_cast<uint32_t>(file.flags));
    if (opened.ok()) {
        file.fh = opened.value();
        return true;
    }
    if (opened.error() != Error::enosys) {
        return opened.error();
    }
    session.set_opens_are_stateless();
    return false;
}

namespace {

// Around what reads a file without a READ, after which the kernel would not ask for the access time again.
class AccessTime {
  public:
    AccessTime(Session& session, vfs::NodeId node)
        : session_(session), node_(node), before_(session.file_system().get_attributes(node)) {}

    // Before the answer to the request: the caller may look at once.
    void forget_if_moved() {
        Result<vfs::Attributes> after = session_.file_system().get_attributes(node_);
        if (before_.ok() && after.ok() && before_->access_time != after->access_time) {
            session_.forget_attributes(node_);
        }
    }

  private:
    Session& session_;
    vfs::NodeId node_;
    Result<vfs::Attributes> before_;
};

// The kernel reads what it has cached without asking. Where it opens files it is the opening for reading
// alone that counts as reading: most programs that may also write only write.
void note_opened_for_reading(Session& session, vfs::NodeId node, int open_flags) {
    if ((open_flags & O_ACCMODE) != O_RDONLY || (open_flags & O_NOATIME) != 0) {
        return;
    }
    AccessTime access_time(session, node);
    session.file_system().note_read(node);
    access_time.forget_if_moved();
}

void open(fuse_req_t handle, fuse_ino_t node, fuse_file_info* file) {
    Request request(handle, Operation::open);
    vfs::FileSystem& file_system = request.file_system();
    Result<bool> opened = open_file(request.session(), node, *file);
    if (!opened.ok()) {
        return request.fail(opened.error());
    }
    if (!opened.value() && request.session().kernel_skips_open()) {
        // From now on the kernel neither opens nor releases: two messages less for each open file.
        return request.decline();
    }
    if (request.session().options().strict_flags) {
        note_opened_for_reading(request.session(), node, file->flags);
    }
    if (!request.opened(*file) && opened.value()) {
        file_system.release(node, file->fh);
    }
}

void release(fuse_req_t handle, fuse_ino_t node, fuse_file_info* file) {
    Request request(handle, Operation::release);
    if (!request.session().opens_are_stateless()) {
        request.file_system().release(node, file->fh);
    }
    request.succeed();
}

void read(fuse_req_t handle, fuse_ino_t node, size_t size, off_t offset, fuse_file_info* file) {
    // The kernel also reads what surrounds a small write.
    const bool notes_access =
        (file->flags & O_ACCMODE) != O_WRONLY && (file->flags & O_NOATIME) == 0;
    reply_with_data(Request(handle, Operation::read), node, file->fh, static_cast<uint64_t>(offset),
                    size, notes_access);
}

uint32_t write_flags(const Request& request, const fuse_file_info& file) {
    // Pages of the kernel's cache. With write_through these are mapped ones alone, whose times it leaves to us.
    if (file.writepage != 0) {
        return vfs::write_flag::write_back |
               (request.session().options().write_through ? 0 : vfs::write_flag::keep_times);
    }
    uint32_t flags = 0;
    // The kernel says in the request whether privileges have to go, but libfuse does not pass that
    // on; this is the rule it follows. (It never caches writes to files that have any.)
    if (request.caller().user_id != 0) {
        flags |= vfs::write_flag::kill_privileges;
    }
    if ((file.flags & (O_SYNC | O_DSYNC)) != 0) {
        flags |= vfs::write_flag::synchronous;
    }
    // O_APPEND is the kernel's business: only it knows where the file ends while it caches writes,
    // and its offset is right.
    return flags;
}

// See Session::guards_immutable_files().
bool may_write_cached(vfs::FileSystem& file_system, vfs::NodeId node) {
    Result<vfs::Attributes> attributes = file_system.get_attributes(node);
    return !attributes.ok() || (attributes.value().flags & vfs::file_flag::immutable) == 0;
}

Result<size_t> write_data(Session& session, vfs::NodeId node, const fuse_file_info& file,
                          uint64_t offset_bytes, vfs::IoVector data, uint32_t flags) {
    const Span<const vfs::IoVector> buffers(&data, 1);
    vfs::ContentWriter* writer =
        session.device() == nullptr ? nullptr : ThreadObject<vfs::ContentWriter>::get();
    return writer == nullptr
               ? session.file_system().write(node, file.fh, offset_bytes, buffers, flags)
               : vfs::write_content(*writer, session.file_system(), node, offset_bytes, buffers,
                                    flags);
}

void write(fuse_req_t handle, fuse_ino_t node, const char* data, size_t size, off_t offset,
           fuse_file_info* file) {
    Request request(handle, Operation::write);
    Session& session = request.session();
    // The kernel counts a page that was refused as clean. No program shall go on reading what is not stored, and take it
    // for stored when it has been told of the error once (as a database does that opens its log again).
    const auto refuse_page = [&](Error error) {
        if (session.asks_before_writes()) {
            session.refused_pages().note(session.file_system(), node, error);
        }
        session.dirty_limit().written_back(session.file_system(), size);
        session.page_flusher().flush(node, static_cast<uint64_t>(offset), size, nullptr);
        request.fail(error);
    };
    if (file->writepage != 0 && session.guards_immutable_files() &&
        !may_write_cached(request.file_system(), node)) {
        return refuse_page(Error::eperm);
    }
    const uint32_t flags = write_flags(request, *file);
    if ((flags & vfs::write_flag::kill_privileges) != 0) {
        if (Result<void> cleared = clear_privileges(request, node); !cleared.ok()) {
            return request.fail(cleared.error());
        }
    }
    // Writers only read from their buffers.
    Result<size_t> written = write_data(session, node, *file, static_cast<uint64_t>(offset),
                                        {const_cast<char*>(data), size}, flags);
    if (!written.ok()) {
        return file->writepage != 0 ? refuse_page(written.error()) : request.fail(written.error());
    }
    if (file->writepage != 0) {
        session.dirty_limit().written_back(request.file_system(), size);
        if (written.value() < size) {
            // The kernel ignores short counts of what it writes back.
            return refuse_page(Error::eio);
        }
    }
    request.written(written.value());
}

void flush(fuse_req_t handle, fuse_ino_t /*node*/, fuse_file_info* /*file*/) {
    // The kernel has written the file's cached data before it asks, and there is nothing else to do at close: it need not
    // ask again. An old one would then write nothing back before the result of close() is known.
    Request request(handle, Operation::flush);
    if (request.session().writes_back_at_close()) {
        request.decline();
    } else {
        request.succeed();
    }
}

void fsync(fuse_req_t handle, fuse_ino_t node, int data_only, fuse_file_info* /*file*/) {
    Request request(handle, Operation::fsync);
    request.finish(request.file_system().fsync(node, data_only != 0));
}

// A change of content that may be done in part, of a range whose pages the kernel drops, or has dropped, only after success.
void finish_change(Request request, vfs::NodeId node, uint64_t offset, uint64_t length,
                   const Result<void>& changed) {
    if (changed.ok()) {
        return request.finish(changed);
    }
    const std::shared_ptr<Request> waiting(new Request(std::move(request)));
    waiting->session().page_flusher().flush(
        node, offset, length,
        [waiting, changed](bool /*is_flushed*/) { waiting->finish(changed); });
}

void allocate(fuse_req_t handle, fuse_ino_t node, int mode, off_t offset, off_t length,
              fuse_file_info* /*file*/) {
    Request request(handle, Operation::allocate);
    if (Result<void> cleared = clear_privileges(request, node); !cleared.ok()) {
        return request.finish(cleared);
    }
    const Result<void> allocated = request.file_system().allocate(node, static_cast<uint32_t>(mode),
                                                                  static_cast<uint64_t>(offset),
                                                                  static_cast<uint64_t>(length));
    constexpr uint32_t kChangesContent =
        vfs::allocate_flag::punch_hole | vfs::allocate_flag::zero_range;
    if ((static_cast<uint32_t>(mode) & kChangesContent) == 0) {
        return request.finish(allocated);
    }
    finish_change(std::move(request), node, static_cast<uint64_t>(offset),
                  static_cast<uint64_t>(length), allocated);
}

bool ends_at(vfs::FileSystem& file_system, vfs::NodeId node, uint64_t offset) {
    const Result<vfs::Attributes> attributes = file_system.get_attributes(node);
    return attributes.ok() && attributes.value().size_bytes <= offset;
}

void copy_range(fuse_req_t handle, fuse_ino_t source, off_t source_offset,
                fuse_file_info* /*source_file*/, fuse_ino_t destination, off_t destination_offset,
                fuse_file_info* /*destination_file*/, size_t length, int flags) {
    Request request(handle, Operation::copy_range);
    if (flags != 0) {
        return request.fail(Error::einval);
    }
    if (Result<void> cleared = clear_privileges(request, destination); !cleared.ok()) {
        return request.finish(cleared);
    }
    AccessTime access_time(request.session(), source);
    const auto from = static_cast<uint64_t>(source_offset);
    const auto to = static_cast<uint64_t>(destination_offset);
    const auto wanted = std::min<uint64_t>(length, kMaxCopyBytes);
    Result<uint64_t> copied =
        request.file_system().copy_range(source, from, destination, to, wanted);
    access_time.forget_if_moved();
    if (!copied.ok()) {
        return finish_change(std::move(request), destination, to, wanted, copied.error());
    }
    const uint64_t count = copied.value();
    if (count == wanted || ends_at(request.file_system(), source, from + count)) {
        return request.written(count);
    }
    // Something has failed behind it, and may have changed what the kernel has of the rest.
    const std::shared_ptr<Request> waiting(new Request(std::move(request)));
    waiting->session().page_flusher().flush(
        destination, to + count, wanted - count,
        [waiting, count](bool /*is_flushed*/) { waiting->written(count); });
}

// Looks for data or a hole. The kernel asks without having written its dirty pages. They cannot make a hole of what is
// data here, but data of a hole, or behind the end: so nothing but the hole that would be the answer is written back,
// and the clean pages of the file's data stay in the cache.
struct Seek {
    Request request;
    vfs::NodeId node;
    uint64_t start;
    vfs::SeekTarget target;
    // The kernel holds nothing of this part any more.
    uint64_t flushed_begin = 0;
    uint64_t flushed_end = 0;
    int rounds = 0;
};

constexpr uint64_t kToTheEnd = UINT64_MAX;
// So often is a hole found to be filled by what was written back. Then all that follows is.
constexpr int kMaxSeekRounds = 8;

// The hole that the answer rests on: its start, and its end or kToTheEnd. Empty when it rests on none.
std::pair<uint64_t, uint64_t> hole_of(vfs::FileSystem& file_system, const Seek& seek,
                                      const Result<uint64_t>& found) {
    if (!found.ok()) {
        return {seek.start, found.error() == Error::enxio ? kToTheEnd : seek.start};
    }
    if (seek.target == vfs::SeekTarget::data) {
        return {seek.start, found.value()};
    }
    const Result<uint64_t> end = file_system.seek(seek.node, found.value(), vfs::SeekTarget::data);
    return {found.value(), end.ok() ? end.value() : kToTheEnd};
}

void continue_seek(const std::shared_ptr<Seek>& seek) {
    vfs::FileSystem& file_system = seek->request.file_system();
    const Result<uint64_t> found = file_system.seek(seek->node, seek->start, seek->target);
    const auto [begin, end] = hole_of(file_system, *seek, found);
    const bool was_flushed = seek->flushed_begin <= begin && begin < seek->flushed_end;
    if (begin < end && !was_flushed) {
        seek->rounds++;
        seek->flushed_begin = begin;
        seek->flushed_end = seek->rounds < kMaxSeekRounds ? end : kToTheEnd;
        const uint64_t length = seek->flushed_end == kToTheEnd ? 0 : seek->flushed_end - begin;
        seek->request.session().page_flusher().flush(
            seek->node, begin, length, [seek](bool is_flushed) {
                // What the kernel has of the hole is not known.
                is_flushed ? continue_seek(seek) : seek->request.fail(Error::eio);
            });
    } else if (found.ok()) {
        seek->request.offset(found.value());
    } else if (found.error() == Error::enxio) {
        // "Nothing there" is an answer, not a failure.
        seek->request.say_missing(found.error());
    } else {
        seek->request.fail(found.error());
    }
}

void seek(fuse_req_t handle, fuse_ino_t node, off_t offset, int whence, fuse_file_info* /*file*/) {
    if (whence != SEEK_DATA && whence != SEEK_HOLE) {
        return Request(handle, Operation::seek).fail(Error::einval);
    }
    Request request(handle, Operation::seek);
    // With io_uring each request keeps one of a few places until it is answered: those that wait here for what the kernel
    // writes could leave none for that.
    if (!request.session().knows_what_is_written() || request.session().options().io_uring) {
        return request.decline();
    }
    const vfs::SeekTarget target =
        whence == SEEK_DATA ? vfs::SeekTarget::data : vfs::SeekTarget::hole;
    // Shared, since the answer may come from the flusher's thread.
    continue_seek(std::shared_ptr<Seek>(
        new Seek{std::move(request), node, static_cast<uint64_t>(offset), target}));
}

}  // namespace

void add_data_operations(fuse_lowlevel_ops& operations) {
    operations.open = open;
    operations.release = release;
    operations.read = read;
    operations.write = write;
    operations.flush = flush;
    operations.fsync = fsync;
    operations.fallocate = allocate;
    operations.copy_file_range = copy_range;
    operations.lseek = seek;
}

}  // namespace tiffin::fuse
