/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Between the framework module (tiffin_vfs, in C) and the modules of file systems (in C++): operations down, services up.
 *
 * Numbers, bytes and errno only: neither side sees the other's types. Each struct begins with its version and its size in
 * bytes; a module that was built with another version is refused. What an operation does stands in fs/vfs/file_system.h,
 * at the function of the same name; here stands only how it is called. Operations return 0 (or what is said) or a
 * negative errno. All may sleep; the framework calls them with reclaim kept out of file systems (memalloc_nofs_save).
 */
#ifndef TIFFIN_KMOD_ABI_H
#define TIFFIN_KMOD_ABI_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <cstddef>
#include <cstdint>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define TIFFIN_ABI_VERSION 8

struct tiffin_device;      /* of the framework: an open block device */
struct tiffin_file_system; /* of the file system's module: one mount */

struct tiffin_time {
    int64_t seconds;
    uint32_t nanoseconds;
};

struct tiffin_attributes {
    uint64_t node;
    uint64_t generation;
    uint32_t mode;
    uint32_t link_count;
    uint32_t user_id;
    uint32_t group_id;
    uint32_t device_major;
    uint32_t device_minor;
    uint64_t size_bytes;
    uint64_t allocated_bytes;
    uint32_t flags;
    struct tiffin_time access_time;
    struct tiffin_time modification_time;
    struct tiffin_time change_time;
    struct tiffin_time birth_time;
    uint32_t traits; /* TIFFIN_TRAIT_ */
    uint64_t change_counter;
};
#define TIFFIN_TRAIT_ACCESS_ACL (1U << 2)
#define TIFFIN_TRAIT_DEFAULT_ACL (1U << 3)
#define TIFFIN_TRAIT_INLINE_CONTENT (1U << 5)

struct tiffin_caller {
    uint32_t user_id;
    uint32_t group_id;
    uint32_t umask;
};

/* An extended attribute that a node is made with. */
struct tiffin_xattr {
    const char* name;
    size_t name_bytes;
    const void* value;
    size_t value_bytes;
};
#define TIFFIN_INITIAL_XATTRS 8 /* at most */

/* `valid`: the bits of vfs::AttributeChange. */
#define TIFFIN_CHANGE_MODE (1U << 0)
#define TIFFIN_CHANGE_USER_ID (1U << 1)
#define TIFFIN_CHANGE_GROUP_ID (1U << 2)
#define TIFFIN_CHANGE_SIZE (1U << 3)
#define TIFFIN_CHANGE_ACCESS_TIME (1U << 4)
#define TIFFIN_CHANGE_MODIFICATION_TIME (1U << 5)
#define TIFFIN_CHANGE_CHANGE_TIME (1U << 6)
#define TIFFIN_CHANGE_ACCESS_NOW (1U << 7)
#define TIFFIN_CHANGE_MODIFICATION_NOW (1U << 8)
struct tiffin_change {
    uint32_t valid;
    uint32_t mode;
    uint32_t user_id;
    uint32_t group_id;
    uint64_t size_bytes;
    struct tiffin_time access_time;
    struct tiffin_time modification_time;
    struct tiffin_time change_time;
};

struct tiffin_statistics {
    uint64_t total_blocks;
    uint64_t free_blocks;
    uint64_t available_blocks;
    uint64_t total_nodes;
    uint64_t free_nodes;
    uint64_t file_system_id;
    uint32_t block_bytes;
    uint32_t name_max_bytes;
};

/* One piece of memory: as vfs::IoVector. */
struct tiffin_vector {
    void* data;
    size_t size_bytes;
};

#define TIFFIN_ERRORS_DEFAULT 0
#define TIFFIN_ERRORS_REMOUNT_READ_ONLY 1
#define TIFFIN_ERRORS_CONTINUE 2
#define TIFFIN_COMMIT_DEFAULT (~(uint32_t)0)

/* What mount.tiffin(8) says of the options of the same names. Those behind memory_bytes only with blocks. */
struct tiffin_mount_options {
    bool read_only;
    /* Of the machine: caches that nobody can make smaller have to be a small part of it. */
    uint64_t memory_bytes;
    bool no_recovery;
    uint32_t errors;         /* TIFFIN_ERRORS_ */
    uint32_t commit_seconds; /* or TIFFIN_COMMIT_DEFAULT */
    uint64_t cache_bytes;    /* 0: a part of the machine's memory */
};

