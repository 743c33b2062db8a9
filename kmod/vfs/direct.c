/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * O_DIRECT: around the page cache, in pieces that are all under way together. Who has not to wait (io_uring, libaio) does not.
 *
 * Reads go to a program's memory where the device can reach it, and through a copy elsewhere, so any alignment will do.
 * Writes are copied: the copy is what a checksum can be taken over, whatever the program does with its memory meanwhile.
 * In a copy whole blocks of the file begin on pages: the device takes them from there.
 */
#include <linux/blkdev.h>
#include <linux/completion.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/uio.h>
#include <linux/wait_bit.h>
#include <linux/workqueue.h>

#include "kmod/vfs/internal.h"

#define PIECE_BYTES (1U << 20)
/* Of a program's memory, which need not begin on a page. */
#define PIECE_PAGES (PIECE_BYTES / PAGE_SIZE + 1)
/* Of one request, under way at once: each has memory of its own. */
#define MOST_PIECES 16

/* ---- A request, of several pieces ---- */

struct direct {
    struct kiocb* iocb;
    struct inode* inode;
    bool waits;
    bool is_write;
    bool in_order; /* each piece when the one before has succeeded */
    bool fills_user_memory;
    bool holds_pages; /* those of a kernel's caller are held by that */
    atomic_t pending; /* pieces, and one for the submission itself */
    struct completion completed;
    spinlock_t lock;
    loff_t start;
    loff_t wanted_end;
    loff_t end; /* of what has succeeded */
    int error;  /* of what is behind it */
    /* Of what has been written, behind something that failed perhaps; 0: nothing has. */
    loff_t written_end;
    struct work_struct work;
};

/* One that waits is `own`, which is the caller's. */
static struct direct* new_direct(struct kiocb* iocb, size_t length, bool is_write, bool waits,
                                 struct direct* own) {
    struct direct* direct = waits ? own : kmalloc(sizeof(*direct), GFP_KERNEL);

    if (direct == NULL) {
        return NULL;
    }
    direct->iocb = iocb;
    direct->inode = file_inode(iocb->ki_filp);
    direct->waits = waits;
    direct->is_write = is_write;
    direct->in_order = false;
    atomic_set(&direct->pending, 1);
    init_completion(&direct->completed);
    spin_lock_init(&direct->lock);
    direct->start = iocb->ki_pos;
    direct->wanted_end = iocb->ki_pos + (loff_t)length;
    direct->end = direct->wanted_end;
    direct->written_end = 0;
    direct->error = 0;
    inode_dio_begin(direct->inode);
    return direct;
}

static void failed_at(struct direct* direct, loff_t position, int error) {
    spin_lock(&direct->lock);
    if (position < direct->end) {
        direct->end = position;
        direct->error = error;
    }
    spin_unlock(&direct->lock);
}

/* Returns what the call does. */
static ssize_t finish(struct direct* direct) {
    struct kiocb* iocb = direct->iocb;
    struct inode* inode = direct->inode;
    ssize_t result = direct->end > direct->start ? direct->end - direct->start : direct->error;

    tiffin_race_point("direct-end");
    if (direct->is_write && inode->i_mapping->nrpages > 0) {
        /* A fault may have brought back what was there before; pieces behind one that failed have been written, too. */
        if (invalidate_inode_pages2_range(inode->i_mapping, direct->start >> PAGE_SHIFT,
                                          (direct->wanted_end - 1) >> PAGE_SHIFT) != 0) {
            /* ... and a store to it since then is written back over what this has written: fsync says so. */
            errseq_set(&inode->i_mapping->wb_err, -EIO);
            pr_warn_ratelimited(
                "tiffin: inode %lu: a mapped page was changed during a direct write\n",
                inode->i_ino);
        }
    }
    if (result > 0) {
        iocb->ki_pos += result;
    }
    inode_dio_end(inode);
    return result;
}

