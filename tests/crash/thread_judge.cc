// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include <algorithm>
#include <optional>

#include "tests/crash/thread_workload.h"

namespace tiffin::test {
namespace {

// The steps that a thread may show after a power failure: all of [first, last].
struct Range {
    size_t first = 0;
    size_t last = 0;
};

Range allowed_range(const RecordedThreads& recorded, size_t thread, size_t changes) {
    Range range;
    for (const std::vector<ThreadStep>& steps : recorded.steps) {
        for (const ThreadStep& step : steps) {
            if (step.changes_after <= changes) {
                range.first = std::max(range.first, step.durable[thread]);
            }
        }
    }
    const std::vector<ThreadStep>& own = recorded.steps[thread];
    for (size_t i = 0; i < own.size() && own[i].changes_before <= changes; ++i) {
        range.last = i;
    }
    return range;
}

// What the first difference is; empty when there is none.
std::string compare(const OwnTree& expected, const SeenTree& seen, size_t thread) {
    for (const auto& [path, object] : expected) {
        const auto found = seen.find(path);
        if (found == seen.end()) {
            return path + " is missing";
        }
        if (object.is_directory() != vfs::mode::is_directory(found->second.mode)) {
            return path + " has another type";
        }
        if (!object.is_directory() &&
            (*object.content != found->second.content || found->second.link_count != 1)) {
            return path + " has other content, " + std::to_string(found->second.size_bytes) +
                   " bytes instead of " + std::to_string(object.content->size());
        }
    }
    for (const auto& [path, object] : seen) {
        if (is_path_of(thread, path) && expected.count(path) == 0) {
            return path + " should not exist";
        }
    }
    return {};
}

}  // namespace

std::string judge_threads(const RecordedThreads& recorded, size_t changes, const SeenTree& seen) {
    for (const auto& [path, object] : seen) {
        bool known = path == "/";
        for (size_t thread = 0; thread < recorded.steps.size() && !known; ++thread) {
            known = is_path_of(thread, path);
        }
        if (!known) {
            return path + " was never made";
        }
    }
    std::vector<Range> matches;  // of each thread, the first and the last step that it may be
    for (size_t thread = 0; thread < recorded.steps.size(); ++thread) {
        const std::vector<ThreadStep>& steps = recorded.steps[thread];
        const Range allowed = allowed_range(recorded, thread, changes);
        std::optional<Range> match;
        for (size_t i = allowed.first; i <= allowed.last; ++i) {
            if (compare(steps[i].visible, seen, thread).empty()) {
                match = Range{match.has_value() ? match->first : i, i};
            }
        }
        if (!match.has_value()) {
            return "thread " + std::to_string(thread) + " against its last durable step " +
                   std::to_string(allowed.first) + " (" + steps[allowed.first].text +
                   "): " + compare(steps[allowed.first].visible, seen, thread) +
                   "; against the step under way, " + std::to_string(allowed.last) + " (" +
                   steps[allowed.last].text +
                   "): " + compare(steps[allowed.last].visible, seen, thread);
        }
        matches.push_back(*match);
    }
    for (size_t thread = 0; thread < matches.size(); ++thread) {
        const ThreadStep& there = recorded.steps[thread][matches[thread].first];
        for (size_t other = 0; other < matches.size(); ++other) {
            const size_t next = matches[other].last + 1;
            if (next < recorded.steps[other].size() &&
                recorded.steps[other][next].ended < there.began) {
                return "thread " + std::to_string(thread) + " shows step " +
                       std::to_string(matches[thread].first) + " (" + there.text +
                       "), but thread " + std::to_string(other) + " not its earlier step " +
                       std::to_string(next) + " (" + recorded.steps[other][next].text + ")";
            }
        }
    }
    return {};
}

}  // namespace tiffin::test
