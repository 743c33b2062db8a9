/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Inodes and their attributes.
 *
 * The file system has the attributes, and the inode shows them: every operation that changes some fetches them anew. Two
 * things the inode has first: the size of a regular file, which grows with the page cache, and times, which the VFS moves
 * with every write and read; write_inode hands these over.
 */
#include <linux/blkdev.h>
#include <linux/fs.h>
#include <linux/iversion.h>
#include <linux/namei.h>
#include <linux/pagemap.h>
#include <linux/posix_acl.h>
#include <linux/security.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/xattr.h>

#include "kmod/vfs/internal.h"

static struct timespec64 to_timespec(const struct tiffin_time* time) {
    return (struct timespec64){.tv_sec = time->seconds, .tv_nsec = time->nanoseconds};
}

static struct tiffin_time from_timespec(struct timespec64 time) {
    return (struct tiffin_time){.seconds = time.tv_sec, .nanoseconds = time.tv_nsec};
}

/* Times that the file system has not got yet stay. What changes a file in passing moves its change time only. */
static void fill_times(struct inode* inode, const struct tiffin_attributes* attributes) {
    const struct timespec64 change_time = to_timespec(&attributes->change_time);
    struct timespec64 own_change_time;
    int dirty;

    spin_lock(&inode->i_lock);
    dirty = tiffin_inode_of(inode)->dirty_times;
    if (!(dirty & S_ATIME)) {
        inode_set_atime_to_ts(inode, to_timespec(&attributes->access_time));
    }
    if (!(dirty & S_MTIME)) {
        inode_set_mtime_to_ts(inode, to_timespec(&attributes->modification_time));
    }
    own_change_time = inode_get_ctime(inode);
    if (!(dirty & S_CTIME) || timespec64_compare(&change_time, &own_change_time) > 0) {
        inode_set_ctime_to_ts(inode, change_time);
    }
    spin_unlock(&inode->i_lock);
}

void tiffin_fill(struct inode* inode, const struct tiffin_attributes* attributes) {
    WRITE_ONCE(tiffin_inode_of(inode)->is_stale, false);
    WRITE_ONCE(tiffin_inode_of(inode)->is_inline,
               (attributes->traits & TIFFIN_TRAIT_INLINE_CONTENT) != 0);
    inode->i_mode = (inode->i_mode & S_IFMT) | (attributes->mode & 07777);
    i_uid_write(inode, attributes->user_id);
    i_gid_write(inode, attributes->group_id);
    set_nlink(inode, attributes->link_count);
    tiffin_fill_flags(inode, attributes->flags);
    fill_times(inode, attributes);
    if (!S_ISREG(inode->i_mode)) {
        i_size_write(inode, attributes->size_bytes);
    }
}

bool tiffin_refresh(struct inode* inode) {
    struct tiffin_attributes attributes;
    int error;

    mutex_lock(&tiffin_inode_of(inode)->attributes_lock);
    error = TIFFIN_CALL(tiffin_mount_of(inode->i_sb), get_attributes, inode->i_ino, &attributes);
    if (error == 0) {
        tiffin_fill(inode, &attributes);
    } else {
        WRITE_ONCE(tiffin_inode_of(inode)->is_stale, true);
    }
    mutex_unlock(&tiffin_inode_of(inode)->attributes_lock);
    return error == 0;
}

void tiffin_refresh_change_time(struct inode* inode) {
    struct tiffin_attributes attributes;

    mutex_lock(&tiffin_inode_of(inode)->attributes_lock);
    if (TIFFIN_CALL(tiffin_mount_of(inode->i_sb), get_attributes, inode->i_ino, &attributes) == 0) {
        fill_times(inode, &attributes);
    } else {
        WRITE_ONCE(tiffin_inode_of(inode)->is_stale, true);
    }
    mutex_unlock(&tiffin_inode_of(inode)->attributes_lock);
}

