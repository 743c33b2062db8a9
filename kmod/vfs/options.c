/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The options of a mount that the VFS does not know: what mount.tiffin(8) says of those of the same names. */
#include <linux/ctype.h>
#include <linux/fs_context.h>
#include <linux/fs_parser.h>
#include <linux/kernel.h>
#include <linux/seq_file.h>
#include <linux/sizes.h>
#include <linux/string.h>

#include "kmod/vfs/internal.h"

#define MOST_COMMIT_SECONDS (24 * 60 * 60)
#define DEFAULT_COMMIT_SECONDS 5 /* of tiffinfs::VolumeOptions */
#define LEAST_CACHE_BYTES SZ_1M
#define MOST_CACHE_BYTES (1ULL << 40)

enum option { CACHE, COMMIT, ERRORS, NO_RECOVERY };

static const struct constant_table error_policies[] = {
    {"remount-ro", TIFFIN_ERRORS_REMOUNT_READ_ONLY},
    {"continue", TIFFIN_ERRORS_CONTINUE},
    {},
};

static const struct fs_parameter_spec known_options[] = {
    fsparam_string("cache", CACHE),
    fsparam_string("commit", COMMIT),
    fsparam_enum("errors", ERRORS, error_policies),
    fsparam_flag("norecovery", NO_RECOVERY),
    fsparam_flag("noload", NO_RECOVERY),
    {},
};

void tiffin_default_options(struct tiffin_mount_options* options) {
    *options = (struct tiffin_mount_options){.commit_seconds = TIFFIN_COMMIT_DEFAULT};
}

/* A number, and perhaps one of K, M, G and T. */
static int parse_size(const char* text, u64* bytes) {
    static const char units[] = "KMGT";
    const size_t length = strlen(text);
    const char* unit = length == 0 ? NULL : strchr(units, toupper(text[length - 1]));
    const unsigned int shift = unit == NULL ? 0 : 10 * (unit - units + 1);
    char digits[24];

    if (length >= sizeof(digits)) {
        return -EINVAL;
    }
    strscpy(digits, text, sizeof(digits));
    if (unit != NULL) {
        digits[length - 1] = '\0';
    }
    if (kstrtoull(digits, 10, bytes) != 0 || *bytes > MOST_CACHE_BYTES >> shift) {
        return -EINVAL;
    }
    *bytes <<= shift;
    return *bytes < LEAST_CACHE_BYTES ? -EINVAL : 0;
}

static int set_cache(struct fs_context* context, struct tiffin_mount_options* options,
                     const char* text) {
    return parse_size(text, &options->cache_bytes) == 0
               ? 0
               : invalf(context, "tiffin: cache wants a size from 1M to 1T, not '%s'", text);
}

static int set_commit(struct fs_context* context, struct tiffin_mount_options* options,
                      const char* text) {
    return kstrtou32(text, 10, &options->commit_seconds) == 0 &&
                   options->commit_seconds <= MOST_COMMIT_SECONDS
               ? 0
               : invalf(context, "tiffin: commit wants 0 to %d seconds, not '%s'",
                        MOST_COMMIT_SECONDS, text);
}

int tiffin_set_option(struct fs_context* context, struct tiffin_mount_options* options,
                      struct fs_parameter* parameter) {
    struct fs_parse_result result;
    const int option = fs_parse(context, known_options, parameter, &result);

    switch (option) {
        case CACHE:
            return set_cache(context, options, parameter->string);
        case COMMIT:
            return set_commit(context, options, parameter->string);
        case ERRORS:
            options->errors = result.uint_32;
            return 0;
        case NO_RECOVERY:
            options->no_recovery = true;
            return 0;
        default:
            return option; /* an error */
    }
}

int tiffin_check_remount(struct fs_context* context, const struct tiffin_mount_options* present,
                         const struct tiffin_mount_options* asked) {
    const u32 commit_seconds = present->commit_seconds == TIFFIN_COMMIT_DEFAULT
                                   ? DEFAULT_COMMIT_SECONDS
                                   : present->commit_seconds;
    const u32 errors = present->errors == TIFFIN_ERRORS_DEFAULT ? TIFFIN_ERRORS_REMOUNT_READ_ONLY
                                                                : present->errors;
    const bool changes = (asked->cache_bytes != 0 && asked->cache_bytes != present->cache_bytes) ||
                         (asked->commit_seconds != TIFFIN_COMMIT_DEFAULT &&
                          asked->commit_seconds != commit_seconds) ||
                         (asked->errors != TIFFIN_ERRORS_DEFAULT && asked->errors != errors) ||
                         (asked->no_recovery && !present->no_recovery);

    return changes ? invalf(context,
                            "tiffin: a remount changes none of cache, commit, errors and "
                            "norecovery: unmount, and mount with them")
                   : 0;
}

void tiffin_show_options(struct seq_file* file, const struct tiffin_mount_options* options) {
    if (options->no_recovery) {
        seq_puts(file, ",norecovery");
    }
    if (options->cache_bytes != 0) {
        seq_printf(file, ",cache=%llu", options->cache_bytes);
    }
    if (options->commit_seconds != TIFFIN_COMMIT_DEFAULT) {
        seq_printf(file, ",commit=%u", options->commit_seconds);
    }
    if (options->errors != TIFFIN_ERRORS_DEFAULT) {
        seq_printf(file, ",errors=%s",
                   options->errors == TIFFIN_ERRORS_CONTINUE ? "continue" : "remount-ro");
    }
}
