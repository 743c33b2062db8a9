/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Block I/O for file systems: requests of any length as bios. */
#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/vmalloc.h>

#include "kmod/vfs/internal.h"

/*
 * Write-back must not wait for memory: there is always some for a request and its first bio, and some for its next one. A
 * request holds none of the second while it waits for it, since its bios are submitted one by one.
 */
#define RESERVED_REQUESTS 64
static struct bio_set firsts; /* each at the end of a request */
static struct bio_set bios;

struct request {
    struct tiffin_device* device; /* of one that flushes; else NULL */
    atomic_t pending;             /* bios, and one for submit() itself */
    int error;                    /* the last */
    void (*completed)(void* owner, int error);
    void* owner;
    struct bio first;
};

static void put_request(struct request* request) {
    void (*completed)(void* owner, int error) = request->completed;
    void* owner = request->owner;
    int error;

    if (!atomic_dec_and_test(&request->pending)) {
        return;
    }
    error = READ_ONCE(request->error);
    if (request->device != NULL) {
        if (error != 0) {
            WRITE_ONCE(request->device->flush_failed, true);
        } else if (READ_ONCE(request->device->flush_failed)) {
            error = -EIO;
        }
    }
    bio_put(&request->first);
    completed(owner, error);
}

static void bio_completed(struct bio* bio) {
    struct request* request = bio->bi_private;

    if (bio->bi_status != BLK_STS_OK) {
        WRITE_ONCE(request->error, blk_status_to_errno(bio->bi_status));
    }
    if (bio != &request->first) {
        bio_put(bio);
    }
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
    if (!is_vmalloc_addr(address)) {
        return virt_to_page(address);
    }
    *length = min(*length, PAGE_SIZE - offset_in_page(address));
    return vmalloc_to_page(address);
}

static struct bio* new_bio(struct tiffin_device* device, blk_opf_t operation, size_t bytes,
                           struct bio_set* set) {
    const unsigned int pages = bytes == 0 ? 0 : bio_max_segs(DIV_ROUND_UP(bytes, PAGE_SIZE) + 1);

    return bio_alloc_bioset(device->bdev, pages, operation, GFP_NOIO, set);
}

static int check_data(u64 offset_bytes, const struct tiffin_vector* buffers, size_t buffer_count,
                      size_t* bytes) {
    size_t i;

    *bytes = 0;
    for (i = 0; i < buffer_count; ++i) {
        *bytes += buffers[i].size_bytes;
        /* Those of the core lie on pages, and those of its callers are pages. */
        if (WARN_ON_ONCE(((uintptr_t)buffers[i].data | buffers[i].size_bytes) &
                         (SECTOR_SIZE - 1))) {
            return -EINVAL;
        }
    }
    return *bytes == 0 || (offset_bytes & (SECTOR_SIZE - 1)) != 0 ? -EINVAL : 0;
}

