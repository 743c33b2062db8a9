/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Where a file is on the device (FS_IOC_FIEMAP). */
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/pagemap.h>

#include "kmod/vfs/internal.h"

/* The file system lists its extents as its records have them; those that go on with each other are told as one. */
struct walk {
    struct fiemap_extent_info* info;
    u64 end; /* of the range that was asked for */
    struct tiffin_extent held;
    bool holds;
    bool is_cut; /* another extent follows the one that is held */
    int result;  /* of fiemap_fill_next_extent(): 1 when no more are wanted */
};

static bool goes_on(const struct tiffin_extent* first, const struct tiffin_extent* second) {
    return first->kind == second->kind &&
           first->offset_bytes + first->length_bytes == second->offset_bytes &&
           first->device_offset_bytes + first->length_bytes == second->device_offset_bytes;
}

/* The copy to user space may fault, and enter another file system: as in dir.c. */
static void tell(struct walk* walk) {
    void* const mount = current->journal_info;
    u32 flags = walk->is_cut ? 0 : FIEMAP_EXTENT_LAST;

    if (walk->held.kind == TIFFIN_EXTENT_UNWRITTEN) {
        flags |= FIEMAP_EXTENT_UNWRITTEN;
    } else if (walk->held.kind == TIFFIN_EXTENT_INLINE) {
        flags |= FIEMAP_EXTENT_DATA_INLINE | FIEMAP_EXTENT_NOT_ALIGNED;
    }
    current->journal_info = NULL;
    walk->result =
        fiemap_fill_next_extent(walk->info, walk->held.offset_bytes, walk->held.device_offset_bytes,
                                walk->held.length_bytes, flags);
    current->journal_info = mount;
    walk->holds = false;
}

static bool add(void* sink, const struct tiffin_extent* extent) {
    struct walk* walk = sink;

    if (walk->holds && goes_on(&walk->held, extent)) {
        walk->held.length_bytes += extent->length_bytes;
        return true;
    }
    if (walk->holds) {
        walk->is_cut = true;
        tell(walk);
        walk->is_cut = false;
    }
    if (walk->result != 0 || extent->offset_bytes >= walk->end) {
        return false;
    }
    walk->held = *extent;
    walk->holds = true;
    return true;
}

int tiffin_fiemap(struct inode* inode, struct fiemap_extent_info* info, u64 start, u64 length) {
    struct walk walk = {.info = info};
    int error = fiemap_prep(inode, info, start, &length, 0);

    if (error == 0) {
        /* The file system does not know what waits in the page cache to get a place. */
        error = filemap_write_and_wait(inode->i_mapping);
    }
    if (error != 0) {
        return error;
    }
    walk.end = start + length;
    error =
        TIFFIN_CALL(tiffin_mount_of(inode->i_sb), list_extents, inode->i_ino, start, add, &walk);
    if (error == 0 && walk.holds) {
        tell(&walk);
    }
    return error != 0 ? error : min(walk.result, 0);
}
