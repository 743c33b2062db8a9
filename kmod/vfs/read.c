/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Reading content into memory of the kernel: waiting for it, and not. */
#include <linux/fs.h>
#include <linux/minmax.h>
#include <linux/string.h>
#include <linux/workqueue.h>

#include "kmod/vfs/internal.h"

/* What the file system has not got may still be behind its own end of the file, but before the page cache's. */
static void zero_behind(const struct tiffin_vector* vectors, size_t count, size_t filled) {
    size_t i;

    for (i = 0; i < count; ++i) {
        const size_t size = vectors[i].size_bytes;
        const size_t kept = min(filled, size);

        memset(vectors[i].data + kept, 0, size - kept);
        filled -= kept;
    }
}

int tiffin_read_vectors(struct inode* inode, loff_t offset, const struct tiffin_vector* vectors,
                        size_t count) {
    const long length =
        TIFFIN_CALL(tiffin_mount_of(inode->i_sb), read, inode->i_ino, offset, vectors, count);

    if (length < 0) {
        return length;
    }
    zero_behind(vectors, count, length);
    return 0;
}

static void advance(struct tiffin_read* read) {
    struct tiffin_mount* mount = tiffin_mount_of(read->inode->i_sb);
    struct tiffin_inside inside;
    long length = 0;
    bool done;

    do {
        if (tiffin_is_closed(mount)) {
            read->done(read, -EIO);
            return;
        }
        tiffin_turn_begin(&read->turn);
        inside = tiffin_enter(mount);
        done = mount->ops->read_advance(read->reader);
        if (done) {
            length = mount->ops->read_result(mount->fs, read->reader);
        }
        tiffin_leave(inside);
    } while (!done && tiffin_turn_is_own(&read->turn));
    /* If not, another thread may have finished it already. */
    if (done) {
        if (length >= 0) {
            zero_behind(read->vectors, read->count, length);
        }
        read->done(read, min(length, 0L));
    }
}

static void continue_read(struct work_struct* work) {
    advance(container_of(work, struct tiffin_read, work));
}

/* In an interrupt. */
static void transferred(void* owner) {
    struct tiffin_read* read = owner;

    if (tiffin_turn_is_queued(&read->turn)) {
        queue_work(tiffin_mount_of(read->inode->i_sb)->reads, &read->work);
    }
}

void tiffin_read_start(struct tiffin_read* read) {
    INIT_WORK(&read->work, continue_read);
    read->reader = TIFFIN_CALL(tiffin_mount_of(read->inode->i_sb), read_begin, read->inode->i_ino,
                               read->offset, read->vectors, read->count, transferred, read);
    if (IS_ERR_OR_NULL(read->reader)) {
        read->done(read, read->reader == NULL ? -ENOMEM : PTR_ERR(read->reader));
    } else {
        advance(read);
    }
}