/* Takes one entry of a directory; false: no room for it, and it was not taken. */
typedef bool (*tiffin_add_entry)(void* sink, const char* name, size_t name_bytes, uint64_t node,
                                 uint32_t type_mode, uint64_t next_cookie);

/* Takes a part of a text; false: no more is wanted. */
typedef bool (*tiffin_add_text)(void* sink, const void* text, size_t size_bytes);

/* fs/vfs/control_format.h */
struct tiffin_scrub_command;
struct tiffin_grow_command;

/* A part of a file that has blocks, or content that is kept elsewhere. Its offsets and length are multiples of a block. */
#define TIFFIN_EXTENT_DEVICE 0
#define TIFFIN_EXTENT_UNWRITTEN 1 /* reserved; reads as zeros */
#define TIFFIN_EXTENT_INLINE 2    /* of any length, and nowhere on the device */
struct tiffin_extent {
    uint64_t offset_bytes;
    uint64_t length_bytes;
    uint64_t device_offset_bytes;
    uint32_t kind;
};
/* Takes one; false: no more are wanted. */
typedef bool (*tiffin_add_extent)(void* sink, const struct tiffin_extent* extent);

/* The flags are the numbers of fs/vfs/types.h, which are Linux's where Linux has them. */
#define TIFFIN_WRITE_BACK (1U << 0)
#define TIFFIN_WRITE_KEEP_TIMES (1U << 4)
#define TIFFIN_WRITE_UNSTABLE_BUFFERS (1U << 5)
#define TIFFIN_WRITE_PROMISED (1U << 6)
#define TIFFIN_XATTR_KILL_SET_GROUP_ID (1U << 16)
#define TIFFIN_SEEK_DATA 0
#define TIFFIN_SEEK_HOLE 1

struct tiffin_operations {
    uint32_t version;
    uint32_t size;
    bool needs_device;
    /* Memory that a write needs from write_begin() until it is done; see there and writer_make(). */
    uint32_t writer_bytes;
    /* The longest content that a file has without blocks, for which reserve() is not asked; 0: none. */
    uint32_t inline_bytes;
    /* Which no file is longer than; 0: whatever the VFS permits. */
    uint64_t maximum_file_bytes;
    /* Whether data goes through blocks of the device, written back from the page cache. Without: read() and write(). */
    bool has_blocks;

    int (*mount)(struct tiffin_device* device, const struct tiffin_mount_options* options,
                 struct tiffin_file_system** file_system);
    /* Unmounts and destroys, also when it fails. */
    int (*unmount)(struct tiffin_file_system* fs);
    int (*statistics)(struct tiffin_file_system* fs, struct tiffin_statistics* statistics);
    int (*sync)(struct tiffin_file_system* fs, bool wait);
    int (*remount)(struct tiffin_file_system* fs, bool read_only);
    int (*freeze)(struct tiffin_file_system* fs);
    int (*thaw)(struct tiffin_file_system* fs);
    uint64_t (*reclaimable_bytes)(struct tiffin_file_system* fs);
    uint64_t (*shrink)(struct tiffin_file_system* fs, uint64_t wanted_bytes);
    int (*shutdown)(struct tiffin_file_system* fs, uint32_t mode);

    int (*lookup)(struct tiffin_file_system* fs, uint64_t parent, const char* name,
                  size_t name_bytes, struct tiffin_attributes* found);
    void (*forget)(struct tiffin_file_system* fs, uint64_t node, uint64_t count);
    int (*find_node)(struct tiffin_file_system* fs, uint64_t node, uint64_t generation,
                     struct tiffin_attributes* found);
    int (*get_attributes)(struct tiffin_file_system* fs, uint64_t node,
                          struct tiffin_attributes* attributes);
    int (*set_attributes)(struct tiffin_file_system* fs, const struct tiffin_caller* caller,
                          uint64_t node, const struct tiffin_change* change,
                          struct tiffin_attributes* after);
    int (*set_flags)(struct tiffin_file_system* fs, uint64_t node, uint32_t flags);

