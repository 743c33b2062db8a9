/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What operations cost without system calls: calls the VFS on a folder of any file system, for bench/kernel. For Linux 6.1.
 *
 *     insmod tiffin_bench.ko folder=/mnt run=7 count=2000
 *
 * logs a line "tiffin_bench: 7 OPERATION NANOSECONDS" for each, the mean of `count` calls, and can be unloaded; read_directory
 * reads `count` names each time. profiled=OPERATION calls that one of content for 5 s, for a profiler. What it makes in the
 * folder it removes but for a file "content"; a call that fails is logged, and loading fails. What CRC32C takes is among
 * them, as the file system's module takes it and by the kernel's function.
 */
#include <linux/bvec.h>
#include <linux/crc32c.h>
#include <linux/fs.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/namei.h>
#include <linux/pagemap.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/stat.h>
#include <linux/uio.h>

static char* folder;
module_param(folder, charp, 0400);
static unsigned int run;
module_param(run, uint, 0400);
static unsigned int count = 2000;
module_param(count, uint, 0400);
static char* profiled;
module_param(profiled, charp, 0400);

#define PROFILED_NS (5 * NSEC_PER_SEC)
#define FILE_BYTES (8U << 20)

static struct path place; /* the folder */
static struct file* file;
static char* page; /* the first of MEMORY_BYTES */
#define MEMORY_BYTES (128U << 10)

struct name {
    char text[32];
    int length;
};
static struct name name_of(const char* kind, unsigned int number) {
    struct name name;

    name.length = snprintf(name.text, sizeof(name.text), "%s-%u", kind, number);
    return name;
}

static struct inode* dir(void) { return d_inode(place.dentry); }

/* The name, looked up in the folder, which is locked. */
static struct dentry* dentry_of(const char* kind, unsigned int number) {
    const struct name name = name_of(kind, number);

    return lookup_one_len(name.text, place.dentry, name.length);
}

enum change { CREATE, UNLINK, MKDIR, RMDIR };

static int change(enum change what, const char* kind, unsigned int number) {
    struct dentry* dentry;
    int error = mnt_want_write(place.mnt);

    if (error != 0) {
        return error;
    }
    inode_lock_nested(dir(), I_MUTEX_PARENT);
    dentry = dentry_of(kind, number);
    error = PTR_ERR_OR_ZERO(dentry);
    if (error == 0) {
        switch (what) {
            case CREATE:
                error = vfs_create(&init_user_ns, dir(), dentry, S_IFREG | 0644, true);
                break;
            case UNLINK:
                error = vfs_unlink(&init_user_ns, dir(), dentry, NULL);
                break;
            case MKDIR:
                error = vfs_mkdir(&init_user_ns, dir(), dentry, 0755);
                break;
            case RMDIR:
                error = vfs_rmdir(&init_user_ns, dir(), dentry);
                break;
        }
    }
    inode_unlock(dir());
    /* Behind the lock, as in a system call: what is removed goes away here. */
    if (!IS_ERR(dentry)) {
        dput(dentry);
    }
    mnt_drop_write(place.mnt);
    return error;
}

static int create(unsigned int i) { return change(CREATE, "file", i); }
static int unlink(unsigned int i) { return change(UNLINK, "file", i); }
static int make_directory(unsigned int i) { return change(MKDIR, "folder", i); }
static int remove_directory(unsigned int i) { return change(RMDIR, "folder", i); }

static int rename(unsigned int i) {
    struct renamedata data = {.old_mnt_userns = &init_user_ns, .new_mnt_userns = &init_user_ns};
    int error = mnt_want_write(place.mnt);

    if (error != 0) {
        return error;
    }
    lock_rename(place.dentry, place.dentry);
    data.old_dir = data.new_dir = dir();
    data.old_dentry = dentry_of("moved", i);
    data.new_dentry = dentry_of("moved", i + 1);
    error = PTR_ERR_OR_ZERO(data.old_dentry) ?: PTR_ERR_OR_ZERO(data.new_dentry);
    if (error == 0) {
        error = vfs_rename(&data);
    }
    unlock_rename(place.dentry, place.dentry);
    if (!IS_ERR(data.old_dentry)) {
        dput(data.old_dentry);
    }
    if (!IS_ERR(data.new_dentry)) {
        dput(data.new_dentry);
    }
    mnt_drop_write(place.mnt);
    return error;
}

static int stat_known(unsigned int i) {
    char name[128];
    struct path found;
    struct kstat stat;
    int error;

    snprintf(name, sizeof(name), "%s/file-%u", folder, i);
    error = kern_path(name, 0, &found);
    if (error == 0) {
        error = vfs_getattr(&found, &stat, STATX_BASIC_STATS, 0);
        path_put(&found);
    }
    return error;
}

/* Another name each time: the cache of names does not know that it is missing. */
static int lookup_of_a_missing_name(unsigned int i) {
    char name[128];
    struct path found;
    int error;

    snprintf(name, sizeof(name), "%s/missing-%u", folder, i);
    error = kern_path(name, 0, &found);
    if (error == 0) {
        path_put(&found);
    }
    return error == -ENOENT ? 0 : error ?: -EEXIST;
}

