/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Names: looking them up, making, removing and moving them. */
#include <linux/cred.h>
#include <linux/fs.h>
#include <linux/fs_struct.h>
#include <linux/namei.h>

#include "kmod/vfs/internal.h"

/* Ids are those on the disk. The umask counts only where the VFS leaves it to the file system, because of default ACLs;
 * elsewhere it has been applied to the mode already, and doing that again changes nothing. */
static struct tiffin_caller caller_for(struct mnt_idmap* idmap, const struct inode* dir) {
    struct user_namespace* ids = dir->i_sb->s_user_ns;

    return (struct tiffin_caller){
        .user_id = from_kuid(ids, mapped_fsuid(idmap, ids)),
        .group_id = from_kgid(ids, mapped_fsgid(idmap, ids)),
        .umask = current_umask(),
    };
}

static struct dentry* lookup(struct inode* dir, struct dentry* dentry, unsigned int flags) {
    struct tiffin_attributes found;
    const int error = TIFFIN_CALL(tiffin_mount_of(dir->i_sb), lookup, dir->i_ino,
                                  dentry->d_name.name, dentry->d_name.len, &found);

    if (error == -ENOENT) {
        return d_splice_alias(NULL, dentry);
    }
    return error != 0 ? ERR_PTR(error) : d_splice_alias(tiffin_iget(dir->i_sb, &found, 1), dentry);
}

/*
 * A new inode is locked until its name has it. One that is not has been found by a handle that somebody has guessed: as a
 * directory it may have a dentry, and must not get another one.
 */
static int give_name(struct dentry* dentry, struct inode* inode) {
    struct dentry* other;

    if (inode->i_state & I_NEW) {
        d_instantiate_new(dentry, inode);
        return 0;
    }
    if (!S_ISDIR(inode->i_mode)) {
        d_instantiate(dentry, inode);
        return 0;
    }
    d_drop(dentry);
    other = d_splice_alias(inode, dentry);
    if (IS_ERR(other)) {
        return PTR_ERR(other);
    }
    dput(other);
    return 0;
}

/* The end of each operation that makes something with a name. */
static int instantiate(struct inode* dir, struct dentry* dentry, struct tiffin_new_node* new_node,
                       int error, const struct tiffin_attributes* created) {
    struct inode* inode = tiffin_new_node_end(new_node, error, created);

    if (error == 0) {
        tiffin_refresh(dir);
        if (IS_ERR(inode)) {
            /* It exists. Without an inode the name cannot be shown now; the next lookup will find it. */
            d_drop(dentry);
        }
    }
    if (IS_ERR(inode)) {
        return PTR_ERR(inode);
    }
    error = give_name(dentry, inode);
    return error != 0 ? error : tiffin_settle(dir);
}

static int mknod(struct mnt_idmap* idmap, struct inode* dir, struct dentry* dentry, umode_t mode,
                 dev_t device) {
    const struct tiffin_caller caller = caller_for(idmap, dir);
    struct tiffin_new_node new_node;
    struct tiffin_attributes created;
    int error = tiffin_new_node_begin(&new_node, dir, &dentry->d_name, mode);

    if (error == 0) {
        error = TIFFIN_CALL(tiffin_mount_of(dir->i_sb), create, &caller, dir->i_ino,
                            dentry->d_name.name, dentry->d_name.len, mode, MAJOR(device),
                            MINOR(device), new_node.xattrs, new_node.xattr_count, &created);
    }
    return instantiate(dir, dentry, &new_node, error, &created);
}

static int create(struct mnt_idmap* idmap, struct inode* dir, struct dentry* dentry, umode_t mode,
                  bool exclusive) {
    return mknod(idmap, dir, dentry, (mode & ~S_IFMT) | S_IFREG, 0);
}

static int mkdir(struct mnt_idmap* idmap, struct inode* dir, struct dentry* dentry, umode_t mode) {
    const struct tiffin_caller caller = caller_for(idmap, dir);
    struct tiffin_new_node new_node;
    struct tiffin_attributes created;
    int error = tiffin_new_node_begin(&new_node, dir, &dentry->d_name, (mode & ~S_IFMT) | S_IFDIR);

    if (error == 0) {
        error = TIFFIN_CALL(tiffin_mount_of(dir->i_sb), make_directory, &caller, dir->i_ino,
                            dentry->d_name.name, dentry->d_name.len, mode & ~S_IFMT,
                            new_node.xattrs, new_node.xattr_count, &created);
    }
    return instantiate(dir, dentry, &new_node, error, &created);
}

static int symlink(struct mnt_idmap* idmap, struct inode* dir, struct dentry* dentry,
                   const char* target) {
    const struct tiffin_caller caller = caller_for(idmap, dir);
    struct tiffin_new_node new_node;
    struct tiffin_attributes created;
    int error = tiffin_new_node_begin(&new_node, dir, &dentry->d_name, S_IFLNK | 0777);

    if (error == 0) {
        error = TIFFIN_CALL(tiffin_mount_of(dir->i_sb), make_symlink, &caller, dir->i_ino,
                            dentry->d_name.name, dentry->d_name.len, target, strlen(target),
                            new_node.xattrs, new_node.xattr_count, &created);
    }
    return instantiate(dir, dentry, &new_node, error, &created);
}