static void set_operations(struct inode* inode, const struct tiffin_attributes* attributes) {
    const struct tiffin_operations* ops = tiffin_mount_of(inode->i_sb)->ops;

    switch (inode->i_mode & S_IFMT) {
        case S_IFREG:
            inode->i_op = &tiffin_file_inode_operations;
            inode->i_fop =
                ops->has_blocks ? &tiffin_file_operations : &tiffin_simple_file_operations;
            inode->i_mapping->a_ops = &tiffin_address_space_operations;
            mapping_set_gfp_mask(inode->i_mapping, GFP_HIGHUSER_MOVABLE & ~__GFP_FS);
            break;
        case S_IFDIR:
            inode->i_op = &tiffin_directory_inode_operations;
            inode->i_fop = &tiffin_directory_operations;
            break;
        case S_IFLNK:
            inode->i_op = &tiffin_symlink_inode_operations;
            break;
        default:
            inode->i_op = &tiffin_special_inode_operations;
            init_special_inode(inode, inode->i_mode,
                               MKDEV(attributes->device_major, attributes->device_minor));
            break;
    }
}

/* A target does not change, so the inode has it, also for lookups that do not wait. */
static int read_target(struct inode* inode) {
    const size_t bytes = i_size_read(inode);
    char* target;
    long length;

    if (bytes >= PATH_MAX) {
        return -ENAMETOOLONG;
    }
    target = kmalloc(bytes + 1, GFP_KERNEL_ACCOUNT);
    if (target == NULL) {
        return -ENOMEM;
    }
    length = TIFFIN_CALL(tiffin_mount_of(inode->i_sb), read_link, inode->i_ino, target, bytes);
    if (length >= 0) {
        target[length] = '\0';
    }
    if (length < 0 || cmpxchg(&inode->i_link, NULL, target) != NULL) {
        kfree(target);
    }
    return length < 0 ? length : 0;
}

/* For an inode that is locked because it is new, and stays so. */
static void finish_new(struct inode* inode, const struct tiffin_attributes* attributes) {
    inode->i_mode = attributes->mode;
    inode->i_generation = attributes->generation;
    tiffin_inode_of(inode)->generation = attributes->generation;
    set_operations(inode, attributes);
    i_size_write(inode, attributes->size_bytes);
    tiffin_fill(inode, attributes);
    if (S_ISLNK(inode->i_mode)) {
        read_target(inode); /* its error shows when it is followed */
    }
    if ((attributes->traits & (TIFFIN_TRAIT_ACCESS_ACL | TIFFIN_TRAIT_DEFAULT_ACL)) == 0) {
        cache_no_acl(inode);
    }
}

struct inode* tiffin_iget(struct super_block* sb, const struct tiffin_attributes* attributes,
                          unsigned int references) {
    struct tiffin_attributes now;
    struct inode* inode;
    int error;

    tiffin_race_point("found");
    inode = iget_locked(sb, attributes->node);
    if (inode == NULL) {
        tiffin_forget(sb, attributes->node, references);
        return ERR_PTR(-ENOMEM);
    }
    atomic64_add(references, &tiffin_inode_of(inode)->references);
    if ((inode->i_state & I_NEW) == 0) {
        return inode;
    }
    /* Asks again, since there may have been another inode of it meanwhile, by which it has been changed. */
    error = TIFFIN_CALL(tiffin_mount_of(sb), get_attributes, attributes->node, &now);
    if (error != 0) {
        iget_failed(inode);
        return ERR_PTR(error);
    }
    finish_new(inode, &now);
    unlock_new_inode(inode);
    return inode;
}

/* ---- New nodes: the inode is first, since security modules label inodes, and then the node is made with its labels ---- */

/* Called by the security modules' framework, with what is gone afterwards. */
static int take_labels(struct inode* inode, const struct xattr* labels, void* data) {
    struct tiffin_new_node* new_node = data;

    for (; labels->name != NULL; ++labels) {
        struct tiffin_xattr* xattr = &new_node->xattrs[new_node->xattr_count];
        const size_t name_bytes = XATTR_SECURITY_PREFIX_LEN + strlen(labels->name);
        char* memory;

        if (strcmp(labels->name, XATTR_EVM_SUFFIX) == 0) {
            continue; /* it seals the inode's number too, which it has not got yet */
        }
        if (new_node->xattr_count == TIFFIN_INITIAL_XATTRS) {
            return -E2BIG;
        }
        memory = kmalloc(name_bytes + labels->value_len, GFP_KERNEL);
        if (memory == NULL) {
            return -ENOMEM;
        }
        memcpy(memory, XATTR_SECURITY_PREFIX, XATTR_SECURITY_PREFIX_LEN);
        memcpy(memory + XATTR_SECURITY_PREFIX_LEN, labels->name,
               name_bytes - XATTR_SECURITY_PREFIX_LEN);
        memcpy(memory + name_bytes, labels->value, labels->value_len);
        *xattr = (struct tiffin_xattr){.name = memory,
                                       .name_bytes = name_bytes,
                                       .value = memory + name_bytes,
                                       .value_bytes = labels->value_len};
        ++new_node->xattr_count;
    }
    return 0;
}