    int (*create)(struct tiffin_file_system* fs, const struct tiffin_caller* caller,
                  uint64_t parent, const char* name, size_t name_bytes, uint32_t mode,
                  uint32_t device_major, uint32_t device_minor, const struct tiffin_xattr* xattrs,
                  size_t xattr_count, struct tiffin_attributes* created);
    int (*make_directory)(struct tiffin_file_system* fs, const struct tiffin_caller* caller,
                          uint64_t parent, const char* name, size_t name_bytes, uint32_t mode,
                          const struct tiffin_xattr* xattrs, size_t xattr_count,
                          struct tiffin_attributes* created);
    int (*make_symlink)(struct tiffin_file_system* fs, const struct tiffin_caller* caller,
                        uint64_t parent, const char* name, size_t name_bytes, const char* target,
                        size_t target_bytes, const struct tiffin_xattr* xattrs, size_t xattr_count,
                        struct tiffin_attributes* created);
    int (*make_temporary)(struct tiffin_file_system* fs, const struct tiffin_caller* caller,
                          uint64_t parent, uint32_t mode, const struct tiffin_xattr* xattrs,
                          size_t xattr_count, struct tiffin_attributes* created);
    int (*link)(struct tiffin_file_system* fs, uint64_t node, uint64_t parent, const char* name,
                size_t name_bytes, struct tiffin_attributes* linked);
    /* Returns the length of the target. */
    long (*read_link)(struct tiffin_file_system* fs, uint64_t node, char* buffer,
                      size_t buffer_bytes);
    int (*unlink)(struct tiffin_file_system* fs, uint64_t parent, const char* name,
                  size_t name_bytes);
    int (*remove_directory)(struct tiffin_file_system* fs, uint64_t parent, const char* name,
                            size_t name_bytes);
    int (*rename)(struct tiffin_file_system* fs, const struct tiffin_caller* caller,
                  uint64_t parent, const char* name, size_t name_bytes, uint64_t new_parent,
                  const char* new_name, size_t new_name_bytes, uint32_t flags);
    int (*read_directory)(struct tiffin_file_system* fs, uint64_t node, uint64_t cookie,
                          tiffin_add_entry add, void* sink);

    /* Reads from `offset_bytes` on into whole pages or, without blocks, into anything; returns the bytes read. */
    long (*read)(struct tiffin_file_system* fs, uint64_t node, uint64_t offset_bytes,
                 const struct tiffin_vector* buffers, size_t buffer_count);
    /*
     * With blocks, a read that nobody waits for. read_begin() only notes it, and returns NULL when there is no memory.
     * read_advance() continues until I/O is under way (false), or to its end (true). When that I/O has completed,
     * transferred(owner) is called, from an interrupt, and read_advance() is called again, by another thread. At the end
     * read_result() gives what read() does, and ends it. The list and the buffers stay until then. The second
     * call must not be behind a write's: writes may wait for the blocks that a read holds.
     */
    void* (*read_begin)(struct tiffin_file_system* fs, uint64_t node, uint64_t offset_bytes,
                        const struct tiffin_vector* buffers, size_t buffer_count,
                        void (*transferred)(void* owner), void* owner);
    bool (*read_advance)(void* reader);
    long (*read_result)(struct tiffin_file_system* fs, void* reader);
    /* For file systems without blocks. Returns the bytes written. */
    long (*write)(struct tiffin_file_system* fs, uint64_t node, uint64_t offset_bytes,
                  const struct tiffin_vector* buffers, size_t buffer_count, uint32_t flags);
    /*
     * A write in the same way. write_begin() notes it in `writer`, memory of writer_bytes on a page, out of which
     * writer_make() has made one. It may be used again after write_result(), or freed. That gives what write() does, but
     * an errno if any of a TIFFIN_WRITE_BACK has failed.
     */
    void (*writer_make)(void* memory);
    void (*write_begin)(struct tiffin_file_system* fs, void* writer, uint64_t node,
                        uint64_t offset_bytes, const struct tiffin_vector* buffers,
                        size_t buffer_count, uint32_t flags, void (*transferred)(void* owner),
                        void* owner);
    bool (*write_advance)(void* writer);
    long (*write_result)(void* writer);
    int (*promise)(struct tiffin_file_system* fs, uint64_t block_count);
    void (*return_promise)(struct tiffin_file_system* fs, uint64_t block_count);
    int (*reserve)(struct tiffin_file_system* fs, uint64_t node, uint64_t offset_bytes,
                   uint64_t length_bytes);
    int (*fsync)(struct tiffin_file_system* fs, uint64_t node, bool data_only);
    int (*allocate)(struct tiffin_file_system* fs, uint64_t node, uint32_t mode,
                    uint64_t offset_bytes, uint64_t length_bytes);
    /* Returns the offset. */
    int64_t (*seek)(struct tiffin_file_system* fs, uint64_t node, uint64_t offset_bytes,
                    uint32_t target);
    /* Lists the parts of a file from `offset_bytes` to its end, in order; one may begin a part of a block earlier. `add` is
     * called without locks, and what it is told may have changed since. */
    int (*list_extents)(struct tiffin_file_system* fs, uint64_t node, uint64_t offset_bytes,
                        tiffin_add_extent add, void* sink);