/* Of one that does not wait. */
static void end_direct(struct direct* direct) {
    struct kiocb* iocb = direct->iocb;
    ssize_t result = finish(direct);

    if (direct->is_write && result > 0) {
        result = generic_write_sync(iocb, result);
    }
    kfree(direct);
    iocb->ki_complete(iocb, result);
}

static void continue_end(struct work_struct* work) {
    end_direct(container_of(work, struct direct, work));
}

static void put_direct(struct direct* direct) {
    if (!atomic_dec_and_test(&direct->pending)) {
        /* Of a request that may be gone by now this takes the address only. */
        wake_up_var(&direct->pending);
        return;
    }
    if (direct->waits) {
        complete(&direct->completed);
        return;
    }
    if (direct->is_write &&
        (iocb_is_dsync(direct->iocb) || direct->inode->i_mapping->nrpages > 0)) {
        /* It may wait for write-back, which may wait for other pieces: none may be queued behind it. */
        INIT_WORK(&direct->work, continue_end);
        queue_work(tiffin_mount_of(direct->inode->i_sb)->direct_ends, &direct->work);
        return;
    }
    end_direct(direct);
}

/* One more piece, when there are not too many. */
static void get_direct(struct direct* direct) {
    wait_var_event(&direct->pending, atomic_read(&direct->pending) <= MOST_PIECES);
    atomic_inc(&direct->pending);
}

/* The end of a submission. */
static ssize_t submitted(struct direct* direct) {
    if (!direct->waits) {
        put_direct(direct);
        return -EIOCBQUEUED;
    }
    if (!atomic_dec_and_test(&direct->pending)) {
        wait_for_completion(&direct->completed);
    }
    return finish(direct);
}

/* ---- Reading: what the page cache has not written back is written back before ---- */

struct read_piece {
    struct tiffin_read read;
    struct direct* direct;
    unsigned int most_pages;
    struct page** pages;
    struct tiffin_vector vectors[]; /* most_pages; then the pages */
};

static struct read_piece* new_read(struct direct* direct, loff_t offset,
                                   const struct iov_iter* to) {
    const unsigned int most_pages = iov_iter_npages(to, PIECE_PAGES);
    struct read_piece* piece =
        kmalloc(sizeof(*piece) + most_pages * (sizeof(*piece->vectors) + sizeof(*piece->pages)),
                GFP_KERNEL);

    if (piece != NULL) {
        piece->read = (struct tiffin_read){
            .inode = direct->inode, .offset = offset, .vectors = piece->vectors};
        piece->direct = direct;
        piece->most_pages = most_pages;
        piece->pages = (struct page**)(piece->vectors + most_pages);
    }
    return piece;
}

static void read_done(struct tiffin_read* read, int error) {
    struct read_piece* piece = container_of(read, struct read_piece, read);
    struct direct* direct = piece->direct;
    unsigned int i;

    for (i = 0; i < read->count; ++i) {
        if (direct->fills_user_memory) {
            set_page_dirty_lock(piece->pages[i]);
        }
        if (direct->holds_pages) {
            unpin_user_page(piece->pages[i]);
        }
    }
    if (error != 0) {
        failed_at(direct, read->offset, error);
    }
    kfree(piece);
    put_direct(direct);
}

/* Lists a program's memory, and returns how much. */
static ssize_t collect(struct read_piece* piece, struct iov_iter* to) {
    size_t bytes = 0;

    while (bytes < PIECE_BYTES && piece->read.count < piece->most_pages && iov_iter_count(to) > 0) {
        struct page** pages = piece->pages + piece->read.count;
        size_t offset;
        ssize_t got = iov_iter_extract_pages(to, &pages, PIECE_BYTES - bytes,
                                             piece->most_pages - piece->read.count, 0, &offset);

        if (got <= 0) {
            return bytes > 0 ? bytes : got == 0 ? -EFAULT : got;
        }
        bytes += got;
        while (got > 0) {
            const size_t length = min_t(size_t, got, PAGE_SIZE - offset);

            piece->vectors[piece->read.count] = (struct tiffin_vector){
                .data = page_address(piece->pages[piece->read.count]) + offset,
                .size_bytes = length};
            ++piece->read.count;
            got -= length;
            offset = 0;
        }
    }
    return bytes;
}