int tiffin_new_node_begin(struct tiffin_new_node* new_node, struct inode* dir,
                          const struct qstr* name, umode_t mode) {
    new_node->xattr_count = 0;
    new_node->inode = new_inode(dir->i_sb);
    if (new_node->inode == NULL) {
        return -ENOMEM;
    }
    new_node->inode->i_mode = mode;
    return security_inode_init_security(new_node->inode, dir, name, take_labels, new_node);
}

struct inode* tiffin_new_node_end(struct tiffin_new_node* new_node, int error,
                                  const struct tiffin_attributes* created) {
    struct inode* inode = new_node->inode;
    size_t i;

    for (i = 0; i < new_node->xattr_count; ++i) {
        kfree(new_node->xattrs[i].name); /* the value with it */
    }
    if (error != 0) {
        iput(inode);
        return ERR_PTR(error);
    }
    tiffin_race_point("created");
    inode->i_ino = created->node;
    if (insert_inode_locked(inode) != 0) {
        /* There is one already: somebody has guessed the new node's handle. */
        struct super_block* sb = inode->i_sb;

        iput(inode);
        return tiffin_iget(sb, created, 1);
    }
    atomic64_set(&tiffin_inode_of(inode)->references, 1);
    finish_new(inode, created);
    return inode;
}

/* ---- Times ---- */

TIFFIN_UPDATE_TIME(tiffin_update_time) {
    const struct timespec64 now = TIFFIN_UPDATE_NOW;

    /*
     * A change in a tick of the clock that has been seen already. With lazytime, too, the times are written soon then: the
     * content is, and who has seen the old change attribute would take it for the new content's after a crash.
     */
    const bool was_seen = (flags & S_VERSION) && inode_maybe_inc_iversion(inode, false);

    if (was_seen) {
        flags |= S_MTIME | S_CTIME;
    }
    spin_lock(&inode->i_lock);
    if (flags & S_ATIME) {
        inode_set_atime_to_ts(inode, now);
    }
    if (flags & S_MTIME) {
        inode_set_mtime_to_ts(inode, now);
    }
    if (flags & S_CTIME) {
        inode_set_ctime_to_ts(inode, now);
    }
    tiffin_inode_of(inode)->dirty_times |= flags & (S_ATIME | S_MTIME | S_CTIME);
    spin_unlock(&inode->i_lock);
    __mark_inode_dirty(
        inode, (inode->i_sb->s_flags & SB_LAZYTIME) && !was_seen ? I_DIRTY_TIME : I_DIRTY_SYNC);
    return 0;
}

/* Takes the dirty times; the change time always, since it would become that of the change. `only_read`: nothing but the access
 * time is newer. */
static struct tiffin_change take_times(struct inode* inode, bool* only_read) {
    struct tiffin_inode* own = tiffin_inode_of(inode);
    struct tiffin_change change = {.valid = 0};

    spin_lock(&inode->i_lock);
    *only_read = own->dirty_times == S_ATIME;
    if (own->dirty_times != 0) {
        change.valid = TIFFIN_CHANGE_CHANGE_TIME |
                       (own->dirty_times & S_ATIME ? TIFFIN_CHANGE_ACCESS_TIME : 0) |
                       (own->dirty_times & S_MTIME ? TIFFIN_CHANGE_MODIFICATION_TIME : 0);
        change.access_time = from_timespec(inode_get_atime(inode));
        change.modification_time = from_timespec(inode_get_mtime(inode));
        change.change_time = from_timespec(inode_get_ctime(inode));
        own->dirty_times = 0;
    }
    spin_unlock(&inode->i_lock);
    return change;
}

static void return_times(struct inode* inode, const struct tiffin_change* change) {
    spin_lock(&inode->i_lock);
    tiffin_inode_of(inode)->dirty_times |=
        S_CTIME | (change->valid & TIFFIN_CHANGE_ACCESS_TIME ? S_ATIME : 0) |
        (change->valid & TIFFIN_CHANGE_MODIFICATION_TIME ? S_MTIME : 0);
    spin_unlock(&inode->i_lock);
    mark_inode_dirty_sync(inode);
}

