/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Mounts: superblocks, options, and the life of inodes in memory. */
#include <linux/blkdev.h>
#include <linux/fs_context.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/statfs.h>

#include "kmod/vfs/internal.h"
#include "kmod/vfs/module.h"

#define TIFFIN_MAGIC 0x54494646

static struct kmem_cache* inode_cache;

/* ---- Inodes in memory ---- */

static void initialize_inode_once(void* object) {
    struct tiffin_inode* inode = object;

    inode_init_once(&inode->vfs);
    mutex_init(&inode->attributes_lock);
}

static struct inode* alloc_inode(struct super_block* sb) {
    struct tiffin_inode* inode = alloc_inode_sb(sb, inode_cache, GFP_KERNEL);

    if (inode == NULL) {
        return NULL;
    }
    atomic64_set(&inode->references, 0);
    inode->generation = 0;
    inode->dirty_times = 0;
    inode->is_stale = false;
    inode->promised_pages = 0;
    atomic_set(&inode->pages_with_promise, 0);
    inode->is_inline = false;
    return &inode->vfs;
}

static void free_inode(struct inode* inode) {
    if (S_ISLNK(inode->i_mode)) {
        kfree(inode->i_link);
    }
    kmem_cache_free(inode_cache, tiffin_inode_of(inode));
}

void tiffin_forget(struct super_block* sb, u64 node, u64 references) {
    if (references > 0) {
        TIFFIN_CALL_VOID(tiffin_mount_of(sb), forget, node, references);
    }
}

static void evict_inode(struct inode* inode) {
    truncate_inode_pages_final(&inode->i_data);
    clear_inode(inode);
    tiffin_race_point("evict");
    tiffin_forget(inode->i_sb, inode->i_ino, atomic64_read(&tiffin_inode_of(inode)->references));
}

static int write_inode(struct inode* inode, struct writeback_control* wbc) {
    return tiffin_write_times(inode);
}

/* ---- The whole file system ---- */

static void destroy_queues(struct tiffin_mount* mount) {
    if (mount->directs != NULL) {
        destroy_workqueue(mount->directs);
    }
    if (mount->direct_ends != NULL) {
        destroy_workqueue(mount->direct_ends);
    }
    if (mount->reads != NULL) {
        destroy_workqueue(mount->reads);
    }
    if (mount->writes != NULL) {
        destroy_workqueue(mount->writes);
    }
}

static int make_queues(struct tiffin_mount* mount, const char* name) {
    const unsigned int flags = WQ_UNBOUND | WQ_MEM_RECLAIM;

    /* Writes may wait for each other, and for room, so that there have to be enough threads. */
    mount->reads = alloc_workqueue("tiffin-r/%s", flags, WQ_UNBOUND_MAX_ACTIVE, name);
    mount->writes = alloc_workqueue("tiffin-w/%s", flags, WQ_UNBOUND_MAX_ACTIVE, name);
    mount->directs = alloc_workqueue("tiffin-d/%s", flags, WQ_UNBOUND_MAX_ACTIVE, name);
    mount->direct_ends = alloc_workqueue("tiffin-e/%s", flags, WQ_UNBOUND_MAX_ACTIVE, name);
    if (mount->reads == NULL || mount->writes == NULL || mount->directs == NULL ||
        mount->direct_ends == NULL) {
        destroy_queues(mount);
        return -ENOMEM;
    }
    return 0;
}

static void put_super(struct super_block* sb) {
    struct tiffin_mount* mount = tiffin_mount_of(sb);
    int error;

    if (tiffin_is_closed(mount)) {
        /* Threads may be inside of it for ever. */
        pr_err("tiffin: %s: its memory stays taken\n", sb->s_id);
        return;
    }
    /* Reads and writes have ended what others see of them; what remains is their own end. */
    destroy_queues(mount);
    tiffin_writeback_unmount(mount);
    error = TIFFIN_CALL(mount, unmount);
    if (error != 0) {
        pr_err("tiffin: %s: unmounting failed (error %d)\n", sb->s_id, -error);
    }
    if (sb->s_bdev != NULL) {
        invalidate_bdev(sb->s_bdev); /* of those who have it open */
    }
    if (!tiffin_leaks_mounts) {
        kfree(mount);
    }
    sb->s_fs_info = NULL;
}

static int sync_fs(struct super_block* sb, int wait) {
    return TIFFIN_CALL(tiffin_mount_of(sb), sync, wait != 0);
}

static int statistics(struct dentry* dentry, struct kstatfs* out) {
    struct super_block* sb = dentry->d_sb;
    struct tiffin_statistics in;
    const int error = TIFFIN_CALL(tiffin_mount_of(sb), statistics, &in);

    if (error != 0) {
        return error;
    }
    out->f_type = sb->s_magic;
    out->f_bsize = in.block_bytes;
    out->f_frsize = in.block_bytes;
    out->f_blocks = in.total_blocks;
    out->f_bfree = in.free_blocks;
    out->f_bavail = in.available_blocks;
    out->f_files = in.total_nodes;
    out->f_ffree = in.free_nodes;
    out->f_namelen = in.name_max_bytes;
    out->f_fsid = u64_to_fsid(in.file_system_id);
    return 0;
}

