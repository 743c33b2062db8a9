/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What tests break and look at: see planted.h. */
#ifdef TIFFIN_PLANTED_FAULTS

#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/moduleparam.h>
#include <linux/pagemap.h>
#include <linux/random.h>
#include <linux/string.h>

#include "kmod/host/stack_depth.h"
#include "kmod/vfs/internal.h"

bool tiffin_keeps_promises;
module_param_named(keeps_promises, tiffin_keeps_promises, bool, 0600);
bool tiffin_leaks_mounts;
module_param_named(leaks_mounts, tiffin_leaks_mounts, bool, 0600);

/* ---- Calls that fail ---- */

static char fail_operation[32];
module_param_string(fail_operation, fail_operation, sizeof(fail_operation), 0600);
static int fail_error = EIO;
module_param(fail_error, int, 0600);
static atomic_t fail_after = ATOMIC_INIT(0);

static int set_fail_after(const char* text, const struct kernel_param* parameter) {
    int value;
    const int error = kstrtoint(text, 0, &value);

    if (error == 0) {
        atomic_set(&fail_after, value);
    }
    return error;
}

static int get_fail_after(char* text, const struct kernel_param* parameter) {
    return sysfs_emit(text, "%d\n", atomic_read(&fail_after));
}

static const struct kernel_param_ops fail_after_operations = {.set = set_fail_after,
                                                              .get = get_fail_after};
module_param_cb(fail_after, &fail_after_operations, NULL, 0600);

long tiffin_planted_error(const char* operation) {
    return unlikely(atomic_read(&fail_after) > 0) && sysfs_streq(operation, fail_operation) &&
                   atomic_dec_if_positive(&fail_after) == 0
               ? -fail_error
               : 0;
}

static atomic_t hold_flush = ATOMIC_INIT(0);
module_param_named(hold_flush, hold_flush.counter, int, 0600);

int tiffin_planted_flush(void) {
    if (likely(atomic_cmpxchg(&hold_flush, 1, 2) != 1)) {
        return 0;
    }
    while (atomic_read(&hold_flush) != 0) {
        msleep(10);
    }
    atomic_set(&hold_flush, 3);
    return -EIO;
}

/* ---- Races ---- */

static char delay_at[32];
module_param_string(delay_at, delay_at, sizeof(delay_at), 0600);
static int delay_ms;
module_param(delay_ms, int, 0600);
static atomic_t delays = ATOMIC_INIT(0);
module_param_named(delays, delays.counter, int, 0600);

void tiffin_race_point(const char* place) {
    const int most_ms = READ_ONCE(delay_ms);

    if (unlikely(most_ms > 0) && sysfs_streq(place, delay_at)) {
        atomic_inc(&delays);
        msleep(get_random_u32() % most_ms);
    }
}

/* ---- Stacks ---- */

static bool measure_stack;
module_param(measure_stack, bool, 0600);
static atomic_t deepest_stack = ATOMIC_INIT(0);
module_param_named(deepest_stack, deepest_stack.counter, int, 0600);

bool tiffin_planted_enter(void) {
    const bool is_measured = READ_ONCE(measure_stack);

    if (unlikely(is_measured)) {
        tiffin_paint_stack();
    }
    return is_measured;
}

void tiffin_planted_leave(bool is_measured) {
    if (unlikely(is_measured)) {
        tiffin_measure_stack(&deepest_stack);
    }
}

/* ---- Attributes ---- */

static bool same_time(const struct timespec64 own, const struct tiffin_time* time) {
    return own.tv_sec == time->seconds && own.tv_nsec == time->nanoseconds;
}

/* What the inode has first may differ: times that are dirty, the size of a regular file that is. */
static const char* difference(struct inode* inode, const struct tiffin_attributes* attributes) {
    const int dirty = READ_ONCE(tiffin_inode_of(inode)->dirty_times);
    const bool is_dirty =
        S_ISREG(inode->i_mode) && (mapping_tagged(inode->i_mapping, PAGECACHE_TAG_DIRTY) ||
                                   mapping_tagged(inode->i_mapping, PAGECACHE_TAG_WRITEBACK));

    return inode->i_mode != attributes->mode                           ? "mode"
           : i_uid_read(inode) != attributes->user_id                  ? "owner"
           : i_gid_read(inode) != attributes->group_id                 ? "group"
           : inode->i_nlink != attributes->link_count                  ? "links"
           : inode->i_generation != (u32)attributes->generation        ? "generation"
           : !is_dirty && i_size_read(inode) != attributes->size_bytes ? "size"
           : !(dirty & S_ATIME) && !same_time(inode_get_atime(inode), &attributes->access_time)
               ? "access time"
           : !(dirty & S_MTIME) &&
                   !same_time(inode_get_mtime(inode), &attributes->modification_time)
               ? "modification time"
           : !(dirty & S_CTIME) && !same_time(inode_get_ctime(inode), &attributes->change_time)
               ? "change time"
               : NULL;
}

static long compare_inode(struct inode* inode) {
    struct tiffin_attributes attributes;
    const char* what;
    int error;

    mutex_lock(&tiffin_inode_of(inode)->attributes_lock);
    error = TIFFIN_CALL(tiffin_mount_of(inode->i_sb), get_attributes, inode->i_ino, &attributes);
    what = error == 0 ? difference(inode, &attributes) : "error";
    mutex_unlock(&tiffin_inode_of(inode)->attributes_lock);
    if (what != NULL) {
        pr_err("tiffin: inode %lu differs: %s\n", inode->i_ino, what);
    }
    return what != NULL;
}

/* As drop_caches walks over them. */
long tiffin_compare_inodes(struct super_block* sb) {
    struct inode* inode;
    struct inode* before = NULL;
    long differing = 0;

    spin_lock(&sb->s_inode_list_lock);
    list_for_each_entry(inode, &sb->s_inodes, i_sb_list) {
        if ((READ_ONCE(inode->i_state) & I_NEW) || igrab(inode) == NULL) {
            continue;
        }
        spin_unlock(&sb->s_inode_list_lock);
        differing += compare_inode(inode);
        cond_resched();
        iput(before);
        before = inode;
        spin_lock(&sb->s_inode_list_lock);
    }
    spin_unlock(&sb->s_inode_list_lock);
    iput(before);
    return differing;
}

#endif
