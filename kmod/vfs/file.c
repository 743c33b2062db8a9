/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Regular files through the page cache. */
#include <linux/fs.h>
#include <linux/iversion.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/uio.h>

/* Behind the others, whose types it uses. */
#include <linux/falloc.h>

#include "kmod/vfs/internal.h"

static int open_file(struct inode* inode, struct file* file) {
    file->f_mode |= FMODE_CAN_ODIRECT | FMODE_NOWAIT | TIFFIN_BUFFERED_ASYNC_MODE;
    return generic_file_open(inode, file);
}

static ssize_t read_iter(struct kiocb* iocb, struct iov_iter* to) {
    return iocb->ki_flags & IOCB_DIRECT ? tiffin_direct_read(iocb, to)
                                        : generic_file_read_iter(iocb, to);
}

/* ---- Writing ---- */

/* Promised room for `pages` pages that become dirty. What is under way often makes room for the next ones, and gives back
 * what overwritten blocks were promised. */
static int promise(struct inode* inode, unsigned int pages) {
    struct tiffin_mount* mount = tiffin_mount_of(inode->i_sb);
    int error = TIFFIN_CALL(mount, promise, pages);

    if (error == -ENOSPC) {
        try_to_writeback_inodes_sb(inode->i_sb, WB_REASON_FS_FREE_SPACE);
        filemap_fdatawait_keep_errors(inode->i_mapping);
        error = TIFFIN_CALL(mount, promise, pages);
    }
    return error;
}

static void return_promise(struct inode* inode, unsigned int pages) {
    if (pages > 0) {
        TIFFIN_CALL_VOID(tiffin_mount_of(inode->i_sb), return_promise, pages);
    }
}

/* Whether a file that reaches up to `end` takes blocks; the content of a small one is kept in its inode, but of one that was
 * larger once and not empty since. */
static bool takes_blocks(struct inode* inode, loff_t end) {
    return !READ_ONCE(tiffin_inode_of(inode)->is_inline) ||
           max_t(loff_t, end, i_size_read(inode)) > tiffin_mount_of(inode->i_sb)->ops->inline_bytes;
}

/* The same room as a part of the file, which blocks that it has already do not need. */
static int reserve(struct inode* inode, loff_t position, size_t length) {
    struct tiffin_mount* mount = tiffin_mount_of(inode->i_sb);
    const loff_t begin = round_down(position, TIFFIN_BLOCK_BYTES);
    const loff_t end = round_up(position + length, TIFFIN_BLOCK_BYTES);

    return TIFFIN_CALL(mount, reserve, inode->i_ino, begin, end - begin);
}

#define LONGEST_PART (1U << 20)

/* The longest part from `position` on, of at most `wanted` bytes, that there is room for, so that write-back does not fail
 * for want of it. */
static ssize_t make_room_for_part(struct inode* inode, loff_t position, size_t wanted) {
    size_t length = min_t(size_t, wanted, LONGEST_PART - (position & (LONGEST_PART - 1)));
    const unsigned int pages = DIV_ROUND_UP(offset_in_page(position) + length, PAGE_SIZE);
    /* The content goes to the tree, which takes blocks if there are many such files. */
    const bool tree_only = !takes_blocks(inode, position + length);
    int error = promise(inode, pages);
    if (error == 0) {
        tiffin_inode_of(inode)->promised_pages = pages;
        return length;
    }
    if (tree_only && error == -ENOSPC && position + (loff_t)length <= i_size_read(inode)) {
        /* What is stored already can be overwritten; what a longer size only says is stored now, if there is room. */
        error = TIFFIN_CALL(tiffin_mount_of(inode->i_sb), allocate, inode->i_ino,
                            FALLOC_FL_KEEP_SIZE, position, length);
        tiffin_refresh(inode); /* it moves times, and the content perhaps to a block */
        return error != 0 ? error : length;
    }
    if (tree_only || error != -ENOSPC) {
        return error;
    }
    error = reserve(inode, position, length);

    while (error == -ENOSPC && length > TIFFIN_BLOCK_BYTES) {
        length = max_t(size_t, length / 2, TIFFIN_BLOCK_BYTES);
        error = reserve(inode, position, length);
    }
    if (error == -ENOSPC && (position & (TIFFIN_BLOCK_BYTES - 1)) + length > TIFFIN_BLOCK_BYTES) {
        /* Up to the end of its first block. */
        length = TIFFIN_BLOCK_BYTES - (position & (TIFFIN_BLOCK_BYTES - 1));
        error = reserve(inode, position, length);
    }
    return error != 0 ? error : length;
}

static ssize_t write_part(struct kiocb* iocb, struct iov_iter* from) {
    const size_t count = iov_iter_count(from);
    const loff_t position = iocb->ki_pos;
    struct inode* inode = file_inode(iocb->ki_filp);
    const ssize_t length = make_room_for_part(inode, position, count);
    ssize_t written;

    if (length < 0) {
        return length;
    }
    iov_iter_truncate(from, length);
    tiffin_race_point("write");
    written = generic_perform_write(iocb, from);
    iov_iter_reexpand(from, iov_iter_count(from) + (count - length));
    return_promise(inode, tiffin_inode_of(inode)->promised_pages);
    tiffin_inode_of(inode)->promised_pages = 0;
    if (written > 0) {
        /* Not all kernels of this version do it themselves. */
        iocb->ki_pos = position + written;
    }
    return written;
}

