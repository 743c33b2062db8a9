/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Write-back: dirty pages that follow each other become one write of the file system, which nobody waits for.
 *
 * A page is under write-back (and does not change) until its write has been committed: its checksum is that of what was
 * written. For want of memory a write is begun again, later: to give up would lose what a program believes to be written, and
 * to make its pages dirty again would have fsync succeed without it.
 */
#include <linux/backing-dev.h>
#include <linux/blkdev.h>
#include <linux/fs.h>
#include <linux/highmem.h>
#include <linux/mempool.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include <linux/writeback.h>

#include "kmod/vfs/internal.h"

#define WRITE_PAGES 256

/* The file system is patient itself, for some seconds, so that attempts are bounded by their time. */
#define PATIENCE (30 * HZ)
#define ATTEMPT_DELAY (HZ / 10)

struct writeback {
    struct delayed_work work;
    bool begun;
    unsigned long deadline; /* in jiffies: after it no attempt begins */
    struct inode* inode;
    loff_t offset;
    unsigned int count;
    bool is_promised; /* its pages are those that were promised room, or those that were not */
    struct page* pages[WRITE_PAGES];
    struct tiffin_vector vectors[WRITE_PAGES];
    void* writer;
    struct tiffin_turn turn;
};

/* ---- Memory: some is always there for each mount ---- */

#define RESERVED_WRITES 4

static void free_writeback(void* element, void* data) {
    struct writeback* writeback = element;

    tiffin_give_back_writer(data, writeback->writer);
    kfree(writeback);
}

static void* allocate_writeback(gfp_t gfp, void* data) {
    struct writeback* writeback = kmalloc(sizeof(*writeback), gfp | __GFP_NOWARN);

    if (writeback == NULL) {
        return NULL;
    }
    writeback->count = 0;
    writeback->writer = tiffin_take_writer(data, gfp | __GFP_NOWARN);
    if (writeback->writer == NULL) {
        kfree(writeback);
        return NULL;
    }
    return writeback;
}

int tiffin_writeback_mount(struct tiffin_mount* mount) {
    mount->writebacks = NULL;
    if (!mount->ops->has_blocks) {
        return 0;
    }
    mount->writebacks = mempool_create(RESERVED_WRITES, allocate_writeback, free_writeback, mount);
    if (mount->writebacks == NULL) {
        tiffin_free_writers(mount); /* of those elements that could be made */
        return -ENOMEM;
    }
    return 0;
}

void tiffin_writeback_unmount(struct tiffin_mount* mount) {
    if (mount->writebacks != NULL) {
        mempool_destroy(mount->writebacks);
    }
    tiffin_free_writers(mount);
}

/* ---- A write ---- */

static void finish(struct writeback* writeback, int error) {
    struct inode* inode = writeback->inode;
    struct tiffin_mount* mount = tiffin_mount_of(inode->i_sb);
    unsigned int i;

    tiffin_race_point("written-back");
    if (error != 0) {
        mapping_set_error(inode->i_mapping, error);
    }
    for (i = 0; i < writeback->count; ++i) {
        tiffin_unmark_promised(writeback->pages[i]);
        end_page_writeback(writeback->pages[i]);
    }
    if (!writeback->begun || !tiffin_is_closed(mount)) {
        mempool_free(writeback, mount->writebacks);
    }
}

static void advance(struct writeback* writeback) {
    struct tiffin_mount* mount = tiffin_mount_of(writeback->inode->i_sb);
    long result;

    if (!tiffin_advance_write(mount, writeback->writer, &writeback->turn, &result)) {
        return;
    }
    if (result == -ENOMEM && time_before(jiffies, writeback->deadline)) {
        writeback->begun = false;
        /* The promise has been used up. */
        writeback->is_promised =
            writeback->is_promised && TIFFIN_CALL(mount, promise, writeback->count) == 0;
        queue_delayed_work(mount->writes, &writeback->work, ATTEMPT_DELAY);
    } else {
        finish(writeback, min(result, 0L));
    }
}

