/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * How the tiffin command asks a mounted file system, by ioctls on any file or directory of the mount: what all hosts answer, in C
 * for the kernel's. fuse/session/control_commands.h has the others, and their rules. Its user includes what has _IOWR (sys/ioctl.h,
 * linux/fs.h), and in the kernel the types.
 */
#ifndef TIFFIN_FS_CONTROL_FORMAT_H
#define TIFFIN_FS_CONTROL_FORMAT_H

#ifdef __cplusplus
#include <cstdint>
#endif

#define TIFFIN_CONTROL_TYPE 0xF7

/* What texts a mount can give. */
#define TIFFIN_TEXT_STATUS 0 /* lines "key: value": of the host first, then of the file system */
#define TIFFIN_TEXT_VERSION 1

/* In: kind, offset. Out: a piece of the text from there, and the size of the whole. */
struct tiffin_text_command {
    uint32_t kind;
    uint32_t offset_bytes;
    uint32_t total_bytes;
    uint32_t piece_bytes;
    char piece[4080];
};
static_assert(sizeof(struct tiffin_text_command) == 4096, "");
#define TIFFIN_CONTROL_TEXT _IOWR(TIFFIN_CONTROL_TYPE, 1, struct tiffin_text_command)

/* In and out: see vfs::ScrubProgress. All zero at the start; pass back what came until finished. */
struct tiffin_scrub_command {
    uint64_t cursor[4];
    uint64_t checked_bytes;
    uint64_t total_bytes;
    uint64_t errors_found;
    uint64_t finished;
};
static_assert(sizeof(struct tiffin_scrub_command) == 64, "");
#define TIFFIN_CONTROL_SCRUB _IOWR(TIFFIN_CONTROL_TYPE, 3, struct tiffin_scrub_command)

/* Out: see vfs::Growth. */
struct tiffin_grow_command {
    uint64_t from_bytes;
    uint64_t to_bytes;
};
static_assert(sizeof(struct tiffin_grow_command) == 16, "");
#define TIFFIN_CONTROL_GROW _IOR(TIFFIN_CONTROL_TYPE, 5, struct tiffin_grow_command)

#endif
