// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The numbers of the FUSE host that measurements may move.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tiffin::fuse {

// The largest read or write that the kernel may send; more needs a system setting
// (fs.fuse.max_pages_limit) and gains little.
inline constexpr uint32_t kMaxRequestBytes = 1U << 20;

// How long the kernel may keep names (also missing ones) and attributes. All changes go through the
// kernel's own caches, so this is only a bound for what is not asked for again.
inline constexpr double kCacheSeconds = 3600;

// The same for missing names in the root directory of a device that may be lost: the root's attributes outlive it, and the
// session does not know which names the kernel would have to forget.
inline constexpr double kMissingInRootSeconds = 1;

// Requests for readahead, write-back and asynchronous direct I/O that may be under way at once; the
// kernel's default of 12 starves parallel readers.
inline constexpr uint32_t kMaxBackgroundRequests = 64;

// How far the kernel reads ahead: one request. Its default of 128 KiB costs eight.
inline constexpr uint32_t kReadAheadKib = kMaxRequestBytes / 1024;

// The share of the system's dirty memory that may belong to the mount. The kernel's default for FUSE
// is 1 %, which makes writers wait for the file system long before memory is short.
inline constexpr uint32_t kMaxDirtyPercent = 40;

// Threads that serve requests, when the user gives no number: enough to keep a slow device busy.
// Idle ones cost little.
inline constexpr uint32_t kDefaultMaxThreads = 16;

// One copy_file_range request is answered after this many bytes, so that it never blocks for long;
// the kernel's caller goes on with the rest.
inline constexpr uint64_t kMaxCopyBytes = uint64_t{128} << 20;

static_assert(kMaxRequestBytes % 4096 == 0);
static_assert(kMaxDirtyPercent <= 100);

}  // namespace tiffin::fuse