static int tmpfile(struct mnt_idmap* idmap, struct inode* dir, struct file* file, umode_t mode) {
    const struct tiffin_caller caller = caller_for(idmap, dir);
    struct tiffin_new_node new_node;
    struct tiffin_attributes created;
    struct inode* inode;
    int error = tiffin_new_node_begin(&new_node, dir, NULL, (mode & ~S_IFMT) | S_IFREG);

    if (error == 0) {
        error = TIFFIN_CALL(tiffin_mount_of(dir->i_sb), make_temporary, &caller, dir->i_ino,
                            mode & ~S_IFMT, new_node.xattrs, new_node.xattr_count, &created);
    }
    inode = tiffin_new_node_end(&new_node, error, &created);
    if (IS_ERR(inode)) {
        return PTR_ERR(inode);
    }
    set_nlink(inode, 1); /* d_tmpfile() takes it away */
    d_tmpfile(file, inode);
    if (inode->i_state & I_NEW) {
        unlock_new_inode(inode);
    }
    return finish_open_simple(file, 0);
}

static int link(struct dentry* old_dentry, struct inode* dir, struct dentry* dentry) {
    struct inode* inode = d_inode(old_dentry);
    struct tiffin_attributes linked;
    int error;

    mutex_lock(&tiffin_inode_of(inode)->attributes_lock);
    error = TIFFIN_CALL(tiffin_mount_of(dir->i_sb), link, inode->i_ino, dir->i_ino,
                        dentry->d_name.name, dentry->d_name.len, &linked);
    if (error == 0) {
        tiffin_fill(inode, &linked);
    }
    mutex_unlock(&tiffin_inode_of(inode)->attributes_lock);
    if (error != 0) {
        return error;
    }
    atomic64_inc(&tiffin_inode_of(inode)->references);
    tiffin_refresh(dir);
    ihold(inode);
    d_instantiate(dentry, inode);
    return tiffin_settle(dir);
}

/* A name of it has gone. Without the last one it must not stay in memory. */
static void refresh_unlinked(struct inode* inode) {
    if (!tiffin_refresh(inode)) {
        drop_nlink(inode);
    }
}

/* Names have changed, but the VFS, which gets an error, takes them for what they were: the next lookup has to ask. */
static int settle_names(struct inode* dir, struct dentry* first, struct dentry* second) {
    const int error = tiffin_settle(dir);

    if (error != 0) {
        d_drop(first);
        if (second != NULL) {
            d_drop(second);
        }
    }
    return error;
}

static int unlink(struct inode* dir, struct dentry* dentry) {
    const int error = TIFFIN_CALL(tiffin_mount_of(dir->i_sb), unlink, dir->i_ino,
                                  dentry->d_name.name, dentry->d_name.len);

    tiffin_race_point("unlinked");
    if (error == 0) {
        tiffin_refresh(dir);
        refresh_unlinked(d_inode(dentry));
    }
    return error != 0 ? error : settle_names(dir, dentry, NULL);
}

static int rmdir(struct inode* dir, struct dentry* dentry) {
    const int error = TIFFIN_CALL(tiffin_mount_of(dir->i_sb), remove_directory, dir->i_ino,
                                  dentry->d_name.name, dentry->d_name.len);

    if (error == 0) {
        tiffin_refresh(dir);
        clear_nlink(d_inode(dentry));
    }
    return error != 0 ? error : settle_names(dir, dentry, NULL);
}

/* The VFS has locked what is no directory; of a directory only the change time has moved. */
static void refresh_moved(struct inode* inode) {
    if (S_ISDIR(inode->i_mode)) {
        tiffin_refresh_change_time(inode);
    } else {
        tiffin_refresh(inode);
    }
}

static int rename(struct mnt_idmap* idmap, struct inode* old_dir, struct dentry* old_dentry,
                  struct inode* new_dir, struct dentry* new_dentry, unsigned int flags) {
    const struct tiffin_caller caller = caller_for(idmap, old_dir);
    int error;

    if (flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT)) {
        return -EINVAL;
    }
    error = TIFFIN_CALL(tiffin_mount_of(old_dir->i_sb), rename, &caller, old_dir->i_ino,
                        old_dentry->d_name.name, old_dentry->d_name.len, new_dir->i_ino,
                        new_dentry->d_name.name, new_dentry->d_name.len, flags);
    if (error != 0) {
        return error;
    }
    tiffin_refresh(old_dir);
    if (new_dir != old_dir) {
        tiffin_refresh(new_dir);
    }
    refresh_moved(d_inode(old_dentry));
    if (d_really_is_positive(new_dentry)) {
        struct inode* target = d_inode(new_dentry);

        if (flags & RENAME_EXCHANGE) {
            refresh_moved(target);
        } else if (S_ISDIR(target->i_mode)) {
            clear_nlink(target);
        } else {
            refresh_unlinked(target);
        }
    }
    /* One commit has both. */
    return settle_names(IS_DIRSYNC(old_dir) ? old_dir : new_dir, old_dentry, new_dentry);
}

const struct inode_operations tiffin_directory_inode_operations = {
    .lookup = lookup,
    .create = create,
    .mknod = mknod,
    .mkdir = mkdir,
    .symlink = symlink,
    .tmpfile = tmpfile,
    .link = link,
    .unlink = unlink,
    .rmdir = rmdir,
    .rename = rename,
    .setattr = tiffin_setattr,
    .getattr = tiffin_getattr,
    .listxattr = tiffin_listxattr,
    .update_time = tiffin_update_time,
    .get_inode_acl = tiffin_get_acl,
    .set_acl = tiffin_set_acl,
    .fileattr_get = tiffin_fileattr_get,
    .fileattr_set = tiffin_fileattr_set,
};
