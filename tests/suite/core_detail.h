// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Translation between the contract's types and those of the system calls.
#pragma once

#include <ctime>
#include <string>

#include "fs/vfs/file_system.h"

namespace tiffin::suite {

inline vfs::Name name_of(const std::string& text) { return {text.data(), text.size()}; }

inline MutableByteSpan bytes_of(std::string& text) {
    return {reinterpret_cast<unsigned char*>(text.data()), text.size()};
}

inline int64_t answer_of(Result<void> result) {
    return result.ok() ? 0 : -errno_value(result.error());
}

template <typename T>
int64_t size_answer_of(Result<T> result) {
    return result.ok() ? static_cast<int64_t>(result.value()) : -errno_value(result.error());
}

// The answer of a call that made a node; its reference is given back.
inline int64_t take_node(Result<vfs::Attributes> result, vfs::FileSystem& file_system) {
    if (!result.ok()) {
        return -errno_value(result.error());
    }
    file_system.forget(result->node, 1);
    return 0;
}

inline timespec time_of(const vfs::Timestamp& time) {
    return {time.seconds, static_cast<long>(time.nanoseconds)};
}

}  // namespace tiffin::suite