/* The VFS keeps writers back, and has written back what they left. Who copies the device then reads what is there now. */
static int freeze_fs(struct super_block* sb) {
    const int error = sb_rdonly(sb) ? 0 : TIFFIN_CALL(tiffin_mount_of(sb), freeze);

    if (error == 0 && sb->s_bdev != NULL) {
        invalidate_bdev(sb->s_bdev);
    }
    return error;
}

/* What cannot be written any more has thawed all the same: an error would leave its writers asleep for ever. */
static int unfreeze_fs(struct super_block* sb) {
    const int error = sb_rdonly(sb) ? 0 : TIFFIN_CALL(tiffin_mount_of(sb), thaw);

    if (error == 0 || error == -ENOMEM || error == -EINVAL) {
        return error;
    }
    pr_warn("tiffin: %s: read-only after the thaw (error %d)\n", sb->s_id, error);
    return 0;
}

/* Of the superblock's shrinker, which calls them where a file system may be called. */
static long nr_cached_objects(struct super_block* sb, struct shrink_control* control) {
    return tiffin_is_closed(tiffin_mount_of(sb))
               ? 0
               : TIFFIN_CALL(tiffin_mount_of(sb), reclaimable_bytes) >> PAGE_SHIFT;
}

static long free_cached_objects(struct super_block* sb, struct shrink_control* control) {
    return tiffin_is_closed(tiffin_mount_of(sb))
               ? 0
               : TIFFIN_CALL(tiffin_mount_of(sb), shrink, (u64)control->nr_to_scan << PAGE_SHIFT) >>
                     PAGE_SHIFT;
}

/* What the VFS does not show by itself. */
static int show_options(struct seq_file* file, struct dentry* root) {
    tiffin_show_options(file, &tiffin_mount_of(root->d_sb)->options);
    return 0;
}

static const struct super_operations super_operations = {
    .alloc_inode = alloc_inode,
    .free_inode = free_inode,
    .evict_inode = evict_inode,
    .write_inode = write_inode,
    .put_super = put_super,
    .sync_fs = sync_fs,
    .freeze_fs = freeze_fs,
    .unfreeze_fs = unfreeze_fs,
    .nr_cached_objects = nr_cached_objects,
    .free_cached_objects = free_cached_objects,
    .statfs = statistics,
    .show_options = show_options,
};

/* ---- Mounting ---- */

/* From the beginning of a mount, or of its change: fs_private. */
struct context {
    const struct tiffin_operations* ops;
    struct tiffin_mount_options options;
};

static int mount_file_system(struct super_block* sb, const struct context* context) {
    const struct tiffin_operations* ops = context->ops;
    struct tiffin_mount* mount = kzalloc(sizeof(*mount), GFP_KERNEL);
    struct tiffin_inside inside;
    int error;

    if (mount == NULL) {
        return -ENOMEM;
    }
    mount->ops = ops;
    mount->options = context->options;
    mount->options.read_only = sb_rdonly(sb);
    mount->options.memory_bytes = (u64)totalram_pages() << PAGE_SHIFT;
    mount->device.bdev = sb->s_bdev;
    error = make_queues(mount, sb->s_id);
    if (error == 0) {
        error = tiffin_writeback_mount(mount);
        if (error == 0) {
            inside = tiffin_enter(mount);
            error = (int)tiffin_planted_error("mount");
            if (error == 0) {
                error = ops->mount(ops->needs_device ? &mount->device : NULL, &mount->options,
                                   &mount->fs);
            }
            tiffin_leave(inside);
            if (error != 0) {
                tiffin_writeback_unmount(mount);
            }
        }
        if (error != 0) {
            destroy_queues(mount);
        }
    }
    if (error != 0) {
        kfree(mount);
        return error;
    }
    /* From here on put_super() undoes it, as soon as there is a root. */
    sb->s_fs_info = mount;
    return 0;
}

static int make_root(struct super_block* sb) {
    struct tiffin_attributes attributes;
    struct inode* root;
    const int error =
        TIFFIN_CALL(tiffin_mount_of(sb), get_attributes, TIFFIN_ROOT_NODE, &attributes);

    if (error != 0) {
        return error;
    }
    root = tiffin_iget(sb, &attributes, 0);
    if (IS_ERR(root)) {
        return PTR_ERR(root);
    }
    sb->s_root = d_make_root(root);
    return sb->s_root == NULL ? -ENOMEM : 0;
}

