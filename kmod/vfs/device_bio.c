/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Block I/O for file systems: requests of any length as bios. */
#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/mempool.h>
#include <linux/mm.h>
#include <linux/vmalloc.h>

#include "kmod/vfs/internal.h"

/*
 * Write-back must not wait for memory: there is always some for a request, and some for its next bio. A request holds none
 * of the second while it waits for it, since its bios are submitted one by one.
 */
#define RESERVED_REQUESTS 64
static struct bio_set bios;
static mempool_t requests;

struct request {
    atomic_t pending; /* bios, and one for submit() itself */
    int error;        /* the last */
    void (*completed)(void* owner, int error);
    void* owner;
};

static void put_request(struct request* request) {
    void (*completed)(void* owner, int error) = request->completed;
    void* owner = request->owner;
    int error;

    if (!atomic_dec_and_test(&request->pending)) {
        return;
    }
    error = READ_ONCE(request->error);
    mempool_free(request, &requests);
    completed(owner, error);
}

static void bio_completed(struct bio* bio) {
    struct request* request = bio->bi_private;

    if (bio->bi_status != BLK_STS_OK) {
        WRITE_ONCE(request->error, blk_status_to_errno(bio->bi_status));
    }
    bio_put(bio);
    put_request(request);
}

static void submit_one(struct request* request, struct bio* bio) {
    bio->bi_private = request;
    bio->bi_end_io = bio_completed;
    atomic_inc(&request->pending);
    submit_bio(bio);
}

/* The memory at `address` as a page, and how much of it lies in one piece there. */
static struct page* page_at(const void* address, size_t* length) {
    const size_t offset = offset_in_page(address);

    if (*length > PAGE_SIZE - offset) {
        *length = PAGE_SIZE - offset;
    }
    return is_vmalloc_addr(address) ? vmalloc_to_page(address) : virt_to_page(address);
}

static struct bio* new_bio(struct tiffin_device* device, blk_opf_t operation, sector_t sector,
                           size_t bytes_left) {
    const size_t pages = DIV_ROUND_UP(bytes_left, PAGE_SIZE) + 1;
    struct bio* bio =
        bio_alloc_bioset(device->bdev, bio_max_segs(pages), operation, GFP_NOIO, &bios);

    bio->bi_iter.bi_sector = sector;
    return bio;
}

static int submit_data(struct tiffin_device* device, struct request* request, blk_opf_t operation,
                       u64 offset_bytes, const struct tiffin_vector* buffers, size_t buffer_count) {
    sector_t sector = offset_bytes >> SECTOR_SHIFT;
    struct bio* bio = NULL;
    size_t bytes_left = 0;
    size_t i;

    for (i = 0; i < buffer_count; ++i) {
        bytes_left += buffers[i].size_bytes;
        /* Those of the core lie on pages, and those of its callers are pages. */
        if (WARN_ON_ONCE(((uintptr_t)buffers[i].data | buffers[i].size_bytes) &
                         (SECTOR_SIZE - 1))) {
            return -EINVAL;
        }
    }
    if (bytes_left == 0 || (offset_bytes & (SECTOR_SIZE - 1)) != 0) {
        return -EINVAL;
    }
    for (i = 0; i < buffer_count; ++i) {
        const char* address = buffers[i].data;
        size_t left = buffers[i].size_bytes;

        while (left > 0) {
            size_t length = left;
            struct page* page = page_at(address, &length);

            if (bio == NULL) {
                bio = new_bio(device, operation, sector, bytes_left);
            }
            if (bio_add_page(bio, page, length, offset_in_page(address)) != length) {
                /* It is full: the rest goes into another one. */
                submit_one(request, bio);
                bio = NULL;
                continue;
            }
            address += length;
            left -= length;
            bytes_left -= length;
            sector += length >> SECTOR_SHIFT;
        }
    }
    submit_one(request, bio);
    return 0;
}

