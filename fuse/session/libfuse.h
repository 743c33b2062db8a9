// SPDX-License-Identifier: MIT OR GPL-2.0-only
// libfuse's low-level API, and which of its features this build has. Written for libfuse 3.14 and
// later; newer features are asked for at compile time here and at run time in Session.
#pragma once

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

// O_TMPFILE is passed on.
#define TIFFIN_FUSE_HAS_TMPFILE (FUSE_VERSION >= 317)
// Requests can be declared uninterruptible, which saves two global locks for each.
#define TIFFIN_FUSE_HAS_NO_INTERRUPT (FUSE_VERSION >= 317)
// The birth time is passed on.
#define TIFFIN_FUSE_HAS_STATX (FUSE_VERSION >= 318)
// Requests can travel through io_uring.
#define TIFFIN_FUSE_HAS_IO_URING (FUSE_VERSION >= 318)
