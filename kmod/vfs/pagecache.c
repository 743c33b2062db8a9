/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The page cache: filling it, and changing it. Pages are single ones. */
#include <linux/fs.h>
#include <linux/highmem.h>
#include <linux/migrate.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/writeback.h>

#include "kmod/vfs/internal.h"

/* ---- Reading ---- */

static int read_page(struct inode* inode, struct page* page) {
    const struct tiffin_vector vector = {.data = page_address(page), .size_bytes = PAGE_SIZE};
    const int error = tiffin_read_vectors(inode, page_offset(page), &vector, 1);

    if (error == 0) {
        flush_dcache_page(page);
        SetPageUptodate(page);
    }
    return error;
}

static int read_folio(struct file* file, struct folio* folio) {
    struct page* page = &folio->page;
    const int error = read_page(page->mapping->host, page);

    unlock_page(page);
    return error;
}

/* A range of pages: all of its blocks are read at once, and nobody waits for it. */
#define RANGE_PAGES 256
struct page_range {
    struct tiffin_read read;
    struct tiffin_vector vectors[]; /* one for each page */
};

static void range_done(struct tiffin_read* read, int error) {
    struct page_range* range = container_of(read, struct page_range, read);
    const unsigned int count = read->count;
    unsigned int i;

    tiffin_race_point("read-done");
    /* With the last page unlocked, the inode may be gone. Pages that could not be read are asked for one by one, if
     * anybody wants them. */
    for (i = 0; i < count; ++i) {
        struct page* page = virt_to_page(range->vectors[i].data);

        if (error == 0) {
            flush_dcache_page(page);
            SetPageUptodate(page);
        }
        unlock_page(page);
        put_page(page);
    }
    kfree(range);
}

static void readahead(struct readahead_control* control) {
    while (readahead_count(control) > 0) {
        const unsigned int wanted = min_t(unsigned int, readahead_count(control), RANGE_PAGES);
        struct page_range* range =
            kmalloc(struct_size(range, vectors, wanted), GFP_NOFS | __GFP_NOWARN | __GFP_NORETRY);
        struct page* page;

        if (range == NULL) {
            return; /* then they are read when they are wanted */
        }
        range->read = (struct tiffin_read){
            .inode = control->mapping->host, .vectors = range->vectors, .done = range_done};
        while (range->read.count < wanted && (page = readahead_page(control)) != NULL) {
            if (range->read.count == 0) {
                range->read.offset = page_offset(page);
            }
            range->vectors[range->read.count] =
                (struct tiffin_vector){.data = page_address(page), .size_bytes = PAGE_SIZE};
            ++range->read.count;
        }
        if (range->read.count == 0) {
            kfree(range);
            return;
        }
        tiffin_race_point("readahead");
        tiffin_read_start(&range->read);
    }
}

/* ---- Writing ---- */

static int write_begin(struct file* file, struct address_space* mapping, loff_t position,
                       unsigned int length, tiffin_cached** out, void** data) {
    struct inode* inode = mapping->host;
    struct page* page = grab_cache_page_write_begin(mapping, position >> PAGE_SHIFT);
    int error = 0;

    if (page == NULL) {
        return -ENOMEM;
    }
    if (!PageUptodate(page) && length != PAGE_SIZE) {
        if (page_offset(page) >= i_size_read(inode)) {
            zero_user_segment(page, 0, PAGE_SIZE);
            SetPageUptodate(page);
        } else {
            error = read_page(inode, page);
        }
    }
    if (error != 0) {
        unlock_page(page);
        put_page(page);
        return error;
    }
    *out = tiffin_cached_of(page);
    return 0;
}

bool tiffin_mark_promised(struct page* page) {
    if (PagePrivate(page)) {
        return false;
    }
    attach_page_private(page, (void*)1);
    atomic_inc(&tiffin_inode_of(page->mapping->host)->pages_with_promise);
    return true;
}

void tiffin_unmark_promised(struct page* page) {
    if (PagePrivate(page)) {
        detach_page_private(page);
        atomic_dec(&tiffin_inode_of(page->mapping->host)->pages_with_promise);
    }
}

/* What is dropped will not be written. */
static void invalidate_folio(struct folio* folio, size_t offset, size_t length) {
    if (offset == 0 && length == folio_size(folio) && folio_test_private(folio)) {
        if (!tiffin_keeps_promises) {
            TIFFIN_CALL_VOID(tiffin_mount_of(folio->mapping->host->i_sb), return_promise, 1);
        }
        folio_detach_private(folio);
        atomic_dec(&tiffin_inode_of(folio->mapping->host)->pages_with_promise);
    }
}

/* A page that has been promised room is to be written. */
static bool release_folio(struct folio* folio, gfp_t gfp) { return false; }

static int write_end(struct file* file, struct address_space* mapping, loff_t position,
                     unsigned int length, unsigned int copied, tiffin_cached* cached, void* data) {
    struct page* page = tiffin_page_of(cached);
    struct inode* inode = mapping->host;

    if (!PageUptodate(page)) {
        if (copied < length) {
            copied = 0; /* the rest of the page is nothing */
        } else {
            SetPageUptodate(page);
        }
    }
    if (copied > 0) {
        if (tiffin_inode_of(inode)->promised_pages > 0 && tiffin_mark_promised(page)) {
            --tiffin_inode_of(inode)->promised_pages;
        }
        set_page_dirty(page);
        /* Under the lock of the page, so that write-back sees the end that belongs to its content. */
        if (position + copied > i_size_read(inode)) {
            i_size_write(inode, position + copied);
        }
    }
    unlock_page(page);
    put_page(page);
    return copied;
}

void tiffin_zero_tail(struct inode* inode) {
    const loff_t size = i_size_read(inode);
    const unsigned int offset = offset_in_page(size);
    struct page* page;

    if (offset == 0) {
        return;
    }
    page = find_lock_page(inode->i_mapping, size >> PAGE_SHIFT);
    if (page == NULL) {
        return;
    }
    /* Who has it mapped must fault again, and wait for the page's lock. */
    if (page_mapped(page)) {
        unmap_mapping_pages(inode->i_mapping, page->index, 1, false);
    }
    wait_on_page_writeback(page);
    if (PageUptodate(page)) {
        zero_user_segment(page, offset, PAGE_SIZE);
    }
    unlock_page(page);
    put_page(page);
}

const struct address_space_operations tiffin_address_space_operations = {
    .read_folio = read_folio,
    .readahead = readahead,
    .write_begin = write_begin,
    .write_end = write_end,
    .writepages = tiffin_writepages,
    .invalidate_folio = invalidate_folio,
    .release_folio = release_folio,
    .dirty_folio = filemap_dirty_folio,
    .migrate_folio = filemap_migrate_folio,
};
