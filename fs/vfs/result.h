// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How every fallible function of Tiffin answers: Result<T> holds a value or an Error.
//
// There are no exceptions in fs/: the same objects run inside a kernel. A function that can fail
// returns Result<T> (Result<void> when there is nothing to return), is [[nodiscard]] through the
// type, and its caller passes the error on with TRY():
//
//     Result<Attributes> attributes = file_system.get_attributes(node);
//     Attributes value = TRY(file_system.get_attributes(node));   // returns the error to our caller
//     TRY(device.flush());
#pragma once

#include <new>
#include <type_traits>
#include <utility>

namespace tiffin {

// Error codes carry the numbers of Linux's errno, so that a host passes them on unchanged. The
// names are those of errno in lower case (errno's own names are macros in most hosts).
enum class Error : int {
    eperm = 1,
    enoent = 2,
    eintr = 4,
    eio = 5,
    enxio = 6,
    e2big = 7,
    ebadf = 9,
    eagain = 11,
    enomem = 12,
    eacces = 13,
    ebusy = 16,
    eexist = 17,
    exdev = 18,
    enodev = 19,
    enotdir = 20,
    eisdir = 21,
    einval = 22,
    enotty = 25,
    efbig = 27,
    enospc = 28,
    erofs = 30,
    emlink = 31,
    erange = 34,
    enametoolong = 36,
    enosys = 38,
    enotempty = 39,
    eloop = 40,
    enodata = 61,
    eproto = 71,
    eoverflow = 75,
    eopnotsupp = 95,
    etimedout = 110,
    estale = 116,
    euclean = 117,  // "Structure needs cleaning": damaged metadata was met (also EFSCORRUPTED).
    ecanceled = 125,
};

// The errno number of an error, always positive.
constexpr int errno_value(Error error) { return static_cast<int>(error); }

template <typename T>
class [[nodiscard]] Result {
  public:
    using Value = T;

    // Both conversions are implicit on purpose: `return value;` and `return Error::enoent;`.
    Result(T value) : holds_value_(true) { new (&value_) T(std::move(value)); }  // NOLINT
    Result(Error error) : error_(error), holds_value_(false) {}                  // NOLINT
    Result(Result&& other) noexcept : holds_value_(other.holds_value_) {
        if (holds_value_) {
            new (&value_) T(std::move(other.value_));
        } else {
            error_ = other.error_;
        }
    }
    Result(const Result&) = delete;
    Result& operator=(const Result&) = delete;
    Result& operator=(Result&&) = delete;
    ~Result() {
        if (holds_value_) {
            value_.~T();
        }
    }

    bool ok() const { return holds_value_; }
    explicit operator bool() const { return holds_value_; }

    // Precondition: !ok().
    Error error() const { return error_; }
    // Precondition: ok().
    T& value() { return value_; }
    const T& value() const { return value_; }
    T release_value() { return std::move(value_); }
    T* operator->() { return &value_; }
    T& operator*() { return value_; }

    T value_or(T fallback) { return holds_value_ ? std::move(value_) : std::move(fallback); }

  private:
    union {
        T value_;
        Error error_;
    };
    bool holds_value_;
};

template <>
class [[nodiscard]] Result<void> {
  public:
    using Value = void;

    Result() = default;
    Result(Error error) : error_(static_cast<int>(error)) {}  // NOLINT

    bool ok() const { return error_ == 0; }
    explicit operator bool() const { return ok(); }
    Error error() const { return static_cast<Error>(error_); }
    void release_value() const {}

  private:
    int error_ = 0;
};

// TRY(expression): evaluates to the value of a Result, or returns its error from this function.
#define TRY(expression)                       \
    __extension__({                           \
        auto try_result_ = (expression);      \
        if (!try_result_.ok()) [[unlikely]] { \
            return try_result_.error();       \
        }                                     \
        try_result_.release_value();          \
    })

// MUST(expression): the value of a Result that cannot be an error here; the reason stands beside it.
#define MUST(expression)                                                               \
    __extension__({                                                                    \
        auto must_result_ = (expression);                                              \
        if (!must_result_.ok()) [[unlikely]] {                                         \
            ::tiffin::host::panic(__FILE__, __LINE__, "MUST(" #expression ") failed"); \
        }                                                                              \
        must_result_.release_value();                                                  \
    })

}  // namespace tiffin

namespace tiffin::host {
// Declared here for MUST; described in host.h.
[[noreturn]] void panic(const char* file, int line, const char* message);
}  // namespace tiffin::host
