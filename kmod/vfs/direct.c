/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * O_DIRECT: around the page cache, one piece after the other, and through memory of the module's own. The copy is what a
 * checksum can be taken over, whatever the program does with its memory meanwhile; and any alignment will do.
 */
#include <linux/fs.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/uio.h>

#include "kmod/vfs/internal.h"

#define PIECE_BYTES (1U << 20)

/* ---- Reading: what the page cache has not written back is written back before ---- */

static ssize_t read_pieces(struct kiocb* iocb, struct iov_iter* to, struct tiffin_vector* vector) {
    struct inode* inode = file_inode(iocb->ki_filp);
    const size_t capacity = vector->size_bytes;
    ssize_t total = 0;

    while (iov_iter_count(to) > 0) {
        ssize_t length;
        size_t copied;

        vector->size_bytes = min(capacity, iov_iter_count(to));
        if (iocb->ki_pos >= i_size_read(inode)) {
            break;
        }
        length =
            TIFFIN_CALL(tiffin_mount_of(inode->i_sb), read, inode->i_ino, iocb->ki_pos, vector, 1);
        if (length <= 0) {
            return total > 0 ? total : length;
        }
        copied = copy_to_iter(vector->data, length, to);
        total += copied;
        iocb->ki_pos += copied;
        if (copied < length) {
            return total > 0 ? total : -EFAULT;
        }
    }
    return total;
}

ssize_t tiffin_direct_read(struct kiocb* iocb, struct iov_iter* to) {
    struct inode* inode = file_inode(iocb->ki_filp);
    struct tiffin_vector vector = {.size_bytes = min_t(size_t, iov_iter_count(to), PIECE_BYTES)};
    ssize_t length;

    if (vector.size_bytes == 0) {
        return 0;
    }
    vector.data = kvmalloc(vector.size_bytes, GFP_KERNEL);
    if (vector.data == NULL) {
        return -ENOMEM;
    }
    inode_lock_shared(inode);
    length = filemap_write_and_wait_range(inode->i_mapping, iocb->ki_pos,
                                          iocb->ki_pos + (loff_t)iov_iter_count(to) - 1);
    if (length == 0) {
        file_accessed(iocb->ki_filp);
        length = read_pieces(iocb, to, &vector);
    }
    inode_unlock_shared(inode);
    kvfree(vector.data);
    return length;
}

/* ---- Writing ---- */

/* With page faults kept out, which would bring back what is being replaced. */
static ssize_t write_piece(struct inode* inode, loff_t position,
                           const struct tiffin_vector* vector) {
    struct address_space* mapping = inode->i_mapping;
    const loff_t last = position + (loff_t)vector->size_bytes - 1;
    ssize_t written;

    filemap_invalidate_lock(mapping);
    written = filemap_write_and_wait_range(mapping, position, last);
    if (written == 0) {
        written =
            invalidate_inode_pages2_range(mapping, position >> PAGE_SHIFT, last >> PAGE_SHIFT);
    }
    if (written == 0) {
        written = TIFFIN_CALL(tiffin_mount_of(inode->i_sb), write, inode->i_ino, position, vector,
                              1, TIFFIN_WRITE_KEEP_TIMES);
    }
    if (written > 0 && position + written > i_size_read(inode)) {
        i_size_write(inode, position + written);
    }
    filemap_invalidate_unlock(mapping);
    return written;
}

/* The inode is locked, and its times and privileges are as they have to be. */
ssize_t tiffin_direct_write(struct kiocb* iocb, struct iov_iter* from) {
    struct inode* inode = file_inode(iocb->ki_filp);
    const size_t capacity = min_t(size_t, iov_iter_count(from), PIECE_BYTES);
    struct tiffin_vector vector = {.data = kvmalloc(capacity, GFP_KERNEL)};
    ssize_t total = 0;
    ssize_t written = 0;

    if (vector.data == NULL) {
        return -ENOMEM;
    }
    while (iov_iter_count(from) > 0) {
        vector.size_bytes = copy_from_iter(vector.data, min(capacity, iov_iter_count(from)), from);
        if (vector.size_bytes == 0) {
            written = -EFAULT;
            break;
        }
        written = write_piece(inode, iocb->ki_pos, &vector);
        if (written <= 0) {
            break;
        }
        total += written;
        iocb->ki_pos += written;
        if (written < vector.size_bytes) {
            break;
        }
    }
    kvfree(vector.data);
    return total > 0 ? total : written;
}