static int submit_discard(struct tiffin_device* device, struct request* request, u64 offset_bytes,
                          u64 length_bytes) {
    struct bio* bio = NULL;
    int error;

    if (bdev_max_discard_sectors(device->bdev) == 0) {
        return -EOPNOTSUPP;
    }
    error = __blkdev_issue_discard(device->bdev, offset_bytes >> SECTOR_SHIFT,
                                   length_bytes >> SECTOR_SHIFT, GFP_NOIO, &bio);
    if (error == 0 && bio != NULL) {
        submit_one(request, bio);
    }
    return error;
}

static int submit_by_kind(struct tiffin_device* device, struct request* request, u32 operation,
                          u64 offset_bytes, u64 length_bytes, const struct tiffin_vector* buffers,
                          size_t buffer_count) {
    switch (operation) {
        case TIFFIN_IO_READ:
            return submit_data(device, request, REQ_OP_READ, offset_bytes, buffers, buffer_count);
        case TIFFIN_IO_WRITE:
            return submit_data(device, request, REQ_OP_WRITE, offset_bytes, buffers, buffer_count);
        case TIFFIN_IO_WRITE_ORDERED:
            /* Each of its bios, if there are several, comes behind what was before and is durable by itself. */
            return submit_data(device, request, REQ_OP_WRITE | REQ_SYNC | REQ_PREFLUSH | REQ_FUA,
                               offset_bytes, buffers, buffer_count);
        case TIFFIN_IO_FLUSH:
            submit_one(request,
                       bio_alloc_bioset(device->bdev, 0, REQ_OP_WRITE | REQ_SYNC | REQ_PREFLUSH,
                                        GFP_NOIO, &bios));
            return 0;
        case TIFFIN_IO_DISCARD:
            return submit_discard(device, request, offset_bytes, length_bytes);
        default:
            return -EINVAL;
    }
}

static void submit(struct tiffin_device* device, u32 operation, u64 offset_bytes, u64 length_bytes,
                   const struct tiffin_vector* buffers, size_t buffer_count,
                   void (*completed)(void* owner, int error), void* owner) {
    struct request* request;
    int error;

    if (READ_ONCE(device->is_closed)) {
        completed(owner, -EIO);
        return;
    }
    request = mempool_alloc(&requests, GFP_NOIO);
    atomic_set(&request->pending, 1);
    request->error = 0;
    request->completed = completed;
    request->owner = owner;
    error = submit_by_kind(device, request, operation, offset_bytes, length_bytes, buffers,
                           buffer_count);
    if (error != 0) {
        WRITE_ONCE(request->error, error);
    }
    put_request(request);
}

static void geometry(struct tiffin_device* device, struct tiffin_geometry* geometry) {
    struct block_device* bdev = device->bdev;

    geometry->size_bytes = bdev_nr_bytes(bdev);
    geometry->write_unit_bytes = bdev_logical_block_size(bdev);
    geometry->volatile_cache = bdev_write_cache(bdev);
    geometry->supports_discard = bdev_max_discard_sectors(bdev) != 0;
    geometry->read_only = bdev_read_only(bdev);
}

/* What other threads had begun before may still be on its way. */
static void close_device(void) {
    struct tiffin_mount* mount = current->journal_info;

    if (mount != NULL) {
        WRITE_ONCE(mount->device.is_closed, true);
        if (mount->device.bdev != NULL) {
            pr_emerg("tiffin: %pg: closed until the machine restarts\n", mount->device.bdev);
        }
    }
}

const struct tiffin_services tiffin_services = {
    .version = TIFFIN_ABI_VERSION,
    .size = sizeof(struct tiffin_services),
    .geometry = geometry,
    .submit = submit,
    .close = close_device,
};

int tiffin_device_initialize(void) {
    int error = mempool_init_kmalloc_pool(&requests, RESERVED_REQUESTS, sizeof(struct request));

    if (error != 0) {
        return error;
    }
    error = bioset_init(&bios, RESERVED_REQUESTS, 0, BIOSET_NEED_BVECS);
    if (error != 0) {
        mempool_exit(&requests);
    }
    return error;
}

void tiffin_device_exit(void) {
    bioset_exit(&bios);
    mempool_exit(&requests);
}
