/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the parts of the framework know of each other. */
#ifndef TIFFIN_KMOD_INTERNAL_H
#define TIFFIN_KMOD_INTERNAL_H

#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/fs.h>
#include <linux/mempool.h>
#include <linux/mutex.h>
#include <linux/sched/mm.h>
#include <linux/workqueue.h>

#include "kmod/vfs/abi.h"
#include "kmod/vfs/compat.h"
#include "kmod/vfs/planted.h"

#define TIFFIN_ROOT_NODE 1
#define TIFFIN_BLOCK_BYTES 4096

struct tiffin_device {
    struct block_device* bdev;
    /* An invariant of the file system is broken: nothing reaches the device any more, and no call the file system. */
    bool is_closed;
    /* A flush has failed, and so does every later one: what it was for may be lost, which the block layer says once. */
    bool flush_failed;
};

/* One mount: sb->s_fs_info. */
struct tiffin_mount {
    const struct tiffin_operations* ops;
    struct tiffin_file_system* fs;
    struct tiffin_device device;
    struct tiffin_mount_options options; /* as they were given */
    mempool_t* writebacks;               /* see writeback.c; NULL without blocks */
#define TIFFIN_KEPT_WRITERS 8
    void* kept_writers[TIFFIN_KEPT_WRITERS]; /* see writer.c; NULL where there is none */
    /* Where reads, write-back and direct writes continue whose I/O has completed. They may wait for each other in this
     * order only. Each mount has its own, since what never ends in one must not keep another from its end. */
    struct workqueue_struct* reads;
    struct workqueue_struct* writes;
    struct workqueue_struct* directs;
    struct workqueue_struct* direct_ends; /* of writes that may wait for write-back */
};

struct tiffin_inode {
    struct inode vfs;
    /* How many references of the contract the inode stands for; given back when it is evicted. */
    atomic64_t references;
    u64 generation;
    /* Which times are newer than those of the file system: S_ATIME, S_MTIME, S_CTIME. With them under i_lock. */
    int dirty_times;
    /* The inode may not show what the file system has, since asking has failed after a change, or writing times; getattr asks. */
    bool is_stale;
    /* From asking the file system for attributes, or telling it some, until the inode shows them: so nobody fills in what has been
     * asked for earlier, and times that are on their way are waited for. Taken after the inode's own locks. */
    struct mutex attributes_lock;
    /* Pages that the write under way has been promised room for and not made dirty yet; with i_rwsem. */
    unsigned int promised_pages;
    /* Pages that are dirty, or being written, and have been promised room. */
    atomic_t pages_with_promise;
    /* As long as the content is small it takes no blocks: TIFFIN_TRAIT_INLINE_CONTENT. */
    bool is_inline;
};

static inline struct tiffin_inode* tiffin_inode_of(struct inode* inode) {
    return container_of(inode, struct tiffin_inode, vfs);
}
static inline struct tiffin_mount* tiffin_mount_of(const struct super_block* sb) {
    return sb->s_fs_info;
}

static inline bool tiffin_is_closed(const struct tiffin_mount* mount) {
    return unlikely(READ_ONCE(mount->device.is_closed));
}

/*
 * Around all that is called in a file system. What it allocates must not be reclaimed by calling into a file system, which
 * may be the same one. journal_info says which mount the thread is in: see close() of tiffin_services. It has to be as it was
 * where memory of a program is touched, since the fault may enter another file system, for which it has a meaning.
 */
struct tiffin_inside {
    unsigned int nofs;
    void* before;
    bool is_measured;
};
static inline struct tiffin_inside tiffin_enter(const struct tiffin_mount* mount) {
    struct tiffin_inside inside = {memalloc_nofs_save(), current->journal_info, false};

    current->journal_info = (void*)mount;
    inside.is_measured = tiffin_planted_enter();
    return inside;
}
static inline void tiffin_leave(struct tiffin_inside inside) {
    tiffin_planted_leave(inside.is_measured);
    current->journal_info = inside.before;
    memalloc_nofs_restore(inside.nofs);
}

