/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include <linux/module.h>

#include "kmod/adapter/module.h"

struct file_system_type tiffin_module_type = {
    TIFFIN_MODULE_FUNCTIONS,
    .name = "tiffin",
    .fs_flags = FS_REQUIRES_DEV | FS_ALLOW_IDMAP,
};
MODULE_ALIAS_FS("tiffin");
MODULE_DESCRIPTION("tiffinfs, the file system of Tiffin");
