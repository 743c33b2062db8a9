// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/conformance/snapshot.h"

#include <fcntl.h>
#include <unistd.h>

#include <climits>

#include "tests/conformance/answer.h"

namespace tiffin::conformance {
namespace {

bool later(const statx_timestamp& a, const statx_timestamp& b) {
    return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

bool same(const statx_timestamp& a, const statx_timestamp& b) {
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

statx_timestamp stamp(const timespec& time) {
    statx_timestamp result{};
    result.tv_sec = time.tv_sec;
    result.tv_nsec = static_cast<uint32_t>(time.tv_nsec);
    return result;
}

// The letter, and the value when it is not the time of the call.
std::string time_text(char letter, const statx_timestamp& time, const Period& period) {
    std::string text(1, letter);
    if (later(stamp(period.begin), time)) {
        // Earlier than the call, though nobody set it: that differs from run to run.
        constexpr int64_t day_s = 86400;
        if (time.tv_sec > period.begin.tv_sec - day_s) {
            return text + "=before-the-call";
        }
    } else if (!later(time, stamp(period.end))) {
        return text;
    }
    return text + "=" + std::to_string(time.tv_sec) + "." + std::to_string(time.tv_nsec);
}

std::string content_of(const std::string& path) {
    std::string content;
    int file = ::open(path.c_str(), O_RDONLY | O_NOATIME | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0) {
        return "unreadable: " + error_name(errno);
    }
    char buffer[16384];
    ssize_t count = 0;
    while (content.size() < 8 * sizeof buffer &&
           (count = ::read(file, buffer, sizeof buffer)) > 0) {
        content.append(buffer, static_cast<size_t>(count));
    }
    ::close(file);
    return count < 0 ? "unreadable" : quoted(content);
}

std::string target_of(const std::string& path) {
    char target[PATH_MAX];
    const ssize_t length = ::readlink(path.c_str(), target, sizeof target);
    return length < 0 ? "unreadable" : quoted(std::string(target, static_cast<size_t>(length)));
}

bool is(const Snapshot& snapshot, unsigned type) {
    return (snapshot.status.stx_mode & S_IFMT) == type;
}

std::string describe_new(const std::string& path, const Snapshot& after, const Period& period) {
    const struct statx& status = after.status;
    std::string text = "new";
    text += type_letter(status.stx_mode);
    text += " " + octal(status.stx_mode & 07777) + " " + std::to_string(status.stx_uid) + ":" +
            std::to_string(status.stx_gid) + " links=" + std::to_string(status.stx_nlink);
    if (!is(after, S_IFDIR)) {
        text += " size=" + std::to_string(status.stx_size);
    }
    if (status.stx_size > 0 && is(after, S_IFREG)) {
        text += " " + content_of(path);
    }
    if (is(after, S_IFCHR) || is(after, S_IFBLK)) {
        text += " device=" + std::to_string(status.stx_rdev_major) + "," +
                std::to_string(status.stx_rdev_minor);
    }
    if (is(after, S_IFLNK)) {
        text += " to " + target_of(path);
    }
    if ((status.stx_mask & STATX_BTIME) != 0 && later(stamp(period.begin), status.stx_btime)) {
        return text + " older";  // another name of what was there before
    }
    text += " " + time_text('a', status.stx_atime, period) +
            time_text('m', status.stx_mtime, period) + time_text('c', status.stx_ctime, period);
    return text;
}

void describe_times(const Snapshot& before, const Snapshot& after, const Period& period,
                    std::string& text) {
    std::string times;
    if (!same(before.status.stx_atime, after.status.stx_atime)) {
        times += time_text('a', after.status.stx_atime, period);
    }
    if (!same(before.status.stx_mtime, after.status.stx_mtime)) {
        times += time_text('m', after.status.stx_mtime, period);
    }
    if (!same(before.status.stx_ctime, after.status.stx_ctime)) {
        times += time_text('c', after.status.stx_ctime, period);
    }
    if (!times.empty()) {
        text += " " + times;
    }
    if (!same(before.status.stx_btime, after.status.stx_btime)) {
        text += " birth-moved";
    }
}

// What the kernel may show from its cache and the file system says differently.
std::string differences(const struct statx& cached, const struct statx& fresh) {
    std::string text;
    auto note = [&](const char* name, bool differs) {
        if (differs) {
            text += (text.empty() ? "" : ",") + std::string(name);
        }
    };
    note("mode", cached.stx_mode != fresh.stx_mode);
    note("links", cached.stx_nlink != fresh.stx_nlink);
    note("owner", cached.stx_uid != fresh.stx_uid || cached.stx_gid != fresh.stx_gid);
    note("size", cached.stx_size != fresh.stx_size);
    note("a", !same(cached.stx_atime, fresh.stx_atime));
    note("m", !same(cached.stx_mtime, fresh.stx_mtime));
    note("c", !same(cached.stx_ctime, fresh.stx_ctime));
    return text;
}

}  // namespace

char type_letter(unsigned mode) {
    switch (mode & S_IFMT) {
        case S_IFREG:
            return 'f';
        case S_IFDIR:
            return 'd';
        case S_IFLNK:
            return 'l';
        case S_IFIFO:
            return 'p';
        case S_IFSOCK:
            return 's';
        case S_IFCHR:
            return 'c';
        case S_IFBLK:
            return 'b';
        default:
            return '?';
    }
}

Snapshot look_at(const std::string& path, bool ask_again) {
    Snapshot snapshot;
    constexpr unsigned mask = STATX_BASIC_STATS | STATX_BTIME;
    if (::statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, mask, &snapshot.status) < 0) {
        return snapshot;
    }
    snapshot.exists = true;
    if (ask_again) {
        struct statx fresh {};
        if (::statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW | AT_STATX_FORCE_SYNC, mask,
                    &fresh) < 0) {
            snapshot.stale = "gone";
        } else {
            snapshot.stale = differences(snapshot.status, fresh);
        }
    }
    return snapshot;
}

std::string describe_change(const std::string& path, const Snapshot& before, const Snapshot& after,
                            const Period& period) {
    std::string text;
    if (!before.exists || !after.exists) {
        if (before.exists) {
            text = "gone";
        } else if (after.exists) {
            text = describe_new(path, after, period);
        }
    } else if (before.status.stx_ino != after.status.stx_ino) {
        text = "replaced by " + describe_new(path, after, period);
    } else {
        const struct statx& old = before.status;
        const struct statx& now = after.status;
        if (old.stx_mode != now.stx_mode) {
            text += " mode=" + octal(now.stx_mode);
        }
        if (old.stx_nlink != now.stx_nlink) {
            text += " links=" + std::to_string(now.stx_nlink);
        }
        if (old.stx_uid != now.stx_uid || old.stx_gid != now.stx_gid) {
            text += " owner=" + std::to_string(now.stx_uid) + ":" + std::to_string(now.stx_gid);
        }
        if (old.stx_size != now.stx_size && !is(after, S_IFDIR)) {
            text += " size=" + std::to_string(now.stx_size);
        }
        bool modified = old.stx_size != now.stx_size || !same(old.stx_mtime, now.stx_mtime);
        if (modified && is(after, S_IFREG)) {
            text += " " + content_of(path);
        }
        describe_times(before, after, period, text);
    }
    if (!after.stale.empty()) {
        text += " stale:" + after.stale;
    }
    return !text.empty() && text[0] == ' ' ? text.substr(1) : text;
}

}  // namespace tiffin::conformance
