/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What differs between kernels: the only place with version numbers. The framework is written for the newest one; for an
 * older one, this header has what that lacks. Included behind all headers of the kernel.
 */
#ifndef TIFFIN_KMOD_COMPAT_H
#define TIFFIN_KMOD_COMPAT_H

#include <linux/backing-dev.h>
#include <linux/buffer_head.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/posix_acl_xattr.h>
#include <linux/sched.h>
#include <linux/uio.h>
#include <linux/version.h>

#define TIFFIN_LINUX_IS(major, minor)                             \
    (LINUX_VERSION_CODE >= KERNEL_VERSION((major), (minor), 0) && \
     LINUX_VERSION_CODE < KERNEL_VERSION((major), (minor) + 1, 0))

#if !TIFFIN_LINUX_IS(6, 1) && !TIFFIN_LINUX_IS(6, 12)
#error \
    "Tiffin's module is written for Linux 6.1 and 6.12; other kernels have other interfaces of the VFS"
#endif

/* Nodes are numbered with 64 bits, and inodes with those of a word. A page is promised the room of one block. */
#if BITS_PER_LONG != 64 || PAGE_SHIFT != 12
#error "Tiffin's module needs a processor of 64 bits, and pages of 4 KiB"
#endif

/* Pages are named by their addresses, which those of high memory have not. */
#ifdef CONFIG_HIGHMEM
#error "Tiffin's module needs a kernel without high memory"
#endif

#if TIFFIN_LINUX_IS(6, 1)

#define mnt_idmap user_namespace
#define filemap_splice_read generic_file_splice_read
#define copy_splice_read generic_file_splice_read
#define vmf_fs_error block_page_mkwrite_return
#define generic_fillattr(idmap, mask, inode, stat) generic_fillattr(idmap, inode, stat)
#define get_inode_acl get_acl

/* References to a program's pages, which a fork of the program may take away from it. */
#define iov_iter_extract_pages(iter, pages, bytes, most_pages, flags, offset) \
    iov_iter_get_pages2(iter, *(pages), bytes, most_pages, offset)
#define iov_iter_extract_will_pin(iter) true
#define unpin_user_page put_page

/* Macros: later releases of it have some of these functions. */
#define inode_get_atime(inode) ((inode)->i_atime)
#define inode_get_mtime(inode) ((inode)->i_mtime)
#define inode_get_ctime(inode) ((inode)->i_ctime)
#define inode_set_atime_to_ts(inode, time) ((inode)->i_atime = (time))
#define inode_set_mtime_to_ts(inode, time) ((inode)->i_mtime = (time))
#define inode_set_ctime_to_ts(inode, time) ((inode)->i_ctime = (time))

/* What the VFS hands over to be written: a page, later a folio. */
typedef struct page tiffin_cached;
static inline struct page* tiffin_page_of(tiffin_cached* cached) { return cached; }
static inline tiffin_cached* tiffin_cached_of(struct page* page) { return page; }

/* What an ACL is set for: an inode, later a name. */
typedef struct inode tiffin_acl_target;
static inline struct inode* tiffin_acl_inode(tiffin_acl_target* target) { return target; }
#define TIFFIN_ACL_HANDLERS &posix_acl_access_xattr_handler, &posix_acl_default_xattr_handler,

/* What lets io_uring read the page cache without a thread of its own: a mode of the open file, later a flag of its operations. */
#define TIFFIN_BUFFERED_ASYNC_MODE FMODE_BUF_RASYNC
#define TIFFIN_BUFFERED_ASYNC_FLAG

/* inode_operations.update_time, with `now`. */
#define TIFFIN_UPDATE_TIME(name) int name(struct inode* inode, struct timespec64* time, int flags)
#define TIFFIN_UPDATE_NOW (*time)

/* How NFS asks for a file's change attribute: see tiffin_change_cookie(). */
#define TIFFIN_EXPORT_CHANGE_COOKIE .fetch_iversion = tiffin_change_cookie,
#define STATX_CHANGE_COOKIE 0
static inline void tiffin_set_change_cookie(struct kstat* stat, u64 cookie) {}

/* Who writes is not throttled by write-back to the same device. */
static inline void tiffin_set_backing_device(struct inode* inode) {
    current->backing_dev_info = inode == NULL ? NULL : inode_to_bdi(inode);
}

#else

typedef struct folio tiffin_cached;
static inline struct page* tiffin_page_of(tiffin_cached* cached) { return &cached->page; }
static inline tiffin_cached* tiffin_cached_of(struct page* page) { return page_folio(page); }

typedef struct dentry tiffin_acl_target;
static inline struct inode* tiffin_acl_inode(tiffin_acl_target* target) { return d_inode(target); }
#define TIFFIN_ACL_HANDLERS

#define TIFFIN_BUFFERED_ASYNC_MODE 0
#define TIFFIN_BUFFERED_ASYNC_FLAG .fop_flags = FOP_BUFFER_RASYNC,

#define TIFFIN_UPDATE_TIME(name) int name(struct inode* inode, int flags)
#define TIFFIN_UPDATE_NOW current_time(inode)

#define TIFFIN_EXPORT_CHANGE_COOKIE
static inline void tiffin_set_change_cookie(struct kstat* stat, u64 cookie) {
    stat->result_mask |= STATX_CHANGE_COOKIE;
    stat->change_cookie = cookie;
}

static inline void tiffin_set_backing_device(struct inode* inode) {}

#endif

#endif
