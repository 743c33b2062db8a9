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
    /* What the file system has not got may still be behind its own end of the file, but before the page cache's. */
    zero_behind(vectors, count, length);
    return 0;
}

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

/* A megabyte at a time: all of its blocks are read at once. */
#define READ_PAGES 256
struct page_list {
    unsigned int count;
    struct page* pages[READ_PAGES];
    struct tiffin_vector vectors[READ_PAGES];
};

static void read_list(struct inode* inode, struct page_list* list) {
    unsigned int i;
    int error;

    if (list->count == 0) {
        return;
    }
    error = tiffin_read_vectors(inode, page_offset(list->pages[0]), list->vectors, list->count);
    for (i = 0; i < list->count; ++i) {
        /* Pages that could not be read are asked for one by one, if anybody wants them. */
        if (error == 0) {
            flush_dcache_page(list->pages[i]);
            SetPageUptodate(list->pages[i]);
        }
        unlock_page(list->pages[i]);
        put_page(list->pages[i]);
    }
    list->count = 0;
}

static void readahead(struct readahead_control* control) {
    struct inode* inode = control->mapping->host;
    struct page_list* list = kmalloc(sizeof(*list), GFP_NOFS | __GFP_NOWARN | __GFP_NORETRY);
    struct page* page;

    if (list == NULL) {
        return; /* then they are read when they are wanted */
    }
    list->count = 0;
    while ((page = readahead_page(control)) != NULL) {
        list->pages[list->count] = page;
        list->vectors[list->count] =
            (struct tiffin_vector){.data = page_address(page), .size_bytes = PAGE_SIZE};
        if (++list->count == READ_PAGES) {
            read_list(inode, list);
        }
    }
    read_list(inode, list);
    kfree(list);
}

/* ---- Writing ---- */

static int write_begin(struct file* file, struct address_space* mapping, loff_t position,
                       unsigned int length, struct page** out, void** data) {
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
    *out = page;
    return 0;
}

static int write_end(struct file* file, struct address_space* mapping, loff_t position,
                     unsigned int length, unsigned int copied, struct page* page, void* data) {
    struct inode* inode = mapping->host;

    if (!PageUptodate(page)) {
        if (copied < length) {
            copied = 0; /* the rest of the page is nothing */
        } else {
            SetPageUptodate(page);
        }
    }
    if (copied > 0) {
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
    .dirty_folio = filemap_dirty_folio,
    .migrate_folio = filemap_migrate_folio,
};
