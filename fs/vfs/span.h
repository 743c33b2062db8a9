// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Views of memory: Span (contiguous), IoVector (one piece of a scatter-gather list).
// The standard's <span> is not part of a freestanding C++20 library in g++ 12.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tiffin {

// A view of `size` elements that it does not own.
template <typename T>
class Span {
  public:
    constexpr Span() = default;
    constexpr Span(T* data, size_t size) : data_(data), size_(size) {}
    template <size_t N>
    constexpr Span(T (&array)[N]) : data_(array), size_(N) {}  // NOLINT
    // Span<T> converts to Span<const T>.
    template <typename U>
    requires std::is_convertible_v<U (*)[], T (*)[]>
    constexpr Span(const Span<U>& other) : data_(other.data()), size_(other.size()) {}  // NOLINT

    constexpr T* data() const { return data_; }
    constexpr size_t size() const { return size_; }
    constexpr bool empty() const { return size_ == 0; }
    constexpr T& operator[](size_t index) const { return data_[index]; }
    constexpr T* begin() const { return data_; }
    constexpr T* end() const { return data_ + size_; }
    constexpr Span first(size_t count) const { return Span(data_, count); }
    constexpr Span subspan(size_t offset) const { return Span(data_ + offset, size_ - offset); }
    constexpr Span subspan(size_t offset, size_t count) const {
        return Span(data_ + offset, count);
    }

  private:
    T* data_ = nullptr;
    size_t size_ = 0;
};

using ByteSpan = Span<const unsigned char>;
using MutableByteSpan = Span<unsigned char>;

}  // namespace tiffin

namespace tiffin::vfs {

// One piece of a scatter-gather list: pinned memory of the host. Writers only read from it.
struct IoVector {
    void* data = nullptr;
    size_t size_bytes = 0;
};

}  // namespace tiffin::vfs