static ssize_t write_locked(struct kiocb* iocb, struct iov_iter* from) {
    struct file* file = iocb->ki_filp;
    struct inode* inode = file_inode(file);
    ssize_t written = generic_write_checks(iocb, from);
    ssize_t total = 0;
    loff_t begin;
    int error;

    if (written <= 0) {
        return written;
    }
    if (IS_IMMUTABLE(inode)) {
        return -EPERM; /* it has become so since it was opened */
    }
    error = file_remove_privs(file);
    if (error == 0) {
        error = file_update_time(file);
    }
    if (error != 0) {
        return error;
    }
    if (iocb->ki_pos > i_size_read(inode)) {
        filemap_invalidate_lock(inode->i_mapping);
        tiffin_zero_tail(inode);
        filemap_invalidate_unlock(inode->i_mapping);
    }
    if (iocb->ki_flags & IOCB_DIRECT) {
        written = tiffin_direct_write(iocb, from);
        if (written != -ENOTBLK) {
            return written;
        }
    }
    begin = iocb->ki_pos;
    tiffin_set_backing_device(inode);
    do {
        written = write_part(iocb, from);
        total += max_t(ssize_t, written, 0);
    } while (written > 0 && iov_iter_count(from) > 0);
    tiffin_set_backing_device(NULL);
    if (total > 0 && (iocb->ki_flags & IOCB_DIRECT)) {
        error = filemap_write_and_wait_range(inode->i_mapping, begin, begin + total - 1);
        if (error != 0) {
            return error;
        }
        invalidate_mapping_pages(inode->i_mapping, begin >> PAGE_SHIFT,
                                 (begin + total - 1) >> PAGE_SHIFT);
    }
    return total > 0 ? total : written;
}

static ssize_t write_iter(struct kiocb* iocb, struct iov_iter* from) {
    struct inode* inode = file_inode(iocb->ki_filp);
    ssize_t written;

    /* Every write takes room, and may wait for it. */
    if (iocb->ki_flags & IOCB_NOWAIT) {
        return -EAGAIN;
    }
    inode_lock(inode);
    written = write_locked(iocb, from);
    inode_unlock(inode);
    return written > 0 ? generic_write_sync(iocb, written) : written;
}

/* ---- Mappings ---- */

static vm_fault_t page_mkwrite(struct vm_fault* fault) {
    struct page* page = fault->page;
    struct file* file = fault->vma->vm_file;
    struct inode* inode = file_inode(file);
    vm_fault_t result = VM_FAULT_LOCKED;
    bool is_promised = false;
    int error;

    if (IS_IMMUTABLE(inode)) {
        return VM_FAULT_SIGBUS;
    }
    sb_start_pagefault(inode->i_sb);
    file_update_time(file);
    filemap_invalidate_lock_shared(inode->i_mapping);
    /* Also for a small file: what is behind its end in the page may become a part of it. */
    error = promise(inode, 1);
    is_promised = error == 0;
    if (error == -ENOSPC) {
        error = reserve(inode, page_offset(page), PAGE_SIZE);
    }
    if (error != 0) {
        result = vmf_fs_error(error);
        goto out;
    }
    tiffin_race_point("fault");
    lock_page(page);
    if (page->mapping != inode->i_mapping || page_offset(page) >= i_size_read(inode)) {
        unlock_page(page);
        result = VM_FAULT_NOPAGE;
        goto out;
    }
    wait_on_page_writeback(page);
    if (is_promised) {
        is_promised = !tiffin_mark_promised(page);
    }
    set_page_dirty(page);
out:
    return_promise(inode, is_promised ? 1 : 0);
    filemap_invalidate_unlock_shared(inode->i_mapping);
    sb_end_pagefault(inode->i_sb);
    return result;
}

static const struct vm_operations_struct mapping_operations = {
    .fault = filemap_fault,
    .map_pages = filemap_map_pages,
    .page_mkwrite = page_mkwrite,
};

static int map_file(struct file* file, struct vm_area_struct* vma) {
    file_accessed(file);
    vma->vm_ops = &mapping_operations;
    return 0;
}

/* ---- Room ---- */

#define KNOWN_MODES                                                          \
    (FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_COLLAPSE_RANGE | \
     FALLOC_FL_ZERO_RANGE | FALLOC_FL_INSERT_RANGE)
#define MOVING_MODES (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE)

/* Before anything is written back for it. */
static int check_moving(const struct inode* inode, int mode, loff_t offset, loff_t length) {
    const loff_t needed = mode & FALLOC_FL_COLLAPSE_RANGE ? offset + length : offset;

    if (!(mode & MOVING_MODES)) {
        return 0;
    }
    return ((offset | length) & (TIFFIN_BLOCK_BYTES - 1)) != 0 || needed >= i_size_read(inode)
               ? -EINVAL
               : 0;
}

