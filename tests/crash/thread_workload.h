// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Several threads that change one volume on a recording device, each with notes of what it did, and what a
// power failure may leave of that.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/crash_device.h"
#include "tests/support/test_volume.h"

namespace tiffin::test {

// What one thread has made, by path; directories have no content.
struct OwnObject {
    std::shared_ptr<const std::string> content;
    size_t last_change = 0;  // the step, of its thread

    bool is_directory() const { return content == nullptr; }
};
using OwnTree = std::map<std::string, OwnObject>;

struct ThreadStep {
    std::string text;           // for messages
    OwnTree visible;            // after it
    size_t changes_before = 0;  // recorded writes and flushes when it began
    size_t changes_after = 0;   // and when it had returned
    uint64_t began = 0;         // in the order of all threads' beginnings and ends
    uint64_t ended = 0;
    std::vector<size_t> durable;  // by its end: for each thread, all steps up to this one
};

struct RecordedThreads {
    CrashDevice::Recording recording;
    std::vector<std::vector<ThreadStep>> steps;  // of each thread; the first one is the start
};

// `threads` threads do `steps` random operations each, in /own-N and, beside each other, in /shared. Each
// operation becomes visible in one transaction. What they do follows from `seed`, in which order does not.
RecordedThreads run_threads(const vfs::DeviceGeometry& geometry, uint64_t seed, uint32_t threads,
                            uint32_t steps);
// Whether that thread may have made the path; /shared and no other path is of all.
bool is_path_of(size_t thread, const std::string& path);

// What is wrong with what is visible after a power failure at `changes` recorded changes; empty when it is
//   - for each thread what it saw after one of its steps, none earlier than the last one that had been
//     acknowledged as durable and none later than the one under way,
//   - and with each step also all that other threads had completed before it began.
std::string judge_threads(const RecordedThreads& recorded, size_t changes, const SeenTree& seen);

}  // namespace tiffin::test
