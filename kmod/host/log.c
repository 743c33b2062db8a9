/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What people are told: lines in the kernel's log. */
#define pr_fmt(format) "tiffin: " format

#include "kernel_services.h"

#include <linux/printk.h>

void tiffin_log(unsigned int level, const char* message) {
    switch (level) {
        case 0:
            pr_debug("%s\n", message);
            break;
        case 1:
            pr_info("%s\n", message);
            break;
        case 2:
            pr_warn("%s\n", message);
            break;
        default:
            pr_err("%s\n", message);
            break;
    }
}

void tiffin_log_panic(const char* file, int line, const char* message) {
    pr_emerg("%s:%d: %s\n", file, line, message);
}
