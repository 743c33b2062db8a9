/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include <linux/module.h>

#include "kmod/adapter/module.h"

struct file_system_type tiffin_module_type = {
    TIFFIN_MODULE_FUNCTIONS,
    .name = "tiffin_empty",
    .fs_flags = FS_REQUIRES_DEV,
};
MODULE_ALIAS_FS("tiffin_empty");
MODULE_DESCRIPTION("a file system that does nothing, to measure Tiffin's framework with");
