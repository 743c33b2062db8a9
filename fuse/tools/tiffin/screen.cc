// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/tiffin/screen.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace tiffin::fuse {
namespace {

// The alternate screen, without a cursor; and back.
constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l";
constexpr char kLeave[] = "\x1b[?25h\x1b[?1049l";

bool write_all(int file, const std::string& text) {
    size_t done = 0;
    while (done < text.size()) {
        const ssize_t written = write(file, text.data() + done, text.size() - done);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return false;
        }
        done += static_cast<size_t>(written);
    }
    return true;
}

std::string fitting(const std::string& line, size_t columns) {
    std::string result = line.substr(0, columns);
    for (char& c : result) {
        c = c < 0x20 || c > 0x7e ? '?' : c;
    }
    return result;
}

// Keys are not shown, and need no Enter. The child's end restores what was before.
class TerminalMode {
  public:
    TerminalMode() : is_known_(tcgetattr(STDIN_FILENO, &before_) == 0) {
        if (is_known_) {
            termios quiet = before_;
            quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON);
            (void)tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
        }
        (void)write_all(STDOUT_FILENO, kEnter);
    }
    ~TerminalMode() {
        (void)write_all(STDOUT_FILENO, kLeave);
        if (is_known_) {
            (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
        }
    }
    TerminalMode(const TerminalMode&) = delete;
    TerminalMode& operator=(const TerminalMode&) = delete;

  private:
    termios before_{};
    bool is_known_;
};

std::string read_to_end(int file) {
    std::string text;
    char piece[512];
    ssize_t length = 0;
    while ((length = read(file, piece, sizeof piece)) > 0 || (length < 0 && errno == EINTR)) {
        text.append(piece, static_cast<size_t>(std::max<ssize_t>(length, 0)));
    }
    return text;
}

[[noreturn]] void run_child(const std::function<std::optional<Problem>(Screen&)>& draw, int report,
                            const sigset_t& mask) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
        (void)signal(number, SIG_DFL);
    }
    sigprocmask(SIG_SETMASK, &mask, nullptr);
    Screen screen;
    const std::optional<Problem> problem = draw(screen);
    if (problem.has_value()) {
        (void)write_all(report, problem->text);
    }
    _exit(problem.has_value() ? EXIT_FAILURE : EXIT_SUCCESS);
}

// Passes on what asks this process to end; Ctrl-C goes to the child anyway.
int wait_for(pid_t child, const sigset_t& signals) {
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        int number = 0;
        if (sigwait(&signals, &number) == 0 && (number == SIGTERM || number == SIGHUP)) {
            kill(child, number);
        }
    }
    return status;
}

}  // namespace

void Screen::draw(const std::vector<std::string>& lines) {
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) {
        size.ws_row = 24;
        size.ws_col = 80;
    }
    std::string text = "\x1b[H";
    const size_t count = std::min<size_t>(lines.size(), size.ws_row);
    for (size_t i = 0; i < count; i++) {
        // Erased before it is written: behind a line that fills the terminal the cursor is on its last letter.
        text += (i == 0 ? "\x1b[K" : "\r\n\x1b[K") + fitting(lines[i], size.ws_col);
    }
    text += count < size.ws_row ? "\r\n\x1b[J" : "";
    if (!write_all(STDOUT_FILENO, text)) {
        _exit(EXIT_FAILURE);  // the terminal is gone
    }
}

bool Screen::wait(double seconds) {
    const auto timeout_ms = static_cast<int>(std::min(seconds, 1e6) * 1000) + 1;
    pollfd keys{reads_keys_ ? STDIN_FILENO : -1, POLLIN, 0};
    const int ready = poll(&keys, 1, timeout_ms);
    if (ready <= 0) {
        return true;
    }
    char key = 0;
    const ssize_t length = read(STDIN_FILENO, &key, 1);
    reads_keys_ = length > 0;
    return key != 'q';
}

std::optional<Problem> run_on_screen(const std::function<std::optional<Problem>(Screen&)>& draw) {
    sigset_t signals;
    sigset_t before;
    sigemptyset(&signals);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {
        sigaddset(&signals, number);
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return Problem{"cannot make a pipe: " + system_error_text(errno), Error::eio};
    }
    sigprocmask(SIG_BLOCK, &signals, &before);
    (void)signal(SIGCHLD, SIG_DFL);
    (void)signal(SIGTSTP, SIG_IGN);  // it would leave the terminal as it is now
    int status = 0;
    std::string report;
    {
        const TerminalMode mode;
        const pid_t child = fork();
        if (child == 0) {
            run_child(draw, ends[1], before);
        }
        const int error = errno;
        close(ends[1]);
        if (child < 0) {
            report = "cannot start a process: " + system_error_text(error);
            status = -1;
        } else {
            status = wait_for(child, signals);
            report = read_to_end(ends[0]);
        }
    }
    close(ends[0]);
    // Those that came at once with the child's end, such as a Ctrl-C to both, are not to end this process in their turn.
    const timespec none{};
    while (sigtimedwait(&signals, nullptr, &none) > 0) {
    }
    sigprocmask(SIG_SETMASK, &before, nullptr);
    const bool is_ended_on_purpose =
        WIFSIGNALED(status) &&
        (WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGHUP);
    if (status == 0 || is_ended_on_purpose) {
        return std::nullopt;
    }
    return Problem{report.empty() ? "the terminal cannot be written to" : report, Error::eio};
}

}  // namespace tiffin::fuse
