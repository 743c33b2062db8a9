/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Flags of files (chattr), and what else comes as an ioctl: trimming and shutting down. */
#include <linux/blkdev.h>
#include <linux/capability.h>
#include <linux/fileattr.h>
#include <linux/freezer.h>
#include <linux/fs.h>
#include <linux/mount.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "kmod/vfs/internal.h"

/* Of all file systems that have it: XFS_IOC_GOINGDOWN. */
#define TIFFIN_IOC_SHUTDOWN _IOR('X', 125, __u32)
/* What otherwise only NFS asks for. */
#define TIFFIN_IOC_CHANGE_COOKIE _IOR('T', 1, __u64)
#define TIFFIN_IOC_COMPARE_INODES _IO('T', 2)
#define SETTABLE_FLAGS (FS_IMMUTABLE_FL | FS_APPEND_FL | FS_NODUMP_FL | FS_NOATIME_FL)

void tiffin_fill_flags(struct inode* inode, u32 flags) {
    inode_set_flags(inode,
                    (flags & FS_IMMUTABLE_FL ? S_IMMUTABLE : 0) |
                        (flags & FS_APPEND_FL ? S_APPEND : 0) |
                        (flags & FS_NOATIME_FL ? S_NOATIME : 0),
                    S_IMMUTABLE | S_APPEND | S_NOATIME);
}

int tiffin_fileattr_get(struct dentry* dentry, struct fileattr* fa) {
    struct inode* inode = d_inode(dentry);
    struct tiffin_attributes attributes;
    const int error =
        TIFFIN_CALL(tiffin_mount_of(inode->i_sb), get_attributes, inode->i_ino, &attributes);

    if (error == 0) {
        fileattr_fill_flags(fa, attributes.flags);
    }
    return error;
}

int tiffin_fileattr_set(struct mnt_idmap* idmap, struct dentry* dentry, struct fileattr* fa) {
    struct inode* inode = d_inode(dentry);
    int error;

    if (fileattr_has_fsx(fa) || (fa->flags & ~SETTABLE_FLAGS) != 0) {
        return -EOPNOTSUPP;
    }
    /* What was written while it was permitted has to come to the file system before it no longer is. */
    error = tiffin_write_times(inode);
    if (error == 0) {
        error = TIFFIN_CALL(tiffin_mount_of(inode->i_sb), set_flags, inode->i_ino, fa->flags);
    }
    if (error == 0) {
        tiffin_fill_flags(inode, fa->flags); /* they hold even if the rest cannot be asked for */
        tiffin_refresh(inode);
    }
    return error != 0 ? error : tiffin_settle(inode);
}

/* A group of blocks of tiffinfs, between which no free range goes on. */
#define TRIM_PIECE (64ULL << 20)

/* In pieces: a device may need hours for all of it, and neither a signal nor a suspend waits so long. */
static s64 trim_pieces(struct file* file, const struct fstrim_range* range) {
    struct super_block* sb = file_inode(file)->i_sb;
    struct tiffin_mount* mount = tiffin_mount_of(sb);
    const u64 device_end = sb->s_bdev == NULL ? 0 : bdev_nr_bytes(sb->s_bdev);
    u64 start = range->start;
    u64 end = device_end;
    s64 total = 0;
    int error;

    if (start >= device_end) {
        return TIFFIN_CALL(mount, trim, start, range->len, range->minlen);
    }
    if (range->len < device_end - start) {
        end = start + range->len;
    }
    do {
        u64 piece_end = round_down(start, TRIM_PIECE) + TRIM_PIECE;
        s64 discarded;

        if (piece_end - start < sb->s_blocksize) {
            piece_end += TRIM_PIECE;
        }
        piece_end = min(piece_end, end);
        /* Nothing reaches the device while it is frozen. */
        error = mnt_want_write_file(file);
        if (error != 0) {
            return error;
        }
        discarded = TIFFIN_CALL(mount, trim, start, piece_end - start, range->minlen);
        mnt_drop_write_file(file);
        if (discarded == -EINVAL && start != range->start) {
            break; /* the device is larger than the volume */
        }
        if (discarded < 0) {
            return discarded;
        }
        total += discarded;
        start = piece_end;
    } while (end - start >= sb->s_blocksize && !fatal_signal_pending(current) &&
             !freezing(current));
    return total;
}

static long trim(struct file* file, struct fstrim_range __user* argument) {
    struct fstrim_range range;
    s64 discarded;

    if (!capable(CAP_SYS_ADMIN)) {
        return -EPERM;
    }
    if (copy_from_user(&range, argument, sizeof(range)) != 0) {
        return -EFAULT;
    }
    discarded = trim_pieces(file, &range);
    if (discarded < 0) {
        return discarded;
    }
    range.len = discarded;
    return copy_to_user(argument, &range, sizeof(range)) != 0 ? -EFAULT : 0;
}

static long shut_down(struct super_block* sb, u32 __user* argument) {
    u32 mode;
    int error = 0;
    int result;

    if (!capable(CAP_SYS_ADMIN)) {
        return -EPERM;
    }
    if (get_user(mode, argument) != 0) {
        return -EFAULT;
    }
    if (mode > 2) {
        return -EINVAL;
    }
    if (mode == 0) {
        /* The page cache and the times of inodes belong to everything, too. */
        down_read(&sb->s_umount);
        error = sync_filesystem(sb);
        up_read(&sb->s_umount);
    }
    /* In any case. */
    result = TIFFIN_CALL(tiffin_mount_of(sb), shutdown, mode);
    return result != 0 ? result : error;
}

long tiffin_ioctl(struct file* file, unsigned int command, unsigned long argument) {
    struct super_block* sb = file_inode(file)->i_sb;

    switch (command) {
        case FS_IOC_GETVERSION:
            return put_user(file_inode(file)->i_generation, (int __user*)argument);
#ifdef TIFFIN_PLANTED_FAULTS
        case TIFFIN_IOC_CHANGE_COOKIE:
            return put_user(tiffin_change_cookie(file_inode(file)), (u64 __user*)argument);
        case TIFFIN_IOC_COMPARE_INODES:
            return tiffin_compare_inodes(sb);
#endif
        case FITRIM:
            return trim(file, (struct fstrim_range __user*)argument);
        case TIFFIN_IOC_SHUTDOWN:
            return shut_down(sb, (u32 __user*)argument);
        default:
            return tiffin_control(file, command, (void __user*)argument);
    }
}
