/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#include <linux/module.h>

#include "kmod/adapter/module.h"

struct file_system_type tiffin_module_type = {
    TIFFIN_MODULE_FUNCTIONS,
    .name = "tiffin_hello",
};
MODULE_ALIAS_FS("tiffin_hello");
MODULE_DESCRIPTION("hello, the smallest file system of Tiffin");