static void submit_data(struct tiffin_device* device, struct request* request, blk_opf_t operation,
                        u64 offset_bytes, const struct tiffin_vector* buffers, size_t buffer_count,
                        size_t bytes_left) {
    sector_t sector = offset_bytes >> SECTOR_SHIFT;
    struct bio* bio = &request->first;
    size_t i;

    bio->bi_iter.bi_sector = sector;
    for (i = 0; i < buffer_count; ++i) {
        const char* address = buffers[i].data;
        size_t left = buffers[i].size_bytes;

        while (left > 0) {
            size_t length = left;
            struct page* page = page_at(address, &length);

            if (bio_add_page(bio, page, length, offset_in_page(address)) != length) {
                /* It is full: the rest goes into another one. */
                submit_one(request, bio);
                bio = new_bio(device, operation, bytes_left, &bios);
                bio->bi_iter.bi_sector = sector;
                continue;
            }
            address += length;
            left -= length;
            bytes_left -= length;
            sector += length >> SECTOR_SHIFT;
        }
    }
    submit_one(request, bio);
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

/* By TIFFIN_IO_. */
static const blk_opf_t block_operations[] = {
    [TIFFIN_IO_READ] = REQ_OP_READ,
    [TIFFIN_IO_WRITE] = REQ_OP_WRITE,
    [TIFFIN_IO_FLUSH] = REQ_OP_WRITE | REQ_SYNC | REQ_PREFLUSH,
    [TIFFIN_IO_DISCARD] = REQ_OP_DISCARD,
    /* Each of its bios, if there are several, comes behind what was before and is durable by itself. */
    [TIFFIN_IO_WRITE_ORDERED] = REQ_OP_WRITE | REQ_SYNC | REQ_PREFLUSH | REQ_FUA,
};

static void submit(struct tiffin_device* device, u32 operation, u64 offset_bytes, u64 length_bytes,
                   const struct tiffin_vector* buffers, size_t buffer_count,
                   void (*completed)(void* owner, int error), void* owner) {
    const bool moves_data = operation != TIFFIN_IO_FLUSH && operation != TIFFIN_IO_DISCARD;
    const bool flushes = operation == TIFFIN_IO_FLUSH || operation == TIFFIN_IO_WRITE_ORDERED;
    struct request* request;
    size_t bytes = 0;
    int error = operation < ARRAY_SIZE(block_operations) ? 0 : -EINVAL;

    if (READ_ONCE(device->is_closed) || (flushes && READ_ONCE(device->flush_failed))) {
        error = -EIO;
    } else if (error == 0 && moves_data) {
        error = check_data(offset_bytes, buffers, buffer_count, &bytes);
    }
    if (error != 0) {
        completed(owner, error);
        return;
    }
    request = container_of(new_bio(device, block_operations[operation], bytes, &firsts),
                           struct request, first);
    atomic_set(&request->pending, 1);
    request->device = flushes ? device : NULL;
    request->error = operation == TIFFIN_IO_FLUSH ? tiffin_planted_flush() : 0;
    request->completed = completed;
    request->owner = owner;
    if (moves_data) {
        submit_data(device, request, block_operations[operation], offset_bytes, buffers,
                    buffer_count, bytes);
    } else if (operation == TIFFIN_IO_FLUSH) {
        submit_one(request, &request->first);
    } else {
        /* Its own bio is not used. */
        error = submit_discard(device, request, offset_bytes, length_bytes);
        if (error != 0) {
            WRITE_ONCE(request->error, error);
        }
    }
    put_request(request);
}

/* What the device writes whole when the power fails: it may write a logical sector by changing a physical one. */
static u32 write_unit_bytes(struct block_device* bdev) {
    const u32 logical = bdev_logical_block_size(bdev);
    const u32 physical = min_t(u32, bdev_physical_block_size(bdev), TIFFIN_BLOCK_BYTES);

    return bdev_alignment_offset(bdev) == 0 && is_power_of_2(physical) && physical >= logical
               ? physical
               : logical;
}

static void geometry(struct tiffin_device* device, struct tiffin_geometry* geometry) {
    struct block_device* bdev = device->bdev;

    geometry->size_bytes = bdev_nr_bytes(bdev);
    geometry->write_unit_bytes = write_unit_bytes(bdev);
    /* Whether there is one may change while it is mounted; the block layer drops flushes where there is none. */
    geometry->volatile_cache = true;
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
    int error =
        bioset_init(&firsts, RESERVED_REQUESTS, offsetof(struct request, first), BIOSET_NEED_BVECS);

    if (error != 0) {
        return error;
    }
    error = bioset_init(&bios, RESERVED_REQUESTS, 0, BIOSET_NEED_BVECS);
    if (error != 0) {
        bioset_exit(&firsts);
    }
    return error;
}

void tiffin_device_exit(void) {
    bioset_exit(&bios);
    bioset_exit(&firsts);
}
