/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the tiffin command asks of a mount: its status, a scrub, growing. See fs/vfs/control_format.h. */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/mount.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/stringify.h>
#include <linux/uaccess.h>

#include "fs/vfs/control_format.h"
#include "kmod/vfs/internal.h"

/* ---- Texts ---- */

/* Takes what lies in the piece that is asked for, and counts the rest. */
static bool add_text(void* sink, const void* text, size_t size_bytes) {
    struct tiffin_text_command* command = sink;
    const size_t begin = command->total_bytes; /* of this part, in the whole */
    const size_t skipped = command->offset_bytes > begin ? command->offset_bytes - begin : 0;
    const size_t room = sizeof(command->piece) - command->piece_bytes;

    if (size_bytes > U32_MAX - begin) {
        return false;
    }
    if (skipped < size_bytes && room > 0) {
        const size_t taken = min(size_bytes - skipped, room);

        memcpy(command->piece + command->piece_bytes, text + skipped, taken);
        command->piece_bytes += taken;
    }
    command->total_bytes += size_bytes;
    return true;
}

static int write_text(struct super_block* sb, struct tiffin_text_command* command) {
    static const char host[] = "host: the kernel's module\n";
    static const char version[] =
        "the kernel's module, interface " __stringify(TIFFIN_ABI_VERSION) "\n";
    int error;

    if (command->kind == TIFFIN_TEXT_VERSION) {
        add_text(command, version, sizeof(version) - 1);
        return 0;
    }
    if (command->kind != TIFFIN_TEXT_STATUS) {
        return -EINVAL;
    }
    add_text(command, host, sizeof(host) - 1);
    error = TIFFIN_CALL(tiffin_mount_of(sb), describe, add_text, command);
    return error == -EOPNOTSUPP ? 0 : error;
}

static long give_text(struct super_block* sb, struct tiffin_text_command __user* argument) {
    struct tiffin_text_command* command = kzalloc(sizeof(*command), GFP_KERNEL);
    long error = -EFAULT;

    if (command == NULL) {
        return -ENOMEM;
    }
    if (get_user(command->kind, &argument->kind) == 0 &&
        get_user(command->offset_bytes, &argument->offset_bytes) == 0) {
        error = write_text(sb, command);
    }
    if (error == 0 && copy_to_user(argument, command, sizeof(*command)) != 0) {
        error = -EFAULT;
    }
    kfree(command);
    return error;
}

/* ---- For administrators ---- */

static long scrub(struct super_block* sb, struct tiffin_scrub_command __user* argument) {
    struct tiffin_scrub_command command;
    int error = 0;

    if (copy_from_user(&command, argument, sizeof(command)) != 0) {
        return -EFAULT;
    }
    if (command.finished == 0) {
        error = TIFFIN_CALL(tiffin_mount_of(sb), scrub, &command);
    }
    if (error != 0) {
        return error;
    }
    return copy_to_user(argument, &command, sizeof(command)) != 0 ? -EFAULT : 0;
}

static long grow(struct file* file, struct tiffin_grow_command __user* argument) {
    const struct tiffin_mount* mount = tiffin_mount_of(file_inode(file)->i_sb);
    struct tiffin_grow_command command = {};
    int error = mnt_want_write_file(file);

    if (error == 0) {
        error = TIFFIN_CALL(mount, grow, &command);
        mnt_drop_write_file(file);
    }
    if (error != 0) {
        return error;
    }
    return copy_to_user(argument, &command, sizeof(command)) != 0 ? -EFAULT : 0;
}

long tiffin_control(struct file* file, unsigned int command, void __user* argument) {
    struct super_block* sb = file_inode(file)->i_sb;

    if (command == TIFFIN_CONTROL_TEXT) {
        return give_text(sb, argument);
    }
    if (command != TIFFIN_CONTROL_SCRUB && command != TIFFIN_CONTROL_GROW) {
        return -ENOTTY;
    }
    if (!capable(CAP_SYS_ADMIN)) {
        return -EPERM;
    }
    return command == TIFFIN_CONTROL_SCRUB ? scrub(sb, argument) : grow(file, argument);
}
