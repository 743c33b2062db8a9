// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Objects and arrays in memory of the host: what `new` and `delete` are elsewhere. Failure is a
// nullptr that the caller must look at; there is no other way for it to show.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

#include "fs/vfs/host.h"

namespace tiffin {

namespace allocate_detail {

// What host::allocate promises.
inline constexpr size_t kHostAlignmentBytes = 16;

// Memory for over-aligned types: the host's own pointer lies right before the object.
template <typename T>
void* allocate_aligned() {
    if constexpr (alignof(T) <= kHostAlignmentBytes) {
        return host::allocate(sizeof(T));
    } else {
        void* memory = host::allocate(sizeof(T) + alignof(T));
        if (memory == nullptr) {
            return nullptr;
        }
        const auto begin = reinterpret_cast<uintptr_t>(memory);
        // At least 16 bytes lie between, since the host's alignment divides this one.
        const uintptr_t aligned = (begin + alignof(T)) & ~(uintptr_t{alignof(T)} - 1);
        reinterpret_cast<void**>(aligned)[-1] = memory;
        return reinterpret_cast<void*>(aligned);
    }
}

template <typename T>
void release_aligned(void* object) {
    if constexpr (alignof(T) <= kHostAlignmentBytes) {
        host::release(object, sizeof(T));
    } else {
        host::release(static_cast<void**>(object)[-1], sizeof(T) + alignof(T));
    }
}

}  // namespace allocate_detail

// A new T, constructed from `arguments`; nullptr when there is no memory. The caller owns it and
// gives it to destroy_object<T> with the same T.
template <typename T, typename... Arguments>
[[nodiscard]] T* make_object(Arguments&&... arguments) {
    void* memory = allocate_detail::allocate_aligned<T>();
    return memory == nullptr ? nullptr : new (memory) T(std::forward<Arguments>(arguments)...);
}

// Destroys and frees what make_object<T> returned; nullptr is allowed. T is the type that was made,
// not a base class of it: the size comes from T.
template <typename T>
void destroy_object(T* object) {
    if (object != nullptr) {
        object->~T();
        allocate_detail::release_aligned<T>(object);
    }
}

// An array of `count` elements, all bytes zero; nullptr when there is no memory (or count is so large
// that its size overflows). Only for types that need no constructor. Given to release_array with the
// same count.
template <typename T>
[[nodiscard]] T* allocate_array(size_t count) {
    static_assert(std::is_trivially_destructible_v<T> && std::is_trivially_copyable_v<T> &&
                  alignof(T) <= allocate_detail::kHostAlignmentBytes);
    if (count > SIZE_MAX / sizeof(T)) {
        return nullptr;
    }
    void* memory = host::allocate(count * sizeof(T));
    if (memory != nullptr) {
        __builtin_memset(memory, 0, count * sizeof(T));
    }
    return static_cast<T*>(memory);
}

// nullptr is allowed.
template <typename T>
void release_array(T* array, size_t count) {
    host::release(array, count * sizeof(T));
}

}  // namespace tiffin
