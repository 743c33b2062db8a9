// SPDX-License-Identifier: MIT OR GPL-2.0-only
// ioctl and statfs.
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "fuse/host/status_text.h"
#include "fuse/session/control_commands.h"
#include "fuse/session/operations.h"
#include "fuse/session/request.h"
#include "fuse/session/session.h"
#include "fuse/session/version.h"

namespace tiffin::fuse {
namespace {

// Linux's FS_IOC_SHUTDOWN, which its user-space headers lack.
constexpr uint32_t kShutdownCommand = _IOR('X', 125, uint32_t);

// An ioctl on its way: what came with it, and how much may be answered.
struct Control {
    Request request;
    vfs::NodeId node;
    uint32_t command;
    const void* user_address;
    ByteSpan input;
    size_t output_bytes;

    // The argument as a structure. False when the request is shorter.
    template <typename T>
    bool read(T& value) const {
        static_assert(std::is_trivially_copyable_v<T>);
        if (input.size() < sizeof(T)) {
            return false;
        }
        std::memcpy(&value, input.data(), sizeof(T));
        return true;
    }

    // Answers with a structure.
    template <typename T>
    void answer(const T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        request.control_result(&value, std::min(sizeof(T), output_bytes));
    }

    bool by_administrator() const {
        const uint32_t user_id = request.caller().user_id;
        return user_id != 0 ? request.session().is_owner(user_id)
                            : request.caller_may_administrate();
    }
};

// ---- Linux's own -------------------------------------------------------------------------------

uint32_t to_extended_flags(uint32_t flags) {
    uint32_t result = 0;
    result |= (flags & vfs::file_flag::immutable) != 0 ? FS_XFLAG_IMMUTABLE : 0;
    result |= (flags & vfs::file_flag::append_only) != 0 ? FS_XFLAG_APPEND : 0;
    result |= (flags & vfs::file_flag::no_dump) != 0 ? FS_XFLAG_NODUMP : 0;
    result |= (flags & vfs::file_flag::no_atime) != 0 ? FS_XFLAG_NOATIME : 0;
    return result;
}

Result<uint32_t> from_extended_flags(uint32_t extended) {
    constexpr uint32_t kKnown =
        FS_XFLAG_IMMUTABLE | FS_XFLAG_APPEND | FS_XFLAG_NODUMP | FS_XFLAG_NOATIME;
    if ((extended & ~kKnown) != 0) {
        return Error::eopnotsupp;
    }
    uint32_t flags = 0;
    flags |= (extended & FS_XFLAG_IMMUTABLE) != 0 ? vfs::file_flag::immutable : 0;
    flags |= (extended & FS_XFLAG_APPEND) != 0 ? vfs::file_flag::append_only : 0;
    flags |= (extended & FS_XFLAG_NODUMP) != 0 ? vfs::file_flag::no_dump : 0;
    flags |= (extended & FS_XFLAG_NOATIME) != 0 ? vfs::file_flag::no_atime : 0;
    return flags;
}

void get_flags(Control& control) {
    Result<vfs::Attributes> attributes = control.request.file_system().get_attributes(control.node);
    if (!attributes.ok()) {
        return control.request.fail(attributes.error());
    }
    if (control.command == FS_IOC_FSGETXATTR) {
        fsxattr extended{};
        extended.fsx_xflags = to_extended_flags(attributes.value().flags);
        return control.answer(extended);
    }
    // Declared with a long, but all programs pass an int.
    control.answer(attributes.value().flags);
}

// Kernels before 5.13 do not check the permission for this.
bool may_set_flags(const Control& control, const vfs::Attributes& attributes, uint32_t flags) {
    constexpr uint32_t kForRoot = vfs::file_flag::immutable | vfs::file_flag::append_only;
    const uint32_t user_id = control.request.caller().user_id;
    return user_id == 0 ||
           (attributes.user_id == user_id && ((attributes.flags ^ flags) & kForRoot) == 0);
}

constexpr vfs::NodeId kAllNodes = 0;

// In the page flusher's thread, when the kernel has sent what it had cached of the file, or is to send that of all files: waits
// until all of it is here. The error of the latter; settle() may not have seen its queue empty.
int wait_for_write_back(Session& session, vfs::NodeId node) {
    if (node != kAllNodes) {
        // The notification has waited for what was under way, where the kernel knows that.
        if (!session.knows_what_is_written()) {
            (void)session.settle();
        }
        return 0;
    }
    const int error = session.mounts().sync();
    (void)session.settle();
    // What waited in the kernel's queue may have been refused since.
    return error != 0 ? error : session.mounts().sync();
}

// Calls `then` in that thread after wait_for_write_back(), with its error.
template <typename Then>
void after_write_back(Control& control, vfs::NodeId node, Then then) {
    Session& session = control.request.session();
    const bool is_counted = session.may_wait_for_pages();
    if (!is_counted && node != kAllNodes) {
        return control.request.fail(Error::eagain);
    }
    auto waiting = std::make_shared<Control>(std::move(control));
    waiting->input = {};
    const auto go_on = [waiting, then, node, is_counted, &session](bool is_flushed) {
        if (is_counted) {
            session.has_waited_for_pages();
        }
        then(*waiting, is_flushed ? wait_for_write_back(session, node) : EIO);
    };
    session.page_flusher().flush(node, 0, 0, go_on);
}

// Whether this error of after_write_back() says that part of what was written is not stored. A mount that is not seen here
// has no cache that could be asked for.
bool is_lost(int error) { return error != 0 && error != ENOENT && error != ESTALE; }

void set_flags_and_answer(Control& control, uint32_t flags) {
    Result<void> result =
        control.request.file_system().set_flags(control.request.caller(), control.node, flags);
    if (!result.ok()) {
        return control.request.fail(result.error());
    }
    // The kernel does not expect a command to move the change time.
    control.request.session().forget_attributes(control.node);
    control.request.control_result(nullptr, 0);
}

void set_flags(Control& control) {
    uint32_t flags = 0;
    if (control.command == FS_IOC_FSSETXATTR) {
        fsxattr extended{};
        if (!control.read(extended)) {
            return control.request.fail(Error::einval);
        }
        Result<uint32_t> converted = from_extended_flags(extended.fsx_xflags);
        if (!converted.ok() || extended.fsx_projid != 0 || extended.fsx_extsize != 0) {
            return control.request.fail(Error::eopnotsupp);
        }
        flags = converted.value();
    } else if (!control.read(flags)) {
        return control.request.fail(Error::einval);
    }
    Result<vfs::Attributes> attributes = control.request.file_system().get_attributes(control.node);
    if (!attributes.ok()) {
        return control.request.fail(attributes.error());
    }
    if (!may_set_flags(control, *attributes, flags)) {
        return control.request.fail(Error::eperm);
    }
    control.request.session().note_flags(flags);
    const bool becomes_immutable = (flags & ~attributes->flags & vfs::file_flag::immutable) != 0;
    if (!becomes_immutable || !vfs::mode::is_regular(attributes->mode)) {
        return set_flags_and_answer(control, flags);
    }
    // What was written before is legal, and has to arrive before the flag is set.
    after_write_back(control, control.node, [flags](Control& waiting, int error) {
        if (error != 0) {
            return waiting.request.fail(Error::eio);
        }
        set_flags_and_answer(waiting, flags);
    });
}

void get_generation(Control& control) {
    Result<vfs::Attributes> attributes = control.request.file_system().get_attributes(control.node);
    if (!attributes.ok()) {
        return control.request.fail(attributes.error());
    }
    // Declared with a long, but lsattr passes an int.
    control.answer(static_cast<uint32_t>(attributes.value().generation));
}

void trim(Control& control) {
    fstrim_range range{};
    if (!control.by_administrator()) {
        return control.request.fail(Error::eperm);
    }
    if (!control.read(range)) {
        return control.request.fail(Error::einval);
    }
    Result<uint64_t> discarded =
        control.request.file_system().trim(range.start, range.len, range.minlen);
    if (!discarded.ok()) {
        return control.request.fail(discarded.error());
    }
    range.len = discarded.value();
    control.answer(range);
}

// FS_IOC_SHUTDOWN is declared as if it only returned something, so FUSE does not send its argument;
// it has to be fetched from the memory of the caller.
Result<uint32_t> shutdown_mode(const Control& control) {
    uint32_t mode = 0;
    iovec here{&mode, sizeof mode};
    iovec there{const_cast<void*>(control.user_address), sizeof mode};
    int process = control.request.process_id();
    if (process == 0 ||
        process_vm_readv(process, &here, 1, &there, 1, 0) != static_cast<ssize_t>(sizeof mode)) {
        return Error::eacces;
    }
    if (mode > static_cast<uint32_t>(vfs::ShutdownMode::discard)) {
        return Error::einval;
    }
    return mode;
}

void shut_down(Control& control) {
    if (!control.by_administrator()) {
        return control.request.fail(Error::eperm);
    }
    Result<uint32_t> mode = shutdown_mode(control);
    if (!mode.ok()) {
        return control.request.fail(mode.error());
    }
    const auto how = static_cast<vfs::ShutdownMode>(mode.value());
    // It stops in any case.
    const auto shut_down_and_answer = [how](Control& waiting, int error) {
        const Result<void> result = waiting.request.file_system().shutdown(how);
        if (!result.ok()) {
            return waiting.request.fail(result.error());
        }
        if (is_lost(error)) {
            return waiting.request.fail(static_cast<Error>(error));
        }
        waiting.request.control_result(nullptr, 0);
    };
    if (how != vfs::ShutdownMode::flush_all) {
        return shut_down_and_answer(control, 0);
    }
    // What the kernel has cached belongs to everything.
    after_write_back(control, kAllNodes, shut_down_and_answer);
}

// ---- Tiffin's own: control_commands.h ----------------------------------------------------------

void give_text(Control& control) {
    TextCommand command;
    if (!control.read(command)) {
        return control.request.fail(Error::einval);
    }
    TextSink sink;
    if (command.kind == static_cast<uint32_t>(TextKind::status)) {
        sink.text = control.request.session().status();
        Result<void> described = control.request.file_system().describe(sink);
        if (!described.ok() && described.error() != Error::eopnotsupp) {
            return control.request.fail(described.error());
        }
    } else if (command.kind == static_cast<uint32_t>(TextKind::version)) {
        sink.text = kVersion;
    } else {
        return control.request.fail(Error::einval);
    }
    size_t offset = std::min<size_t>(command.offset_bytes, sink.text.size());
    size_t length = std::min(sizeof command.piece, sink.text.size() - offset);
    std::memcpy(command.piece, sink.text.data() + offset, length);
    command.piece_bytes = static_cast<uint32_t>(length);
    command.total_bytes = static_cast<uint32_t>(sink.text.size());
    control.answer(command);
}

void give_statistics(Control& control) {
    StatisticsCommand command;
    if (!control.read(command) || command.operation >= kOperationCount) {
        return control.request.fail(Error::einval);
    }
    auto operation = static_cast<Operation>(command.operation);
    const Session& session = control.request.session();
    OperationTotals totals = session.statistics().totals(operation);
    command.operation_count = kOperationCount;
    std::strncpy(command.name, operation_name(operation), sizeof command.name - 1);
    command.count = totals.count;
    command.errors = totals.errors;
    command.bytes = totals.bytes;
    command.total_ns = totals.total_ns;
    static_assert(OperationTotals::kBuckets <= StatisticsCommand::kBuckets);
    std::copy(totals.buckets.begin(), totals.buckets.end(), command.buckets);
    control.answer(command);
}

void scrub(Control& control) {
    ScrubCommand command;
    if (!control.by_administrator()) {
        return control.request.fail(Error::eperm);
    }
    if (!control.read(command)) {
        return control.request.fail(Error::einval);
    }
    vfs::ScrubProgress progress;
    std::copy(std::begin(command.cursor), std::end(command.cursor), progress.cursor);
    progress.checked_bytes = command.checked_bytes;
    progress.total_bytes = command.total_bytes;
    progress.errors_found = command.errors_found;
    progress.finished = command.finished != 0;
    if (!progress.finished) {
        Result<void> result = control.request.file_system().scrub(progress);
        if (!result.ok()) {
            return control.request.fail(result.error());
        }
    }
    std::copy(std::begin(progress.cursor), std::end(progress.cursor), command.cursor);
    command.checked_bytes = progress.checked_bytes;
    command.total_bytes = progress.total_bytes;
    command.errors_found = progress.errors_found;
    command.finished = progress.finished ? 1 : 0;
    control.answer(command);
}

void grow(Control& control) {
    if (!control.by_administrator()) {
        return control.request.fail(Error::eperm);
    }
    Result<vfs::Growth> growth = control.request.file_system().grow();
    if (!growth.ok()) {
        return control.request.fail(growth.error());
    }
    control.answer(GrowCommand{growth->from_bytes, growth->to_bytes});
}

void change_link(Control& control) {
    LinkCommand command;
    if (!control.by_administrator()) {
        return control.request.fail(Error::eperm);
    }
    if (!control.read(command) || command.host[sizeof command.host - 1] != '\0') {
        return control.request.fail(Error::einval);
    }
    const auto& change = control.request.session().options().change_link;
    const Result<void> result = change ? change(command.adds != 0, command.host, command.port)
                                       : Result<void>(Error::eopnotsupp);
    if (!result.ok()) {
        return control.request.fail(result.error());
    }
    control.request.control_result(nullptr, 0);
}

void remount(Control& control) {
    RemountCommand command;
    if (!control.by_administrator()) {
        return control.request.fail(Error::eperm);
    }
    if (!control.read(command)) {
        return control.request.fail(Error::einval);
    }
    const bool read_only = command.read_only != 0;
    // In any case, as the kernel takes it for read-only by now.
    const auto remount_and_answer = [read_only](Control& waiting, int error) {
        const Result<void> result = waiting.request.session().remount(read_only);
        if (!result.ok()) {
            return waiting.request.fail(result.error());
        }
        if (is_lost(error)) {
            host::log(host::LogLevel::error,
                      ("read-only now, but part of what was written before could not be stored: " +
                       std::string(std::strerror(error)))
                          .c_str());
            return waiting.request.fail(kReadOnlyWithLoss);
        }
        waiting.request.control_result(nullptr, 0);
    };
    if (!read_only) {
        return remount_and_answer(control, 0);
    }
    // What was written before would be refused.
    after_write_back(control, kAllNodes, remount_and_answer);
}

// ---- Everything else is for the file system ----------------------------------------------------

void pass_on(Control& control) {
    // The size of an ioctl's argument has 14 bits.
    unsigned char output[1U << 14];
    size_t room = std::min(control.output_bytes, sizeof output);
    Result<size_t> length = control.request.file_system().control(control.node, control.command,
                                                                  control.input, {output, room});
    if (!length.ok()) {
        // Programs ask every file whether it is a terminal; that is no error worth counting.
        return length.error() == Error::enotty ? control.request.say_missing(Error::enotty)
                                               : control.request.fail(length.error());
    }
    TIFFIN_ASSERT(length.value() <= room);
    control.request.control_result(output, length.value());
}

struct Handler {
    uint32_t command;
    void (*function)(Control&);
};

constexpr Handler kHandlers[] = {
    {static_cast<uint32_t>(FS_IOC_GETFLAGS), get_flags},
    {static_cast<uint32_t>(FS_IOC_FSGETXATTR), get_flags},
    {static_cast<uint32_t>(FS_IOC_SETFLAGS), set_flags},
    {static_cast<uint32_t>(FS_IOC_FSSETXATTR), set_flags},
    {static_cast<uint32_t>(FS_IOC_GETVERSION), get_generation},
    {static_cast<uint32_t>(FITRIM), trim},
    {kShutdownCommand, shut_down},
    {static_cast<uint32_t>(kTextCommand), give_text},
    {static_cast<uint32_t>(kStatisticsCommand), give_statistics},
    {static_cast<uint32_t>(kScrubCommand), scrub},
    {static_cast<uint32_t>(kGrowCommand), grow},
    {static_cast<uint32_t>(kRemountCommand), remount},
    {static_cast<uint32_t>(kLinkCommand), change_link},
};

void control(fuse_req_t handle, fuse_ino_t node, unsigned command, void* argument,
             fuse_file_info* /*file*/, unsigned flags, const void* input, size_t input_bytes,
             size_t output_bytes) {
    Control control{Request(handle, Operation::control),
                    node,
                    command,
                    argument,
                    {static_cast<const unsigned char*>(input), input_bytes},
                    output_bytes};
    if ((flags & FUSE_IOCTL_COMPAT) != 0) {
        // 32-bit programs: none of the layouts differ, except where "long" is in the number.
        if (command == _IOR('f', 1, int32_t)) {
            control.command = static_cast<uint32_t>(FS_IOC_GETFLAGS);
        } else if (command == _IOW('f', 2, int32_t)) {
            control.command = static_cast<uint32_t>(FS_IOC_SETFLAGS);
        } else if (command == _IOR('v', 1, int32_t)) {
            control.command = static_cast<uint32_t>(FS_IOC_GETVERSION);
        }
    }
    for (const Handler& handler : kHandlers) {
        if (handler.command == control.command) {
            return handler.function(control);
        }
    }
    pass_on(control);
}

void file_system_statistics(fuse_req_t handle, fuse_ino_t /*node*/) {
    Request request(handle, Operation::file_system_statistics);
    Result<vfs::FileSystemStatistics> result = request.file_system().statistics();
    if (!result.ok()) {
        return request.fail(result.error());
    }
    const vfs::FileSystemStatistics& from = result.value();
    struct statvfs to {};
    to.f_bsize = from.block_bytes;
    to.f_frsize = from.block_bytes;
    to.f_blocks = from.total_blocks;
    to.f_bfree = from.free_blocks;
    to.f_bavail = from.available_blocks;
    to.f_files = from.total_nodes;
    to.f_ffree = from.free_nodes;
    to.f_namemax = from.name_max_bytes;
    request.file_system_statistics(to);
}

}  // namespace

void add_control_operations(fuse_lowlevel_ops& operations) {
    operations.ioctl = control;
    operations.statfs = file_system_statistics;
}

}  // namespace tiffin::fuse