/* What the operation changes has to be in the file system and not in the page cache. */
static int leave_page_cache(struct inode* inode, int mode, loff_t offset, loff_t length) {
    const loff_t first = round_down(offset, PAGE_SIZE);
    const loff_t last = mode & MOVING_MODES ? LLONG_MAX : round_up(offset + length, PAGE_SIZE) - 1;
    int error;

    if ((mode & ~FALLOC_FL_KEEP_SIZE) == 0) {
        return 0;
    }
    error = filemap_write_and_wait_range(inode->i_mapping, first, last);
    if (error == 0) {
        truncate_pagecache_range(inode, first, last);
    }
    return error;
}

static long allocate_locked(struct file* file, int mode, loff_t offset, loff_t length) {
    struct inode* inode = file_inode(file);
    struct tiffin_mount* mount = tiffin_mount_of(inode->i_sb);
    struct tiffin_attributes attributes;
    int error = check_moving(inode, mode, offset, length);

    if (error == 0 && !(mode & FALLOC_FL_KEEP_SIZE) && !(mode & MOVING_MODES)) {
        error = inode_newsize_ok(inode, offset + length);
    }
    if (error == 0) {
        error = file_remove_privs(file);
    }
    if (error == 0) {
        /* It moves times itself, if it changes anything. */
        error = tiffin_write_times(inode);
    }
    if (error != 0) {
        return error;
    }
    if (!(mode & FALLOC_FL_KEEP_SIZE) && !(mode & MOVING_MODES) &&
        offset + length > i_size_read(inode)) {
        tiffin_zero_tail(inode);
    }
    error = leave_page_cache(inode, mode, offset, length);
    if (error == 0 && (mode & MOVING_MODES)) {
        /* The end, which the page cache knows better than the file system, moves too. */
        error = TIFFIN_CALL(mount, get_attributes, inode->i_ino, &attributes);
        if (error == 0 && attributes.size_bytes != i_size_read(inode)) {
            error = -EIO;
        }
    }
    tiffin_race_point("allocate");
    if (error == 0) {
        inode_inc_iversion(inode); /* as where the size changes */
        error = TIFFIN_CALL(mount, allocate, inode->i_ino, mode, offset, length);
    }
    tiffin_race_point("allocated");
    if (error != 0) {
        tiffin_refresh(inode); /* a part of it may have been done */
        return error;
    }
    if (mode & FALLOC_FL_COLLAPSE_RANGE) {
        i_size_write(inode, i_size_read(inode) - length);
    } else if (mode & FALLOC_FL_INSERT_RANGE) {
        i_size_write(inode, i_size_read(inode) + length);
    } else if (!(mode & FALLOC_FL_KEEP_SIZE) && offset + length > i_size_read(inode)) {
        i_size_write(inode, offset + length);
    }
    tiffin_refresh(inode);
    return 0;
}

static long allocate(struct file* file, int mode, loff_t offset, loff_t length) {
    struct inode* inode = file_inode(file);
    long error;

    if ((mode & ~KNOWN_MODES) != 0) {
        return -EOPNOTSUPP;
    }
    inode_lock(inode);
    inode_dio_wait(inode);
    filemap_invalidate_lock(inode->i_mapping);
    error = allocate_locked(file, mode, offset, length);
    filemap_invalidate_unlock(inode->i_mapping);
    inode_unlock(inode);
    if (error != 0) {
        return error;
    }
    return (file->f_flags & O_DSYNC) != 0 ? tiffin_commit(inode, false) : tiffin_settle(inode);
}

/* ---- Positions ---- */

static loff_t seek_content(struct file* file, loff_t offset, u32 target) {
    struct inode* inode = file_inode(file);
    loff_t found;

    inode_lock_shared(inode);
    /* The file system knows what is a hole, but not what waits in the page cache to fill it. */
    found = filemap_write_and_wait(inode->i_mapping);
    if (found == 0) {
        found = offset < 0
                    ? -ENXIO
                    : TIFFIN_CALL(tiffin_mount_of(inode->i_sb), seek, inode->i_ino, offset, target);
    }
    inode_unlock_shared(inode);
    return found < 0 ? found : vfs_setpos(file, found, inode->i_sb->s_maxbytes);
}

static loff_t llseek(struct file* file, loff_t offset, int whence) {
    switch (whence) {
        case SEEK_DATA:
            return seek_content(file, offset, TIFFIN_SEEK_DATA);
        case SEEK_HOLE:
            return seek_content(file, offset, TIFFIN_SEEK_HOLE);
        default:
            return generic_file_llseek(file, offset, whence);
    }
}

const struct file_operations tiffin_file_operations = {
    TIFFIN_BUFFERED_ASYNC_FLAG.llseek = llseek,
    .read_iter = read_iter,
    .write_iter = write_iter,
    .mmap = map_file,
    .open = open_file,
    .fsync = tiffin_fsync,
    .fallocate = allocate,
    .splice_read = filemap_splice_read,
    .splice_write = iter_file_splice_write,
    .unlocked_ioctl = tiffin_ioctl,
    .compat_ioctl = compat_ptr_ioctl,
};