static int write_times(struct inode* inode) {
    const struct tiffin_caller nobody = {0};
    struct tiffin_mount* mount = tiffin_mount_of(inode->i_sb);
    bool only_read;
    struct tiffin_change change = take_times(inode, &only_read);
    struct tiffin_attributes after;
    int error;

    if (change.valid == 0) {
        return 0;
    }
    tiffin_race_point("times");
    error = TIFFIN_CALL(mount, set_attributes, &nobody, inode->i_ino, &change, &after);
    if (error == -EPERM) {
        /* Immutable and append-only files keep their access time, but not that of what was written before. */
        change.valid &= ~TIFFIN_CHANGE_ACCESS_TIME;
        error = TIFFIN_CALL(mount, set_attributes, &nobody, inode->i_ino, &change, &after);
    }
    if (error == -ENOMEM) {
        return_times(inode, &change);
    } else if (error != 0) {
        WRITE_ONCE(tiffin_inode_of(inode)->is_stale, true);
        if (only_read) {
            /* Nothing that was written is lost. Reads of a volume that is stopped go on. */
            error = 0;
        } else if (error != -EPERM) {
            /* For the next fsync: the flusher reports to no program. */
            mapping_set_error(inode->i_mapping, error);
        }
    }
    return error;
}

int tiffin_write_times(struct inode* inode) {
    int error;

    mutex_lock(&tiffin_inode_of(inode)->attributes_lock);
    error = write_times(inode);
    mutex_unlock(&tiffin_inode_of(inode)->attributes_lock);
    return error;
}

/*
 * Changes of the content come to the file system with the times that they move. Of the VFS's own counter only the mark is
 * used that it has been queried: after that the VFS tells of the next change even if no time moves. What was counted and not
 * committed is counted again after a crash, for other changes: the time keeps these apart, as nfsd does for file systems that
 * leave the change attribute to it.
 */
u64 tiffin_change_cookie(struct inode* inode) {
    struct tiffin_attributes attributes;
    int error;

    inode_query_iversion(inode);
    error = tiffin_write_times(inode);
    if (error == 0) {
        error =
            TIFFIN_CALL(tiffin_mount_of(inode->i_sb), get_attributes, inode->i_ino, &attributes);
    }
    if (error != 0) {
        return 0;
    }
    return attributes.change_counter + ((u64)attributes.change_time.seconds << 30) +
           attributes.change_time.nanoseconds;
}

/* ---- Attributes ---- */

static struct tiffin_change change_of(struct mnt_idmap* idmap, const struct inode* inode,
                                      const struct iattr* attr) {
    struct user_namespace* ids = inode->i_sb->s_user_ns;
    struct tiffin_change change = {0};

    if (attr->ia_valid & ATTR_MODE) {
        change.valid |= TIFFIN_CHANGE_MODE;
        change.mode = attr->ia_mode & 07777;
    }
    if (attr->ia_valid & ATTR_UID) {
        change.valid |= TIFFIN_CHANGE_USER_ID;
        change.user_id = from_kuid(ids, from_vfsuid(idmap, ids, attr->ia_vfsuid));
    }
    if (attr->ia_valid & ATTR_GID) {
        change.valid |= TIFFIN_CHANGE_GROUP_ID;
        change.group_id = from_kgid(ids, from_vfsgid(idmap, ids, attr->ia_vfsgid));
    }
    if (attr->ia_valid & ATTR_SIZE) {
        change.valid |= TIFFIN_CHANGE_SIZE;
        change.size_bytes = attr->ia_size;
    }
    /* Append-only files take "now" and no other time. The change time is that of the change. */
    if (attr->ia_valid & ATTR_ATIME_SET) {
        change.valid |= TIFFIN_CHANGE_ACCESS_TIME;
        change.access_time = from_timespec(attr->ia_atime);
    } else if (attr->ia_valid & ATTR_ATIME) {
        change.valid |= TIFFIN_CHANGE_ACCESS_NOW;
    }
    if (attr->ia_valid & ATTR_MTIME_SET) {
        change.valid |= TIFFIN_CHANGE_MODIFICATION_TIME;
        change.modification_time = from_timespec(attr->ia_mtime);
    } else if (attr->ia_valid & ATTR_MTIME) {
        change.valid |= TIFFIN_CHANGE_MODIFICATION_NOW;
    }
    if (change.valid == 0 && (attr->ia_valid & ATTR_CTIME)) {
        /* chown() that changes no owner. */
        change.valid = TIFFIN_CHANGE_CHANGE_TIME;
        change.change_time = from_timespec(attr->ia_ctime);
    }
    return change;
}