struct entries {
    struct dir_context context;
    unsigned int count;
};
static bool take_entry(struct dir_context* context, const char* name, int length, loff_t offset,
                       u64 number, unsigned int type) {
    ++container_of(context, struct entries, context)->count;
    return true;
}
static int read_directory(unsigned int i) {
    struct entries entries = {.context = {.actor = take_entry}};
    struct file* opened = file_open_root(&place, ".", O_RDONLY | O_DIRECTORY, 0);
    int error = PTR_ERR_OR_ZERO(opened);
    unsigned int before;

    if (error != 0) {
        return error;
    }
    do {
        before = entries.count;
        error = iterate_dir(opened, &entries.context);
    } while (error == 0 && entries.count > before);
    filp_close(opened, NULL);
    return error ?: entries.count < count ? -EIO : 0;
}

static int transfer(bool is_write, loff_t position) {
    const ssize_t length = is_write ? kernel_write(file, page, PAGE_SIZE, &position)
                                    : kernel_read(file, page, PAGE_SIZE, &position);

    return length == PAGE_SIZE ? 0 : length < 0 ? length : -EIO;
}
/* Each page of the file once, in an order that readahead does not foresee. */
static loff_t at_random(unsigned int i) {
    return (loff_t)(i * 1021U % (FILE_BYTES / PAGE_SIZE)) * PAGE_SIZE;
}
static int append_4k(unsigned int i) {
    return transfer(true, (loff_t)i % (FILE_BYTES / PAGE_SIZE) * PAGE_SIZE);
}
static int overwrite_4k(unsigned int i) { return transfer(true, at_random(i)); }
static int read_4k(unsigned int i) { return transfer(false, at_random(i)); }
static int read_4k_uncached(unsigned int i) {
    const pgoff_t index = at_random(i) >> PAGE_SHIFT;

    invalidate_mapping_pages(file->f_mapping, index, index);
    return transfer(false, at_random(i));
}
static int overwrite_4k_and_fsync(unsigned int i) {
    return transfer(true, at_random(i)) ?: vfs_fsync(file, 0);
}
static int nothing(unsigned int i) { return 0; }

/* O_DIRECT, of pages one by one as a program's memory is. */
static struct file* direct_file;
static int transfer_direct(bool is_write, size_t size_bytes, loff_t position) {
    struct bio_vec pages[MEMORY_BYTES / PAGE_SIZE];
    const unsigned int page_count = size_bytes / PAGE_SIZE;
    struct iov_iter iter;
    unsigned int i;
    ssize_t length;

    for (i = 0; i < page_count; ++i) {
        pages[i] =
            (struct bio_vec){.bv_page = virt_to_page(page + i * PAGE_SIZE), .bv_len = PAGE_SIZE};
    }
    iov_iter_bvec(&iter, is_write ? ITER_SOURCE : ITER_DEST, pages, page_count, size_bytes);
    if (is_write) {
        file_start_write(direct_file);
        length = vfs_iter_write(direct_file, &iter, &position, 0);
        file_end_write(direct_file);
    } else {
        length = vfs_iter_read(direct_file, &iter, &position, 0);
    }
    return length == size_bytes ? 0 : length < 0 ? length : -EIO;
}
static loff_t large_at_random(unsigned int i) {
    return (loff_t)(i * 37U % (FILE_BYTES / MEMORY_BYTES)) * MEMORY_BYTES;
}
static int read_4k_direct(unsigned int i) {
    return transfer_direct(false, PAGE_SIZE, at_random(i));
}
static int overwrite_4k_direct(unsigned int i) {
    return transfer_direct(true, PAGE_SIZE, at_random(i));
}
static int read_128k_direct(unsigned int i) {
    return transfer_direct(false, MEMORY_BYTES, large_at_random(i));
}
static int overwrite_128k_direct(unsigned int i) {
    return transfer_direct(true, MEMORY_BYTES, large_at_random(i));
}

/* checksum.cc */
u32 tiffin_bench_checksum(const void* data, size_t size_bytes);
static u32 kernel_checksum(const void* data, size_t size_bytes) {
    return ~crc32c(~0U, data, size_bytes);
}

/* Of each block, as in the file system; their sum is kept, so that none is left out. */
static u32 sum;
static int checksums(u32 (*of)(const void* data, size_t size_bytes), size_t size_bytes) {
    size_t offset;

    for (offset = 0; offset < size_bytes; offset += PAGE_SIZE) {
        sum += of(page + offset, PAGE_SIZE);
    }
    return 0;
}
static int checksum_4k(unsigned int i) { return checksums(tiffin_bench_checksum, PAGE_SIZE); }
static int checksum_128k(unsigned int i) { return checksums(tiffin_bench_checksum, MEMORY_BYTES); }
static int kernel_checksum_4k(unsigned int i) { return checksums(kernel_checksum, PAGE_SIZE); }
static int kernel_checksum_128k(unsigned int i) { return checksums(kernel_checksum, MEMORY_BYTES); }

