// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Which run-time checks this build has. Only for the sources of fuse/host: all others ask the
// functions that they export, so that objects built with other options agree with them.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define TIFFIN_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TIFFIN_ADDRESS_SANITIZER 1
#endif
#endif

#if defined(__SANITIZE_THREAD__)
#define TIFFIN_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TIFFIN_THREAD_SANITIZER 1
#endif
#endif

namespace tiffin::fuse {

#if defined(TIFFIN_CHECK_LOCK_ORDER) || defined(TIFFIN_ADDRESS_SANITIZER) || \
    defined(TIFFIN_THREAD_SANITIZER) || !defined(__OPTIMIZE__)
inline constexpr bool kCheckLockOrder = true;
#else
inline constexpr bool kCheckLockOrder = false;
#endif

#if defined(TIFFIN_ADDRESS_SANITIZER)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

#if defined(TIFFIN_THREAD_SANITIZER)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

}  // namespace tiffin::fuse
