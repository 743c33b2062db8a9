/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The framework module: what file systems' modules register with. */
#include <linux/module.h>

#include "kmod/vfs/internal.h"
#include "kmod/vfs/module.h"

const struct tiffin_services* tiffin_get_services(void) { return &tiffin_services; }
EXPORT_SYMBOL_GPL(tiffin_get_services);

int tiffin_register(struct file_system_type* type, const struct tiffin_operations* operations) {
    if (operations->version != TIFFIN_ABI_VERSION || operations->size != sizeof(*operations)) {
        pr_err("tiffin: %s was built for version %u of the framework, not %u\n", type->name,
               operations->version, TIFFIN_ABI_VERSION);
        return -EINVAL;
    }
    return register_filesystem(type);
}
EXPORT_SYMBOL_GPL(tiffin_register);

static int __init load(void) {
    int error = tiffin_super_initialize();

    if (error != 0) {
        return error;
    }
    error = tiffin_device_initialize();
    if (error != 0) {
        goto no_device;
    }
    error = tiffin_writeback_initialize();
    if (error != 0) {
        goto no_writeback;
    }
    return 0;

no_writeback:
    tiffin_device_exit();
no_device:
    tiffin_super_exit();
    return error;
}

static void __exit unload(void) {
    tiffin_writeback_exit();
    tiffin_device_exit();
    tiffin_super_exit();
}

module_init(load);
module_exit(unload);
MODULE_DESCRIPTION("Tiffin: file systems of its contract on Linux's VFS");
MODULE_LICENSE("Dual MIT/GPL");