static ssize_t read_to_program(struct kiocb* iocb, struct iov_iter* to) {
    struct direct own;
    struct direct* direct = new_direct(iocb, iov_iter_count(to), false, is_sync_kiocb(iocb), &own);
    loff_t position = iocb->ki_pos;

    if (direct == NULL) {
        return -ENOMEM;
    }
    direct->fills_user_memory = user_backed_iter(to);
    direct->holds_pages = iov_iter_extract_will_pin(to);
    while (iov_iter_count(to) > 0) {
        struct read_piece* piece = new_read(direct, position, to);
        ssize_t length = -ENOMEM;

        if (piece != NULL) {
            piece->read.done = read_done;
            length = collect(piece, to);
        }
        if (length < 0) {
            kfree(piece);
            failed_at(direct, position, length);
            break;
        }
        position += length;
        get_direct(direct);
        tiffin_read_start(&piece->read);
    }
    return submitted(direct);
}

/* How much of a request of `wanted` bytes at `position` is one piece: those behind the first begin with a block. */
static size_t piece_bytes(loff_t position, size_t wanted) {
    return min_t(size_t, wanted, PIECE_BYTES - ((size_t)position & (TIFFIN_BLOCK_BYTES - 1)));
}

/* Room for a piece at `position`, in `*copy`, which is for kvfree(); NULL: there is no memory. */
static void* place_copy(void** copy, loff_t position, size_t bytes) {
    const size_t place = (size_t)position & (TIFFIN_BLOCK_BYTES - 1);

    /* From so many bytes on it begins on a page. */
    *copy = kvmalloc(round_up(place + bytes, PAGE_SIZE), GFP_KERNEL_ACCOUNT);
    return *copy == NULL ? NULL : (char*)*copy + place;
}

static ssize_t read_through_copy(struct kiocb* iocb, struct iov_iter* to) {
    void* copy;
    const bool has_copy =
        place_copy(&copy, 0, min_t(size_t, iov_iter_count(to) + TIFFIN_BLOCK_BYTES, PIECE_BYTES));
    ssize_t total = 0;
    int error = has_copy ? 0 : -ENOMEM;

    while (error == 0 && iov_iter_count(to) > 0) {
        struct tiffin_vector vector = {
            .data = (char*)copy + (iocb->ki_pos & (TIFFIN_BLOCK_BYTES - 1)),
            .size_bytes = piece_bytes(iocb->ki_pos, iov_iter_count(to))};
        size_t copied;

        error = tiffin_read_vectors(file_inode(iocb->ki_filp), iocb->ki_pos, &vector, 1);
        if (error != 0) {
            break;
        }
        copied = copy_to_iter(vector.data, vector.size_bytes, to);
        total += copied;
        iocb->ki_pos += copied;
        error = copied < vector.size_bytes ? -EFAULT : 0;
    }
    kvfree(copy);
    return total > 0 ? total : error;
}

unsigned int tiffin_direct_alignment(struct super_block* sb) {
    return max_t(unsigned int, bdev_logical_block_size(sb->s_bdev),
                 bdev_dma_alignment(sb->s_bdev) + 1);
}

/* Whether the device can reach it. */
static bool is_reachable(const struct kiocb* iocb, const struct iov_iter* to) {
    const unsigned long places = (unsigned long)iocb->ki_pos | iov_iter_alignment(to);
    const unsigned int unit = tiffin_direct_alignment(file_inode(iocb->ki_filp)->i_sb);

    return (places & (unit - 1)) == 0 && (user_backed_iter(to) || iov_iter_is_bvec(to));
}

