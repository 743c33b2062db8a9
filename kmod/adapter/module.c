/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Loading and unloading the module of one file system: registers the table of its C++ side. */
#include <linux/module.h>

#include "kmod/adapter/module.h"
#include "kmod/host/kernel_services.h"

static const struct tiffin_operations* operations;

int tiffin_module_init_fs_context(struct fs_context* context) {
    return tiffin_init_fs_context(context, operations);
}

static int __init load(void) {
    operations = tiffin_module_operations(tiffin_get_services());
    tiffin_close_mount = tiffin_get_services()->close;
    return tiffin_register(&tiffin_module_type, operations);
}

static void __exit unload(void) {
    struct tiffin_memory_use left;

    unregister_filesystem(&tiffin_module_type);
    left = tiffin_memory_in_use();
    if (left.allocations != 0 || left.bytes != 0) {
        pr_err("tiffin: unload: FAILED: not released: %lld allocations, %lld bytes\n",
               left.allocations, left.bytes);
    }
}

module_init(load);
module_exit(unload);
MODULE_LICENSE("Dual MIT/GPL");
