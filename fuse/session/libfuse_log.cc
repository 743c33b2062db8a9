// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/session/libfuse_log.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "fs/vfs/host.h"
#include "fuse/session/libfuse.h"

namespace tiffin::fuse {
namespace {

struct Collected {
    std::mutex mutex;
    bool active = false;
    std::string text;
};

Collected& collected() {
    static Collected instance;
    return instance;
}

host::LogLevel level_of(fuse_log_level level) {
    if (level <= FUSE_LOG_ERR) {
        return host::LogLevel::error;
    }
    if (level == FUSE_LOG_WARNING) {
        return host::LogLevel::warning;
    }
    return level <= FUSE_LOG_INFO ? host::LogLevel::info : host::LogLevel::debug;
}

void receive(fuse_log_level level, const char* format, va_list arguments) {
    // Without memory, which libfuse may be complaining about.
    char message[512];
    vsnprintf(message, sizeof message, format, arguments);
    Collected& sink = collected();
    {
        std::lock_guard lock(sink.mutex);
        if (sink.active) {
            sink.text += message;
            return;
        }
    }
    size_t length = strlen(message);
    while (length > 0 && message[length - 1] == '\n') {
        message[--length] = '\0';
    }
    if (length > 0) {
        host::log(level_of(level), message);
    }
}

// Messages have prefixes ("fuse: ", "fusermount3: ") and newlines; one line shall remain.
std::string in_one_line(const std::string& text) {
    std::string result;
    size_t start = 0;
    while (start < text.size()) {
        size_t end = text.find('\n', start);
        std::string line = text.substr(start, end == std::string::npos ? end : end - start);
        start = end == std::string::npos ? text.size() : end + 1;
        for (const char* prefix : {"fuse: ", "fusermount3: ", "error: "}) {
            if (line.starts_with(prefix)) {
                line.erase(0, std::char_traits<char>::length(prefix));
            }
        }
        if (!line.empty()) {
            result += (result.empty() ? "" : "; ") + line;
        }
    }
    return result;
}

}  // namespace

void log_messages_of_libfuse() { fuse_set_log_func(receive); }

CapturedMessages::CapturedMessages() {
    log_messages_of_libfuse();
    {
        Collected& sink = collected();
        std::lock_guard lock(sink.mutex);
        sink.active = true;
        sink.text.clear();
    }
    capture_ = memfd_create("messages", MFD_CLOEXEC);
    saved_stderr_ = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    if (capture_ >= 0 && saved_stderr_ >= 0) {
        fflush(stderr);
        dup2(capture_, STDERR_FILENO);
    }
}

CapturedMessages::~CapturedMessages() {
    std::string rest = text("");
    if (capture_ >= 0 && saved_stderr_ >= 0) {
        dup2(saved_stderr_, STDERR_FILENO);
    }
    if (saved_stderr_ >= 0) {
        close(saved_stderr_);
    }
    if (capture_ >= 0) {
        close(capture_);
    }
    {
        Collected& sink = collected();
        std::lock_guard lock(sink.mutex);
        sink.active = false;
    }
    if (!rest.empty()) {
        host::log(host::LogLevel::warning, rest.c_str());
    }
}

std::string CapturedMessages::text(const char* otherwise) {
    fflush(stderr);
    std::string all;
    if (capture_ >= 0) {
        char buffer[512];
        off_t offset = 0;
        ssize_t length = 0;
        while ((length = pread(capture_, buffer, sizeof buffer, offset)) > 0) {
            all.append(buffer, static_cast<size_t>(length));
            offset += length;
        }
        if (ftruncate(capture_, 0) == 0) {
            lseek(capture_, 0, SEEK_SET);
        }
    }
    {
        Collected& sink = collected();
        std::lock_guard lock(sink.mutex);
        all += sink.text;
        sink.text.clear();
    }
    std::string line = in_one_line(all);
    return line.empty() ? otherwise : line;
}

}  // namespace tiffin::fuse
