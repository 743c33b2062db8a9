// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/common/progress_bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "fuse/host/size_text.h"

namespace tiffin::fuse {
namespace {

constexpr auto kRedrawInterval = std::chrono::milliseconds(150);
constexpr size_t kDefaultWidth = 80;

size_t terminal_width(FILE* stream) {
    winsize size{};
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        return size.ws_col;
    }
    return kDefaultWidth;
}

}  // namespace

std::string progress_text(uint64_t done_bytes, uint64_t total_bytes, size_t width) {
    std::string numbers = format_size(done_bytes);
    if (total_bytes == 0) {
        return numbers;
    }
    done_bytes = std::min(done_bytes, total_bytes);
    double fraction = static_cast<double>(done_bytes) / static_cast<double>(total_bytes);
    std::string percent = std::to_string(static_cast<int>(fraction * 100)) + "%";
    numbers = std::string(4 - std::min<size_t>(percent.size(), 4), ' ') + percent + "  " + numbers +
              " of " + format_size(total_bytes);
    constexpr size_t kFrame = 4;  // brackets and blanks
    if (width < numbers.size() + kFrame + 10) {
        return numbers;
    }
    size_t room = std::min<size_t>(width - numbers.size() - kFrame, 50);
    auto full = static_cast<size_t>(fraction * static_cast<double>(room));
    std::string bar(full, '=');
    if (full < room) {
        bar += '>';
    }
    bar.resize(room, ' ');
    return "[" + bar + "]  " + numbers;
}

ProgressBar::ProgressBar(FILE* stream, std::string title)
    : stream_(stream), title_(std::move(title)), is_terminal_(isatty(fileno(stream)) == 1) {}

ProgressBar::~ProgressBar() { clear(); }

void ProgressBar::show(uint64_t done_bytes, uint64_t total_bytes) {
    auto now = std::chrono::steady_clock::now();
    if (!is_terminal_ || (drawn_ && now - last_drawn_ < kRedrawInterval)) {
        return;
    }
    size_t width = terminal_width(stream_);
    size_t taken = title_.size() + 3;
    std::string text = progress_text(done_bytes, total_bytes, width > taken ? width - taken : 0);
    fprintf(stream_, "\r%s  %s\x1b[K", title_.c_str(), text.c_str());
    fflush(stream_);
    drawn_ = true;
    last_drawn_ = now;
}

void ProgressBar::clear() {
    if (drawn_) {
        fputs("\r\x1b[K", stream_);
        fflush(stream_);
        drawn_ = false;
    }
}

}  // namespace tiffin::fuse
