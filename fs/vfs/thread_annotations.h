// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Clang's thread-safety annotations (https://clang.llvm.org/docs/ThreadSafetyAnalysis.html).
//
// Every member that a lock guards is marked GUARDED_BY, every function that needs a lock held is
// marked REQUIRES; -Wthread-safety is an error in CI. Other compilers see nothing.
#pragma once

#if defined(__clang__)
#define TIFFIN_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define TIFFIN_THREAD_ANNOTATION(x)
#endif

#define CAPABILITY(x) TIFFIN_THREAD_ANNOTATION(capability(x))
#define SCOPED_CAPABILITY TIFFIN_THREAD_ANNOTATION(scoped_lockable)
#define GUARDED_BY(x) TIFFIN_THREAD_ANNOTATION(guarded_by(x))
#define PT_GUARDED_BY(x) TIFFIN_THREAD_ANNOTATION(pt_guarded_by(x))
#define REQUIRES(...) TIFFIN_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define REQUIRES_SHARED(...) TIFFIN_THREAD_ANNOTATION(requires_shared_capability(__VA_ARGS__))
#define ACQUIRE(...) TIFFIN_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define ACQUIRE_SHARED(...) TIFFIN_THREAD_ANNOTATION(acquire_shared_capability(__VA_ARGS__))
#define RELEASE(...) TIFFIN_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define RELEASE_SHARED(...) TIFFIN_THREAD_ANNOTATION(release_shared_capability(__VA_ARGS__))
#define RELEASE_GENERIC(...) TIFFIN_THREAD_ANNOTATION(release_generic_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) TIFFIN_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define TRY_ACQUIRE_SHARED(...) TIFFIN_THREAD_ANNOTATION(try_acquire_shared_capability(__VA_ARGS__))
#define EXCLUDES(...) TIFFIN_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define ASSERT_CAPABILITY(x) TIFFIN_THREAD_ANNOTATION(assert_capability(x))
#define RETURN_CAPABILITY(x) TIFFIN_THREAD_ANNOTATION(lock_returned(x))
// Only for code whose locking pattern the analysis cannot express (hand-over-hand descents, sets of
// locks); each use says why beside it.
#define NO_THREAD_SAFETY_ANALYSIS TIFFIN_THREAD_ANNOTATION(no_thread_safety_analysis)