static int apply(struct inode* inode, const struct tiffin_change* change) {
    const struct tiffin_caller nobody = {
        0}; /* owners of files do not change with who changes attributes */
    struct tiffin_attributes after;
    int error;

    mutex_lock(&tiffin_inode_of(inode)->attributes_lock);
    if (change->valid & TIFFIN_CHANGE_SIZE) {
        /* The content, which IMA has to measure again. Before it changes: who asks in between must be told again. */
        inode_inc_iversion(inode);
    }
    error = TIFFIN_CALL(tiffin_mount_of(inode->i_sb), set_attributes, &nobody, inode->i_ino, change,
                        &after);
    if (error == 0) {
        tiffin_fill(inode, &after);
    } else {
        /* A part of it may have been done. */
        WRITE_ONCE(tiffin_inode_of(inode)->is_stale, true);
    }
    mutex_unlock(&tiffin_inode_of(inode)->attributes_lock);
    return error;
}

/*
 * The page cache first where the file becomes shorter: what is written back from then on does not reach beyond the new end,
 * so that it cannot make the file longer again.
 */
static int set_size(struct inode* inode, const struct tiffin_change* change) {
    const loff_t old_size = i_size_read(inode);
    const loff_t new_size = change->size_bytes;
    int error;

    inode_dio_wait(inode);
    filemap_invalidate_lock(inode->i_mapping);
    if (new_size < old_size && offset_in_page(new_size) != 0) {
        /* Should it fail, the page of the new end can be read again, with all that was in it. */
        filemap_fdatawrite_range(inode->i_mapping, new_size, new_size);
        filemap_fdatawait_range_keep_errors(inode->i_mapping, new_size, new_size);
    }
    if (new_size != 0 && new_size <= old_size) {
        /* To the file system, the size of which may be older, the file must not become longer: it would keep what
         * fallocate reserved behind the end. */
        filemap_fdatawrite_range(inode->i_mapping, old_size - 1, old_size - 1);
        filemap_fdatawait_range_keep_errors(inode->i_mapping, old_size - 1, old_size - 1);
    }
    if (new_size < old_size) {
        truncate_setsize(inode, new_size);
    }
    tiffin_race_point("truncate");
    error = apply(inode, change);
    tiffin_race_point("truncated");
    if (error == 0 && new_size > old_size) {
        tiffin_zero_tail(inode);
        truncate_setsize(inode, new_size);
    } else if (error != 0 && new_size < old_size) {
        /* The file is as long as before, but what was cached behind that page and not written back is lost. */
        i_size_write(inode, old_size);
        mapping_set_error(inode->i_mapping, error);
        invalidate_inode_pages2_range(inode->i_mapping, new_size >> PAGE_SHIFT,
                                      new_size >> PAGE_SHIFT);
    }
    filemap_invalidate_unlock(inode->i_mapping);
    return error;
}

int tiffin_cut_to_size(struct inode* inode) {
    const struct tiffin_change change = {.valid = TIFFIN_CHANGE_SIZE,
                                         .size_bytes = i_size_read(inode)};

    return apply(inode, &change);
}

int tiffin_setattr(struct mnt_idmap* idmap, struct dentry* dentry, struct iattr* attr) {
    struct inode* inode = d_inode(dentry);
    const bool has_blocks = tiffin_mount_of(inode->i_sb)->ops->has_blocks;
    struct tiffin_change change;
    int error = IS_IMMUTABLE(inode) ? -EPERM : setattr_prepare(idmap, dentry, attr);

    if (error == 0) {
        /* They may be older than those that are set now. */
        error = tiffin_write_times(inode);
    }
    if (error != 0) {
        return error;
    }
    change = change_of(idmap, inode, attr);
    if (change.valid == 0) {
        return 0;
    }
    if (!(change.valid & TIFFIN_CHANGE_SIZE)) {
        error = apply(inode, &change);
    } else if (has_blocks) {
        error = set_size(inode, &change);
    } else {
        error = apply(inode, &change);
        if (error == 0) {
            i_size_write(inode, change.size_bytes);
        }
    }
    if (error == 0 && (attr->ia_valid & ATTR_MODE)) {
        forget_all_cached_acls(inode); /* the file system keeps ACLs in step with the mode */
    }
    return error != 0 ? error : tiffin_settle(inode);
}

