/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the C side of each file system's module consists of, beside its name. */
#ifndef TIFFIN_KMOD_ADAPTER_MODULE_H
#define TIFFIN_KMOD_ADAPTER_MODULE_H

#include "kmod/vfs/module.h"

/* Each file system's module defines its own, with these functions. */
extern struct file_system_type tiffin_module_type;
#define TIFFIN_MODULE_FUNCTIONS                                             \
    .owner = THIS_MODULE, .init_fs_context = tiffin_module_init_fs_context, \
    .kill_sb = tiffin_kill_sb

int tiffin_module_init_fs_context(struct fs_context* context);

#endif
