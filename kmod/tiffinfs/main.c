/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The module of one file system: registers the table of its C++ side. */
#include <linux/module.h>

#include "kmod/host/kernel_services.h"
#include "kmod/vfs/module.h"

static const struct tiffin_operations* operations;

static int init_fs_context(struct fs_context* context) {
    return tiffin_init_fs_context(context, operations);
}

static struct file_system_type type = {
    .owner = THIS_MODULE,
    .name = "tiffin",
    .fs_flags = FS_REQUIRES_DEV,
    .init_fs_context = init_fs_context,
    .kill_sb = tiffin_kill_sb,
};
MODULE_ALIAS_FS("tiffin");

static int __init load(void) {
    operations = tiffin_module_operations(tiffin_get_services());
    return tiffin_register(&type, operations);
}

static void __exit unload(void) {
    struct tiffin_memory_use left;

    unregister_filesystem(&type);
    left = tiffin_memory_in_use();
    if (left.allocations != 0 || left.bytes != 0) {
        pr_err("tiffin: unload: FAILED: not released: %lld allocations, %lld bytes\n",
               left.allocations, left.bytes);
    }
}

module_init(load);
module_exit(unload);
MODULE_DESCRIPTION("tiffinfs, the file system of Tiffin");
MODULE_LICENSE("Dual MIT/GPL");
