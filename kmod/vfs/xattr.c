/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Extended attributes and ACLs. */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <linux/slab.h>
#include <linux/xattr.h>

#include "kmod/vfs/internal.h"

static int get(const struct xattr_handler* handler, struct dentry* dentry, struct inode* inode,
               const char* name, void* buffer, size_t size) {
    const char* full = xattr_full_name(handler, name);

    return TIFFIN_CALL(tiffin_mount_of(inode->i_sb), get_xattr, inode->i_ino, full, strlen(full),
                       buffer, size);
}

static int change(struct inode* inode, const char* name, const void* value, size_t size,
                  u32 flags) {
    struct tiffin_mount* mount = tiffin_mount_of(inode->i_sb);
    const int error =
        value == NULL
            ? TIFFIN_CALL(mount, remove_xattr, inode->i_ino, name, strlen(name))
            : TIFFIN_CALL(mount, set_xattr, inode->i_ino, name, strlen(name), value, size, flags);

    if (error == 0) {
        tiffin_refresh(inode);
    }
    return error != 0 ? error : tiffin_settle(inode);
}

static int set(const struct xattr_handler* handler, struct mnt_idmap* idmap, struct dentry* dentry,
               struct inode* inode, const char* name, const void* value, size_t size, int flags) {
    return change(inode, xattr_full_name(handler, name), value, size, flags);
}

static const struct xattr_handler user_handler = {
    .prefix = XATTR_USER_PREFIX, .get = get, .set = set};
static const struct xattr_handler trusted_handler = {
    .prefix = XATTR_TRUSTED_PREFIX, .get = get, .set = set};
static const struct xattr_handler security_handler = {
    .prefix = XATTR_SECURITY_PREFIX, .get = get, .set = set};

const struct xattr_handler* const tiffin_xattr_handlers[] = {
    TIFFIN_ACL_HANDLERS & user_handler,
    &trusted_handler,
    &security_handler,
    NULL,
};

/* ---- Listing: "trusted." shows to those who may read it only ---- */

static ssize_t list_untrusted(struct inode* inode, char* buffer, size_t size) {
    struct tiffin_mount* mount = tiffin_mount_of(inode->i_sb);
    char* all = kvmalloc(XATTR_LIST_MAX, GFP_KERNEL);
    ssize_t length;
    ssize_t used = 0;
    const char* name;

    if (all == NULL) {
        return -ENOMEM;
    }
    length = TIFFIN_CALL(mount, list_xattr, inode->i_ino, all, XATTR_LIST_MAX);
    for (name = all; length > 0 && name < all + length; name += strlen(name) + 1) {
        const size_t bytes = strlen(name) + 1;

        if (strncmp(name, XATTR_TRUSTED_PREFIX, XATTR_TRUSTED_PREFIX_LEN) == 0) {
            continue;
        }
        if (size != 0 && used + bytes > size) {
            length = -ERANGE;
            break;
        }
        if (size != 0) {
            memcpy(buffer + used, name, bytes);
        }
        used += bytes;
    }
    kvfree(all);
    return length < 0 ? length : used;
}

ssize_t tiffin_listxattr(struct dentry* dentry, char* buffer, size_t size) {
    struct inode* inode = d_inode(dentry);

    if (!capable(CAP_SYS_ADMIN)) {
        return list_untrusted(inode, buffer, size);
    }
    return TIFFIN_CALL(tiffin_mount_of(inode->i_sb), list_xattr, inode->i_ino, buffer, size);
}

/* ---- ACLs: the file system stores them and keeps them in step with the mode ---- */

static const char* acl_name(int type) {
    return type == ACL_TYPE_ACCESS ? XATTR_NAME_POSIX_ACL_ACCESS : XATTR_NAME_POSIX_ACL_DEFAULT;
}

struct posix_acl* tiffin_get_acl(struct inode* inode, int type, bool rcu) {
    struct tiffin_mount* mount = tiffin_mount_of(inode->i_sb);
    const char* name = acl_name(type);
    struct posix_acl* acl;
    void* value = NULL;
    long size;

    if (rcu) {
        return ERR_PTR(-ECHILD);
    }
    do {
        kvfree(value);
        value = NULL;
        size = TIFFIN_CALL(mount, get_xattr, inode->i_ino, name, strlen(name), NULL, 0);
        if (size < 0) {
            break;
        }
        value = kvmalloc(size, GFP_KERNEL);
        if (value == NULL) {
            return ERR_PTR(-ENOMEM);
        }
        size = TIFFIN_CALL(mount, get_xattr, inode->i_ino, name, strlen(name), value, size);
    } while (size == -ERANGE); /* it has become longer in between */
    if (size == -ENODATA || size == -EOPNOTSUPP) {
        acl = NULL;
    } else {
        acl = size < 0 ? ERR_PTR(size) : posix_acl_from_xattr(inode->i_sb->s_user_ns, value, size);
    }
    kvfree(value);
    return acl;
}

int tiffin_set_acl(struct mnt_idmap* idmap, tiffin_acl_target* target, struct posix_acl* acl,
                   int type) {
    struct inode* inode = tiffin_acl_inode(target);
    u32 flags = 0;
    void* value = NULL;
    size_t size = 0;
    int error;

    if (acl != NULL) {
        size = posix_acl_xattr_size(acl->a_count);
        value = kvmalloc(size, GFP_KERNEL);
        if (value == NULL) {
            return -ENOMEM;
        }
        error = posix_acl_to_xattr(inode->i_sb->s_user_ns, acl, value, size);
        if (error < 0) {
            goto out;
        }
        if (type == ACL_TYPE_ACCESS && !vfsgid_in_group_p(i_gid_into_vfsgid(idmap, inode)) &&
            !capable_wrt_inode_uidgid(idmap, inode, CAP_FSETID)) {
            flags = TIFFIN_XATTR_KILL_SET_GROUP_ID;
        }
    }
    error = change(inode, acl_name(type), value, size, flags);
    if (acl == NULL && error == -ENODATA) {
        error = 0;
    }
    /* An ACL that says no more than the mode is not stored; and it may have changed without being durable. */
    forget_cached_acl(inode, type);
out:
    kvfree(value);
    return error;
}
