// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What libfuse and the programs it starts have to say.
#pragma once

#include <string>

namespace tiffin::fuse {

// Sends libfuse's own messages to host::log() from now on.
void log_messages_of_libfuse();

// While it exists, collects libfuse's messages and everything that is written to this process's
// standard error (fusermount3 complains there), so that the reason of a failure can be told in one
// line. What was collected but not asked for goes to the log as warnings. One at a time.
class CapturedMessages {
  public:
    CapturedMessages();
    ~CapturedMessages();
    CapturedMessages(const CapturedMessages&) = delete;
    CapturedMessages& operator=(const CapturedMessages&) = delete;

    // All messages so far in one line; `otherwise` when there are none.
    std::string text(const char* otherwise);

  private:
    int saved_stderr_ = -1;
    int capture_ = -1;
};

}  // namespace tiffin::fuse