/* In an interrupt. */
static void transferred(void* owner) {
    struct writeback* writeback = owner;

    if (tiffin_turn_is_queued(&writeback->turn)) {
        queue_delayed_work(tiffin_mount_of(writeback->inode->i_sb)->writes, &writeback->work, 0);
    }
}

static void run(struct writeback* writeback) {
    struct inode* inode = writeback->inode;

    if (!writeback->begun) {
        if (tiffin_is_closed(tiffin_mount_of(inode->i_sb))) {
            finish(writeback, -EIO);
            return;
        }
        writeback->begun = true;
        TIFFIN_CALL_VOID(tiffin_mount_of(inode->i_sb), write_begin, writeback->writer, inode->i_ino,
                         writeback->offset, writeback->vectors, writeback->count,
                         TIFFIN_WRITE_BACK | TIFFIN_WRITE_KEEP_TIMES |
                             (writeback->is_promised ? TIFFIN_WRITE_PROMISED : 0),
                         transferred, writeback);
    }
    advance(writeback);
}

static void go_on(struct work_struct* work) {
    run(container_of(to_delayed_work(work), struct writeback, work));
}

static void submit(struct writeback* writeback) {
    tiffin_race_point("write-back");
    INIT_DELAYED_WORK(&writeback->work, go_on);
    writeback->begun = false;
    writeback->deadline = jiffies + PATIENCE;
    run(writeback);
}

/* ---- Collecting pages ---- */

struct collector {
    struct writeback* current_write; /* pages that follow each other, or NULL */
};

static bool follows(const struct writeback* writeback, struct page* page) {
    return writeback->is_promised == (PagePrivate(page) != 0) &&
           writeback->pages[writeback->count - 1]->index + 1 == page->index;
}

static void submit_collected(struct collector* collector) {
    if (collector->current_write != NULL) {
        submit(collector->current_write);
        collector->current_write = NULL;
    }
}

static struct writeback* begin(struct inode* inode, struct page* page) {
    struct writeback* writeback = mempool_alloc(tiffin_mount_of(inode->i_sb)->writebacks, GFP_NOFS);

    writeback->inode = inode;
    writeback->offset = page_offset(page);
    writeback->is_promised = PagePrivate(page) != 0;
    writeback->count = 0;
    return writeback;
}

/* Of a page at the end of the file, only what is in the file is written. */
static int add_page(tiffin_cached* cached, struct writeback_control* control, void* data) {
    struct page* page = tiffin_page_of(cached);
    struct collector* collector = data;
    struct inode* inode = page->mapping->host;
    const loff_t size = i_size_read(inode);
    size_t length = PAGE_SIZE;
    struct writeback* writeback;

    if (page_offset(page) >= size) {
        unlock_page(page); /* it is being truncated */
        return 0;
    }
    if (size - page_offset(page) < PAGE_SIZE) {
        length = size - page_offset(page);
        zero_user_segment(page, length, PAGE_SIZE);
    }
    if (collector->current_write != NULL && !follows(collector->current_write, page)) {
        submit_collected(collector);
    }
    if (collector->current_write == NULL) {
        collector->current_write = begin(inode, page);
    }
    writeback = collector->current_write;
    writeback->pages[writeback->count] = page;
    writeback->vectors[writeback->count] =
        (struct tiffin_vector){.data = page_address(page), .size_bytes = length};
    ++writeback->count;
    set_page_writeback(page);
    unlock_page(page);
    if (writeback->count == WRITE_PAGES || length < PAGE_SIZE) {
        submit_collected(collector);
    }
    return 0;
}

int tiffin_writepages(struct address_space* mapping, struct writeback_control* control) {
    struct collector collector = {.current_write = NULL};
    struct blk_plug plug;
    int error;

    /* What became dirty since (memory that a device writes to) stays so: it would be refused. */
    if (mapping->host->i_sb->s_writers.frozen >= SB_FREEZE_FS) {
        return 0;
    }
    blk_start_plug(&plug);
    error = write_cache_pages(mapping, control, add_page, &collector);
    submit_collected(&collector);
    blk_finish_plug(&plug);
    return error;
}