ssize_t tiffin_direct_read(struct kiocb* iocb, struct iov_iter* to) {
    struct inode* inode = file_inode(iocb->ki_filp);
    const size_t wanted = iov_iter_count(to);
    const bool reachable = is_reachable(iocb, to);
    const loff_t last = iocb->ki_pos + (loff_t)wanted - 1;
    ssize_t length;

    if (wanted == 0) {
        return 0;
    }
    /* The device is waited for, or at least the place of the blocks on it. */
    if (iocb->ki_flags & IOCB_NOWAIT) {
        return -EAGAIN;
    }
    inode_lock_shared(inode);
    length = filemap_write_and_wait_range(inode->i_mapping, iocb->ki_pos, last);
    tiffin_race_point("direct-read");
    if (length == 0 && filemap_range_needs_writeback(inode->i_mapping, iocb->ki_pos, last)) {
        length = filemap_read(iocb, to, 0); /* the volume is frozen, or it became dirty again */
    } else if (length == 0 && iocb->ki_pos < i_size_read(inode)) {
        file_accessed(iocb->ki_filp);
        iov_iter_truncate(to, i_size_read(inode) - iocb->ki_pos);
        length = reachable ? read_to_program(iocb, to) : read_through_copy(iocb, to);
    }
    inode_unlock_shared(inode);
    return length;
}

/* ---- Writing ---- */

struct write_piece {
    struct work_struct work;
    struct direct* direct;
    loff_t offset;
    struct tiffin_vector vector;
    void* copy;
    void* writer;
    struct tiffin_turn turn;
};

static void empty_write(struct write_piece* piece) {
    tiffin_give_back_writer(tiffin_mount_of(piece->direct->inode->i_sb), piece->writer);
    kvfree(piece->copy);
}

static void free_write(struct write_piece* piece) {
    empty_write(piece);
    kfree(piece);
}

static struct write_piece* new_write(struct direct* direct, loff_t offset, size_t bytes) {
    struct write_piece* piece = kzalloc(sizeof(*piece), GFP_KERNEL);

    if (piece == NULL) {
        return NULL;
    }
    piece->direct = direct;
    piece->offset = offset;
    piece->vector.size_bytes = bytes;
    piece->vector.data = place_copy(&piece->copy, offset, bytes);
    piece->writer = tiffin_take_writer(tiffin_mount_of(direct->inode->i_sb), GFP_KERNEL);
    if (piece->vector.data == NULL || piece->writer == NULL) {
        free_write(piece);
        return NULL;
    }
    return piece;
}

static void advance_write(struct write_piece* piece) {
    struct direct* direct = piece->direct;
    const struct tiffin_mount* mount = tiffin_mount_of(direct->inode->i_sb);
    long written;

    if (!tiffin_advance_write(mount, piece->writer, &piece->turn, &written)) {
        return;
    }
    if (written > 0) {
        spin_lock(&direct->lock);
        direct->written_end = max(direct->written_end, piece->offset + written);
        spin_unlock(&direct->lock);
    }
    if (written < (long)piece->vector.size_bytes) {
        failed_at(direct, piece->offset + max(written, 0L), min(written, 0L));
    }
    if (tiffin_is_closed(mount)) {
        put_direct(direct);
        return;
    }
    empty_write(piece);
    put_direct(direct);
    /* Last: another one in its place would look as if this work ran already, and wait for it. */
    kfree(piece);
}

static void continue_write(struct work_struct* work) {
    advance_write(container_of(work, struct write_piece, work));
}

/* In an interrupt. */
static void write_transferred(void* owner) {
    struct write_piece* piece = owner;

    if (tiffin_turn_is_queued(&piece->turn)) {
        queue_work(tiffin_mount_of(piece->direct->inode->i_sb)->directs, &piece->work);
    }
}

