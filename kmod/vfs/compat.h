/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What differs between kernels: the only place with version numbers. */
#ifndef TIFFIN_KMOD_COMPAT_H
#define TIFFIN_KMOD_COMPAT_H

#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0) || LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
#error "Tiffin's module is written for Linux 6.1; other kernels have other interfaces of the VFS"
#endif

/* Pages are named by their addresses, which those of high memory have not. */
#ifdef CONFIG_HIGHMEM
#error "Tiffin's module needs a kernel without high memory"
#endif

#endif
