/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* File handles: NFS and open_by_handle_at(). */
#include <linux/exportfs.h>
#include <linux/fs.h>

#include "kmod/vfs/internal.h"

static struct inode* find(struct super_block* sb, u64 node, u32 generation) {
    struct tiffin_attributes found;
    const int error = TIFFIN_CALL(tiffin_mount_of(sb), find_node, node, 0, &found);

    if (error != 0) {
        return ERR_PTR(error);
    }
    /* A handle has 32 bits of it. Numbers are not used again, so this is more than is needed. */
    if (generation != 0 && (u32)found.generation != generation) {
        tiffin_forget(sb, found.node, 1);
        return ERR_PTR(-ESTALE);
    }
    return tiffin_iget(sb, &found, 1);
}

#define HANDLE_TYPE 0x54
#define HANDLE_TYPE_WITH_PARENT 0x55

struct handle {
    u32 node_low;
    u32 node_high;
    u32 generation;
    u32 parent_low;
    u32 parent_high;
};
#define HANDLE_WORDS 3
#define HANDLE_WORDS_WITH_PARENT 5

static int encode_handle(struct inode* inode, u32* words, int* max_words, struct inode* parent) {
    struct handle* handle = (struct handle*)words;
    const int wanted = parent != NULL ? HANDLE_WORDS_WITH_PARENT : HANDLE_WORDS;

    if (*max_words < wanted) {
        *max_words = wanted;
        return FILEID_INVALID;
    }
    *max_words = wanted;
    handle->node_low = lower_32_bits(inode->i_ino);
    handle->node_high = upper_32_bits(inode->i_ino);
    handle->generation = inode->i_generation;
    if (parent == NULL) {
        return HANDLE_TYPE;
    }
    handle->parent_low = lower_32_bits(parent->i_ino);
    handle->parent_high = upper_32_bits(parent->i_ino);
    return HANDLE_TYPE_WITH_PARENT;
}

static struct dentry* handle_to_dentry(struct super_block* sb, struct fid* fid, int words,
                                       int type) {
    const struct handle* handle = (const struct handle*)fid;

    if ((type != HANDLE_TYPE && type != HANDLE_TYPE_WITH_PARENT) || words < HANDLE_WORDS) {
        return NULL;
    }
    return d_obtain_alias(
        find(sb, (u64)handle->node_high << 32 | handle->node_low, handle->generation));
}

static struct dentry* handle_to_parent(struct super_block* sb, struct fid* fid, int words,
                                       int type) {
    const struct handle* handle = (const struct handle*)fid;

    if (type != HANDLE_TYPE_WITH_PARENT || words < HANDLE_WORDS_WITH_PARENT) {
        return NULL;
    }
    return d_obtain_alias(find(sb, (u64)handle->parent_high << 32 | handle->parent_low, 0));
}

static struct dentry* get_parent(struct dentry* child) {
    struct super_block* sb = child->d_sb;
    struct tiffin_attributes found;
    const int error =
        TIFFIN_CALL(tiffin_mount_of(sb), lookup, d_inode(child)->i_ino, "..", 2, &found);

    return error != 0 ? ERR_PTR(error) : d_obtain_alias(tiffin_iget(sb, &found, 1));
}

/* What an NFS server has told its client must not be lost. The server would write the inode, which makes nothing durable. */
static int commit_metadata(struct inode* inode) { return tiffin_commit(inode, false); }

const struct export_operations tiffin_export_operations = {.encode_fh = encode_handle,
                                                           .fh_to_dentry = handle_to_dentry,
                                                           .fh_to_parent = handle_to_parent,
                                                           .get_parent = get_parent,
                                                           .commit_metadata = commit_metadata,
                                                           TIFFIN_EXPORT_CHANGE_COOKIE};
