// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Errors for people: what was wrong and what to do about it, in words.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "fs/vfs/host.h"
#include "fs/vfs/result.h"

namespace tiffin::fuse {

// A sentence or two without a newline, without a capital at the start and a full stop at the end, so
// that a tool can print "mkfs.tiffin: " before it.
struct Problem {
    std::string text;
    Error code = Error::einval;
};

// A value or the problem that stood in its way. For tools and set-up; fs/ uses Result.
template <typename T>
class [[nodiscard]] OrProblem {
  public:
    // Implicit on purpose, as in Result.
    OrProblem(T value) : value_(std::move(value)) {}              // NOLINT
    OrProblem(Problem problem) : problem_(std::move(problem)) {}  // NOLINT

    bool ok() const { return value_.has_value(); }
    explicit operator bool() const { return ok(); }

    // Precondition: ok().
    T& value() {
        TIFFIN_ASSERT(ok());
        return *value_;
    }
    const T& value() const {
        TIFFIN_ASSERT(ok());
        return *value_;
    }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }
    T& operator*() { return value(); }
    const T& operator*() const { return value(); }

    // Precondition: !ok().
    const Problem& problem() const {
        TIFFIN_ASSERT(!ok());
        return problem_;
    }

  private:
    std::optional<T> value_;
    Problem problem_;
};

// The system's words for an errno number, such as "Permission denied".
std::string system_error_text(int error_number);

}  // namespace tiffin::fuse