static void start_write(struct write_piece* piece) {
    struct direct* direct = piece->direct;
    struct tiffin_mount* mount = tiffin_mount_of(direct->inode->i_sb);

    INIT_WORK(&piece->work, continue_write);
    TIFFIN_CALL_VOID(mount, write_begin, piece->writer, direct->inode->i_ino, piece->offset,
                     &piece->vector, 1, TIFFIN_WRITE_KEEP_TIMES, write_transferred, piece);
    advance_write(piece);
}

static void submit_writes(struct direct* direct, struct iov_iter* from) {
    loff_t position = direct->start;

    while (iov_iter_count(from) > 0) {
        const size_t wanted = piece_bytes(position, iov_iter_count(from));
        struct write_piece* piece;
        bool is_short;

        get_direct(direct);
        piece = new_write(direct, position, wanted);
        if (piece == NULL) {
            put_direct(direct);
            failed_at(direct, position, -ENOMEM);
            return;
        }
        piece->vector.size_bytes =
            copy_from_iter(piece->vector.data, piece->vector.size_bytes, from);
        is_short = piece->vector.size_bytes < wanted;
        position += (loff_t)piece->vector.size_bytes;
        if (is_short) {
            failed_at(direct, position, -EFAULT);
        }
        if (piece->vector.size_bytes == 0) {
            free_write(piece);
            put_direct(direct);
        } else {
            start_write(piece);
        }
        if (direct->in_order) {
            wait_var_event(&direct->pending, atomic_read_acquire(&direct->pending) == 1);
        }
        if (is_short || (direct->in_order && direct->end < direct->wanted_end)) {
            return;
        }
    }
}

/* No page of the range may be in the page cache: what is being replaced would be read there. */
static int leave_page_cache(struct address_space* mapping, loff_t first, loff_t last) {
    int error;

    if (mapping->nrpages == 0) {
        return 0;
    }
    filemap_invalidate_lock(mapping);
    error = filemap_write_and_wait_range(mapping, first, last);
    if (error == 0) {
        error = invalidate_inode_pages2_range(mapping, first >> PAGE_SHIFT, last >> PAGE_SHIFT);
    }
    filemap_invalidate_unlock(mapping);
    return error;
}

/* The inode is locked, and its times and privileges are as they have to be. */
ssize_t tiffin_direct_write(struct kiocb* iocb, struct iov_iter* from) {
    struct inode* inode = file_inode(iocb->ki_filp);
    const loff_t end = iocb->ki_pos + (loff_t)iov_iter_count(from);
    const bool extends = end > i_size_read(inode);
    const bool in_order = extends && IS_APPEND(inode);
    /* The rest of a block may be written through the page cache, which asks for the lock only. */
    const bool has_partial_blocks = ((iocb->ki_pos | end) & (TIFFIN_BLOCK_BYTES - 1)) != 0;
    struct direct own;
    struct direct* direct;
    ssize_t written = leave_page_cache(inode->i_mapping, iocb->ki_pos, end - 1);

    if (written != 0) {
        return written == -EBUSY ? -ENOTBLK : written;
    }
    /* The end of the file moves while the inode is locked. */
    direct = new_direct(iocb, iov_iter_count(from), true,
                        is_sync_kiocb(iocb) || extends || has_partial_blocks, &own);
    if (direct == NULL) {
        return -ENOMEM;
    }
    /* It cannot be cut. */
    direct->in_order = in_order;
    tiffin_race_point("direct-write");
    submit_writes(direct, from);
    written = submitted(direct);
    if (written > 0 && iocb->ki_pos > i_size_read(inode)) {
        i_size_write(inode, iocb->ki_pos);
    }
    /* `direct` is the caller's, since it extends. */
    if (extends && !in_order && i_size_read(inode) < direct->written_end) {
        /* Pieces behind one that failed have made the file system's file longer than the program is told. */
        const int error = tiffin_cut_to_size(inode);

        if (error != 0) {
            mapping_set_error(inode->i_mapping, error);
        }
    }
    return written;
}