static int fill_super(struct super_block* sb, struct fs_context* context) {
    const struct context* own = context->fs_private;
    const struct tiffin_operations* ops = own->ops;
    int error;

    sb->s_magic = TIFFIN_MAGIC;
    /* What is written behind it would be refused only by write-back. */
    sb->s_maxbytes = ops->maximum_file_bytes == 0
                         ? MAX_LFS_FILESIZE
                         : min_t(u64, MAX_LFS_FILESIZE, ops->maximum_file_bytes);
    sb->s_time_gran = 1;
    sb->s_op = &super_operations;
    sb->s_xattr = (const struct xattr_handler**)tiffin_xattr_handlers;
    sb->s_export_op = &tiffin_export_operations;
    sb->s_flags |= SB_POSIXACL | SB_I_VERSION;
    if (ops->has_blocks) {
        /* Checksums are taken over pages before they are written. */
        sb->s_iflags |= SB_I_STABLE_WRITES;
    }
    if (ops->needs_device && !sb_set_blocksize(sb, TIFFIN_BLOCK_BYTES)) {
        errorf(context, "tiffin: the device has blocks of more than %d bytes", TIFFIN_BLOCK_BYTES);
        return -EINVAL;
    }
    if (!ops->needs_device) {
        sb->s_blocksize = PAGE_SIZE;
        sb->s_blocksize_bits = PAGE_SHIFT;
    }
    if (own->options.no_recovery && !sb_rdonly(sb)) {
        errorf(context, "tiffin: norecovery is for read-only mounts: add ro");
        return -EINVAL;
    }
    if (sb->s_bdev != NULL) {
        /* Requests go past the device's own page cache: nothing of it may be written later, or read. */
        sync_blockdev(sb->s_bdev);
        invalidate_bdev(sb->s_bdev);
    }
    error = mount_file_system(sb, own);
    if (error != 0) {
        return error;
    }
    error = make_root(sb);
    if (error != 0) {
        put_super(sb);
    }
    return error;
}

static int get_tree(struct fs_context* context) {
    const struct context* own = context->fs_private;

    return own->ops->needs_device ? get_tree_bdev(context, fill_super)
                                  : get_tree_nodev(context, fill_super);
}

static int reconfigure(struct fs_context* context) {
    struct super_block* sb = context->root->d_sb;
    const struct context* own = context->fs_private;
    const bool read_only = (context->sb_flags & SB_RDONLY) != 0;
    int error = tiffin_check_remount(context, &tiffin_mount_of(sb)->options, &own->options);

    if (error != 0) {
        return error;
    }

    /* It is no option, but the VFS takes it for one. */
    context->sb_flags |= SB_I_VERSION;
    sync_filesystem(sb);
    if ((context->sb_flags_mask & SB_RDONLY) == 0 || (read_only && sb_rdonly(sb))) {
        return 0;
    }
    if (!read_only && sb_rdonly(sb) && sb->s_bdev != NULL && bdev_read_only(sb->s_bdev)) {
        return -EACCES;
    }
    /* Also where the VFS takes it for writable: after damage it is not. */
    error = TIFFIN_CALL(tiffin_mount_of(sb), remount, read_only);
    return error == -EOPNOTSUPP && read_only == sb_rdonly(sb) ? 0 : error;
}

/* A file system without blocks has none. */
static int parse_param(struct fs_context* context, struct fs_parameter* parameter) {
    struct context* own = context->fs_private;

    return own->ops->has_blocks ? tiffin_set_option(context, &own->options, parameter) : -ENOPARAM;
}

static void free_context(struct fs_context* context) { kfree(context->fs_private); }

static const struct fs_context_operations context_operations = {
    .free = free_context,
    .parse_param = parse_param,
    .get_tree = get_tree,
    .reconfigure = reconfigure,
};

int tiffin_init_fs_context(struct fs_context* context, const struct tiffin_operations* operations) {
    struct context* own = kzalloc(sizeof(*own), GFP_KERNEL);

    if (own == NULL) {
        return -ENOMEM;
    }
    own->ops = operations;
    tiffin_default_options(&own->options);
    context->fs_private = own;
    context->ops = &context_operations;
    return 0;
}
EXPORT_SYMBOL_GPL(tiffin_init_fs_context);

void tiffin_kill_sb(struct super_block* sb) {
    /* By its type: it has no device yet when that could not be opened. */
    if (sb->s_type->fs_flags & FS_REQUIRES_DEV) {
        kill_block_super(sb);
    } else {
        kill_anon_super(sb);
    }
}
EXPORT_SYMBOL_GPL(tiffin_kill_sb);

int tiffin_super_initialize(void) {
    inode_cache = kmem_cache_create("tiffin_inode", sizeof(struct tiffin_inode), 0,
                                    SLAB_RECLAIM_ACCOUNT | SLAB_ACCOUNT, initialize_inode_once);
    return inode_cache == NULL ? -ENOMEM : 0;
}

void tiffin_super_exit(void) {
    /* Inodes are freed after a grace period. */
    rcu_barrier();
    kmem_cache_destroy(inode_cache);
}
