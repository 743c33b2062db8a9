# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Fills a mounted volume and empties it again, all the time, until SIGTERM or the mount is gone.

usage: filler.py MOUNTPOINT KEPT_MIB SEED

So much stays free for the programs beside it, for which the volume is nearly full most of the time, and whose free
space lies in another place each time. What fills it has no name, so that nobody else sees it.
"""
import errno
import os
import random
import sys
import time

MIB = 1 << 20
# Full, or remounted; and the daemon is gone (killed, or the mount was shut down), or what it would have to write is refused.
NOT_NOW = (errno.ENOSPC, errno.EROFS)
ENDED = (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO, errno.ENODEV)


def room(mount, kept):
    status = os.statvfs(mount)
    return status.f_bavail * status.f_frsize - kept


def fill(file, size):
    """Reserved space or data; a volume that is full already is no error."""
    try:
        if random.random() < 0.7:
            os.posix_fallocate(file, 0, size)
            return
        data = random.randbytes(MIB)
        for offset in range(0, min(size, 32 * MIB), MIB):
            os.pwrite(file, data, offset)
        os.fsync(file)
    except OSError as error:
        if error.errno not in NOT_NOW:
            raise


def main():
    mount, kept, seed = sys.argv[1], int(sys.argv[2]) * MIB, int(sys.argv[3])
    random.seed(seed)
    files = []
    while True:
        while (size := room(mount, kept)) >= MIB and len(files) < 64:
            # In a few pieces, of which some go earlier than others.
            try:
                file = os.open(mount, os.O_TMPFILE | os.O_RDWR, 0o600)
            except OSError as error:
                if error.errno not in NOT_NOW:
                    raise
                break
            files.append(file)
            fill(file, max(MIB, min(size, int(size * random.uniform(0.3, 1.1)))))
            if random.random() < 0.2:
                break
        time.sleep(random.uniform(0.01, 0.15))
        random.shuffle(files)
        for _ in range(len(files) if random.random() < 0.3 else len(files) // 2):
            os.close(files.pop())


try:
    main()
except OSError as failure:
    sys.exit(0 if failure.errno in ENDED else f"filler: {failure}")