    /* Both return the size. */
    long (*get_xattr)(struct tiffin_file_system* fs, uint64_t node, const char* name,
                      size_t name_bytes, void* buffer, size_t buffer_bytes);
    long (*list_xattr)(struct tiffin_file_system* fs, uint64_t node, void* buffer,
                       size_t buffer_bytes);
    int (*set_xattr)(struct tiffin_file_system* fs, uint64_t node, const char* name,
                     size_t name_bytes, const void* value, size_t value_bytes, uint32_t flags);
    int (*remove_xattr)(struct tiffin_file_system* fs, uint64_t node, const char* name,
                        size_t name_bytes);

    int (*scrub)(struct tiffin_file_system* fs, struct tiffin_scrub_command* command);
    /* Asks the device how large it is now. */
    int (*grow)(struct tiffin_file_system* fs, struct tiffin_grow_command* command);
    int (*describe)(struct tiffin_file_system* fs, tiffin_add_text add, void* sink);
    /* Returns the bytes discarded. */
    int64_t (*trim)(struct tiffin_file_system* fs, uint64_t offset_bytes, uint64_t length_bytes,
                    uint64_t minimum_bytes);
};

/* ---- Services: what a file system's module gets from the framework ---- */

struct tiffin_geometry {
    uint64_t size_bytes;
    uint32_t write_unit_bytes;
    bool volatile_cache;
    bool supports_discard;
    bool read_only;
};

#define TIFFIN_IO_READ 0
#define TIFFIN_IO_WRITE 1
#define TIFFIN_IO_FLUSH 2
#define TIFFIN_IO_DISCARD 3
/* With a write: behind all that was completed before it, and itself durable when it completes (PREFLUSH and FUA). */
#define TIFFIN_IO_WRITE_ORDERED 4

struct tiffin_services {
    uint32_t version;
    uint32_t size;

    void (*geometry)(struct tiffin_device* device, struct tiffin_geometry* geometry);
    /*
     * Starts I/O. `completed` is called once with 0 or a negative errno, from an interrupt or from within submit().
     * Buffers and offsets are multiples of 512 bytes; the list of buffers is read during the call only.
     */
    void (*submit)(struct tiffin_device* device, uint32_t operation, uint64_t offset_bytes,
                   uint64_t length_bytes, const struct tiffin_vector* buffers, size_t buffer_count,
                   void (*completed)(void* owner, int error), void* owner);
    /*
     * An invariant of the file system that the calling thread is in is broken. From now on every submit() for its device
     * completes with EIO, and every operation from outside fails with EIO without being called; calls that have begun may
     * hang, since the caller never gives back its locks. A thread that the file system starts is in it from the beginning.
     */
    void (*close)(void);
};

/* In each file system's module, its C++ side: the table that its C side registers, and where the services come to. */
const struct tiffin_operations* tiffin_module_operations(const struct tiffin_services* services);

#ifdef __cplusplus
}
#endif

#endif
