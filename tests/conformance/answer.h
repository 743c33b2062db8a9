// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Answers of system calls as stable text.
#pragma once

#include <cerrno>
#include <string>

namespace tiffin::conformance {

// "ENOENT", or the number when it has no name.
std::string error_name(int error);

// "ok", or the name of errno when `result` is negative. Call it at once, before errno changes.
std::string answer(long result);
// The same with the number itself: "ok 5".
std::string counted(long result);

// Octal digits, as people write modes.
std::string octal(unsigned mode);
// Every byte that is not printable as \xx; long text is shortened to its length and a checksum.
std::string quoted(const std::string& text);

// Runs each step and joins their answers by ", ", up to the first that is an error.
// The steps return answers. Used where only a sequence shows something.
class Steps {
  public:
    // Returns false when an earlier step or this one failed: what follows makes no sense then.
    bool step(const char* name, const std::string& step_answer);
    std::string text() const { return text_; }

  private:
    std::string text_;
};

}  // namespace tiffin::conformance
