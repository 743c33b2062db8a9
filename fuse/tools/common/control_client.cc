// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/common/control_client.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "fuse/host/mount_table.h"
#include "fuse/host/remote_address.h"

namespace tiffin::fuse {

namespace {
constexpr size_t kMaxTextBytes = 1U << 20;
}  // namespace

OrProblem<ControlClient> ControlClient::open(const std::string& path) {
    int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) {
        int error = errno;
        if (error == ENOTCONN) {
            const std::string place = mount_point_above(path);
            return Problem{"the file system that was mounted on " + place +
                               " has died: unmount it (umount " + place + ") and mount it again",
                           Error::eio};
        }
        return Problem{"cannot open " + path + ": " + system_error_text(error), Error::enoent};
    }
    return ControlClient(path, file);
}

ControlClient::~ControlClient() {
    if (file_ >= 0) {
        close(file_);
    }
}

ControlClient::ControlClient(ControlClient&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)) {}

std::optional<Problem> ControlClient::send(unsigned long command, void* argument) {
    if (ioctl(file_, command, argument) == 0) {
        return std::nullopt;
    }
    switch (errno) {
        case ENOTTY:
        case EINVAL:
            return Problem{path_ + " is not on a Tiffin mount, or the versions differ",
                           Error::enotty};
        case EPERM:
        case EACCES:
            return Problem{"only root and the user that mounted " + path_ + " may do this",
                           Error::eperm};
        case EOPNOTSUPP:
            return Problem{"the file system on " + path_ + " does not support this",
                           Error::eopnotsupp};
        default:
            return Problem{path_ + ": " + system_error_text(errno), Error::eio};
    }
}

OrProblem<std::string> ControlClient::text(TextKind kind) {
    std::string text;
    while (true) {
        TextCommand command;
        command.kind = static_cast<uint32_t>(kind);
        command.offset_bytes = static_cast<uint32_t>(text.size());
        if (std::optional<Problem> problem = send(kTextCommand, &command)) {
            return *problem;
        }
        text.append(command.piece, std::min<size_t>(command.piece_bytes, sizeof command.piece));
        // The text may change between two pieces; it must not go on for ever, whatever program serves it.
        if (command.piece_bytes == 0 || text.size() >= command.total_bytes ||
            text.size() >= kMaxTextBytes) {
            return text;
        }
    }
}

OrProblem<std::vector<NamedTotals>> ControlClient::statistics() {
    std::vector<NamedTotals> all;
    uint32_t count = 1;
    for (uint32_t operation = 0; operation < count; ++operation) {
        StatisticsCommand command;
        command.operation = operation;
        if (std::optional<Problem> problem = send(kStatisticsCommand, &command)) {
            return *problem;
        }
        count = command.operation_count;
        NamedTotals named;
        named.name.assign(command.name, strnlen(command.name, sizeof command.name));
        named.totals.count = command.count;
        named.totals.errors = command.errors;
        named.totals.bytes = command.bytes;
        named.totals.total_ns = command.total_ns;
        std::copy_n(command.buckets, named.totals.buckets.size(), named.totals.buckets.begin());
        all.push_back(std::move(named));
    }
    return all;
}

OrProblem<GrowCommand> ControlClient::grow() {
    GrowCommand command;
    if (std::optional<Problem> problem = send(kGrowCommand, &command)) {
        return *problem;
    }
    return command;
}

std::optional<Problem> ControlClient::change_link(bool adds, const std::string& link) {
    const OrProblem<rdma_blk::RemoteAddress::Link> parsed = parse_link_address(link);
    if (!parsed.ok()) {
        return parsed.problem();
    }
    LinkCommand command;
    command.adds = adds ? 1 : 0;
    command.port = parsed->port;
    if (parsed->host.size() >= sizeof command.host) {
        return Problem{"the name of the host is too long"};
    }
    parsed->host.copy(command.host, sizeof command.host - 1);
    if (ioctl(file_, kLinkCommand, &command) == 0) {
        return std::nullopt;
    }
    const auto say = [&](const char* what) { return Problem{path_ + ": " + what, Error::eio}; };
    switch (errno) {
        case EAGAIN:
            return say(
                "there is no connection to the server at present: try again, or, if tiffin status "
                "says that it is closed, unmount it and mount it again");
        case EEXIST:
            return say("this link is in use already");
        case ENOSPC:
            return say("there are 8 links already");
        case ENOENT:
            return say("there is no such link (tiffin status shows them)");
        case EBUSY:
            return say("no other link is ready: this one stays");
        case ETIMEDOUT:
            return say(
                "something is still in flight on this link, which takes nothing new; it is "
                "removed when that is answered (tiffin status shows it)");
        case EOPNOTSUPP:
            return say(
                "this mount has no links that could be added or removed: they take a volume of one "
                "memory server, with transport tcp, sdr (over UDP), or rc mounted over several "
                "links (tiffin status shows the transport)");
        default:
            return send(kLinkCommand, &command);
    }
}

std::optional<Problem> ControlClient::scrub(ScrubCommand& progress) {
    return send(kScrubCommand, &progress);
}

}  // namespace tiffin::fuse
