/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Reading directories. */
#include <linux/fs.h>
#include <linux/pagemap.h>

#include "kmod/vfs/internal.h"

/* Called without a lock of the file system: the copy to user space may fault, and enter another one. */
static bool add_entry(void* sink, const char* name, size_t name_bytes, u64 node, u32 type_mode,
                      u64 next_cookie) {
    struct dir_context* context = sink;
    void* const mount = current->journal_info;
    bool is_taken;

    current->journal_info = NULL;
    is_taken = dir_emit(context, name, name_bytes, node, fs_umode_to_dtype(type_mode));
    current->journal_info = mount;
    if (!is_taken) {
        return false;
    }
    context->pos = next_cookie;
    return true;
}

static int iterate(struct file* file, struct dir_context* context) {
    struct inode* inode = file_inode(file);

    return TIFFIN_CALL(tiffin_mount_of(inode->i_sb), read_directory, inode->i_ino, context->pos,
                       add_entry, context);
}

/* A position is a cookie, whatever its size. */
static loff_t llseek(struct file* file, loff_t offset, int whence) {
    return generic_file_llseek_size(file, offset, whence, LLONG_MAX, 0);
}

/* Memory that a device writes to may become dirty while the volume is frozen: see tiffin_writepages(). */
static bool is_left_dirty(struct inode* inode) {
    return inode->i_sb->s_writers.frozen >= SB_FREEZE_FS &&
           mapping_tagged(inode->i_mapping, PAGECACHE_TAG_DIRTY);
}

int tiffin_fsync(struct file* file, loff_t start, loff_t end, int data_only) {
    struct inode* inode = file_inode(file);
    int error = file_write_and_wait_range(file, start, end);

    while (error == 0 && is_left_dirty(inode)) {
        if (sb_rdonly(inode->i_sb)) {
            return -EROFS; /* no thaw makes it writable */
        }
        sb_start_write(inode->i_sb); /* the thaw */
        sb_end_write(inode->i_sb);
        error = file_write_and_wait_range(file, start, end);
    }
    return error != 0 ? error : tiffin_commit(inode, data_only != 0);
}

int tiffin_commit(struct inode* inode, bool data_only) {
    const int error = tiffin_write_times(inode);

    return error != 0 ? error
                      : TIFFIN_CALL(tiffin_mount_of(inode->i_sb), fsync, inode->i_ino, data_only);
}

int tiffin_settle(struct inode* inode) {
    const bool must = S_ISDIR(inode->i_mode) ? IS_DIRSYNC(inode) : IS_SYNC(inode);

    return must ? tiffin_commit(inode, false) : 0;
}

const struct file_operations tiffin_directory_operations = {
    .llseek = llseek,
    .read = generic_read_dir,
    .iterate_shared = iterate,
    .fsync = tiffin_fsync,
    .unlocked_ioctl = tiffin_ioctl,
    .compat_ioctl = compat_ptr_ioctl,
};
