/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Regular files of file systems that make their content up: no page cache, no mappings. */
#include <linux/fs.h>
#include <linux/iversion.h>
#include <linux/slab.h>
#include <linux/uio.h>

#include "kmod/vfs/internal.h"

#define PIECE_BYTES (64U << 10)

/* Memory for a part of a request, to copy through; data is NULL where there is none. */
static struct tiffin_vector allocate_piece(size_t wanted_bytes) {
    struct tiffin_vector piece = {.size_bytes = min_t(size_t, wanted_bytes, PIECE_BYTES)};

    piece.data = kvmalloc(piece.size_bytes, GFP_KERNEL);
    return piece;
}

static ssize_t read_iter(struct kiocb* iocb, struct iov_iter* to) {
    struct inode* inode = file_inode(iocb->ki_filp);
    struct tiffin_vector vector = allocate_piece(iov_iter_count(to));
    ssize_t length;

    if (vector.data == NULL) {
        return -ENOMEM;
    }
    length =
        TIFFIN_CALL(tiffin_mount_of(inode->i_sb), read, inode->i_ino, iocb->ki_pos, &vector, 1);
    if (length > 0) {
        length = copy_to_iter(vector.data, length, to) ?: -EFAULT;
    }
    kvfree(vector.data);
    if (length > 0) {
        iocb->ki_pos += length;
    }
    return length;
}

static ssize_t write_piece(struct kiocb* iocb, struct iov_iter* from) {
    struct inode* inode = file_inode(iocb->ki_filp);
    struct tiffin_vector vector = allocate_piece(iov_iter_count(from));
    ssize_t length;

    if (vector.data == NULL) {
        return -ENOMEM;
    }
    if (copy_from_iter(vector.data, vector.size_bytes, from) != vector.size_bytes) {
        length = -EFAULT;
    } else {
        inode_inc_iversion(inode);
        length = TIFFIN_CALL(tiffin_mount_of(inode->i_sb), write, inode->i_ino, iocb->ki_pos,
                             &vector, 1, 0);
    }
    kvfree(vector.data);
    if (length > 0) {
        iocb->ki_pos += length;
        i_size_write(inode, max_t(loff_t, i_size_read(inode), iocb->ki_pos));
        tiffin_refresh(inode);
    }
    return length;
}

static ssize_t write_iter(struct kiocb* iocb, struct iov_iter* from) {
    struct inode* inode = file_inode(iocb->ki_filp);
    ssize_t length;

    inode_lock(inode);
    length = generic_write_checks(iocb, from);
    if (length > 0) {
        length = file_remove_privs(iocb->ki_filp);
        if (length == 0) {
            length = write_piece(iocb, from);
        }
    }
    inode_unlock(inode);
    return length > 0 ? generic_write_sync(iocb, length) : length;
}

const struct file_operations tiffin_simple_file_operations = {
    .llseek = generic_file_llseek,
    .read_iter = read_iter,
    .write_iter = write_iter,
    .open = generic_file_open,
    .fsync = tiffin_fsync,
    .splice_read = copy_splice_read,
    .splice_write = iter_file_splice_write,
    .unlocked_ioctl = tiffin_ioctl,
    .compat_ioctl = compat_ptr_ioctl,
};