static int call_each(const char* name, unsigned int calls, int (*call)(unsigned int i)) {
    unsigned int i;

    for (i = 0; i < calls; ++i) {
        const int error = call(i);

        if (error != 0) {
            pr_err("tiffin_bench: %s, call %u: error %d\n", name, i, error);
            return error;
        }
        cond_resched();
    }
    return 0;
}

static int measure(const char* name, unsigned int calls, int (*call)(unsigned int i)) {
    const bool is_profiled = profiled != NULL && strcmp(name, profiled) == 0;
    const u64 begin = ktime_get_ns();
    unsigned int times = 0;
    int error;

    do {
        error = call_each(name, calls, call);
        ++times;
    } while (error == 0 && is_profiled && ktime_get_ns() - begin < PROFILED_NS);
    if (error == 0) {
        pr_info("tiffin_bench: %u %s %llu\n", run, name, (ktime_get_ns() - begin) / calls / times);
    }
    return error;
}

static int names(void) {
    return measure("create", count, create) ?: measure("stat_of_a_known_file", count, stat_known)
           ?: measure("lookup_of_a_missing_name", count, lookup_of_a_missing_name)
           ?: measure("read_directory", 20, read_directory) ?: measure("unlink", count, unlink) ?: measure("make_directory", count, make_directory)
           ?: measure("remove_directory", count, remove_directory)
           ?: change(CREATE, "moved", 0) ?: measure("rename", count, rename)
           ?: change(UNLINK, "moved", count);
}

static int content(void) {
    const unsigned int pages = FILE_BYTES / PAGE_SIZE;
    int error;

    file = file_open_root(&place, "content", O_RDWR | O_CREAT | O_LARGEFILE, 0644);
    if (IS_ERR(file)) {
        return PTR_ERR(file);
    }
    error = measure("append_4k", pages, append_4k) ?: measure("overwrite_4k", pages, overwrite_4k)
            ?: vfs_fsync(file, 0) ?: measure("read_4k", pages, read_4k)
            ?: measure("read_4k_uncached", pages, read_4k_uncached)
            ?: measure("overwrite_4k_and_fsync", min(count, 500U), overwrite_4k_and_fsync);
    filp_close(file, NULL);
    return error;
}

static int direct_content(void) {
    const unsigned int pages = FILE_BYTES / PAGE_SIZE;
    const unsigned int larges = 4 * FILE_BYTES / MEMORY_BYTES;
    int error;

    direct_file = file_open_root(&place, "content", O_RDWR | O_LARGEFILE | O_DIRECT, 0);
    if (PTR_ERR(direct_file) == -EINVAL) {
        return 0; /* ramfs has none */
    }
    if (IS_ERR(direct_file)) {
        return PTR_ERR(direct_file);
    }
    /* Behind overwrite_4k_and_fsync, which leaves many extents where blocks are not written in place. */
    error = vfs_fsync(direct_file, 0)
            ?: measure("read_128k_direct_after_random_overwrites", larges, read_128k_direct)
            ?: measure("overwrite_128k_direct", larges, overwrite_128k_direct)
            ?: measure("read_128k_direct", larges, read_128k_direct)
            ?: measure("read_4k_direct", pages, read_4k_direct)
            ?: measure("overwrite_4k_direct", pages, overwrite_4k_direct);
    filp_close(direct_file, NULL);
    return error;
}

/* Both are the same sum, or the figures are of something else. */
static int sums(void) {
    get_random_bytes(page, MEMORY_BYTES);
    if (tiffin_bench_checksum(page, PAGE_SIZE) != kernel_checksum(page, PAGE_SIZE)) {
        pr_err("tiffin_bench: two sums of the same page\n");
        return -EINVAL;
    }
    return measure("checksum_4k", count, checksum_4k) ?: measure("checksum_128k", count / 8, checksum_128k)
           ?: measure("kernel_checksum_4k", count, kernel_checksum_4k)
           ?: measure("kernel_checksum_128k", count / 8, kernel_checksum_128k);
}

static int __init load(void) {
    int error = folder == NULL ? -EINVAL : kern_path(folder, LOOKUP_DIRECTORY, &place);

    if (error != 0) {
        return error;
    }
    page = (char*)__get_free_pages(GFP_KERNEL | __GFP_ZERO | __GFP_COMP, get_order(MEMORY_BYTES));
    error = page == NULL ? -ENOMEM : 0;
    error = error ?: measure("nothing", count, nothing) ?: names() ?: content() ?: direct_content() ?: sums();
    free_pages((unsigned long)page, get_order(MEMORY_BYTES));
    path_put(&place);
    return error;
}

static void __exit unload(void) {}

module_init(load);
module_exit(unload);
MODULE_LICENSE("Dual MIT/GPL");
