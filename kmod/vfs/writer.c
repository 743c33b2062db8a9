/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Memory of writers: some of it is kept, made once, since it takes several pages and long to prepare. */
#include <linux/atomic.h>
#include <linux/slab.h>
#include <linux/smp.h>

#include "kmod/vfs/internal.h"

void* tiffin_take_writer(struct tiffin_mount* mount, gfp_t gfp) {
    const unsigned int first = raw_smp_processor_id();
    void* writer;
    unsigned int i;

    for (i = 0; i < TIFFIN_KEPT_WRITERS; ++i) {
        void** slot = &mount->kept_writers[(first + i) % TIFFIN_KEPT_WRITERS];

        if (READ_ONCE(*slot) != NULL && (writer = xchg(slot, NULL)) != NULL) {
            return writer;
        }
    }
    writer = kmalloc(mount->ops->writer_bytes, gfp);
    if (writer != NULL) {
        mount->ops->writer_make(writer);
    }
    return writer;
}

void tiffin_give_back_writer(struct tiffin_mount* mount, void* writer) {
    const unsigned int first = raw_smp_processor_id();
    unsigned int i;

    for (i = 0; i < TIFFIN_KEPT_WRITERS && writer != NULL; ++i) {
        if (cmpxchg(&mount->kept_writers[(first + i) % TIFFIN_KEPT_WRITERS], NULL, writer) ==
            NULL) {
            return;
        }
    }
    kfree(writer);
}

void tiffin_free_writers(struct tiffin_mount* mount) {
    unsigned int i;

    for (i = 0; i < TIFFIN_KEPT_WRITERS; ++i) {
        kfree(mount->kept_writers[i]);
    }
}