int tiffin_getattr(struct mnt_idmap* idmap, const struct path* path, struct kstat* stat, u32 mask,
                   unsigned int flags) {
    struct inode* inode = d_inode(path->dentry);
    struct tiffin_attributes attributes;
    u64 promised_bytes;
    int error;

    /* If somebody else has it locked, the next call does it. */
    if (unlikely(READ_ONCE(tiffin_inode_of(inode)->is_stale)) && inode_trylock(inode)) {
        tiffin_refresh(inode);
        inode_unlock(inode);
    }
    /* Before the file system is asked: what is written back meanwhile has blocks then. */
    promised_bytes = (u64)atomic_read_acquire(&tiffin_inode_of(inode)->pages_with_promise)
                     << PAGE_SHIFT;
    error = TIFFIN_CALL(tiffin_mount_of(inode->i_sb), get_attributes, inode->i_ino, &attributes);
    if (error != 0) {
        return error;
    }
    generic_fillattr(idmap, mask & ~STATX_CHANGE_COOKIE, inode, stat);
    if (mask & STATX_CHANGE_COOKIE) {
        tiffin_set_change_cookie(stat, tiffin_change_cookie(inode));
    }
    /*
     * Also what will have blocks when it is written back: tar takes a file without any for a hole. Promises of pages that have
     * some already exceed a full file only.
     */
    stat->blocks = min_t(u64, attributes.allocated_bytes + promised_bytes,
                         max_t(u64, attributes.allocated_bytes,
                               round_up((u64)stat->size, TIFFIN_BLOCK_BYTES))) >>
                   SECTOR_SHIFT;
    stat->result_mask |= STATX_BTIME;
    stat->btime = to_timespec(&attributes.birth_time);
    if ((mask & STATX_DIOALIGN) != 0 && S_ISREG(inode->i_mode) &&
        tiffin_mount_of(inode->i_sb)->ops->has_blocks) {
        /* What is aligned otherwise is served as well, through copies. */
        stat->result_mask |= STATX_DIOALIGN;
        stat->dio_mem_align = tiffin_direct_alignment(inode->i_sb);
        stat->dio_offset_align = TIFFIN_BLOCK_BYTES;
    }
    stat->attributes_mask |= STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND | STATX_ATTR_NODUMP;
    stat->attributes |= (attributes.flags & FS_IMMUTABLE_FL ? STATX_ATTR_IMMUTABLE : 0) |
                        (attributes.flags & FS_APPEND_FL ? STATX_ATTR_APPEND : 0) |
                        (attributes.flags & FS_NODUMP_FL ? STATX_ATTR_NODUMP : 0);
    return 0;
}

/* ---- Symbolic links ---- */

/* Only where it could not be read when the inode was made. */
static const char* get_link(struct dentry* dentry, struct inode* inode, struct delayed_call* done) {
    const int error = dentry == NULL ? -ECHILD : read_target(inode);

    return error != 0 ? ERR_PTR(error) : inode->i_link;
}

/* ---- Tables ---- */

#define COMMON_OPERATIONS                                                                \
    .setattr = tiffin_setattr, .getattr = tiffin_getattr, .listxattr = tiffin_listxattr, \
    .update_time = tiffin_update_time

const struct inode_operations tiffin_file_inode_operations = {
    COMMON_OPERATIONS,
    .get_inode_acl = tiffin_get_acl,
    .set_acl = tiffin_set_acl,
    .fileattr_get = tiffin_fileattr_get,
    .fileattr_set = tiffin_fileattr_set,
    .fiemap = tiffin_fiemap,
};

const struct inode_operations tiffin_special_inode_operations = {
    COMMON_OPERATIONS,
    .get_inode_acl = tiffin_get_acl,
    .set_acl = tiffin_set_acl,
};

const struct inode_operations tiffin_symlink_inode_operations = {
    COMMON_OPERATIONS,
    .get_link = get_link,
};
