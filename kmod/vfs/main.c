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
    if (WARN_ON(((type->fs_flags & FS_REQUIRES_DEV) != 0) != operations->needs_device)) {
        return -EINVAL;
    }
    return register_filesystem(type);
}
EXPORT_SYMBOL_GPL(tiffin_register);

static const struct {
    int (*initialize)(void);
    void (*exit)(void);
} parts[] = {
    {tiffin_super_initialize, tiffin_super_exit},
    {tiffin_device_initialize, tiffin_device_exit},
};

static void exit_parts(size_t count) {
    while (count > 0) {
        parts[--count].exit();
    }
}

static int __init load(void) {
    size_t i;

    for (i = 0; i < ARRAY_SIZE(parts); ++i) {
        const int error = parts[i].initialize();

        if (error != 0) {
            exit_parts(i);
            return error;
        }
    }
    return 0;
}

static void __exit unload(void) { exit_parts(ARRAY_SIZE(parts)); }

module_init(load);
module_exit(unload);
MODULE_DESCRIPTION("Tiffin: file systems of its contract on Linux's VFS");
MODULE_LICENSE("Dual MIT/GPL");
