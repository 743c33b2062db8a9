/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the framework module exports to the C side of a file system's module. */
#ifndef TIFFIN_KMOD_MODULE_H
#define TIFFIN_KMOD_MODULE_H

#include <linux/fs.h>
#include <linux/fs_context.h>

#include "kmod/vfs/abi.h"

const struct tiffin_services* tiffin_get_services(void);
/* Registers `type`, whose init_fs_context calls the function below. Errors: EINVAL, when `operations` were built for
 * another framework. */
int tiffin_register(struct file_system_type* type, const struct tiffin_operations* operations);
int tiffin_init_fs_context(struct fs_context* context, const struct tiffin_operations* operations);
void tiffin_kill_sb(struct super_block* sb);

#endif