/* Calls an operation of a mount; EIO when it is closed. */
#define TIFFIN_CALL(mount, operation, ...)                                                 \
    ({                                                                                     \
        typeof((mount)->ops->operation((mount)->fs, ##__VA_ARGS__)) result_ =              \
            (typeof(result_))-EIO;                                                         \
        if (!tiffin_is_closed(mount)) {                                                    \
            const long planted_ = tiffin_planted_error(#operation);                        \
            const struct tiffin_inside inside_ = tiffin_enter(mount);                      \
            result_ = planted_ != 0 ? (typeof(result_))planted_                            \
                                    : (mount)->ops->operation((mount)->fs, ##__VA_ARGS__); \
            tiffin_leave(inside_);                                                         \
        }                                                                                  \
        result_;                                                                           \
    })

#define TIFFIN_CALL_VOID(mount, operation, ...)                       \
    do {                                                              \
        if (!tiffin_is_closed(mount)) {                               \
            const struct tiffin_inside inside_ = tiffin_enter(mount); \
            (mount)->ops->operation((mount)->fs, ##__VA_ARGS__);      \
            tiffin_leave(inside_);                                    \
        }                                                             \
    } while (0)

/*
 * Who goes on when I/O has completed: the thread that began it if it is still there, which saves two switches where the device
 * completes at once (memory); else work that the completion queues. Exactly one of the two functions below says yes.
 */
struct tiffin_turn {
    atomic_t state;
};
enum { TIFFIN_TURN_BEGINNING, TIFFIN_TURN_COMPLETED, TIFFIN_TURN_LEFT };
/* Before I/O may begin. */
static inline void tiffin_turn_begin(struct tiffin_turn* turn) {
    atomic_set(&turn->state, TIFFIN_TURN_BEGINNING);
}
/* In the thread that began it: whether it goes on, seeing what the completion has written. If not, what `turn` belongs to may
 * be gone already. (A cmpxchg that fails would order nothing.) */
static inline bool tiffin_turn_is_own(struct tiffin_turn* turn) {
    return atomic_xchg(&turn->state, TIFFIN_TURN_LEFT) != TIFFIN_TURN_BEGINNING;
}
/* In the completion: whether it queues work. */
static inline bool tiffin_turn_is_queued(struct tiffin_turn* turn) {
    return atomic_cmpxchg(&turn->state, TIFFIN_TURN_BEGINNING, TIFFIN_TURN_COMPLETED) !=
           TIFFIN_TURN_BEGINNING;
}

/* Goes on with a write that was begun: true when it is done, with its result. When it is not, another thread may have
 * finished it already. In a mount that is closed it is done with EIO, and `writer` belongs to the file system for ever. */
static inline bool tiffin_advance_write(const struct tiffin_mount* mount, void* writer,
                                        struct tiffin_turn* turn, long* result) {
    struct tiffin_inside inside;
    bool done;

    do {
        if (tiffin_is_closed(mount)) {
            *result = -EIO;
            return true;
        }
        tiffin_turn_begin(turn);
        inside = tiffin_enter(mount);
        done = mount->ops->write_advance(writer);
        if (done) {
            *result = mount->ops->write_result(writer);
        }
        tiffin_leave(inside);
    } while (!done && tiffin_turn_is_own(turn));
    return done;
}

/* device_bio.c */
int tiffin_device_initialize(void);
void tiffin_device_exit(void);
extern const struct tiffin_services tiffin_services;

/* inode.c */
extern const struct inode_operations tiffin_file_inode_operations;
extern const struct inode_operations tiffin_special_inode_operations;
extern const struct inode_operations tiffin_symlink_inode_operations;
/* Takes over the references that came with `attributes` (1, or 0 for the root), also when it fails. */
struct inode* tiffin_iget(struct super_block* sb, const struct tiffin_attributes* attributes,
                          unsigned int references);
/* Around an operation that makes a node. With the labels of security modules in `xattrs` after the first function. The second
 * one is called in any case, with the first one's error or the operation's; it takes over the node's reference, and returns
 * its inode, which is locked as new unless it was there already. `name` is NULL for a file without one. */
struct tiffin_new_node {
    struct inode* inode;
    size_t xattr_count;
    struct tiffin_xattr xattrs[TIFFIN_INITIAL_XATTRS];
};
int tiffin_new_node_begin(struct tiffin_new_node* new_node, struct inode* dir,
                          const struct qstr* name, umode_t mode);
struct inode* tiffin_new_node_end(struct tiffin_new_node* new_node, int error,
                                  const struct tiffin_attributes* created);
/* The inode's attributes, but the size of a regular file, become those that the file system has. With attributes_lock. */
void tiffin_fill(struct inode* inode, const struct tiffin_attributes* attributes);
/* The same, asking for them: after an operation that changed the inode in passing. With the inode locked, since links of it are
 * counted. */
bool tiffin_refresh(struct inode* inode); /* false: it could not be asked, and getattr asks again */
/* The change time alone, of an inode that need not be locked. */
void tiffin_refresh_change_time(struct inode* inode);
int tiffin_write_times(struct inode* inode);
TIFFIN_UPDATE_TIME(tiffin_update_time);
/* The file system's counter of changes, for NFS; another one whenever the file has been changed. 0 also for errors. */
u64 tiffin_change_cookie(struct inode* inode);
/* Has the file system's file end where i_size is; the inode is locked. */
int tiffin_cut_to_size(struct inode* inode);
int tiffin_setattr(struct mnt_idmap* idmap, struct dentry* dentry, struct iattr* attr);
int tiffin_getattr(struct mnt_idmap* idmap, const struct path* path, struct kstat* stat, u32 mask,
                   unsigned int flags);

/* flags.c */
int tiffin_fileattr_get(struct dentry* dentry, struct fileattr* fa);
int tiffin_fileattr_set(struct mnt_idmap* idmap, struct dentry* dentry, struct fileattr* fa);
void tiffin_fill_flags(struct inode* inode, u32 flags);
long tiffin_ioctl(struct file* file, unsigned int command, unsigned long argument);

/* control.c: what the tiffin command asks. */
long tiffin_control(struct file* file, unsigned int command, void __user* argument);

/* namei.c, dir.c */
extern const struct inode_operations tiffin_directory_inode_operations;
extern const struct file_operations tiffin_directory_operations;
int tiffin_fsync(struct file* file, loff_t start, loff_t end, int data_only);
/* What the file system has of the inode, with its times, is durable then; what waits in the page cache is not. */
int tiffin_commit(struct inode* inode, bool data_only);
/* After a change of an inode or of the names in a directory: where the mount or the inode says so (sync, dirsync), it is
 * durable before the call ends. */
int tiffin_settle(struct inode* inode);

/* fiemap.c */
int tiffin_fiemap(struct inode* inode, struct fiemap_extent_info* info, u64 start, u64 length);

/* file.c, simple_file.c */
extern const struct file_operations tiffin_file_operations;
extern const struct file_operations tiffin_simple_file_operations;

/* read.c */
/* A read that nobody waits for, of pages or parts of them that follow each other. */
struct tiffin_read {
    /* Set by who starts it. */
    struct inode* inode;
    loff_t offset;
    unsigned int count;
    struct tiffin_vector* vectors;
    /* Called by any thread when they are filled, what is behind the end of the file with zeros, or with an error. */
    void (*done)(struct tiffin_read* read, int error);
    /* Of read.c. */
    void* reader;
    struct tiffin_turn turn;
    struct work_struct work;
};
void tiffin_read_start(struct tiffin_read* read);
/* The same, waiting. */
int tiffin_read_vectors(struct inode* inode, loff_t offset, const struct tiffin_vector* vectors,
                        size_t count);

/* options.c */
struct fs_context;
struct fs_parameter;
struct seq_file;
void tiffin_default_options(struct tiffin_mount_options* options);
int tiffin_set_option(struct fs_context* context, struct tiffin_mount_options* options,
                      struct fs_parameter* parameter);
/* EINVAL, when what is asked for is not so already. */
int tiffin_check_remount(struct fs_context* context, const struct tiffin_mount_options* present,
                         const struct tiffin_mount_options* asked);
void tiffin_show_options(struct seq_file* file, const struct tiffin_mount_options* options);

/* writer.c: what a write is begun in; NULL without memory. Freed when the mount's I/O has ended. */
void* tiffin_take_writer(struct tiffin_mount* mount, gfp_t gfp);
void tiffin_give_back_writer(struct tiffin_mount* mount, void* writer); /* or NULL */
void tiffin_free_writers(struct tiffin_mount* mount);

/* direct.c */
/* What memory and places have to be aligned to so that nothing is copied: a power of two. */
unsigned int tiffin_direct_alignment(struct super_block* sb);
ssize_t tiffin_direct_read(struct kiocb* iocb, struct iov_iter* to);
/* ENOTBLK: a page of the range stays in the page cache, because other I/O fills it (a read into a mapping); then the write goes
 * through that, too. */
ssize_t tiffin_direct_write(struct kiocb* iocb, struct iov_iter* from);

/* pagecache.c, writeback.c */
extern const struct address_space_operations tiffin_address_space_operations;
/* Zeroes what a mapping may have written behind the end of the file, before that end moves on. */
void tiffin_zero_tail(struct inode* inode);
/* A page that has been promised room (see FileSystem::promise()) is private; under its lock, and changed when it is neither
 * dirty nor under write-back. Returns false when it had been already. */
bool tiffin_mark_promised(struct page* page);
void tiffin_unmark_promised(struct page* page);
int tiffin_writepages(struct address_space* mapping, struct writeback_control* wbc);
int tiffin_writeback_mount(struct tiffin_mount* mount);
void tiffin_writeback_unmount(struct tiffin_mount* mount);

/* xattr.c */
extern const struct xattr_handler* const tiffin_xattr_handlers[];
ssize_t tiffin_listxattr(struct dentry* dentry, char* buffer, size_t size);
struct posix_acl* tiffin_get_acl(struct inode* inode, int type, bool rcu);
int tiffin_set_acl(struct mnt_idmap* idmap, tiffin_acl_target* target, struct posix_acl* acl,
                   int type);

/* export.c */
extern const struct export_operations tiffin_export_operations;

/* super.c */
void tiffin_forget(struct super_block* sb, u64 node, u64 references);
int tiffin_super_initialize(void);
void tiffin_super_exit(void);

#endif
